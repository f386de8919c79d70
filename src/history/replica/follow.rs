//! A standby at work: copies the histories of whoever leads, about once a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::HISTORY;
use super::copy::{Copy, Inheritance, uids};
use super::link::{Link, LinkError, Peer};
use super::wire::{Part, PartError};
use crate::clock::Anchor;
use crate::controller::Controller;
use crate::election::{Holder, Standing};
use crate::telemetry::metrics::{Metrics as Telemetry, Pull};

/// How long the leader is asked to hold its answer back. With the way there and back it makes a pull a second.
const WAIT: Duration = Duration::from_millis(900);
/// How long an answer may take beyond that.
const WITHIN: Duration = Duration::from_secs(5);
/// The wait after a failed pull; twice as long after each further one, up to the limit.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// After so many failures in a row it is told. The first may be the leader's end, or a new certificate.
const TOLD: u32 = 2;
/// How often it is looked for histories of HPAs that are gone.
const SWEEP: Duration = Duration::from_secs(30);

/// What a standby is made of.
#[derive(Debug)]
pub struct Parts {
    /// How the leader is reached.
    pub link: Arc<dyn Link>,
    /// Who this process is among the candidates.
    pub identity: String,
    /// Who leads.
    pub standing: watch::Receiver<Standing>,
    /// What this process sees.
    pub controller: Arc<Controller>,
    /// What is counted.
    pub telemetry: Telemetry,
    /// The name of the Lease.
    pub lease: Arc<str>,
}

/// Copies the leader's histories.
#[derive(Debug)]
pub struct Follower {
    parts: Parts,
    copy: Copy,
    /// Of whom the copy is.
    of: Option<Leader>,
    /// When this process's clock was last compared with the leader's.
    compared: Option<Anchor>,
    /// When the copy was as new as the leader's histories.
    copied: Arc<Mutex<Option<Instant>>>,
    failures: u32,
    /// Whether it was said that its histories are copied, and nothing else since.
    told: bool,
    swept: Instant,
}

/// A leader that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leader {
    identity: String,
    term: i32,
    peer: Peer,
}

/// Why a pull failed.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{peer} gives no usable answer: {error}")]
    Answer { peer: std::net::SocketAddr, error: PartError },
    #[error("{0} does not answer within {WITHIN:?}")]
    TooLate(std::net::SocketAddr),
}

impl Follower {
    /// A standby that has copied nothing yet.
    pub fn new(parts: Parts) -> Self {
        let copied: Arc<Mutex<Option<Instant>>> = Arc::default();
        let seen = Arc::clone(&copied);
        parts.telemetry.history_age(&parts.lease, move || {
            let copied = *seen.lock().unwrap_or_else(PoisonError::into_inner);
            copied.map(|at| at.elapsed())
        });
        Self {
            parts,
            copy: Copy::default(),
            of: None,
            compared: None,
            copied,
            failures: 0,
            told: false,
            swept: Instant::now(),
        }
    }

