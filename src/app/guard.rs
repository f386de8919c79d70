//! The guard of this process, with `--scope=labelled`: the check of the guard's objects and, with
//! `--handover-guard=webhook`, the webhook and its certificate. Every replica runs them until the process stops, except
//! in a dry run. The handover of individual HPAs starts when the caches are synced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;

use super::leader::LeaderElection;
use super::{AppError, ElectionRuntime};
use crate::cli::Config;
use crate::cli::config::HandoverGuard;
use crate::handover::certificate::Certificate;
use crate::handover::proof::{Check, CheckedGuard};
use crate::handover::review::{Plurals, Review};
use crate::serve::webhook::Webhook;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use cluster::events::{EventOptions, Recorder};
use controller::assembly::Assembly;
use controller::election::LeaderState;
use controller::handover::Handover;
use controller::handover::objects::GuardObjects;
use controller::reconcile::Controller;
use controller::telemetry::metrics::Metrics as Telemetry;

/// The guard before its start.
#[derive(Debug)]
pub(super) struct GuardSetup {
    objects: GuardObjects,
    webhook: Option<(Webhook, Arc<Certificate>)>,
    provider: Arc<CryptoProvider>,
}

impl GuardSetup {
    /// Prepares the check of the guard and, with `--handover-guard=webhook`, binds the port of the webhook. Returns
    /// `None` for the other guards, which are not checked, and for a dry run, which is in charge of no HPA.
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

    /// Starts the guard, which runs until `stop`. A separate thread serves the webhook, so no other work of the process
    /// delays an answer.
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
        let tasks = &assembly.controller.tasks;
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
        let (charges, mapper) = (Arc::clone(charges), Arc::clone(&assembly.controller.mapper));
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

/// The handover before its start. The controller writes no HPA before the handover starts.
#[derive(Debug)]
pub(super) struct HandoverSetup {
    handover: Arc<Handover>,
    reads: Client,
    notices: Client,
    clock: SharedClock,
    lease: Duration,
    is_dry_run: bool,
}

/// The running handover.
#[derive(Debug)]
pub(super) struct RunningHandover {
    handover: Arc<Handover>,
    lease: Duration,
    is_dry_run: bool,
}

impl HandoverSetup {
    /// Builds the handover of an assembled controller. `None` if all HPAs are in scope.
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

    /// Returns the state for the health check.
    pub(super) fn handover(&self) -> Arc<Handover> {
        Arc::clone(&self.handover)
    }

    /// Starts the handover, which runs until `stop`. The caches must be synced.
    pub(super) fn start(self, controller: &Arc<Controller>, stop: &CancellationToken) -> RunningHandover {
        let Self { handover, reads, notices, clock, lease, is_dry_run } = self;
        let options = EventOptions { component: "concertina".to_owned(), ..EventOptions::default() };
        let (notices, sender) = Recorder::new(notices, clock, options);
        controller.tasks.spawn("handover events", sender);
        handover.charges().set_synced();
        controller.tasks.spawn_until(stop, "handover", Arc::clone(&handover).run(reads, notices));
        RunningHandover { handover, lease, is_dry_run }
    }
}

impl RunningHandover {
    /// Records that this replica is the leader. `after` is the time since another replica was the leader, if any. A dry
    /// run is in charge of no HPA.
    pub(super) fn leads(&self, after: Option<Duration>) {
        if !self.is_dry_run {
            self.handover.leads(after, self.lease);
        }
    }
}
