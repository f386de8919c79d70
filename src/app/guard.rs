//! Setup of the features that keep two controllers from acting on one HPA: the guard and the handover with
//! `--scope=labelled`, and takeover safety with `--scope=all`.
//!
//! The guard is the check of its objects and, with `--handover-guard=webhook`, the webhook and its certificate. Every
//! replica runs the guard until the process stops, except in a dry run. The handover and takeover safety are built
//! before the first watch. They start when the caches are synced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;

use super::leader::LeaderElection;
use super::{AppError, ElectionRuntime};
use crate::handover::certificate::Certificate;
use crate::handover::{Check, CheckedGuard, Plurals, Review};
use crate::serve::webhook::Webhook;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use cluster::events::{EventOptions, Recorder};
use coexist::handover::Handover;
use coexist::handover::objects::GuardObjects;
use coexist::handover::scope::Scope;
use coexist::takeover::{Parts, TakeOver};
use controller::assembly::{Assembly, STATUS_MANAGER};
use controller::election::LeaderState;
use engine::reconcile::{Controller, Observers};
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::Config;
use flags::config::{HandoverGuard, TakeOver as Mode};

/// The guard before its start.
#[derive(Debug)]
pub(super) struct GuardSetup {
    objects: GuardObjects,
    webhook: Option<(Webhook, Arc<Certificate>)>,
    provider: Arc<CryptoProvider>,
}

impl GuardSetup {
    /// Prepares the check of the guard and, with `--handover-guard=webhook`, binds the port of the webhook. Returns
    /// `None` for a guard other than `webhook` and `policy`, and for a dry run, which is in charge of no HPA.
    ///
    /// # Errors
    /// Returns [`AppError::Serve`] if the port is unavailable or the certificate's files are invalid.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: &SharedClock,
    ) -> Result<Option<Self>, AppError> {
        if config.controller.dry_run || !config.handover.guard.checks_users() {
            return Ok(None);
        }
        let objects = GuardObjects {
            controller: config.controller.controller_name.clone(),
            built_in_users: config.handover.built_in_users.clone(),
            namespace: config.handover_webhook.namespace.clone(),
        };
        let provider = Arc::new(config.serving.tls.provider());
        let webhook = if config.handover.guard == HandoverGuard::Webhook {
            let certificate = if let Some(files) = &config.handover_webhook.certificate {
                Certificate::from_files(files, Arc::clone(&provider))?
            } else {
                let (namespace, service) = (&objects.namespace, objects.name());
                let (clock, provider) = (Arc::clone(clock), Arc::clone(&provider));
                Certificate::signed(&clients.guard, namespace, &service, clock, provider)
            };
            let address = SocketAddr::new(config.serving.address, config.handover_webhook.port);
            let webhook = Webhook::bind(address, &config.serving.tls, Arc::clone(&certificate) as Arc<_>)?;
            Some((webhook, certificate))
        } else {
            None
        };
        Ok(Some(Self { objects, webhook, provider }))
    }

    /// Starts the guard, which runs until `stop`. A separate thread serves the webhook, so that no other work of the
    /// process delays a response.
    ///
    /// # Errors
    /// Returns [`AppError::WebhookThread`] if the thread cannot start.
    pub(super) fn start(
        self,
        (clients, clock, telemetry): (&Clients, &SharedClock, &Telemetry),
        assembly: &Assembly,
        leading: Option<&LeaderElection>,
        runtime: ElectionRuntime,
        stop: &CancellationToken,
    ) -> Result<(), AppError> {
        let Some(handover) = &assembly.handover else { return Ok(()) };
        let charges = handover.charges();
        let tasks = &assembly.controller.runtime.tasks;
        let leader_state = leading.map(LeaderElection::leader_state);
        let leads = move || {
            let is_leader = |state: &LeaderState| matches!(state, LeaderState::Leader { .. });
            leader_state.as_ref().is_none_or(|state| is_leader(&state.borrow()))
        };
        let guard = match &self.webhook {
            Some((_, certificate)) => CheckedGuard::Webhook(Arc::clone(certificate)),
            None => CheckedGuard::Policy,
        };
        let check = Check {
            guard,
            client: clients.guard.clone(),
            charges: Arc::clone(charges),
            leads: Box::new(leads),
            clock: Arc::clone(clock),
            provider: self.provider,
            objects: self.objects.clone(),
        };
        tasks.spawn_until(stop, "guard check", check.run());
        let Some((webhook, certificate)) = self.webhook else { return Ok(()) };
        tasks.spawn_until(stop, "webhook certificate", async move { certificate.keep_current().await });
        let plurals = Arc::<Plurals>::default();
        let review = Review {
            charges: Arc::clone(charges),
            built_in_users: self.objects.built_in_users.iter().cloned().collect(),
            lease: leading.map(LeaderElection::lease_life),
            plurals: Arc::clone(&plurals),
            telemetry: telemetry.clone(),
        };
        let (charges, mapper) = (Arc::clone(charges), Arc::clone(&assembly.controller.clients.mapper));
        tasks.spawn_until(stop, "target kinds", async move { plurals.keep_current(&charges, &mapper).await });
        tracing::info!(
            address = webhook.address().map(tracing::field::display),
            "serving the handover webhook"
        );
        let served = webhook.run(review.reviewer(), telemetry.clone(), stop.clone());
        let ended = runtime.start("webhook", served).map_err(AppError::WebhookThread)?;
        tasks.spawn_until(stop, "handover webhook", async move {
            // An error means that the thread panicked.
            let _ = ended.await;
        });
        Ok(())
    }
}

