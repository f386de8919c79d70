//! The forecasts of HPAs whose policy sets `forecast`, by UID. Their number is limited, in total and for each
//! namespace, so that one tenant does not use the memory of the others.
//!
//! A new forecast can read its history from a Prometheus server (`reading`), in a background task that ends with the
//! forecast.

mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Jitter;
use engine::store::HpaRecord;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::forecast::{Forecast, ForecastReport, HistoryRead, Sample};
use policies::spec::ForecastSpec;
use sources::described;
use tokio_util::task::AbortOnDropHandle;

use self::reading::{Needs, Reading};

pub use self::reading::HistoryReader;

/// Maximum number of forecasts. Each takes up to 9 KB.
const MOST: usize = 10_000;
/// Maximum number of forecasts of a namespace.
const MOST_OF_NAMESPACE: usize = 1_000;

/// The forecasts of all HPAs.
#[derive(Debug)]
pub struct Forecasts {
    inner: Arc<Mutex<Inner>>,
    reader: HistoryReader,
}

#[derive(Debug, Default)]
struct Inner {
    by_uid: BTreeMap<Arc<str>, Entry>,
    /// The number of forecasts of each namespace.
    of_namespace: BTreeMap<Arc<str>, usize>,
    /// The number of reads that started.
    reads: u64,
}

#[derive(Debug)]
struct Entry {
    namespace: Arc<str>,
    forecast: Box<Forecast>,
    /// The read of the history of its policy, also after its end.
    read: Option<Box<Read>>,
}

/// A read of the history, which ends when it is dropped.
#[derive(Debug)]
struct Read {
    needs: Needs,
    _task: Option<AbortOnDropHandle<()>>,
}

impl Forecasts {
    /// Creates an empty map.
    pub fn new(reader: HistoryReader) -> Self {
        Self { inner: Arc::default(), reader }
    }

    /// Returns the forecast of an HPA for the minute of `now`. `stabilization`: the window of scale-downs without
    /// `behavior`. `stored`: its state in the checkpoint, if the forecast is new to this process.
    pub(super) fn report(
        &self,
        hpa: &HpaRecord,
        spec: &Arc<ForecastSpec>,
        stabilization: Duration,
        stored: impl FnOnce() -> Option<Arc<[u8]>>,
        now: Timestamp,
    ) -> Arc<ForecastReport> {
        let mut inner = self.inner.lock();
        let Inner { by_uid, of_namespace, reads } = &mut *inner;
        let namespace = &hpa.key.namespace;
        if !by_uid.contains_key(&hpa.uid) {
            let of_this = of_namespace.get(namespace).copied().unwrap_or_default();
            for (known, most) in [(of_this, MOST_OF_NAMESPACE), (by_uid.len(), MOST)] {
                if known >= most {
                    return Arc::new(ForecastReport::too_many(spec, most));
                }
            }
            of_namespace.insert(Arc::clone(namespace), of_this + 1);
        }
        let entry = by_uid.entry(Arc::clone(&hpa.uid)).or_insert_with(|| {
            let forecast = Box::new(restored(hpa, stored()));
            Entry { namespace: Arc::clone(namespace), forecast, read: None }
        });
        self.read(hpa, spec, stabilization, entry, reads);
        entry.forecast.report(&hpa.uid, spec, now)
    }

    /// Starts the read of a history that is too short. Updates what a read needs, and ends one of another query.
    fn read(
        &self,
        hpa: &HpaRecord,
        spec: &Arc<ForecastSpec>,
        stabilization: Duration,
        entry: &mut Entry,
        reads: &mut u64,
    ) {
        if spec.history.is_none() && entry.read.is_none() {
            return;
        }
        let needs = Needs { spec: Arc::clone(spec), hpa: Arc::clone(&hpa.spec), stabilization };
        if let Some(read) = entry.read.as_mut().filter(|read| read.needs.spec.history == spec.history) {
            read.needs = needs;
            return;
        }
        if entry.read.take().is_some() {
            entry.forecast.set_reading(None);
        }
        let Some(origin) = spec.history.as_ref().filter(|_| entry.forecast.is_short(spec)) else { return };
        let HistoryReader { sources, tasks, clock, telemetry, seed } = &self.reader;
        let source = described(origin);
        let (state, task) = match sources {
            None => (HistoryRead::Failed(format!("{source}: --metric-sources is not set")), None),
            Some(sources) => {
                let reading = Reading {
                    inner: Arc::downgrade(&self.inner),
                    sources: Arc::clone(sources),
                    clock: Arc::clone(clock),
                    telemetry: telemetry.clone(),
                    uid: Arc::clone(&hpa.uid),
                    key: hpa.key.clone(),
                };
                *reads += 1;
                let jitter = Jitter::seeded(seed.wrapping_add(*reads));
                let task = tasks.spawn("history of a forecast", reading.run(jitter));
                (HistoryRead::Pending(source), Some(AbortOnDropHandle::new(task)))
            }
        };
        entry.forecast.set_reading(Some(state));
        entry.read = Some(Box::new(Read { needs, _task: task }));
    }

    /// Adds what a sync observed. Returns the state to store, if it is due.
    pub(super) fn observe(&self, uid: &str, sample: &Sample, now: Timestamp) -> Option<Vec<u8>> {
        let mut inner = self.inner.lock();
        inner.by_uid.get_mut(uid)?.forecast.observe(uid, sample, now)
    }

    /// Drops the forecast of an HPA.
    pub(super) fn forget(&self, uid: &str) {
        let mut inner = self.inner.lock();
        let Inner { by_uid, of_namespace, .. } = &mut *inner;
        let Some(Entry { namespace, .. }) = by_uid.remove(uid) else { return };
        if let Some(known) = of_namespace.get_mut(&namespace) {
            *known -= 1;
            if *known == 0 {
                of_namespace.remove(&namespace);
            }
        }
    }
}

/// A forecast with its state in the checkpoint, if there is one.
fn restored(hpa: &HpaRecord, stored: Option<Arc<[u8]>>) -> Forecast {
    let Some(stored) = stored else { return Forecast::new(&hpa.uid) };
    Forecast::restore(&stored, &hpa.uid).unwrap_or_else(|error| {
        tracing::warn!(hpa = %hpa.key, %error, "skipping the history of a forecast in the checkpoint");
        Forecast::new(&hpa.uid)
    })
}
