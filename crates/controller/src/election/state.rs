//! The states that a candidate publishes to the rest of its process, and the end of its candidacy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Peer;

/// The state of a candidate, for the rest of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderState {
    /// The candidate does not lead. `None` if the Lease is free or was not observed.
    Standby(Option<Holder>),
    /// The candidate leads.
    Leader {
        /// The previous holder.
        after: Option<String>,
        /// Time since another candidate renewed or released the Lease, if one did.
        since_others: Option<Duration>,
        /// Number of changes of the holder.
        term: i32,
    },
}

/// Whether any replica leads, as this replica sees the Lease. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct LeaseLife {
    /// The end of the Lease by its last observation. `None` before the first one.
    until: Arc<Mutex<Option<Instant>>>,
    grace: Duration,
}

impl LeaseLife {
    /// Creates the state before the first observation. `grace`: time after the end of a Lease in which a standby
    /// acquires it. A change of leaders therefore does not count as a time without a leader.
    pub fn new(grace: Duration) -> Self {
        Self { until: Arc::default(), grace }
    }

    /// Whether a replica holds the Lease, or the Lease ended less than the grace period ago.
    pub fn is_live(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until + self.grace)
    }

    /// Records an observation of the Lease. `until`: its end. `None` without an observation.
    pub fn observe(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }
}

/// The holder of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The holder's identity.
    pub identity: String,
    /// Number of changes of the holder when this holder acquired the Lease. Each new holder of the same Lease object
    /// has a higher number.
    pub term: i32,
    /// The holder's serving address, if the holder publishes one.
    pub peer: Option<Peer>,
}

impl LeaderState {
    pub(super) fn has_same_holder(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Standby(one), Self::Standby(other)) => {
                one.as_ref().map(|holder| &holder.identity) == other.as_ref().map(|holder| &holder.identity)
            }
            _ => false,
        }
    }
}

/// The end of a candidacy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CandidateExit {
    /// The candidacy ended on request, before the candidate led.
    NeverLed,
    /// The candidacy ended on request, and the Lease was released.
    Released,
    /// The candidacy ended on request. The release failed, so the Lease must expire.
    NotReleased,
    /// The candidate lost the Lease, so everything must stop.
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
    /// The work that the Lease protects sends no heartbeats.
    #[error("stopped renewing the Lease {lease}: the process has hung for {silence:?}; report this bug")]
    Unresponsive {
        /// `namespace/name` of the Lease.
        lease: String,
        /// Time since the last heartbeat.
        silence: Duration,
    },
}
