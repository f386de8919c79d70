//! Pauses between retries, as values. The caller sleeps.

use std::time::Duration;

/// Pauses that double with each consecutive failure, from a first pause up to a maximum.
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

    /// Number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
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
}