/// The handover before its start. The controller writes no HPA before this start.
#[derive(Debug)]
pub(super) struct HandoverSetup {
    handover: Arc<Handover>,
    reads: Client,
    notices: Client,
    clock: SharedClock,
    lease: Duration,
    is_dry_run: bool,
}

/// The handover after its start.
#[derive(Debug)]
pub(super) struct RunningHandover {
    handover: Arc<Handover>,
    lease: Duration,
    is_dry_run: bool,
}

impl HandoverSetup {
    /// Builds the handover of an assembled controller. Returns `None` with `--scope=all`.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: SharedClock,
        assembly: &Assembly,
    ) -> Option<Self> {
        Some(Self {
            handover: Arc::clone(assembly.handover.as_ref()?),
            reads: clients.watch.clone(),
            notices: clients.notices.clone(),
            clock,
            lease: config.election.as_ref().map_or(Duration::ZERO, |election| election.timing.lease),
            is_dry_run: config.controller.dry_run,
        })
    }

    /// Returns the handover, for its health check.
    pub(super) fn handover(&self) -> Arc<Handover> {
        Arc::clone(&self.handover)
    }

    /// Starts the handover, which runs until `stop`. The caches must be synced.
    pub(super) fn start(self, controller: &Arc<Controller>, stop: &CancellationToken) -> RunningHandover {
        let Self { handover, reads, notices, clock, lease, is_dry_run } = self;
        let notices = recorder(notices, clock, controller, "handover events");
        handover.charges().set_synced();
        controller.runtime.tasks.spawn_until(stop, "handover", Arc::clone(&handover).run(reads, notices));
        RunningHandover { handover, lease, is_dry_run }
    }
}

impl RunningHandover {
    /// Records that this replica is the leader. `after` is the time since another replica was the leader, if any. Has
    /// no effect in a dry run, which is in charge of no HPA.
    pub(super) fn leads(&self, after: Option<Duration>) {
        if !self.is_dry_run {
            self.handover.leads(after, self.lease);
        }
    }
}

/// Takeover safety before its start. The controller writes nothing until takeover safety permits writes.
#[derive(Debug)]
pub(super) struct TakeoverSetup {
    takeover: Arc<TakeOver>,
    reads: Client,
    notices: Client,
    clock: SharedClock,
}

impl TakeoverSetup {
    /// Builds the takeover safety that `--takeover` selects. Returns `None` for `off`, for a dry run, which writes
    /// nothing, and for `--scope=labelled`, where the handover decides for each HPA.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: SharedClock,
        telemetry: &Telemetry,
    ) -> Option<Self> {
        let holds_back = match config.takeover {
            _ if config.controller.dry_run || config.controller.scope == Scope::Labelled => return None,
            Mode::Off => return None,
            Mode::Wait => true,
            Mode::Warn => false,
        };
        let takeover = TakeOver::new(Parts {
            period: config.controller.sync_period,
            lease: config.election.as_ref().map_or(Duration::ZERO, |election| election.timing.lease),
            holds_back,
            manager: STATUS_MANAGER,
            gate: Arc::clone(&clients.gate),
            telemetry: telemetry.clone(),
            clock: Arc::clone(&clock),
        });
        Some(Self { takeover, reads: clients.watch.clone(), notices: clients.notices.clone(), clock })
    }

    /// Returns takeover safety as an observer of watch events and concluded syncs. It must be the first observer, so
    /// that the gate closes before any other reaction to a foreign write.
    pub(super) fn observers(guard: Option<&Self>) -> Observers {
        guard.map(|guard| Arc::clone(&guard.takeover) as _).into_iter().collect()
    }

    /// Returns takeover safety, for its health check.
    pub(super) fn takeover(&self) -> Arc<TakeOver> {
        Arc::clone(&self.takeover)
    }

    /// Starts takeover safety, which runs until `stop`. The caches must be synced.
    pub(super) fn start(self, controller: &Arc<Controller>, stop: &CancellationToken) -> Arc<TakeOver> {
        let Self { takeover, reads, notices, clock } = self;
        let notices = recorder(notices, clock, controller, "takeover events");
        takeover.begin(controller);
        let work = Arc::clone(&takeover).run(reads, notices);
        controller.runtime.tasks.spawn_until(stop, "takeover", work);
        takeover
    }
}

/// Creates a recorder of events from `concertina`. The task `name` sends the events.
fn recorder(client: Client, clock: SharedClock, controller: &Controller, name: &'static str) -> Recorder {
    let options = EventOptions { component: "concertina".to_owned(), ..EventOptions::default() };
    let (recorder, sender) = Recorder::new(client, clock, options);
    controller.runtime.tasks.spawn(name, sender);
    recorder
}
