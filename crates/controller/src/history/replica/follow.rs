//! Runs a standby: copies the histories of the leader about once a second.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::peers::{PeerTransport, TransportError};
use super::{Handover, Part, PartError, StandbyHistory, uids};
use crate::election::{Holder, LeaderState, Peer};
use crate::page::HISTORY;
use crate::reconcile::Controller;
use crate::telemetry::metrics::{Metrics as Telemetry, Pull};
use clock::{Anchor, Backoff};

/// Time for which the leader holds back the response to a standby with a copy. With the round trip, this results in
/// about one pull per second.
const WAIT: Duration = Duration::from_millis(900);
/// Time limit of a response, in addition to [`WAIT`].
const WITHIN: Duration = Duration::from_secs(5);
/// First pause after a failed pull.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Number of consecutive failures at which a warning is logged. A shutdown of the leader or a new certificate may cause
/// the first failure.
const FAILURES_BEFORE_WARNING: u32 = 2;
/// Interval at which the histories of deleted HPAs are dropped.
const SWEEP: Duration = Duration::from_secs(30);

/// Options and collaborators of a [`Follower`].
#[derive(Debug)]
pub struct Parts {
    /// Connects to the leader.
    pub link: Arc<dyn PeerTransport>,
    /// Identity of this process as a candidate.
    pub identity: String,
    /// State of the candidate.
    pub leader_state: watch::Receiver<LeaderState>,
    /// Controller of this process.
    pub controller: Arc<Controller>,
    /// Metrics of the pulls.
    pub telemetry: Telemetry,
    /// Name of the Lease.
    pub lease: Arc<str>,
}

/// Copies the leader's histories.
#[derive(Debug)]
pub struct Follower {
    parts: Parts,
    copy: StandbyHistory,
    /// The leader from which the histories are copied.
    source: Option<Leader>,
    /// The last comparison of this process's clock with the leader's clock.
    compared: Option<Anchor>,
    /// Time at which the copy was last up to date.
    copied: Arc<Mutex<Option<Instant>>>,
    backoff: Backoff,
    /// Whether the completion of the copy was logged, and no warning followed.
    announced: bool,
    swept: Instant,
}

/// A leader with a serving address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leader {
    identity: String,
    term: i32,
    peer: Peer,
}

/// The reason for a failed pull.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("invalid response of {peer}: {error}")]
    Answer { peer: std::net::SocketAddr, error: PartError },
    #[error("{0} did not respond within {WITHIN:?}")]
    TooLate(std::net::SocketAddr),
}

impl Follower {
    /// Creates a standby without copies.
    pub fn new(parts: Parts) -> Self {
        let copied: Arc<Mutex<Option<Instant>>> = Arc::default();
        let last_copy = Arc::clone(&copied);
        parts.telemetry.history_age(&parts.lease, move || {
            let copied = *last_copy.lock();
            copied.map(|at| at.elapsed())
        });
        Self {
            parts,
            copy: StandbyHistory::default(),
            source: None,
            compared: None,
            copied,
            backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
            announced: false,
            swept: Instant::now(),
        }
    }

    /// Copies histories until the future is dropped.
    pub async fn run(&mut self) {
        loop {
            let leader = self.leader().await;
            let is_same = |source: &Leader| source.term == leader.term && source.identity == leader.identity;
            if !self.source.as_ref().is_some_and(is_same) {
                self.copy.reset();
                self.backoff.reset();
                self.announced = false;
            }
            self.source = Some(leader.clone());
            let mut leader_state = self.parts.leader_state.clone();
            let another = async move {
                let is_another =
                    |leader_state: &LeaderState| Leader::from_state(leader_state).as_ref() != Some(&leader);
                // An error means that the candidate has stopped. The process then also stops.
                if leader_state.wait_for(is_another).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = another => {}
                () = self.copy_from() => {}
            }
        }
    }

    /// Moves the copied histories into the controller of this replica, which now leads in the given term.
    pub fn take_over(self, term: i32) -> Handover {
        let Self { parts: Parts { controller, .. }, copy, compared, copied, .. } = self;
        *copied.lock() = None;
        let set = compared.map_or(SignedDuration::ZERO, |at| at.set_by(controller.clock.now()));
        let inheritance = copy.take_over(&controller, term, set);
        tracing::info!(
            ?inheritance,
            histories = controller.histories.len(),
            "took over history from the previous leader"
        );
        inheritance
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.copy.len()
    }

