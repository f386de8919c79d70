//! What a leader knows of the past when it begins, and leaves when it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::client::{Client, Clients};
use crate::cli::Config;
use crate::clock::SharedClock;
use crate::controller::Controller;
use crate::history::checkpoint::{Checkpoint, Running};
use crate::history::replica::Inheritance;
use crate::history::restore;
use crate::telemetry::metrics::Metrics as Telemetry;

/// The past that nobody has asked for yet.
#[derive(Debug)]
pub(super) struct Past {
    checkpoint: Option<Checkpoint>,
    reads: Client,
    namespaces: Option<BTreeSet<String>>,
}

impl Past {
    /// What the flags ask for. None in a dry run: whoever writes nothing did not scale before either.
    pub(super) fn prepare(
        config: &Config,
        clients: &Clients,
        clock: &SharedClock,
        telemetry: &Telemetry,
    ) -> Option<Self> {
        let checkpoint = config
            .history_checkpoint
            .as_ref()
            .map(|place| Checkpoint::new(clients, place, Arc::clone(clock), telemetry.clone()));
        let namespaces = config.watch_namespaces.clone();
        (!config.dry_run).then(|| Self { checkpoint, reads: clients.watch.clone(), namespaces })
    }

    /// Before the first sync. A checkpoint is kept from now on.
    pub(super) async fn begin(
        mut self,
        controller: &Arc<Controller>,
        inheritance: Inheritance,
    ) -> Option<Running> {
        restore(controller, &self.reads, self.namespaces.as_ref(), self.checkpoint.as_mut(), inheritance)
            .await;
        self.checkpoint.map(|checkpoint| checkpoint.start(Arc::clone(controller)))
    }
}
