//! The work of one replica from the first list to the release of the Lease, with the restore of histories.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AppError;
use super::checks;
use super::guard::{HandoverSetup, TakeoverSetup};
use super::leader::LeaderElection;
use clock::SharedClock;
use cluster::client::{Client, Clients};
use controller::assembly::Assembly;
use engine::reconcile::Controller;
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::Config;
use journal::history::checkpoint::{Checkpoint, Running};
use journal::history::restore;

/// Time limit for syncs in flight at shutdown. The sum of the time limits for syncs, events and the Lease is below the
/// default grace period of a pod, 30 s.
const DRAIN: Duration = Duration::from_secs(15);
/// Time limit at shutdown for sending the remaining events, and for the last write of the checkpoint.
const FLUSH: Duration = Duration::from_secs(5);

/// Waits for the first sync of the caches, becomes the leader, and syncs until `stop` or until the Lease is lost.
/// Releases the Lease at the end, unless it is lost. `identity` is the check of the user of this process.
pub(super) async fn work(
    assembly: &Assembly,
    leading: Option<LeaderElection>,
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
    tracing::info!(hpas = controller.stores.hpas.len(), pods = controller.stores.pods.len(), "caches synced");
    let takeover = guard.map(|guard| guard.start(controller, watches));
    let handover = handover.map(|handover| handover.start(controller, watches));
    let Some(leading) = leading else {
        if let Some(takeover) = &takeover {
            takeover.leads(None);
        }
        if let Some(handover) = &handover {
            handover.leads(None);
        }
        sync_until(assembly, past, stop).await;
        return Ok(());
    };
    let mut candidacy = leading.start(telemetry)?;
    if candidacy.leads(stop).await {
        if let Some(takeover) = &takeover {
            takeover.leads(candidacy.since_others());
        }
        if let Some(handover) = &handover {
            handover.leads(candidacy.since_others());
        }
        // Once the Lease is lost, all syncs stop at once, because a further write could conflict with the new leader.
        tokio::select! {
            biased;
            lost = candidacy.lost() => return Err(lost),
            () = sync_until(assembly, past, stop) => {}
        }
    }
    candidacy.release().await
}

/// Restores histories and syncs until `stop`. Then finishes syncs, events and the checkpoint within their time limits.
async fn sync_until(assembly: &Assembly, past: Option<HistoryRestore>, stop: &CancellationToken) {
    let controller = &assembly.controller;
    let checkpoint = match past.map(|past| stop.run_until_cancelled(past.restore(controller))) {
        None => None,
        // The future is boxed, because it is large and completes before the first sync.
        Some(restore) => match Box::pin(restore).await {
            Some(checkpoint) => checkpoint,
            // `stop` interrupted the restore. The next leader restores the histories.
            None => return,
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
    let flush = timeout(FLUSH, controller.clients.events.flush());
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
    pub(super) async fn restore(mut self, controller: &Arc<Controller>) -> Option<Running> {
        let (namespaces, checkpoint) = (self.namespaces.as_ref(), self.checkpoint.as_mut());
        Box::pin(restore(controller, &self.reads, namespaces, checkpoint)).await;
        self.checkpoint.map(|checkpoint| checkpoint.start(Arc::clone(controller)))
    }
}
