//! Leader election on a Lease, by client-go's rules.
//!
//! `machine` decides without I/O. `candidate` reads, writes and waits. The leader may write only until its renew
//! deadline: with each renewal, the candidate extends the deadline of the [write gate](cluster::gate). If the process
//! is suspended, or a renewal hangs, the gate closes by the leader's own clock. Another candidate can acquire the
//! Lease only after that.
//!
//! A candidate on a separate thread also stops if the other threads hang ([`Heartbeat`]), so that another replica can
//! do their work.

mod candidate;
pub mod leases;
pub mod machine;

pub use self::candidate::{Candidate, Parts};

use std::sync::Arc;
use std::time::Duration;

use cluster::platform;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Creates a unique name for this process in client-go's form: the host name, which in a pod is the pod's name, and a
/// random part.
///
/// # Errors
///
/// The system provides no random numbers, so two processes of one host could have the same name.
pub fn identity() -> Result<String, IdentityError> {
    let host = platform::host_name().unwrap_or_else(|| "unknown".to_owned());
    Ok(format!("{host}_{}", random_uuid()?))
}

/// The system provides no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to create a unique identity for leader election: the system provides no random numbers")]
pub struct IdentityError;

/// Creates a version 4 UUID.
fn random_uuid() -> Result<String, IdentityError> {
    let mut bytes = [0_u8; 16];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| IdentityError)?;
    let number = u128::from_be_bytes(bytes) & !(0xf000 << 64 | 0xc000 << 48) | 0x4000 << 64 | 0x8000 << 48;
    let mut text = format!("{number:032x}");
    for at in [8, 13, 18, 23] {
        text.insert(at, '-');
    }
    Ok(text)
}

/// The time of the last heartbeat, shared by all clones.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeat {
    /// Creates a heartbeat at the current time.
    #[expect(clippy::new_without_default, reason = "the value depends on the time")]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Records a heartbeat.
    pub fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    fn age(&self) -> Duration {
        self.0.lock().elapsed()
    }
}

/// The state of a candidate, which the other parts of its process read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderState {
    /// The candidate does not lead. The value is the identity of the holder, or `None` if the Lease is free or was not
    /// observed.
    Standby(Option<String>),
    /// The candidate leads.
    Leader {
        /// The previous holder.
        after: Option<String>,
        /// Time since another candidate last renewed or released the Lease. `None` if unknown.
        since_others: Option<Duration>,
    },
}

/// The state that shows whether any replica leads, by this replica's observations of the Lease. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct LeaseLife {
    /// The end of the Lease by its last observation. `None` without an observation.
    until: Arc<Mutex<Option<Instant>>>,
    grace: Duration,
}

impl LeaseLife {
    /// Creates the state before the first observation. `grace`: the time within which a standby acquires an expired
    /// Lease. [`Self::is_live`] stays true during this time, and therefore during a failover.
    pub fn new(grace: Duration) -> Self {
        Self { until: Arc::default(), grace }
    }

    /// Returns whether a replica holds the Lease, or the Lease ended less than the grace period ago.
    pub fn is_live(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until + self.grace)
    }

    /// Records an observation of the Lease. `until`: the end of the Lease, `None` without an observation.
    pub fn observe(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }
}

/// The outcome of a candidacy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CandidateExit {
    /// The candidacy ended on request, before the candidate led.
    NeverLed,
    /// The candidacy ended on request, and the Lease was released.
    Released,
    /// The candidacy ended on request. The release failed, so the Lease must expire.
    NotReleased,
    /// The candidate lost the Lease, so the process must stop.
    Lost(LostReason),
}

/// The reason why a leader lost the Lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostReason {
    /// Another candidate holds the Lease.
    #[error("{holder} holds the Lease {lease}")]
    Held {
        /// The identity of the holder.
        holder: String,
        /// `namespace/name` of the Lease.
        lease: String,
    },
    /// No renewal succeeded within the renew deadline.
    #[error("failed to renew the Lease {lease} for {deadline:?}")]
    NotRenewed {
        /// `namespace/name` of the Lease.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
    },
    /// The work that the Lease protects has sent no heartbeat for the lease duration.
    #[error("stopped renewing the Lease {lease}: the process has hung for {silence:?}; report this bug")]
    Unresponsive {
        /// `namespace/name` of the Lease.
        lease: String,
        /// Time since the last heartbeat.
        silence: Duration,
    },
}

/// Maximum random part of client-go's wait between two attempts to acquire, as a multiple of the retry period. The wait
/// is the retry period plus this part.
const JITTER: f64 = 1.2;

/// The three durations of leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// `--leader-elect-lease-duration`: the wait of other candidates after the last renewal that they observed.
    pub lease: Duration,
    /// `--leader-elect-renew-deadline`: the time without a renewal after which a leader stops.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the pause between two attempts.
    pub retry: Duration,
}

impl Default for Timing {
    /// Returns the defaults of kube-controller-manager.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
    }
}

/// The reason why durations are invalid, by client-go's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader must stop before another candidate may start.
    #[error("the lease duration must be greater than --leader-elect-renew-deadline")]
    Lease,
    /// The duration of a Lease is in whole seconds.
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

    /// Returns the time limit of one request for the Lease. The renew deadline leaves time for a second request if the
    /// first hangs.
    pub fn request(&self) -> Duration {
        self.renew_deadline / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_a_host_name_and_a_random_uuid() {
        let (one, other) = (identity().unwrap(), identity().unwrap());
        assert_ne!(one, other);
        let (host, uuid) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty());
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
    }
}
