//! Leader election of this process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{AppError, RELEASE};
use crate::serve::NotReady;
use clock::{Jitter, SharedClock};
use cluster::client::Clients;
use cluster::gate::Gate;
use controller::election::leases::Leases;
use controller::election::{Candidate, CandidateExit, Heartbeat, LeaderState, LeaseLife, Parts, Timing};
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::Config;

/// The time after the Lease duration at which a leader without a renewal fails its health check.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The tokio runtime of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElectionRuntime {
    /// The runtime of the process. Tests in virtual time need a single runtime.
    Shared,
    /// A separate thread with its own runtime and connections, so that no other work of the process delays a
    /// renewal.
    Separate,
}

/// The candidate before its start.
#[derive(Debug)]
pub(super) struct LeaderElection {
    candidate: Candidate,
    leader_state: watch::Receiver<LeaderState>,
    renewal: Renewal,
    runtime: ElectionRuntime,
    /// `None` if the election shares the runtime of the process.
    heartbeat: Option<Heartbeat>,
}

/// A running candidate for the Lease.
#[derive(Debug)]
pub(super) struct Candidacy {
    leader_state: watch::Receiver<LeaderState>,
    /// Receives the reason of the exit, or an error if the candidate panicked.
    running: oneshot::Receiver<CandidateExit>,
    release: CancellationToken,
    lease: Arc<str>,
    telemetry: Telemetry,
    _heartbeat: Option<AbortOnDropHandle<()>>,
}

/// The health check of the election: whether the leader renews its Lease.
#[derive(Debug, Clone)]
pub(super) struct Renewal {
    leader_state: watch::Receiver<LeaderState>,
    gate: Arc<Gate>,
    timing: Timing,
    lease: Arc<str>,
}

impl ElectionRuntime {
    /// Starts a task on this runtime. A separate thread has the name `name`. The returned receiver gets the result.
    pub(super) fn start<T: Send + 'static>(
        self,
        name: &str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<oneshot::Receiver<T>> {
        let (ended, running) = oneshot::channel();
        let run = async move {
            // An error means that the receiver was dropped.
            let _ = ended.send(task.await);
        };
        match self {
            Self::Shared => {
                tokio::spawn(run);
            }
            Self::Separate => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                std::thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(run))?;
            }
        }
        Ok(running)
    }
}

impl LeaderElection {
    /// Builds the candidate that the flags configure. After this call, only the leader may write. Returns `None`
    /// without leader election and for a dry run, which writes nothing and needs no Lease.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        identity: String,
        clock: SharedClock,
        seed: u64,
        runtime: ElectionRuntime,
    ) -> Option<Self> {
        let election = config.election.as_ref().filter(|_| !config.controller.dry_run)?;
        let timing = election.timing;
        let leases = Leases::new(&clients.lease, &election.namespace, &election.name, timing.request());
        let gate = Arc::clone(&clients.gate);
        // The seed differs from that of the watches, because equal seeds would give equal random delays.
        let jitter = Jitter::seeded(seed.rotate_left(32));
        let heartbeat = (runtime == ElectionRuntime::Separate).then(Heartbeat::new);
        let beating = heartbeat.clone();
        let parts = Parts { leases, identity, timing, clock, jitter, gate: Arc::clone(&gate), heartbeat };
        let (candidate, leader_state) = Candidate::new(parts);
        let renewal = Renewal {
            leader_state: leader_state.clone(),
            gate,
            timing,
            lease: election.name.as_str().into(),
        };
        Some(Self { candidate, leader_state, renewal, runtime, heartbeat: beating })
    }

    /// Returns the health check.
    pub(super) fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Returns a receiver of the current leader state and of each later change.
    pub(super) fn leader_state(&self) -> watch::Receiver<LeaderState> {
        self.leader_state.clone()
    }

    /// Returns a handle that shows whether any replica is the leader.
    pub(super) fn lease_life(&self) -> LeaseLife {
        self.candidate.lease_life()
    }

    /// Starts the candidate.
    ///
    /// # Errors
    /// Returns [`AppError::ElectionThread`] if the separate thread cannot start.
    pub(super) fn start(self, telemetry: &Telemetry) -> Result<Candidacy, AppError> {
        let release = CancellationToken::new();
        let Renewal { lease, timing, .. } = self.renewal;
        telemetry.leader(&lease, false);
        // The candidate stops if this task stops, for example because the process hangs.
        let heartbeat = self.heartbeat.map(|heartbeat| {
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    heartbeat.beat();
                    tokio::time::sleep(timing.retry).await;
                }
            }))
        });
        let running = self
            .runtime
            .start("election", self.candidate.run(release.clone()))
            .map_err(AppError::ElectionThread)?;
        let telemetry = telemetry.clone();
        let leader_state = self.leader_state;
        Ok(Candidacy { leader_state, running, release, lease, telemetry, _heartbeat: heartbeat })
    }
}