    /// Waits for a leader with a serving address.
    async fn leader(&mut self) -> Leader {
        let leader_state = &mut self.parts.leader_state;
        let leader = leader_state.wait_for(|leader_state| Leader::from_state(leader_state).is_some()).await;
        match leader.ok().and_then(|leader_state| Leader::from_state(&leader_state)) {
            Some(leader) => leader,
            // The candidate has stopped.
            None => std::future::pending().await,
        }
    }

    /// Copies from the current leader until the future is dropped.
    async fn copy_from(&mut self) {
        loop {
            let Some(leader) = self.source.clone() else { return };
            let requested = Instant::now();
            match self.pull(&leader).await {
                Ok(Pulled::Part) => {}
                Ok(Pulled::All) => {
                    *self.copied.lock() = Some(Instant::now());
                    // Keep the interval even if the leader responded at once.
                    sleep_until(requested + WAIT).await;
                }
                Err(error) => {
                    let pause = self.backoff.fail();
                    self.failed(&error);
                    sleep(pause).await;
                }
            }
            self.sweep();
        }
    }

    /// Requests changes from the leader and applies them to the copy.
    async fn pull(&mut self, leader: &Leader) -> Result<Pulled, PullError> {
        let peer = leader.peer;
        let standby = utf8_percent_encode(&self.parts.identity, NON_ALPHANUMERIC);
        let since = self.copy.upto().map_or_else(String::new, |upto| format!("&since={upto}"));
        let was_final = self.copy.is_final();
        let path = format!("{HISTORY}?wait={}ms&standby={standby}{since}", WAIT.as_millis());
        let requested = self.parts.controller.clock.now();
        let answer = timeout(WAIT + WITHIN, self.parts.link.get(&peer, &path)).await;
        let answered = self.parts.controller.clock.now();
        let answer = answer.map_err(|_| PullError::TooLate(peer.address))??;
        let part = Part::read(&answer).map_err(|error| PullError::Answer { peer: peer.address, error })?;
        let pulled = match &part {
            Part { more: true, .. } | Part { full: true, .. } => Pulled::Part,
            // The next request confirms to the leader that the copy is complete.
            Part { last: true, .. } if !was_final => Pulled::Part,
            _ => Pulled::All,
        };
        self.compared = Some(Anchor::at(answered));
        let ahead = ahead(part.now, requested, answered);
        self.copy.apply(part, leader.term, ahead);
        self.parts.telemetry.history_pulled(Pull::Ok);
        if pulled == Pulled::All && !std::mem::replace(&mut self.announced, true) {
            let histories = self.copy.len();
            tracing::info!(leader = leader.identity, histories, "copied the leader's histories");
        }
        self.backoff.reset();
        Ok(pulled)
    }

    fn failed(&mut self, error: &PullError) {
        self.parts.telemetry.history_pulled(error.kind());
        if self.backoff.failures() == FAILURES_BEFORE_WARNING {
            self.announced = false;
            tracing::warn!(
                %error,
                "failed to copy the leader's histories; a failover would lose changes since the last copy"
            );
        } else {
            tracing::debug!(%error, "failed to copy the leader's histories");
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.swept) >= SWEEP {
            self.swept = now;
            self.copy.sweep(&uids(&self.parts.controller), now);
        }
    }
}

/// Returns the lead of this process's clock over the leader's clock. `leader`: a reading of the leader's clock between
/// request and response. Zero if the clocks may agree, within the precision of synchronized clocks.
fn ahead(leader: Timestamp, requested: Timestamp, answered: Timestamp) -> SignedDuration {
    let (least, most) = (requested.duration_since(leader), answered.duration_since(leader));
    if least <= Anchor::IN_STEP && most >= -Anchor::IN_STEP { SignedDuration::ZERO } else { most }
}

/// The result of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulled {
    /// More changes may exist, or the leader waits for a confirmation. The next request follows at once.
    Part,
    /// The copy is up to date.
    All,
}

impl Leader {
    /// Returns the leader that a standby follows, if it has a serving address.
    fn from_state(leader_state: &LeaderState) -> Option<Self> {
        match leader_state {
            LeaderState::Standby(Some(Holder { identity, term, peer: Some(peer) })) => {
                Some(Self { identity: identity.clone(), term: *term, peer: *peer })
            }
            _ => None,
        }
    }
}

impl PullError {
    fn kind(&self) -> Pull {
        match self {
            Self::Transport(TransportError::Refused { .. } | TransportError::Credentials(_)) => Pull::Refused,
            Self::Transport(TransportError::Unreachable { .. } | TransportError::Certificate { .. })
            | Self::TooLate(_) => Pull::Unreachable,
            Self::Transport(TransportError::TooLarge { .. }) | Self::Answer { .. } => Pull::Invalid,
        }
    }
}
