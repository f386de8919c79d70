//! Take-over safety of this process: made before the first watch, begun with the first view, told when this replica leads.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::assembly::STATUS_MANAGER;
use crate::api::client::{Client, Clients};
use crate::api::events::{EventOptions, Recorder};
use crate::cli::Config;
use crate::cli::config::TakeOver as Mode;
use crate::clock::SharedClock;
use crate::controller::{Controller, Observers};
use crate::takeover::{Parts, TakeOver};
use crate::telemetry::metrics::Metrics as Telemetry;

/// Take-over safety that has not begun. Nothing is written before it allows it.
#[derive(Debug)]
pub(super) struct Guard {
    takeover: Arc<TakeOver>,
    reads: Client,
    notices: Recorder,
}

impl Guard {
    /// What `--takeover` asks for. None with `off`, and in a dry run, which writes nothing anyway.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: SharedClock,
        telemetry: &Telemetry,
    ) -> Option<Self> {
        let holds_back = match config.takeover {
            _ if config.dry_run => return None,
            Mode::Off => return None,
            Mode::Wait => true,
            Mode::Warn => false,
        };
        let takeover = TakeOver::new(Parts {
            period: config.sync_period,
            lease: config.election.as_ref().map_or(Duration::ZERO, |election| election.timing.lease),
            holds_back,
            manager: STATUS_MANAGER,
            gate: Arc::clone(&clients.gate),
            telemetry: telemetry.clone(),
        });
        let options = EventOptions { component: "concertina".to_owned(), ..EventOptions::default() };
        let (notices, sender) = Recorder::new(clients.notices.clone(), clock, options);
        tokio::spawn(sender);
        Some(Self { takeover, reads: clients.watch.clone(), notices })
    }

    /// Who has to be told of what the watch shows and of concluded syncs. First of all: the gate closes before anything
    /// else is done about a foreign write.
    pub(super) fn observers(guard: Option<&Self>) -> Observers {
        guard.map(|guard| Arc::clone(&guard.takeover) as _).into_iter().collect()
    }

    /// For the health check.
    pub(super) fn takeover(&self) -> Arc<TakeOver> {
        Arc::clone(&self.takeover)
    }

    /// Begins, once the watch has shown everything, and works until `stop`.
    pub(super) fn start(self, controller: &Arc<Controller>, stop: &CancellationToken) -> Arc<TakeOver> {
        let Self { takeover, reads, notices } = self;
        takeover.begin(controller);
        let work = Arc::clone(&takeover).run(reads, notices);
        tokio::spawn(stop.clone().run_until_cancelled_owned(work));
        takeover
    }
}
