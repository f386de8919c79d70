//! A candidate at work: acquires the Lease, renews it, gives it back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::machine::{Action, Elector, Input, Outcome};
use crate::api::error::ApiError;
use crate::api::gate::Gate;
use crate::api::jitter::Jitter;
use crate::api::leases::{LeaseWatch, Leases};
use crate::clock::SharedClock;
use crate::history::replica::link::Peer;

/// client-go waits between two attempts to acquire for the retry period and up to this much of it more.
const JITTER: f64 = 1.2;
/// Tries to give the Lease back.
const RELEASES: u32 = 3;

/// The three times of leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// `--leader-elect-lease-duration`: others wait this long after the last renewal that they saw.
    pub lease: Duration,
    /// `--leader-elect-renew-deadline`: a leader that could not renew for this long stops.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: between two attempts.
    pub retry: Duration,
}

impl Default for Timing {
    /// kube-controller-manager's.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
    }
}

/// Times that do not keep two from leading at once, in client-go's terms; continues the name of the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader must stop before others may begin.
    #[error("must be greater than --leader-elect-renew-deadline")]
    Lease,
    /// A Lease counts whole seconds.
    #[error("must be at least 1s")]
    TooShort,
    /// There must be time for more than one attempt.
    #[error("must be greater than --leader-elect-retry-period times 1.2")]
    RenewDeadline,
    /// Attempts need a pause.
    #[error("must be greater than 0s")]
    Retry,
}

impl Timing {
    /// Checks them, as client-go does.
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

    /// How long one request for the Lease may take: a hanging one leaves time for another before the deadline.
    pub fn request(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// What a candidate is to others of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does not lead; who does, as far as is known.
    Follows(Option<Holder>),
    /// It leads. `after` is who held the Lease before, if anybody did.
    Leads {
        /// The holder before.
        after: Option<String>,
        /// How long before that another one renewed the Lease or gave it back, if any did.
        since_others: Option<Duration>,
        /// How often the Lease has changed hands.
        term: i32,
    },
}

/// Who holds the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub identity: String,
    /// How often the Lease had changed hands when it was taken: one more for each holder.
    pub term: i32,
    /// Where it says that it serves.
    pub peer: Option<Peer>,
}

impl Standing {
    fn has_same_holder(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Follows(one), Self::Follows(other)) => {
                one.as_ref().map(|holder| &holder.identity) == other.as_ref().map(|holder| &holder.identity)
            }
            _ => false,
        }
    }
}

/// How a candidacy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Asked to end; it never led.
    NeverLed,
    /// Asked to end; the Lease is free for the next.
    Released,
    /// Asked to end; the Lease could not be given back and will run out.
    NotReleased,
    /// It led and does no more: everything must stop.
    Lost(String),
}

/// What a candidate is made of.
#[derive(Debug)]
pub struct Parts {
    /// The Lease.
    pub leases: Leases,
    /// Who this is: unique for each process.
    pub identity: String,
    /// Lease duration, renew deadline, retry period.
    pub timing: Timing,
    /// For the times that are written into the Lease.
    pub clock: SharedClock,
    /// Spreads attempts.
    pub jitter: Jitter,
    /// The gate of all writes but those of the Lease.
    pub gate: Arc<Gate>,
}

/// One candidate.
pub struct Candidate {
    parts: Parts,
    elector: Elector,
    standing: watch::Sender<Standing>,
    watching: Option<LeaseWatch>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("elector", &self.elector).finish_non_exhaustive()
    }
}

impl Candidate {
    /// A candidate, and how it stands from now on. Closes the gate until it leads.
    pub fn new(parts: Parts) -> (Self, watch::Receiver<Standing>) {
        parts.gate.leads_until(Instant::now());
        let elector = Elector::new(parts.identity.as_str(), parts.timing.lease);
        let (standing, seen) = watch::channel(Standing::Follows(None));
        (Self { parts, elector, standing, watching: None }, seen)
    }

