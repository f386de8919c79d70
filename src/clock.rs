//! Where the time of day comes from: the only file that asks the system for it.
//!
//! Everything else takes a [`Clock`], so that tests, simulation and the demo run in virtual time: tokio's paused
//! clock moves timers and, through [`VirtualClock`], the time of day together.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// The time of day. For durations and timers use `tokio::time`, which virtual time moves too.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day now.
    fn now(&self) -> Timestamp;
}

/// A clock that everyone holds.
pub type SharedClock = Arc<dyn Clock>;

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that is ahead of another, or behind it, by always the same: a server's clock, seen from here.
#[derive(Debug, Clone)]
pub struct ShiftedClock {
    /// The clock here.
    pub clock: SharedClock,
    /// How far the other one is ahead of it.
    pub ahead: SignedDuration,
}

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        now.checked_add(self.ahead).unwrap_or(now)
    }
}

/// A clock that follows tokio's: `epoch` plus the time that tokio's clock has moved since it was made.
///
/// Under `start_paused` it stands still until every task waits, then jumps to the next timer.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    epoch: Timestamp,
    origin: tokio::time::Instant,
}

impl VirtualClock {
    /// A clock that shows `epoch` now. Must be called within a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, origin: tokio::time::Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.origin.elapsed();
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}
