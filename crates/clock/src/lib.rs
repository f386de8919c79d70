//! The source of the time of day. Outside of the end-to-end tests, no other file reads the system's clock. [`Backoff`]
//! spaces retries.
//!
//! All other code takes a [`Clock`], so tests, simulation and the demo can run in virtual time: tokio's paused clock
//! moves timers and, through [`VirtualClock`], the time of day together.

mod backoff;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

pub use self::backoff::Backoff;

/// A source of the time of day. Durations and timers use `tokio::time` instead.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time of day.
    fn now(&self) -> Timestamp;
}

/// A clock shared by several owners.
pub type SharedClock = Arc<dyn Clock>;

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only caller of the system's clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock with a constant offset from another clock, such as a server's clock.
#[derive(Debug, Clone)]
pub struct ShiftedClock {
    /// The reference clock.
    pub clock: SharedClock,
    /// Offset by which this clock is ahead of the reference clock; negative if this clock is behind.
    pub ahead: SignedDuration,
}

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        now.checked_add(self.ahead).unwrap_or(now)
    }
}

/// A year, in place of a delay that exceeds the range of the clock.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Returns the instant `delay` after `at`. A delay from a flag may exceed the range of the clock. Such a delay becomes
/// a year.
pub fn after(at: Instant, delay: Duration) -> Instant {
    at.checked_add(delay).unwrap_or(at + FOREVER)
}

/// Waits until `instant`, or forever if it is `None`.
pub async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// One instant on the wall clock and on the monotonic clock. The comparison of the two reveals a wall-clock
/// jump.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    day: Timestamp,
    steady: Instant,
}

impl Anchor {
    /// Tolerance. A smaller difference between the two clocks is a gradual correction, not a jump.
    pub const IN_STEP: SignedDuration = SignedDuration::from_secs(1);

    /// Pairs the wall-clock time `day` with the current monotonic instant.
    pub fn at(day: Timestamp) -> Self {
        Self { day, steady: Instant::now() }
    }

    /// Returns the size of the wall-clock jump since the anchor was created, if the wall clock shows `day`
    /// now. Returns zero if the difference is within [`Self::IN_STEP`].
    pub fn set_by(&self, day: Timestamp) -> SignedDuration {
        let passed = SignedDuration::try_from(self.steady.elapsed()).unwrap_or(SignedDuration::MAX);
        let by = day.duration_since(self.day).saturating_sub(passed);
        if by.abs() > Self::IN_STEP { by } else { SignedDuration::ZERO }
    }
}

/// A clock that follows tokio's clock: `epoch` plus the time that tokio's clock has moved since construction.
///
/// Under `start_paused`, time stops until every task waits. Then it jumps to the next timer.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    epoch: Timestamp,
    origin: Instant,
}

impl VirtualClock {
    /// Creates a clock that shows `epoch` now. Must be called within a tokio runtime.
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
