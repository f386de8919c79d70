//! Runs a candidate: acquires, renews and releases the Lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::leases::{LeaseWatch, Leases};
use super::machine::{Action, Elector, Input, Outcome};
use super::record::Lease;
use super::{Heartbeat, Peer};
use clock::SharedClock;
use cluster::error::ApiError;
use cluster::gate::Gate;
use cluster::jitter::Jitter;

/// Maximum random part of client-go's wait between two attempts to acquire, as a multiple of the retry
/// period. The wait is the retry period plus this part.
const JITTER: f64 = 1.2;
/// Maximum attempts to release the Lease.
const RELEASES: u32 = 3;

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

/// The state of a candidate, for the rest of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderState {
    /// The candidate does not lead. The holder, if known.
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
    /// acquires it, so that a change of the leader is no time without a leader.
    pub fn new(grace: Duration) -> Self {
        Self { until: Arc::default(), grace }
    }

    /// Whether a replica holds the Lease, or held it until so recently that a standby is about to acquire it.
    pub fn is_live(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until + self.grace)
    }

    /// Records an observation of the Lease. `until`: its end. `None` if it has no holder.
    pub fn observe(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }
}

/// The holder of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The holder's identity.
    pub identity: String,
    /// Number of changes of the holder when this holder acquired the Lease. The number increases with each
    /// holder.
    pub term: i32,
    /// The holder's serving address, if the holder publishes one.
    pub peer: Option<Peer>,
}

impl LeaderState {
    fn has_same_holder(&self, other: &Self) -> bool {
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

/// Options and collaborators of a [`Candidate`].
#[derive(Debug)]
pub struct Parts {
    /// Client of the Lease.
    pub leases: Leases,
    /// Unique name of this process.
    pub identity: String,
    /// Lease duration, renew deadline, retry period.
    pub timing: Timing,
    /// The clock that provides the times in the Lease.
    pub clock: SharedClock,
    /// Jitter of the attempts.
    pub jitter: Jitter,
    /// The gate of all writes except those of the Lease.
    pub gate: Arc<Gate>,
    /// Heartbeats of the work. `None` if it runs on the same thread as the candidate.
    pub heartbeat: Option<Heartbeat>,
}

/// A candidate of the election.
pub struct Candidate {
    parts: Parts,
    elector: Elector,
    leader_state: watch::Sender<LeaderState>,
    watching: Option<LeaseWatch>,
    life: LeaseLife,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("elector", &self.elector).finish_non_exhaustive()
    }
}

impl Candidate {
    /// Creates a candidate and its state. Closes the gate until the candidate leads.
    pub fn new(parts: Parts) -> (Self, watch::Receiver<LeaderState>) {
        parts.gate.leads_until(Instant::now());
        let elector = Elector::new(parts.identity.as_str(), parts.timing.lease);
        let (leader_state, receiver) = watch::channel(LeaderState::Standby(None));
        // A standby retries within this time.
        let life = LeaseLife::new(parts.timing.retry.mul_f64(1.0 + JITTER));
        (Self { parts, elector, leader_state, watching: None, life }, receiver)
    }

    /// Whether any replica leads.
    pub fn lease_life(&self) -> LeaseLife {
        self.life.clone()
    }

    /// Runs until the Lease is lost. When `release` is cancelled, releases the Lease. All writers must have
    /// stopped before.
    pub async fn run(mut self, release: CancellationToken) -> CandidateExit {
        let Some(acquired) = release.run_until_cancelled(self.acquire()).await else {
            return self.exit_standby().await;
        };
        match release.run_until_cancelled(self.renew(acquired)).await {
            Some(reason) => {
                self.parts.gate.leads_until(Instant::now());
                self.leader_state.send_replace(self.follows());
                CandidateExit::Lost(reason)
            }
            None => self.release().await,
        }
    }