    /// Runs until the Lease is lost, or until `release` is cancelled: then it gives the Lease back. Whatever writes must
    /// have stopped by then.
    pub async fn run(mut self, release: CancellationToken) -> End {
        let Some(begun) = release.run_until_cancelled(self.acquire()).await else {
            return self.withdraw().await;
        };
        match release.run_until_cancelled(self.renew(begun)).await {
            Some(reason) => {
                self.parts.gate.leads_until(Instant::now());
                self.standing.send_replace(self.follows());
                End::Lost(reason)
            }
            None => self.give_back().await,
        }
    }

    /// Tries until this candidate leads; when the attempt began that succeeded.
    async fn acquire(&mut self) -> Instant {
        loop {
            let before = self.elector.holder().map(str::to_owned);
            let (outcome, begun) = self.attempt().await;
            if outcome == Outcome::Leads {
                self.parts.gate.leads_until(begun + self.parts.timing.renew_deadline);
                tracing::info!(
                    lease = self.parts.leases.key(),
                    after = before.as_deref(),
                    "this replica leads"
                );
                let since_others = self.elector.since_others(Instant::now(), self.parts.clock.now());
                let term = self.elector.lease().map_or(0, |lease| lease.record.transitions);
                self.standing.send_replace(Standing::Leads { after: before, since_others, term });
                return begun;
            }
            self.tell();
            let wait = self.parts.timing.retry.mul_f64(1.0 + JITTER * self.parts.jitter.fraction());
            self.await_chance(Instant::now() + wait).await;
        }
    }

