//! Restores histories when this replica becomes the leader, and checkpoints them while it leads.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cli::Config;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use controller::history::checkpoint::{Checkpoint, Running};
use controller::history::replica::Handover;
use controller::history::restore;
use controller::reconcile::Controller;
use controller::telemetry::metrics::Metrics as Telemetry;

/// The restore of histories, before it runs.
#[derive(Debug)]
pub(super) struct HistoryRestore {
    checkpoint: Option<Checkpoint>,
    reads: Client,
    namespaces: Option<BTreeSet<String>>,
}

impl HistoryRestore {
    /// Prepares the restore and the checkpoint that the flags configure. Returns `None` for a dry run,
    /// because a process that writes nothing has no rescales to restore.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: &SharedClock,
        telemetry: &Telemetry,
    ) -> Option<Self> {
        let checkpoint = config
            .history_checkpoint
            .as_ref()
            .map(|maps| Checkpoint::new(clients, maps, Arc::clone(clock), telemetry.clone()));
        let namespaces = config.controller.watch_namespaces.clone();
        (!config.controller.dry_run).then(|| Self { checkpoint, reads: clients.watch.clone(), namespaces })
    }

    /// Restores histories before the first sync, and starts the checkpoint, which runs until the shutdown.
    pub(super) async fn restore(
        mut self,
        controller: &Arc<Controller>,
        inheritance: Handover,
    ) -> Option<Running> {
        let (namespaces, checkpoint) = (self.namespaces.as_ref(), self.checkpoint.as_mut());
        // Boxed, because the future is large and completes before the first sync.
        Box::pin(restore(controller, &self.reads, namespaces, checkpoint, inheritance)).await;
        self.checkpoint.map(|checkpoint| checkpoint.start(Arc::clone(controller)))
    }
}