impl Candidacy {
    /// Waits as a standby until this replica becomes the leader (`true`) or until `stop` (`false`).
    pub(super) async fn leads(&mut self, stop: &CancellationToken) -> bool {
        let leads =
            self.leader_state.wait_for(|leader_state| matches!(leader_state, LeaderState::Leader { .. }));
        // An error means that the candidate has exited. The result is then also `true`, and `Candidacy::lost` returns
        // the reason.
        let led = stop.run_until_cancelled(leads).await.is_some();
        if led {
            self.telemetry.leader(&self.lease, true);
        }
        led
    }

    /// Returns the time from the last renewal or release of the Lease by another replica to the start of this replica's
    /// term. Returns `None` for a standby, or if no other replica has held the Lease.
    pub(super) fn since_others(&self) -> Option<Duration> {
        match *self.leader_state.borrow() {
            LeaderState::Leader { since_others, .. } => since_others,
            LeaderState::Standby(_) => None,
        }
    }

    /// Waits until the Lease is lost, and returns the reason.
    pub(super) async fn lost(&mut self) -> AppError {
        let ended = (&mut self.running).await;
        self.telemetry.leader(&self.lease, false);
        match ended {
            Ok(CandidateExit::Lost(reason)) => AppError::LeaseLost(reason),
            Ok(end) => AppError::CandidateExited(format!("{end:?}")),
            Err(_) => AppError::CandidateExited("panicked".to_owned()),
        }
    }

    /// Releases the Lease, if this replica holds it. All syncs must have stopped before this call.
    pub(super) async fn release(self) -> Result<(), AppError> {
        self.release.cancel();
        let ended = timeout(RELEASE, self.running).await;
        self.telemetry.leader(&self.lease, false);
        match ended {
            Ok(Ok(CandidateExit::NeverLed | CandidateExit::Released)) => Ok(()),
            Ok(Ok(CandidateExit::Lost(reason))) => Err(AppError::LeaseLost(reason)),
            Ok(Ok(CandidateExit::NotReleased) | Err(_)) | Err(_) => {
                Err(AppError::LeaseNotReleased(self.lease.to_string()))
            }
        }
    }
}

impl Renewal {
    /// Fails if this replica is the leader and has not renewed its Lease for the Lease duration plus [`TOLERANCE`].
    pub(super) fn check(&self) -> Result<(), NotReady> {
        let leads = matches!(*self.leader_state.borrow(), LeaderState::Leader { .. });
        let Some(deadline) = self.gate.leading_until().filter(|_| leads) else {
            return Ok(());
        };
        let unrenewed = Instant::now().saturating_duration_since(deadline) + self.timing.renew_deadline;
        if unrenewed > self.timing.lease + TOLERANCE {
            return Err(NotReady(format!("failed election to renew leadership on lease {}", self.lease)));
        }
        Ok(())
    }
}
