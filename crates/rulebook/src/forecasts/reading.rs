//! Reads the history of one forecast from the Prometheus server that its policy names.

use std::sync::{Arc, Weak};
use std::time::Duration;

use autoscaling::spec::Spec;
use clock::{Backoff, Jitter, SharedClock};
use engine::store::Key;
use engine::tasks::Tasks;
use engine::telemetry::metrics::Metrics as Telemetry;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::forecast::{HistoryRead, NoTarget, Replay};
use policies::spec::{ForecastSpec, MetricOrigin};
use sources::{Failure, Form, PastTarget, SourceError, Sources, TimeRange, described};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::Inner;

/// The days of a history. Each is one query, whose answer is small, and which ends within the time limit of the source.
const DAYS: i64 = 14;
/// The minutes of a day, each with a value.
const DAY: u16 = 1440;
/// The time between two values.
const STEP: Duration = Duration::from_mins(1);
/// The shortest pause after a failure. Each pause is up to twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The shortest pause after many failures.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);

/// The parts that the reads of histories need.
#[derive(Debug)]
pub struct HistoryReader {
    /// `--metric-sources`.
    pub sources: Option<Arc<Sources>>,
    /// Supervises the reads.
    pub tasks: Tasks,
    /// The end of a history.
    pub clock: SharedClock,
    /// Counts failures.
    pub telemetry: Telemetry,
    /// The random seed of pauses.
    pub seed: u64,
}

/// What a read needs of the last sync.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) spec: Arc<ForecastSpec>,
    pub(super) hpa: Arc<Spec>,
    /// The window of scale-downs without `behavior`.
    pub(super) stabilization: Duration,
}

/// The task of one read. It does not keep the forecasts.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) inner: Weak<Mutex<Inner>>,
    pub(super) sources: Arc<Sources>,
    pub(super) clock: SharedClock,
    pub(super) telemetry: Telemetry,
    pub(super) uid: Arc<str>,
    pub(super) key: Key,
}

/// The reason why a history cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Source(Failure),
    #[error("{0}: {1}")]
    Target(String, NoTarget),
}

impl Reading {
    /// Reads the history until it succeeds, or until it is no longer needed.
    pub(super) async fn run(self, mut jitter: Jitter) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while let Err(error) = self.read().await {
            self.note(&error);
            sleep(backoff.fail().mul_f64(1.0 + jitter.fraction())).await;
        }
    }

    /// Reads the history, if it is needed, and passes it to the forecast.
    async fn read(&self) -> Result<(), ReadError> {
        // An HPA without a target per pod needs no request.
        let Some((origin, hpa, _)) = self.needed()? else { return Ok(()) };
        let _turn = self.sources.turn(&origin, &self.key.namespace).await;
        let target =
            PastTarget { namespace: &self.key.namespace, kind: &hpa.target.kind, name: &hpa.target.name };
        let totals = self.totals(&origin, &target).await?;
        // The pods have shown by now how long they take to start.
        let Some((_, _, mut replay)) = self.needed()? else { return Ok(()) };
        for day in totals.chunks(DAY.into()) {
            replay.learn(day);
            yield_now().await;
        }
        if let Some(inner) = self.inner.upgrade()
            && let Some(entry) = inner.lock().by_uid.get_mut(&self.uid)
        {
            entry.forecast.adopt(replay);
        }
        Ok(())
    }

    /// The query, the HPA, and a replay of its past. `None` if the HPA is gone, or its own history is long enough.
    fn needed(&self) -> Result<Option<(MetricOrigin, Arc<Spec>, Replay)>, ReadError> {
        let Some(inner) = self.inner.upgrade() else { return Ok(None) };
        let inner = inner.lock();
        let Some(entry) = inner.by_uid.get(&self.uid) else { return Ok(None) };
        let Some(Needs { spec, hpa, stabilization }) = entry.read.as_ref().map(|read| &read.needs) else {
            return Ok(None);
        };
        let Some(origin) = spec.history.as_ref().filter(|_| entry.forecast.is_short(spec)) else {
            return Ok(None);
        };
        let replay = entry.forecast.replay(&self.uid, spec, hpa, *stabilization);
        let replay = replay.map_err(|error| ReadError::Target(described(origin), error))?;
        Ok(Some((origin.clone(), Arc::clone(hpa), replay)))
    }

    /// The totals of all minutes with a value, oldest first. Never empty.
    async fn totals(
        &self,
        origin: &MetricOrigin,
        target: &PastTarget<'_>,
    ) -> Result<Vec<(Timestamp, f64)>, ReadError> {
        let now = self.clock.now().as_second().div_euclid(60);
        let minute = |minute: i64| Timestamp::from_second(minute * 60).unwrap_or_default();
        let (mut totals, mut none) = (Vec::new(), None);
        let day_before = |days: i64| now - days * i64::from(DAY);
        for day in (0..DAYS).rev() {
            let range = TimeRange { start: minute(day_before(day + 1) + 1), end: minute(day_before(day)) };
            match self.sources.past(origin, Form::Single, target, range, STEP).await {
                Some(Ok(reading)) => totals.extend(reading.totals.into_iter().take(DAY.into())),
                Some(Err(failure)) if failure.error == SourceError::NoPast => none = Some(failure),
                Some(Err(failure)) => return Err(self.failed(origin, failure)),
                None => {}
            }
        }
        match none.filter(|_| totals.is_empty()) {
            Some(failure) => Err(self.failed(origin, failure)),
            None => Ok(totals),
        }
    }

    fn failed(&self, origin: &MetricOrigin, failure: Failure) -> ReadError {
        self.telemetry.source_failed(failure.label(origin), failure.error.reason());
        ReadError::Source(failure)
    }

    /// Shows a failure in the reason of the forecast.
    fn note(&self, error: &ReadError) {
        if let Some(inner) = self.inner.upgrade()
            && let Some(entry) = inner.lock().by_uid.get_mut(&self.uid)
        {
            tracing::debug!(hpa = %self.key, %error, "failed to read the history of a forecast");
            entry.forecast.set_reading(Some(HistoryRead::Failed(error.to_string())));
        }
    }
}
