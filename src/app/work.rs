//! The work of one replica from the first list to the release of the Lease, with the restore and the replication of
//! histories.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AppError;
use super::checks;
use super::guard::{HandoverSetup, TakeoverSetup};
use super::leader::LeaderElection;
use crate::cli::Config;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use controller::assembly::Assembly;
use controller::history::checkpoint::{Checkpoint, Running};
use controller::history::replica::peers::PeerTransport;
use controller::history::replica::{Follower, Handover, Parts, Source};
use controller::history::restore;
use controller::reconcile::Controller;
use controller::telemetry::metrics::Metrics as Telemetry;

/// Time limit for syncs in flight at shutdown. The sum of the time limits for syncs, events and the Lease is below the
/// default grace period of a pod, 30 s.
const DRAIN: Duration = Duration::from_secs(15);
/// Time limit at shutdown for sending the remaining events, and for the last write of the checkpoint.
const FLUSH: Duration = Duration::from_secs(5);
/// Time limit at shutdown for standby replicas to copy the final histories. The limit keeps the time without a leader
/// below 2 s.
const HAND_OVER: Duration = Duration::from_millis(1500);

/// Waits for the first sync of the caches, becomes the leader, and syncs until `stop` or until the Lease is lost.
/// Releases the Lease at the end, unless it is lost. `identity` is the check of the user of this process.
pub(super) async fn work(
    assembly: &Assembly,
    leading: Option<(LeaderElection, Replication)>,
    (guard, handover): (Option<TakeoverSetup>, Option<HandoverSetup>),
    past: Option<HistoryRestore>,
    (server, identity): (&str, impl Future<Output = Result<(), AppError>>),
    telemetry: &Telemetry,
    [stop, watches]: [&CancellationToken; 2],
) -> Result<(), AppError> {
    let Some(synced) = stop.run_until_cancelled(checks::synced(assembly, server)).await else {
        return Ok(());
    };
    synced?;
    let Some(identified) = stop.run_until_cancelled(identity).await else { return Ok(()) };
    identified?;
    let controller = &assembly.controller;
    tracing::info!(hpas = controller.hpas.len(), pods = controller.pods.len(), "caches synced");
    let takeover = guard.map(|guard| guard.start(controller, watches));
    let handover = handover.map(|handover| handover.start(controller, watches));
    let Some((leading, mut replication)) = leading else {
        if let Some(takeover) = &takeover {
            takeover.leads(None);
        }
        if let Some(handover) = &handover {
            handover.leads(None);
        }
        sync_until(assembly, past, Handover::Nothing, stop).await;
        return Ok(());
    };
    let mut candidacy = leading.start(telemetry)?;
    if replication.follow_until(candidacy.leads(stop)).await {
        let inheritance = candidacy.term().map_or(Handover::Nothing, |term| replication.take_over(term));
        replication.leads();
        if let Some(takeover) = &takeover {
            takeover.leads(candidacy.since_others());
        }
        if let Some(handover) = &handover {
            handover.leads(candidacy.since_others());
        }
        // Once the Lease is lost, all syncs stop at once, because a further write could conflict with the new leader.
        tokio::select! {
            biased;
            lost = candidacy.lost() => {
                replication.lost();
                return Err(lost);
            }
            in_order = sync_until(assembly, past, inheritance, stop) => {
                // After an aborted sync, the histories are not final, so no replica may copy them.
                if in_order {
                    replication.conclude().await;
                }
            }
        }
    }
    candidacy.release().await
}

/// Restores histories and syncs until `stop`. Then finishes syncs, events and the checkpoint within their time limits.
/// Returns whether the restore and all syncs finished.
async fn sync_until(
    assembly: &Assembly,
    past: Option<HistoryRestore>,
    inheritance: Handover,
    stop: &CancellationToken,
) -> bool {
    let controller = &assembly.controller;
    let checkpoint = match past.map(|past| stop.run_until_cancelled(past.restore(controller, inheritance))) {
        None => None,
        // The future is boxed, because it is large and completes before the first sync.
        Some(restore) => match Box::pin(restore).await {
            Some(checkpoint) => checkpoint,
            // `stop` interrupted the restore. The next leader restores the histories.
            None => return false,
        },
    };
    let running = Arc::clone(controller).run(stop.clone());
    let in_order = tokio::select! {
        biased;
        () = running => true,
        () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!(limit = ?DRAIN, "aborted syncs that did not finish in time");
            false
        }
    };
    let flush = timeout(FLUSH, controller.events.flush());
    let finish = timeout(FLUSH, async {
        if let Some(checkpoint) = checkpoint {
            checkpoint.finish(in_order).await;
        }
    });
    let (flushed, finished) = futures::future::join(flush, finish).await;
    if flushed.is_err() {
        tracing::warn!(limit = ?FLUSH, "failed to send all events in time");
    }
    if finished.is_err() {
        tracing::warn!(
            limit = ?FLUSH,
            "failed to write the checkpoint of histories in time; the checkpoint lacks the last seconds"
        );
    }
    in_order
}

/// The replication of histories: the source for standby replicas, and the follower of another leader.
#[derive(Debug)]
pub(super) struct Replication {
    source: Arc<Source>,
    follower: Option<Follower>,
}

impl Replication {
    /// Creates the replication of the controller's histories. Without `link`, this replica copies no histories.
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

    /// Returns the copied histories at the start of this replica's term, and stops following.
    pub(super) fn take_over(&mut self, term: i32) -> Handover {
        self.follower.take().map_or(Handover::Nothing, |follower| follower.take_over(term))
    }

    /// Starts to serve histories to other replicas.
    pub(super) fn leads(&self) {
        self.source.leads();
    }

    /// Stops serving histories after the loss of the Lease. Pending requests get a response at once.
    pub(super) fn lost(&self) {
        self.source.lost();
    }

    /// Waits until standby replicas have copied the final histories, at most [`HAND_OVER`]. All syncs must have
    /// finished before this call.
    pub(super) async fn conclude(&self) {
        if timeout(HAND_OVER, self.source.conclude()).await.is_err() {
            tracing::info!(
                "some replicas did not copy the final histories; the next leader may miss the last second of history"
            );
        }
    }
}

/// The restore of histories before its start.
#[derive(Debug)]
pub(super) struct HistoryRestore {
    checkpoint: Option<Checkpoint>,
    reads: Client,
    namespaces: Option<BTreeSet<String>>,
}

impl HistoryRestore {
    /// Prepares the restore and the checkpoint that the flags configure. Returns `None` for a dry run, which has no
    /// rescales to restore.
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

    /// Restores histories. Then starts the checkpoint, if configured, which runs until the shutdown.
    pub(super) async fn restore(
        mut self,
        controller: &Arc<Controller>,
        inheritance: Handover,
    ) -> Option<Running> {
        let (namespaces, checkpoint) = (self.namespaces.as_ref(), self.checkpoint.as_mut());
        Box::pin(restore(controller, &self.reads, namespaces, checkpoint, inheritance)).await;
        self.checkpoint.map(|checkpoint| checkpoint.start(Arc::clone(controller)))
    }
}
