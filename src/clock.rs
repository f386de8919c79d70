//! Where the time of day comes from: the only file that asks the system for it.
//!
//! Everything else takes a [`Clock`], so that tests, simulation and the demo run in virtual time: tokio's paused
//! clock moves timers and, through [`VirtualClock`], the time of day together.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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

/// An instant by the time of day and by the time that nobody can set, from which it shows whether the first was set.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    day: Timestamp,
    steady: Instant,
}

impl Anchor {
    /// Clocks that differ by no more are corrected, not set: they are in step.
    pub const IN_STEP: SignedDuration = SignedDuration::from_secs(1);

    /// The instant in which the time of day is this.
    pub fn at(day: Timestamp) -> Self {
        Self { day, steady: Instant::now() }
    }

    /// By how much the clock has been set since, which shows `day` now; zero if it has run in step.
    pub fn set_by(&self, day: Timestamp) -> SignedDuration {
        let passed = SignedDuration::try_from(self.steady.elapsed()).unwrap_or(SignedDuration::MAX);
        let by = day.duration_since(self.day).saturating_sub(passed);
        if by.abs() > Self::IN_STEP { by } else { SignedDuration::ZERO }
    }
}

/// A clock that follows tokio's: `epoch` plus the time that tokio's clock has moved since it was made.
///
/// Under `start_paused` it stands still until every task waits, then jumps to the next timer.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    epoch: Timestamp,
    origin: Instant,
}

impl VirtualClock {
    /// A clock that shows `epoch` now. Must be called within a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, origin: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.origin.elapsed();
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}
