//! Runs a candidate: acquires, renews and releases the Lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::leases::{Lease, LeaseWatch, Leases};
use super::machine::{Action, Elector, Input, Outcome};
use super::{CandidateExit, Heartbeat, JITTER, LeaderState, LeaseLife, LostReason, Timing};
use clock::{Jitter, SharedClock};
use cluster::error::ApiError;
use cluster::gate::Gate;

/// Maximum number of attempts to release the Lease.
const RELEASES: u32 = 3;

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
#[derive(Debug)]
pub struct Candidate {
    parts: Parts,
    elector: Elector,
    leader_state: watch::Sender<LeaderState>,
    watching: Option<LeaseWatch>,
    /// Whether the watch has delivered a change since the last attempt.
    watch_delivers: bool,
    life: LeaseLife,
}

impl Candidate {
    /// Creates a candidate and a receiver of its state. Closes the gate until the candidate leads.
    pub fn new(parts: Parts) -> (Self, watch::Receiver<LeaderState>) {
        parts.gate.leads_until(Instant::now());
        let elector = Elector::new(parts.identity.as_str(), parts.timing.lease);
        let (leader_state, receiver) = watch::channel(LeaderState::Standby(None));
        // A standby retries to acquire the Lease within this time.
        let life = LeaseLife::new(parts.timing.retry.mul_f64(1.0 + JITTER));
        (Self { parts, elector, leader_state, watching: None, watch_delivers: true, life }, receiver)
    }

    /// Returns the state that shows whether any replica leads.
    pub fn lease_life(&self) -> LeaseLife {
        self.life.clone()
    }

    /// Runs until the Lease is lost or `release` is cancelled. After the cancellation, releases the Lease if this
    /// candidate holds it. Cancel `release` only after all writers have stopped.
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
            let known = self.elector.lease().cloned();
            let (outcome, started) = self.attempt().await;
            if !std::mem::take(&mut self.watch_delivers) && known.as_ref() != self.elector.lease() {
                // The watch did not deliver a change that the read found. A hanging watch would delay the next leader.
                tracing::debug!(
                    lease = self.parts.leases.key(),
                    "replacing a watch that delivers no changes"
                );
                self.watching = None;
            }
            if outcome == Outcome::Leads {
                self.parts.gate.leads_until(started + self.parts.timing.renew_deadline);
                tracing::info!(lease = self.parts.leases.key(), after = before.as_deref(), "became leader");
                let since_others =
                    self.elector.time_since_other_holder(Instant::now(), self.parts.clock.now());
                self.leader_state.send_replace(LeaderState::Leader { after: before, since_others });
                return started;
            }
            self.publish_standby();
            let wait = self.parts.timing.retry.mul_f64(1.0 + JITTER * self.parts.jitter.fraction());
            self.wait_to_acquire(Instant::now() + wait).await;
        }
    }

    /// Waits until `latest`, or until the Lease is released, deleted or expired.
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
                        self.watch_delivers = true;
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

    /// Returns the time since the last heartbeat, if it is at least the Lease duration. The work then hangs, and
    /// another replica can do it.
    fn silence(&self) -> Option<Duration> {
        let silence = self.parts.heartbeat.as_ref()?.age();
        Some(silence).filter(|silence| *silence >= self.parts.timing.lease)
    }

    /// Renews until another candidate holds the Lease, until no renewal succeeds for the renew deadline, or until the
    /// work hangs. Returns the reason.
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

    /// Waits until `latest`, or until a watch shows that the Lease was deleted or has another holder. The next renewal
    /// then determines the state at once.
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
                    // Another candidate was faster, or the version is stale. The next read distinguishes the cases.
                    Err(error) if error.is_conflict() => Input::Failed,
                    Err(error) => failed(error, "update"),
                },
            };
        }
    }

    /// Exits without having led. A cancelled attempt may have succeeded on the server. Without a release, no other
    /// candidate could then lead until the Lease expires.
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

    /// Releases the Lease, so that the next leader does not wait for its expiry.
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

    /// Publishes the holder of the Lease if it has changed.
    fn publish_standby(&self) {
        let follows = self.follows();
        self.leader_state.send_if_modified(|leader_state| {
            if *leader_state == follows {
                return false;
            }
            tracing::info!(lease = self.parts.leases.key(), holder = self.elector.holder(), "standing by");
            *leader_state = follows;
            true
        });
    }

    fn follows(&self) -> LeaderState {
        let held = self.elector.lease().filter(|lease| lease.record.is_held());
        LeaderState::Standby(held.map(|lease| lease.record.holder.clone()))
    }
}

#[cfg(test)]
mod tests;