    /// Waits until `latest`, or until the Lease may be taken: it was given back, or has run out.
    async fn await_chance(&mut self, latest: Instant) {
        loop {
            // One that has run out already was just tried for in vain.
            let expires = self.elector.expires().filter(|expires| *expires > Instant::now());
            let until = expires.map_or(latest, |expires| expires.min(latest));
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                seen = Self::follow(&mut self.watching, &self.parts.leases) => match seen {
                    Ok(Some(lease)) => {
                        self.elector.observe(lease, Instant::now());
                        if self.elector.holder().is_none() {
                            return;
                        }
                        self.tell();
                    }
                    Ok(None) => return,
                    // Without a watch the attempts at their times remain.
                    Err(error) => {
                        tracing::debug!(%error, "the Lease cannot be watched");
                        self.watching = None;
                        sleep_until(until).await;
                        return;
                    }
                },
            }
        }
    }

    /// The next change of the Lease, from a watch that is opened if there is none.
    async fn follow(
        watching: &mut Option<LeaseWatch>,
        leases: &Leases,
    ) -> Result<Option<crate::election::record::Lease>, ApiError> {
        let open = match watching.take() {
            Some(open) => open,
            None => leases.watch("0").await?,
        };
        watching.insert(open).next().await
    }

    /// Renews until that fails for the renew deadline, or somebody else holds the Lease; gives the reason.
    async fn renew(&mut self, begun: Instant) -> String {
        let mut renewed = begun;
        loop {
            self.await_rival(Instant::now() + self.parts.timing.retry).await;
            let deadline = renewed + self.parts.timing.renew_deadline;
            renewed = loop {
                match timeout_at(deadline, self.attempt()).await {
                    Ok((Outcome::Leads, begun)) => break begun,
                    Ok((Outcome::Held, _)) => {
                        let holder = self.elector.holder().unwrap_or_default();
                        return format!("{holder} holds the Lease {}", self.parts.leases.key());
                    }
                    Ok((Outcome::Unknown, _)) => {
                        sleep_until(deadline.min(Instant::now() + self.parts.timing.retry)).await;
                    }
                    Err(_) => {}
                }
                if Instant::now() >= deadline {
                    let (key, limit) = (self.parts.leases.key(), self.parts.timing.renew_deadline);
                    return format!("the Lease {key} could not be renewed for {limit:?}");
                }
            };
            self.parts.gate.leads_until(renewed + self.parts.timing.renew_deadline);
        }
    }

    /// Waits until `latest`, or until the Lease is seen to be gone or somebody else's: then the next renewal tells at
    /// once how it stands.
    async fn await_rival(&mut self, latest: Instant) {
        let rival = async {
            loop {
                match Self::follow(&mut self.watching, &self.parts.leases).await {
                    Ok(Some(lease)) if lease.record.holder == self.parts.identity => {}
                    Ok(_) => return,
                    // Without a watch the renewals at their times remain.
                    Err(error) => {
                        tracing::debug!(%error, "the Lease cannot be watched");
                        self.watching = None;
                        return std::future::pending().await;
                    }
                }
            }
        };
        // What is cut off here is either a watch that goes on next time or an attempt to open one.
        let _ = timeout_at(latest, rival).await;
    }

    /// One attempt to acquire or renew: how it ended and when it began.
    async fn attempt(&mut self) -> (Outcome, Instant) {
        let begun = Instant::now();
        let leases = &self.parts.leases;
        let mut input = Input::Begin;
        loop {
            let failed = |error: ApiError, what: &str| {
                tracing::warn!(lease = leases.key(), %error, "the Lease could not be {what}");
                Input::Failed
            };
            input = match self.elector.step(input, Instant::now(), self.parts.clock.now()) {
                Action::End(outcome) => return (outcome, begun),
                Action::Read => match leases.get().await {
                    Ok(Some(lease)) => Input::Found(lease),
                    Ok(None) => Input::Absent,
                    Err(error) => failed(error, "read"),
                },
                Action::Create(record) => match leases.create(&record).await {
                    Ok(lease) => Input::Written(lease),
                    Err(error) => failed(error, "created"),
                },
                Action::Replace(lease) => match leases.replace(&lease).await {
                    Ok(lease) => Input::Written(lease),
                    // Another was faster, or the version is no longer the newest: reading will tell.
                    Err(error) if error.is_conflict() => Input::Failed,
                    Err(error) => failed(error, "written"),
                },
            };
        }
    }

    /// Ends while it does not lead. An attempt that was cut off may have succeeded on the server: then nobody else could
    /// lead until the Lease ran out.
    async fn withdraw(&mut self) -> End {
        if self.elector.is_writing()
            && let Ok(Some(lease)) = self.parts.leases.get().await
        {
            self.elector.observe(lease, Instant::now());
            if self.elector.leads() {
                return self.give_back().await;
            }
        }
        End::NeverLed
    }

    /// Gives the Lease back, so that the next leader need not wait for it to run out.
    async fn give_back(&mut self) -> End {
        self.parts.gate.leads_until(Instant::now());
        for _ in 0..RELEASES {
            let Some(lease) = self.elector.release(self.parts.clock.now()) else {
                return End::Released;
            };
            match self.parts.leases.replace(&lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.parts.leases.key(), "the Lease is given back");
                    return End::Released;
                }
                Err(error) => {
                    tracing::warn!(lease = self.parts.leases.key(), %error, "the Lease could not be given back");
                    // A renewal may have been cut off after the server took it.
                    if let Ok(Some(lease)) = self.parts.leases.get().await {
                        self.elector.observe(lease, Instant::now());
                    }
                }
            }
        }
        End::NotReleased
    }

    /// Tells who is followed, if that has changed.
    fn tell(&self) {
        let follows = self.follows();
        self.standing.send_if_modified(|standing| {
            if *standing == follows {
                return false;
            }
            if !standing.has_same_holder(&follows) {
                let (lease, holder) = (self.parts.leases.key(), self.elector.holder());
                tracing::info!(lease, holder, "this replica stands by");
            }
            *standing = follows;
            true
        });
    }

    fn follows(&self) -> Standing {
        let held = self.elector.lease().filter(|lease| lease.record.is_held());
        Standing::Follows(held.map(|lease| Holder {
            identity: lease.record.holder.clone(),
            term: lease.record.transitions,
            peer: lease.peer(),
        }))
    }
}

#[cfg(all(test, feature = "tools"))]
mod tests;
