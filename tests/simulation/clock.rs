//! The clock of one process, which can jump and drift.

use clock::{Clock, SharedClock};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A clock that deviates from the clock of the cluster.
#[derive(Debug)]
pub(crate) struct OwnClock {
    cluster: SharedClock,
    error: Mutex<Error>,
}

/// Deviation from the clock of the cluster.
#[derive(Debug, Clone, Copy)]
struct Error {
    ahead: SignedDuration,
    /// Rate by which the clock is too fast since `since`, in parts per million.
    drift: i64,
    since: Timestamp,
}

impl OwnClock {
    pub(crate) fn new(cluster: SharedClock) -> Self {
        let since = cluster.now();
        let error = Error { ahead: SignedDuration::ZERO, drift: 0, since };
        Self { cluster, error: Mutex::new(error) }
    }

    pub(crate) fn jump(&self, by: SignedDuration) {
        let mut error = self.error.lock();
        error.ahead += by;
    }

    /// Makes the clock too fast by `drift` parts per million from now on, or too slow if `drift` is negative.
    pub(crate) fn drift(&self, drift: i64) {
        let now = self.cluster.now();
        let mut error = self.error.lock();
        *error = Error { ahead: error.ahead_at(now), drift, since: now };
    }
}

impl Error {
    fn ahead_at(&self, now: Timestamp) -> SignedDuration {
        let micros = now.duration_since(self.since).as_micros() * i128::from(self.drift) / 1_000_000;
        self.ahead + SignedDuration::from_micros(i64::try_from(micros).unwrap())
    }
}

impl Clock for OwnClock {
    fn now(&self) -> Timestamp {
        let now = self.cluster.now();
        now + self.error.lock().ahead_at(now)
    }
}
