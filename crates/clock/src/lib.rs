//! The source of the time of day, and waits between retries and requests. Outside of the end-to-end tests, no other
//! file reads the system's clock.
//!
//! All other code takes a [`Clock`], so that tests, the simulation and the demo can run in virtual time. tokio's paused
//! clock moves timers and, through [`VirtualClock`], the time of day together.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

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
    /// The time by which this clock is ahead of the reference clock. Negative if this clock is behind.
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

/// One instant on the wall clock and on the monotonic clock. A later comparison of the two clocks reveals a jump of the
/// wall clock.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    day: Timestamp,
    steady: Instant,
}

impl Anchor {
    /// The tolerance between the clocks of two machines.
    pub const IN_STEP: SignedDuration = SignedDuration::from_secs(1);

    /// The smallest jump. Daemons that set the time correct a smaller difference gradually, on the monotonic clock too:
    /// ntpd sets the clock from 128 ms on, systemd-timesyncd from 400 ms on.
    pub const SMALLEST_JUMP: SignedDuration = SignedDuration::from_millis(100);

    /// Pairs the wall-clock time `day` with the current monotonic instant.
    pub fn at(day: Timestamp) -> Self {
        Self { day, steady: Instant::now() }
    }

    /// Returns the size of the wall-clock jump since the anchor was created, given that the wall clock now shows `day`.
    /// Returns zero if the difference is less than [`Self::SMALLEST_JUMP`].
    pub fn set_by(&self, day: Timestamp) -> SignedDuration {
        let passed = SignedDuration::try_from(self.steady.elapsed()).unwrap_or(SignedDuration::MAX);
        let by = day.duration_since(self.day).saturating_sub(passed);
        if by.abs() >= Self::SMALLEST_JUMP { by } else { SignedDuration::ZERO }
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

/// Pauses that double with each consecutive failure, from a first pause up to a maximum. The caller sleeps.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff without failures.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts a failure. Returns the pause after it.
    pub fn fail(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Resets the number of consecutive failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// A small random sequence (SplitMix64) for the jitter of waits. Equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// Creates the sequence for `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // A float64 represents 53 bits exactly.
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_restart_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
        let pauses: Vec<_> = (0..6).map(|_| backoff.fail().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15]);
        for _ in 0..40 {
            assert_eq!(backoff.fail(), Duration::from_secs(15));
        }
        assert_eq!(backoff.failures(), 46);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.fail()), (0, Duration::from_secs(1)));
    }

    #[test]
    fn equal_seeds_give_equal_numbers_below_one() {
        let (mut a, mut b) = (Jitter::seeded(7), Jitter::seeded(7));
        for _ in 0..1000 {
            let x = a.fraction();
            assert!((0.0..1.0).contains(&x));
            assert_eq!(x, b.fraction());
        }
    }
}