    /// Copies until it is dropped.
    pub async fn run(&mut self) {
        loop {
            let leader = self.leader().await;
            if self.of.as_ref().is_none_or(|of| of.term != leader.term || of.identity != leader.identity) {
                self.copy.another_leads();
                self.failures = 0;
                self.told = false;
            }
            self.of = Some(leader.clone());
            let mut standing = self.parts.standing.clone();
            let another = async move {
                let is_another = |standing: &Standing| Leader::of(standing).as_ref() != Some(&leader);
                // An error means that the candidate has ended, and with it soon the process.
                if standing.wait_for(is_another).await.is_err() {
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

    /// This replica leads in this term now: what was copied becomes its own.
    pub fn adopt(self, term: i32) -> Inheritance {
        let Self { parts: Parts { controller, .. }, copy, compared, copied, .. } = self;
        *copied.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let set = compared.map_or(SignedDuration::ZERO, |at| at.set_by(controller.clock.now()));
        let inheritance = copy.adopt(&controller, term, set);
        tracing::info!(
            ?inheritance,
            histories = controller.histories.len(),
            "histories of the leader before"
        );
        inheritance
    }

    /// How many histories are copied.
    #[cfg(all(test, feature = "tools"))]
    pub(super) fn len(&self) -> usize {
        self.copy.len()
    }

    /// Waits for a leader that can be asked.
    async fn leader(&mut self) -> Leader {
        let standing = &mut self.parts.standing;
        let leader = standing.wait_for(|standing| Leader::of(standing).is_some()).await;
        match leader.ok().and_then(|standing| Leader::of(&standing)) {
            Some(leader) => leader,
            // The candidate has ended.
            None => std::future::pending().await,
        }
    }

    /// Copies from one leader, for good.
    async fn copy_from(&mut self) {
        loop {
            let Some(leader) = self.of.clone() else { return };
            let asked = Instant::now();
            match self.pull(&leader).await {
                Ok(Pulled::Part) => {}
                Ok(Pulled::All) => {
                    *self.copied.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                    // In case it did not hold its answer back.
                    sleep_until(asked + WAIT).await;
                }
                Err(error) => {
                    self.failed(&error);
                    let doublings = self.failures.saturating_sub(1).min(4);
                    sleep((PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)).await;
                }
            }
            self.sweep();
        }
    }

    /// Asks once.
    async fn pull(&mut self, leader: &Leader) -> Result<Pulled, PullError> {
        let peer = leader.peer;
        let standby = utf8_percent_encode(&self.parts.identity, NON_ALPHANUMERIC);
        let since = self.copy.upto().map_or_else(String::new, |upto| format!("&since={upto}"));
        let was_final = self.copy.is_final();
        let path = format!("{HISTORY}?wait={}ms&standby={standby}{since}", WAIT.as_millis());
        let asked = self.parts.controller.clock.now();
        let answer = timeout(WAIT + WITHIN, self.parts.link.ask(&peer, &path)).await;
        let answered = self.parts.controller.clock.now();
        let answer = answer.map_err(|_| PullError::TooLate(peer.address))??;
        let part = Part::read(&answer).map_err(|error| PullError::Answer { peer: peer.address, error })?;
        let pulled = match &part {
            Part { more: true, .. } | Part { anew: true, .. } => Pulled::Part,
            // To ask once more tells the leader that it may go.
            Part { last: true, .. } if !was_final => Pulled::Part,
            _ => Pulled::All,
        };
        self.compared = Some(Anchor::at(answered));
        let ahead = ahead(part.now, asked, answered);
        self.copy.take(part, leader.term, ahead);
        self.parts.telemetry.history_pulled(Pull::Ok);
        if pulled == Pulled::All && !std::mem::replace(&mut self.told, true) {
            let histories = self.copy.len();
            tracing::info!(leader = leader.identity, histories, "the leader's histories are copied");
        }
        self.failures = 0;
        Ok(pulled)
    }

    fn failed(&mut self, error: &PullError) {
        self.failures = self.failures.saturating_add(1);
        self.parts.telemetry.history_pulled(error.kind());
        if self.failures == TOLD {
            self.told = false;
            tracing::warn!(
                %error,
                "the leader's histories cannot be copied: what comes after the last copy is not known here"
            );
        } else {
            tracing::debug!(%error, "the leader's histories cannot be copied");
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

/// How far this process's clock is ahead of that of a leader who had this time somewhere between question and answer.
/// Nothing if they may be the same, as far as clocks that are kept in step ever are.
fn ahead(leader: Timestamp, asked: Timestamp, answered: Timestamp) -> SignedDuration {
    let (least, most) = (asked.duration_since(leader), answered.duration_since(leader));
    if least <= Anchor::IN_STEP && most >= -Anchor::IN_STEP { SignedDuration::ZERO } else { most }
}

/// What came of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pulled {
    /// There is a reason to ask again at once.
    Part,
    /// The copy is up to date.
    All,
}

impl Leader {
    /// The leader that somebody who stands by follows, if it can be asked.
    fn of(standing: &Standing) -> Option<Self> {
        match standing {
            Standing::Follows(Some(Holder { identity, term, peer: Some(peer) })) => {
                Some(Self { identity: identity.clone(), term: *term, peer: *peer })
            }
            _ => None,
        }
    }
}

impl PullError {
    fn kind(&self) -> Pull {
        match self {
            Self::Link(LinkError::Refused { .. } | LinkError::Credentials(_)) => Pull::Refused,
            Self::Link(LinkError::Unreachable { .. } | LinkError::Certificate { .. }) | Self::TooLate(_) => {
                Pull::Unreachable
            }
            Self::Link(LinkError::TooLarge { .. }) | Self::Answer { .. } => Pull::Invalid,
        }
    }
}
