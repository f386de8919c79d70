//! Replicates histories: serves the leader's histories to standby replicas, and copies the histories of
//! another leader. A replica that becomes the leader restores them, and checkpoints them while it leads.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::leader::LeaderElection;
use crate::cli::Config;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use controller::history::checkpoint::{Checkpoint, Running};
use controller::history::replica::transport::PeerTransport;
use controller::history::replica::{Follower, Handover, Parts, Source};
use controller::history::restore;
use controller::reconcile::Controller;
use controller::telemetry::metrics::Metrics as Telemetry;

/// Maximum time for which a leader that shuts down waits for standby replicas to copy its histories. The limit keeps a
/// handover below 2 s.
const HAND_OVER: Duration = Duration::from_millis(1500);

/// Both sides of the replication: the source for other replicas, and the follower of the current leader.
#[derive(Debug)]
pub(super) struct Replication {
    source: Arc<Source>,
    follower: Option<Follower>,
}

impl Replication {
    /// Creates the replication of the controller's histories. Without `link`, this replica copies no
    /// histories.
    pub(super) fn new(
        source: Arc<Source>,
        link: Option<Arc<dyn PeerTransport>>,
        leading: &LeaderElection,
        controller: &Arc<Controller>,
        telemetry: &Telemetry,
    ) -> Self {
        let follower = link.map(|link| {
            Follower::new(Parts {
                link,
                identity: leading.identity().to_owned(),
                leader_state: leading.leader_state(),
                controller: Arc::clone(controller),
                telemetry: telemetry.clone(),
                lease: leading.lease(),
            })
        });
        Self { source, follower }
    }

    /// Copies the histories of the current leader until `end` completes.
    pub(super) async fn follow_until<T>(&mut self, end: impl Future<Output = T>) -> T {
        let following = async {
            if let Some(follower) = &mut self.follower {
                follower.run().await;
            }
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            ended = end => ended,
            never = following => match never {},
        }
    }

    /// Adopts the copied histories at the start of this replica's term.
    pub(super) fn take_over(&mut self, term: i32) -> Handover {
        self.follower.take().map_or(Handover::Nothing, |follower| follower.take_over(term))
    }

    /// Starts to serve histories to other replicas.
    pub(super) fn leads(&self) {
        self.source.leads();
    }

    /// Stops serving histories because this replica lost the Lease. Pending requests are answered at once.
    pub(super) fn lost(&self) {
        self.source.lost();
    }

    /// Waits, for [`HAND_OVER`] at most, until standby replicas have copied the final histories. All syncs
    /// must have finished before the call.
    pub(super) async fn conclude(&self) {
        if timeout(HAND_OVER, self.source.conclude()).await.is_err() {
            tracing::info!(
                "some replicas did not copy the final histories; the next leader may miss the last second of history"
            );
        }
    }
}

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
