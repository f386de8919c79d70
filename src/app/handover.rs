//! The handover of single HPAs in this process, with `--scope=labelled`.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cli::Config;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use cluster::events::{EventOptions, Recorder};
use controller::assembly::Assembly;
use controller::handover::Handover;
use controller::reconcile::Controller;

/// The handover before its start. Until then no HPA is written.
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
    /// Records that this replica leads. `after`: the time since another replica led, if one did. A dry run is
    /// in charge of no HPA.
    pub(super) fn leads(&self, after: Option<Duration>) {
        if !self.is_dry_run {
            self.handover.leads(after, self.lease);
        }
    }
}
