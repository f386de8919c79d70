//! Takeover safety of this process.
//!
//! [`TakeoverSetup::prepare`] builds takeover safety before the first watch, and [`TakeoverSetup::start`] starts
//! takeover safety when the caches are synced. The process calls [`TakeOver::leads`] when this replica becomes the
//! leader.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cli::Config;
use crate::cli::config::TakeOver as Mode;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use cluster::events::{EventOptions, Recorder};
use controller::assembly::STATUS_MANAGER;
use controller::handover::scope::Scope;
use controller::reconcile::{Controller, Observers};
use controller::takeover::{Parts, TakeOver};
use controller::telemetry::metrics::Metrics as Telemetry;

/// Takeover safety before its start. The controller writes nothing until takeover safety permits it.
#[derive(Debug)]
pub(super) struct TakeoverSetup {
    takeover: Arc<TakeOver>,
    reads: Client,
    notices: Client,
    clock: SharedClock,
}

impl TakeoverSetup {
    /// Builds the takeover safety that `--takeover` selects. Returns `None` for `off`, for a dry run, which
    /// writes nothing, and for `--scope=labelled`, which decides for each HPA.
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

    /// Returns the observers of watch events and concluded syncs. Takeover safety is the first observer, so
    /// that the gate closes before any other reaction to a foreign write.
    pub(super) fn observers(guard: Option<&Self>) -> Observers {
        guard.map(|guard| Arc::clone(&guard.takeover) as _).into_iter().collect()
    }

    /// Returns the state for the health check.
    pub(super) fn takeover(&self) -> Arc<TakeOver> {
        Arc::clone(&self.takeover)
    }

    /// Starts takeover safety, which runs until `stop`. The caches must be synced.
    pub(super) fn start(self, controller: &Arc<Controller>, stop: &CancellationToken) -> Arc<TakeOver> {
        let Self { takeover, reads, notices, clock } = self;
        let options = EventOptions { component: "concertina".to_owned(), ..EventOptions::default() };
        let (notices, sender) = Recorder::new(notices, clock, options);
        controller.tasks.spawn("takeover events", sender);
        takeover.begin(controller);
        let work = Arc::clone(&takeover).run(reads, notices);
        controller.tasks.spawn_until(stop, "takeover", work);
        takeover
    }
}
