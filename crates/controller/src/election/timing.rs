//! The durations of leader election, with client-go's defaults and rules.

use std::time::Duration;

/// Maximum random part of client-go's wait between two attempts to acquire, as a multiple of the retry
/// period. The wait is the retry period plus this part.
pub(super) const JITTER: f64 = 1.2;

/// The three durations of leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// `--leader-elect-lease-duration`: the wait of other candidates after the last renewal that they
    /// observed.
    pub lease: Duration,
    /// `--leader-elect-renew-deadline`: the time without a renewal after which a leader stops.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the pause between two attempts.
    pub retry: Duration,
}

impl Default for Timing {
    /// The defaults of kube-controller-manager.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
    }
}

/// Durations that allow two leaders at once, by client-go's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader must stop before another candidate may start.
    #[error("the lease duration must be greater than --leader-elect-renew-deadline")]
    Lease,
    /// A Lease counts whole seconds.
    #[error("the lease duration must be at least 1s")]
    TooShort,
    /// The renew deadline must leave time for more than one attempt.
    #[error("the renew deadline must be greater than --leader-elect-retry-period times 1.2")]
    RenewDeadline,
    /// Attempts need a pause.
    #[error("the retry period must be greater than 0s")]
    Retry,
}

impl Timing {
    /// Checks the durations, as client-go does.
    pub fn validate(&self) -> Result<(), TimingError> {
        if self.lease <= self.renew_deadline {
            return Err(TimingError::Lease);
        }
        if self.renew_deadline <= self.retry.mul_f64(JITTER) {
            return Err(TimingError::RenewDeadline);
        }
        if self.lease < Duration::from_secs(1) {
            return Err(TimingError::TooShort);
        }
        if self.retry.is_zero() {
            return Err(TimingError::Retry);
        }
        Ok(())
    }

    /// Time limit of one request for the Lease. After a request that hangs, the deadline leaves time for
    /// another.
    pub fn request(&self) -> Duration {
        self.renew_deadline / 2
    }
}
