//! The forecasts of HPAs whose policy sets `forecast`, by UID. Their number is limited, in total and for each
//! namespace, so that one tenant does not use the memory of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::store::HpaRecord;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::forecast::{Forecast, ForecastReport, Sample};
use policies::spec::ForecastSpec;

/// Maximum number of forecasts. Each takes up to 9 KB.
const MOST: usize = 10_000;
/// Maximum number of forecasts of a namespace.
const MOST_OF_NAMESPACE: usize = 1_000;

/// The forecasts of all HPAs.
#[derive(Debug, Default)]
pub struct Forecasts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_uid: BTreeMap<Arc<str>, (Arc<str>, Box<Forecast>)>,
    /// The number of forecasts of each namespace.
    of_namespace: BTreeMap<Arc<str>, usize>,
}

impl Forecasts {
    /// Returns the forecast of an HPA for the minute of `now`. `stored`: its state in the checkpoint, if the forecast
    /// is new to this process.
    pub(super) fn report(
        &self,
        hpa: &HpaRecord,
        spec: &Arc<ForecastSpec>,
        stored: impl FnOnce() -> Option<Arc<[u8]>>,
        now: Timestamp,
    ) -> Arc<ForecastReport> {
        let mut inner = self.0.lock();
        let Inner { by_uid, of_namespace } = &mut *inner;
        if let Some((_, forecast)) = by_uid.get_mut(&hpa.uid) {
            return forecast.report(&hpa.uid, spec, now);
        }
        let namespace = &hpa.key.namespace;
        let of_this = of_namespace.get(namespace).copied().unwrap_or_default();
        for (known, most) in [(of_this, MOST_OF_NAMESPACE), (by_uid.len(), MOST)] {
            if known >= most {
                return Arc::new(ForecastReport::too_many(spec, most));
            }
        }
        let restored = stored().map(|stored| Forecast::restore(&stored, &hpa.uid));
        let mut forecast = Box::new(match restored {
            Some(Ok(forecast)) => forecast,
            None => Forecast::new(&hpa.uid),
            Some(Err(error)) => {
                tracing::warn!(hpa = %hpa.key, %error, "skipping the history of a forecast in the checkpoint");
                Forecast::new(&hpa.uid)
            }
        });
        let report = forecast.report(&hpa.uid, spec, now);
        by_uid.insert(Arc::clone(&hpa.uid), (Arc::clone(namespace), forecast));
        of_namespace.insert(Arc::clone(namespace), of_this + 1);
        report
    }

    /// Adds what a sync observed. Returns the state to store, if it is due.
    pub(super) fn observe(&self, uid: &str, sample: &Sample, now: Timestamp) -> Option<Vec<u8>> {
        let mut inner = self.0.lock();
        inner.by_uid.get_mut(uid)?.1.observe(uid, sample, now)
    }

    /// Drops the forecast of an HPA.
    pub(super) fn forget(&self, uid: &str) {
        let mut inner = self.0.lock();
        let Inner { by_uid, of_namespace } = &mut *inner;
        let Some((namespace, _)) = by_uid.remove(uid) else { return };
        if let Some(known) = of_namespace.get_mut(&namespace) {
            *known -= 1;
            if *known == 0 {
                of_namespace.remove(&namespace);
            }
        }
    }
}