    /// Retries until this candidate leads. Returns the start of the successful attempt.
    async fn acquire(&mut self) -> Instant {
        loop {
            if self.silence().is_some() {
                sleep(self.parts.timing.retry).await;
                continue;
            }
            let before = self.elector.holder().map(str::to_owned);
            let (outcome, started) = self.attempt().await;
            if outcome == Outcome::Leads {
                self.parts.gate.leads_until(started + self.parts.timing.renew_deadline);
                tracing::info!(lease = self.parts.leases.key(), after = before.as_deref(), "became leader");
                let since_others =
                    self.elector.time_since_other_holder(Instant::now(), self.parts.clock.now());
                let term = self.elector.lease().map_or(0, |lease| lease.record.transitions);
                self.leader_state.send_replace(LeaderState::Leader { after: before, since_others, term });
                return started;
            }
            self.publish_standby();
            let wait = self.parts.timing.retry.mul_f64(1.0 + JITTER * self.parts.jitter.fraction());
            self.wait_to_acquire(Instant::now() + wait).await;
        }
    }

    /// Waits until `latest`, or until the Lease was released or has expired.
    async fn wait_to_acquire(&mut self, latest: Instant) {
        loop {
            // The last attempt has already failed to acquire an expired Lease.
            let expires = self.elector.expires().filter(|expires| *expires > Instant::now());
            let until = expires.map_or(latest, |expires| expires.min(latest));
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                change = Self::follow(&mut self.watching, &self.parts.leases) => match change {
                    Ok(Some(lease)) => {
                        self.elector.observe(lease, Instant::now());
                        self.life.observe(self.elector.expires());
                        if self.elector.holder().is_none() {
                            return;
                        }
                        self.publish_standby();
                    }
                    Ok(None) => return,
                    // Without a watch, attempts continue at their intervals.
                    Err(error) => {
                        tracing::debug!(%error, "failed to watch the Lease");
                        self.watching = None;
                        sleep_until(until).await;
                        return;
                    }
                },
            }
        }
    }

    /// Returns the next change of the Lease. Opens a watch if there is none.
    async fn follow(watching: &mut Option<LeaseWatch>, leases: &Leases) -> Result<Option<Lease>, ApiError> {
        let open = match watching.take() {
            Some(open) => open,
            None => leases.watch("0").await?,
        };
        watching.insert(open).next().await
    }

    /// The time since the last heartbeat, if the work has hung for the Lease duration. Another replica can
    /// do it then.
    fn silence(&self) -> Option<Duration> {
        let silence = self.parts.heartbeat.as_ref()?.age();
        Some(silence).filter(|silence| *silence >= self.parts.timing.lease)
    }

    /// Renews until another candidate holds the Lease, until no renewal succeeds for the renew deadline, or
    /// until the work hangs. Returns the reason.
    async fn renew(&mut self, acquired: Instant) -> LostReason {
        let mut renewed = acquired;
        loop {
            self.wait_for_lease_change(Instant::now() + self.parts.timing.retry).await;
            if let Some(silence) = self.silence() {
                return LostReason::Unresponsive { lease: self.parts.leases.key(), silence };
            }
            let deadline = renewed + self.parts.timing.renew_deadline;
            renewed = loop {
                match timeout_at(deadline, self.attempt()).await {
                    Ok((Outcome::Leads, started)) => break started,
                    Ok((Outcome::Held, _)) => {
                        let holder = self.elector.holder().unwrap_or_default().to_owned();
                        return LostReason::Held { holder, lease: self.parts.leases.key() };
                    }
                    Ok((Outcome::Unknown, _)) => {
                        sleep_until(deadline.min(Instant::now() + self.parts.timing.retry)).await;
                    }
                    Err(_) => {}
                }
                if Instant::now() >= deadline {
                    let lease = self.parts.leases.key();
                    return LostReason::NotRenewed { lease, deadline: self.parts.timing.renew_deadline };
                }
            };
            self.parts.gate.leads_until(renewed + self.parts.timing.renew_deadline);
        }
    }

