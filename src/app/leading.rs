//! This replica among others: candidate for the Lease, leader, and no leader any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{AppError, RELEASE};
use crate::api::client::Clients;
use crate::api::gate::Gate;
use crate::api::jitter::Jitter;
use crate::api::leases::Leases;
use crate::cli::Config;
use crate::clock::SharedClock;
use crate::election::{Candidate, End, Parts, Standing, Timing};
use crate::history::replica::link::Link;
use crate::telemetry::metrics::Metrics as Telemetry;

/// How much longer than the Lease lasts a leader may go without renewing it before it counts as stuck.
const TOLERANCE: Duration = Duration::from_secs(20);

/// A candidate that has not begun.
#[derive(Debug)]
pub(super) struct Leading {
    candidate: Candidate,
    identity: String,
    standing: watch::Receiver<Standing>,
    renewal: Renewal,
}

/// A candidate at work.
#[derive(Debug)]
pub(super) struct Candidacy {
    standing: watch::Receiver<Standing>,
    running: JoinHandle<End>,
    release: CancellationToken,
    lease: Arc<str>,
    telemetry: Telemetry,
}

/// Whether a leader still renews.
#[derive(Debug, Clone)]
pub(super) struct Renewal {
    standing: watch::Receiver<Standing>,
    gate: Arc<Gate>,
    timing: Timing,
    lease: Arc<str>,
}

impl Leading {
    /// What the flags ask for. From now on nothing is written but by the leader. None without election, and in a dry
    /// run: whoever writes nothing need not lead.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        identity: String,
        clock: SharedClock,
        seed: u64,
        link: Option<Arc<dyn Link>>,
    ) -> Option<Self> {
        let election = config.election.as_ref().filter(|_| !config.dry_run)?;
        let timing = election.timing;
        let leases =
            Leases::new(clients.lease.clone(), &election.namespace, &election.name, timing.request())
                .telling(link);
        let gate = Arc::clone(&clients.gate);
        // Another seed than the watches': equal ones would make waits move together.
        let jitter = Jitter::seeded(seed.rotate_left(32));
        let parts =
            Parts { leases, identity: identity.clone(), timing, clock, jitter, gate: Arc::clone(&gate) };
        let (candidate, standing) = Candidate::new(parts);
        let renewal =
            Renewal { standing: standing.clone(), gate, timing, lease: election.name.as_str().into() };
        Some(Self { candidate, identity, standing, renewal })
    }

    /// For the health check.
    pub(super) fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Who this is among the candidates.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// How it stands, from now on.
    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// The name of the Lease.
    pub(super) fn lease(&self) -> Arc<str> {
        Arc::clone(&self.renewal.lease)
    }

    /// Begins the candidacy.
    pub(super) fn start(self, telemetry: &Telemetry) -> Candidacy {
        let release = CancellationToken::new();
        let lease = self.renewal.lease;
        telemetry.leader(&lease, false);
        let running = tokio::spawn(self.candidate.run(release.clone()));
        Candidacy { standing: self.standing, running, release, lease, telemetry: telemetry.clone() }
    }
}

impl Candidacy {
    /// Stands by until this replica leads, which is true, or `stop`, which is false.
    pub(super) async fn leads(&mut self, stop: &CancellationToken) -> bool {
        let leads = self.standing.wait_for(|standing| matches!(standing, Standing::Leads { .. }));
        // An error means that the candidate ended, which `lost` tells.
        let led = stop.run_until_cancelled(leads).await.is_some();
        if led {
            self.telemetry.leader(&self.lease, true);
        }
        led
    }

    /// How long before this replica led another one renewed the Lease or gave it back, if any did.
    pub(super) fn since_others(&self) -> Option<Duration> {
        match *self.standing.borrow() {
            Standing::Leads { since_others, .. } => since_others,
            Standing::Follows(_) => None,
        }
    }

    /// How often the Lease has changed hands, if this replica holds it.
    pub(super) fn term(&self) -> Option<i32> {
        match *self.standing.borrow() {
            Standing::Leads { term, .. } => Some(term),
            Standing::Follows(_) => None,
        }
    }

    /// Waits until the Lease is lost.
    pub(super) async fn lost(&mut self) -> AppError {
        let ended = (&mut self.running).await;
        self.telemetry.leader(&self.lease, false);
        AppError::LeaseLost(match ended {
            Ok(End::Lost(reason)) => reason,
            Ok(end) => format!("the candidate ended by itself ({end:?})"),
            Err(error) => format!("the candidate ended badly: {error}"),
        })
    }

    /// Gives the Lease back, if this replica holds it. All work must have ended.
    pub(super) async fn release(self) -> Result<(), AppError> {
        self.release.cancel();
        let ended = timeout(RELEASE, self.running).await;
        self.telemetry.leader(&self.lease, false);
        match ended {
            Ok(Ok(End::NeverLed | End::Released)) => Ok(()),
            Ok(Ok(End::Lost(reason))) => Err(AppError::LeaseLost(reason)),
            Ok(Ok(End::NotReleased) | Err(_)) | Err(_) => {
                Err(AppError::LeaseNotReleased(self.lease.to_string()))
            }
        }
    }
}

impl Renewal {
    /// Fails if this replica leads and has not renewed for so long that its candidate must be stuck.
    pub(super) fn check(&self) -> Result<(), String> {
        let leads = matches!(*self.standing.borrow(), Standing::Leads { .. });
        let Some(deadline) = self.gate.leading_until().filter(|_| leads) else {
            return Ok(());
        };
        let unrenewed = Instant::now().saturating_duration_since(deadline) + self.timing.renew_deadline;
        if unrenewed > self.timing.lease + TOLERANCE {
            return Err(format!("failed election to renew leadership on lease {}", self.lease));
        }
        Ok(())
    }
}