    /// Waits until `latest`, or until a watch shows that the Lease was deleted or has another holder. The
    /// next renewal then determines the state at once.
    async fn wait_for_lease_change(&mut self, latest: Instant) {
        let change = async {
            loop {
                match Self::follow(&mut self.watching, &self.parts.leases).await {
                    Ok(Some(lease)) if lease.record.holder == self.parts.identity => {}
                    Ok(_) => return,
                    // Without a watch, renewals continue at their intervals.
                    Err(error) => {
                        tracing::debug!(%error, "failed to watch the Lease");
                        self.watching = None;
                        return std::future::pending().await;
                    }
                }
            }
        };
        // The timeout cancels either a watch, which continues next time, or an attempt to open a watch.
        let _ = timeout_at(latest, change).await;
    }

    /// Makes one attempt to acquire or renew. Returns its outcome and its start.
    async fn attempt(&mut self) -> (Outcome, Instant) {
        let started = Instant::now();
        let leases = &self.parts.leases;
        let mut input = Input::Start;
        loop {
            let failed = |error: ApiError, operation: &str| {
                tracing::warn!(lease = leases.key(), operation, %error, "Lease request failed");
                Input::Failed
            };
            input = match self.elector.step(input, Instant::now(), self.parts.clock.now()) {
                Action::End(outcome) => {
                    self.life.observe(self.elector.expires());
                    return (outcome, started);
                }
                Action::Read => match leases.get().await {
                    Ok(Some(lease)) => Input::Found(lease),
                    Ok(None) => Input::Absent,
                    Err(error) => failed(error, "read"),
                },
                Action::Create(record) => match leases.create(&record).await {
                    Ok(lease) => Input::Written(lease),
                    Err(error) => failed(error, "create"),
                },
                Action::Replace(lease) => match leases.replace(&lease).await {
                    Ok(lease) => Input::Written(lease),
                    // Another candidate was faster, or the version is stale. The next read determines which.
                    Err(error) if error.is_conflict() => Input::Failed,
                    Err(error) => failed(error, "update"),
                },
            };
        }
    }

    /// Exits without having led. A cancelled attempt may have succeeded on the server. Without a release, no
    /// other candidate could then lead until the Lease expires.
    async fn exit_standby(&mut self) -> CandidateExit {
        if self.elector.is_writing()
            && let Ok(Some(lease)) = self.parts.leases.get().await
        {
            self.elector.observe(lease, Instant::now());
            if self.elector.leads() {
                return self.release().await;
            }
        }
        CandidateExit::NeverLed
    }

    /// Releases the Lease, so that the next leader need not wait for its expiry.
    async fn release(&mut self) -> CandidateExit {
        self.parts.gate.leads_until(Instant::now());
        for _ in 0..RELEASES {
            let Some(lease) = self.elector.release(self.parts.clock.now()) else {
                return CandidateExit::Released;
            };
            match self.parts.leases.replace(&lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.parts.leases.key(), "released the Lease");
                    return CandidateExit::Released;
                }
                Err(error) => {
                    tracing::warn!(lease = self.parts.leases.key(), %error, "failed to release the Lease");
                    // A renewal may have been cancelled after the server applied it.
                    if let Ok(Some(lease)) = self.parts.leases.get().await {
                        self.elector.observe(lease, Instant::now());
                    }
                }
            }
        }
        CandidateExit::NotReleased
    }

    /// Publishes the holder of the Lease, if it has changed.
    fn publish_standby(&self) {
        let follows = self.follows();
        self.leader_state.send_if_modified(|leader_state| {
            if *leader_state == follows {
                return false;
            }
            if !leader_state.has_same_holder(&follows) {
                let (lease, holder) = (self.parts.leases.key(), self.elector.holder());
                tracing::info!(lease, holder, "standing by");
            }
            *leader_state = follows;
            true
        });
    }

    fn follows(&self) -> LeaderState {
        let held = self.elector.lease().filter(|lease| lease.record.is_held());
        LeaderState::Standby(held.map(|lease| Holder {
            identity: lease.record.holder.clone(),
            term: lease.record.transitions,
            peer: lease.peer(),
        }))
    }
}

#[cfg(test)]
mod tests;
