//! Stores histories in ConfigMaps next to the Lease, from which the next leader continues (`--history-checkpoint`).
//!
//! The leader writes changed ConfigMaps at intervals of [`EVERY`], and all ConfigMaps in use once more at shutdown. The
//! last write of a clean shutdown contains a mark. No change follows the mark, so the next leader reads exact
//! histories. A checkpoint without the mark comes from a leader that did not shut down cleanly, and may lack the last
//! changes. The next leader then adapts the restored histories (`History::inherit`). A new leader clears the mark
//! before its first sync. It skips an invalid ConfigMap or history, and rebuilds the affected histories.

mod shards;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::hash::fnv1a;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::shards::{Arrangement, Candidate, arrange, arrange_forecasts};
pub use self::shards::{CheckpointPlace, Entry, MOST_SHARDS, Shard, ShardError};
use crate::history::codec;
use clock::{Backoff, SharedClock};
use cluster::client::Clients;
use cluster::error::ApiError;
use cluster::typed::{ConfigMap, ConfigMaps};
use engine::reconcile::{Controller, Histories, KeptHistory};
use engine::telemetry::metrics::Metrics as Telemetry;

/// Interval between two saves.
pub const EVERY: Duration = Duration::from_secs(15);
/// Interval between two saves of the states of forecasts. They are larger than histories, and lose little with a few
/// minutes.
const FORECASTS_EVERY: Duration = Duration::from_mins(10);
/// First pause after failed writes.
const PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_mins(4);
/// Maximum bytes of one ConfigMap. The API server allows 1 MiB.
pub const LIMIT: usize = 900 << 10;
/// The key of `binaryData`.
const KEY: &str = "histories";
/// Time limit of one request.
const REQUEST: Duration = Duration::from_secs(5);
/// Maximum number of attempts of one write that conflicts.
const TRIES: usize = 3;
/// Maximum lead of the previous leader's clock over this leader's clock.
pub const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);
/// Number of histories that are encoded before other tasks run.
const AT_ONCE: usize = 500;

/// The checkpoint of one leader.
#[derive(Debug)]
pub struct Checkpoint {
    maps: ConfigMaps,
    clock: SharedClock,
    telemetry: Telemetry,
    shards: Vec<ShardMap>,
    /// Number of shards in use.
    used: usize,
    /// The time of the last save of the states of forecasts, or of the creation.
    forecasts_saved: Instant,
    /// [`Histories::changes`] at the last successful save.
    saved: Option<u64>,
    /// Maximum bytes of a shard.
    limit: usize,
    /// Number of HPAs that the last save left out.
    left_out: usize,
    /// Whether a failure of writes was logged, and no recovery followed.
    reported: bool,
}

/// The state of one ConfigMap.
#[derive(Debug)]
struct ShardMap {
    name: String,
    /// The last version that was read or written. `None` if the ConfigMap does not exist, or was never read.
    object: Option<ConfigMap>,
    held: Content,
}

/// The content of a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// Nothing, or invalid data.
    Nothing,
    /// A shard of a previous leader.
    Found(Shard),
    /// A shard of this leader, as the hash of its entries.
    OwnSide(u64),
    /// The same with states of forecasts.
    OwnForecasts(u64),
}

/// What a save does with a shard.
#[derive(Debug)]
enum Planned {
    Histories(Vec<Entry>),
    Forecasts(Vec<Entry>),
    /// Empties the shard.
    Nothing,
    /// Empties the shard, unless it contains states of forecasts.
    KeepForecasts,
}

impl Content {
    fn holds_forecasts(&self) -> bool {
        match self {
            Self::Found(shard) => shard.holds_forecasts(),
            Self::OwnForecasts(_) => true,
            Self::Nothing | Self::OwnSide(_) => false,
        }
    }
}

/// The running task that writes a checkpoint.
#[derive(Debug)]
pub struct Running {
    /// Reports to the task whether the shutdown is clean.
    finish: oneshot::Sender<bool>,
    task: AbortOnDropHandle<()>,
}

impl Checkpoint {
    /// Creates the checkpoint at a location, without reading it.
    pub fn new(
        clients: &Clients,
        location: &CheckpointPlace,
        clock: SharedClock,
        telemetry: Telemetry,
    ) -> Self {
        let shard_named = |name| ShardMap { name, object: None, held: Content::Nothing };
        Self {
            maps: ConfigMaps::new(&clients.checkpoint, &location.namespace, KEY, REQUEST),
            clock,
            telemetry,
            shards: location.names().map(shard_named).collect(),
            used: 1,
            forecasts_saved: Instant::now(),
            saved: None,
            limit: LIMIT,
            left_out: 0,
            reported: false,
        }
    }

    /// Reads the valid shards of the previous leader within a time limit. Logs invalid shards.
    pub async fn read(&mut self, within: Duration) -> Vec<Shard> {
        let maps = &self.maps;
        let reads = self.shards.iter().map(|shard| maps.get(&shard.name));
        let Ok(answers) = timeout(within, join_all(reads)).await else {
            tracing::warn!(
                namespace = self.maps.namespace(),
                limit = ?within,
                "failed to read the checkpoint of histories in time; rebuilding them from status and events"
            );
            return Vec::new();
        };
        let latest = self.clock.now().checked_add(TOLERANCE).unwrap_or(Timestamp::MAX);
        let mut error = None;
        for (shard_map, answer) in self.shards.iter_mut().zip(answers) {
            let mut object = match answer {
                Ok(Some(object)) => object,
                Ok(None) => continue,
                Err(failure) => {
                    error = Some(failure);
                    continue;
                }
            };
            let content = object.content.take();
            shard_map.object = Some(object);
            let shard = match content {
                // The ConfigMap was deployed empty, or was cleared.
                None => continue,
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => Shard::decode(&bytes),
            };
            let shard = shard.and_then(|shard| match shard.written {
                written if written > latest => Err(ShardError::Future(written)),
                _ => Ok(shard),
            });
            match shard {
                Ok(shard) => shard_map.held = Content::Found(shard),
                Err(error) => tracing::warn!(
                    config_map = shard_map.name, %error,
                    "skipping a ConfigMap of the checkpoint; rebuilding its histories from status and events"
                ),
            }
        }
        if let Some(error) = error {
            tracing::warn!(
                namespace = self.maps.namespace(), %error,
                "failed to read all of the checkpoint of histories; rebuilding the rest from status and events"
            );
        }
        self.found().cloned().collect()
    }

    fn found(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter_map(|shard_map| match &shard_map.held {
            Content::Found(shard) => Some(shard),
            _ => None,
        })
    }

    /// Clears the marks of a clean shutdown. If this fails or exceeds the time limit, a later write clears them. A
    /// leader that reads a stale mark detects later rescales by the statuses.
    pub async fn clear_marks(&mut self, within: Duration) {
        let marked: Vec<_> = (0..self.shards.len())
            .filter_map(|number| match &self.shards.get(number)?.held {
                Content::Found(shard) if shard.ended => {
                    Some((number, Shard { ended: false, ..shard.clone() }))
                }
                _ => None,
            })
            .collect();
        let clear = async {
            for (number, shard) in marked {
                self.write(number, &shard.encode()).await?;
                if let Some(shard_map) = self.shards.get_mut(number) {
                    shard_map.held = Content::Found(shard);
                }
            }
            Ok::<_, ApiError>(())
        };
        match timeout(within, clear).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to clear the clean-shutdown marks of the checkpoint");
            }
            Err(_) => {
                tracing::debug!("failed to clear the clean-shutdown marks of the checkpoint: no response");
            }
        }
    }

    /// Starts the periodic writes. They continue until the checkpoint is finished or dropped.
    pub fn start(mut self, controller: Arc<Controller>) -> Running {
        let (finish, finished) = oneshot::channel();
        let tasks = controller.runtime.tasks.clone();
        let keep = async move {
            let histories = &controller.stores.histories;
            let in_order = tokio::select! {
                biased;
                in_order = finished => in_order,
                never = self.keep(histories) => match never {},
            };
            // A dropped sender means that this replica is no longer the leader.
            if let Ok(in_order) = in_order {
                let _ = self.save(histories, in_order).await;
            }
        };
        Running { finish, task: AbortOnDropHandle::new(tasks.spawn("checkpoint", keep)) }
    }

    async fn keep(&mut self, histories: &Histories) -> std::convert::Infallible {
        let mut backoff = Backoff::new(PAUSE, LONGEST_PAUSE);
        let mut wait = EVERY;
        loop {
            sleep(wait).await;
            wait = match self.save(histories, false).await {
                Err(error) if !error.is_refused() => backoff.fail(),
                _ => {
                    backoff.reset();
                    EVERY
                }
            };
        }
    }

    /// Writes changed shards. With `ended`, writes all shards in use, with the mark.
    async fn save(&mut self, histories: &Histories, ended: bool) -> Result<(), ApiError> {
        // Correct the histories for jumps of the clock.
        histories.correct_clock(self.clock.now());
        let changes = histories.changes();
        if !ended && self.saved == Some(changes) {
            return Ok(());
        }
        let Arrangement { shards, left_out } = arrange(candidates(histories).await, self.used, self.limit);
        // Forecasts use the shards that histories do not use. A shutdown does not wait for them.
        let is_due = self.forecasts_saved.elapsed() >= FORECASTS_EVERY || self.used != shards.len();
        let rest = self.shards.len().saturating_sub(shards.len());
        let forecasts = (is_due && !ended).then(|| arrange_forecasts(states(histories), rest, self.limit));
        self.used = shards.len();
        self.log_left_out(left_out);
        let written = self.clock.now();
        let (mut size, mut error) = (0, None);
        // Write the highest shard first. When the number of shards grows, an HPA is then in its new shard before its
        // old shard drops it.
        let mut all: Vec<_> = shards.into_iter().map(Planned::Histories).collect();
        let has_forecasts = forecasts.is_some();
        all.extend(
            forecasts.into_iter().flatten().map(|entries| {
                if entries.is_empty() { Planned::Nothing } else { Planned::Forecasts(entries) }
            }),
        );
        all.resize_with(self.shards.len(), || Planned::KeepForecasts);
        let mut all: Vec<_> = all.into_iter().enumerate().collect();
        while let Some((number, planned)) = all.pop() {
            let Some(shard_map) = self.shards.get(number) else { continue };
            let (entries, has_histories) = match planned {
                Planned::KeepForecasts if shard_map.held.holds_forecasts() => continue,
                Planned::Nothing | Planned::KeepForecasts if shard_map.held == Content::Nothing => continue,
                Planned::Nothing | Planned::KeepForecasts => (Vec::new(), false),
                Planned::Histories(entries) => (entries, true),
                Planned::Forecasts(entries) => (entries, false),
            };
            let is_used = has_histories || !entries.is_empty();
            // The mark concerns histories.
            let bytes = Shard { written, ended: ended && has_histories, entries }.encode();
            let digest = fnv1a(Shard::entries_of(&bytes));
            size += if is_used { bytes.len() } else { 0 };
            let content = match (is_used, has_histories) {
                (true, false) => Content::OwnForecasts(digest),
                _ => Content::OwnSide(digest),
            };
            if content == shard_map.held && !(ended && has_histories) {
                continue;
            }
            match self.write(number, &bytes).await {
                Ok(()) => {
                    if let Some(shard_map) = self.shards.get_mut(number) {
                        shard_map.held = content;
                    }
                }
                Err(failure) => {
                    let goes_on = !failure.is_transient() && !failure.is_refused();
                    error.get_or_insert(failure);
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        self.telemetry.checkpoint(size, left_out);
        self.log_result(error.as_ref());
        if error.is_none() {
            self.saved = Some(changes);
            if has_forecasts {
                self.forecasts_saved = Instant::now();
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Writes one ConfigMap. On a conflict, reads the ConfigMap again for its `resourceVersion` and replaces the
    /// content, because the holder of the Lease wins.
    async fn write(&mut self, number: usize, bytes: &[u8]) -> Result<(), ApiError> {
        let Some(shard_map) = self.shards.get_mut(number) else { return Ok(()) };
        let mut attempts = 1;
        let result = loop {
            let answer = match &shard_map.object {
                Some(object) => self.maps.replace(&shard_map.name, object, bytes).await,
                None => self.maps.create(&shard_map.name, bytes).await,
            };
            match answer {
                Ok(object) => {
                    shard_map.object = Some(object);
                    break Ok(());
                }
                Err(ApiError::Status { code: 409, .. }) if attempts < TRIES => {
                    self.telemetry.checkpoint_write("conflict");
                    match self.maps.get(&shard_map.name).await {
                        Ok(object) => shard_map.object = object,
                        Err(error) => break Err(error),
                    }
                }
                Err(error) if error.is_not_found() && shard_map.object.is_some() => shard_map.object = None,
                Err(error) => break Err(error),
            }
            attempts += 1;
        };
        match &result {
            Ok(()) => self.telemetry.checkpoint_write("written"),
            Err(error) if error.is_refused() => {}
            Err(_) => self.telemetry.checkpoint_write("failed"),
        }
        result
    }

    /// Logs the first of consecutive failures, and the recovery.
    fn log_result(&mut self, error: Option<&ApiError>) {
        let namespace = self.maps.namespace();
        match error {
            Some(error) if error.is_refused() => {}
            Some(error) if !self.reported => {
                self.reported = true;
                tracing::warn!(
                    namespace, %error,
                    "failed to write the checkpoint of histories, retrying; concertina rbac \
                     --history-checkpoint prints the ConfigMaps and the Role that it needs"
                );
            }
            Some(error) => tracing::debug!(namespace, %error, "still failing to write the checkpoint"),
            None if self.reported => {
                self.reported = false;
                tracing::info!(namespace, "resumed writing the checkpoint of histories");
            }
            None => {}
        }
    }

    fn log_left_out(&mut self, left_out: usize) {
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                hpas = left_out,
                "the checkpoint is full and leaves out the histories of some HPAs; a restart of all replicas rebuilds \
                 them from status and events"
            );
        }
        self.left_out = left_out;
    }
}

impl Running {
    /// Writes the last checkpoint and stops. `in_order`: whether all syncs have ended.
    pub async fn finish(self, in_order: bool) {
        // An error means that the task has already stopped.
        let _ = self.finish.send(in_order);
        let _ = self.task.await;
    }
}

/// Encodes the states of all forecasts.
fn states(histories: &Histories) -> Vec<Entry> {
    let all = histories.all().into_iter();
    let states = all.filter_map(|(uid, kept)| {
        Some(Entry { uid: uid.to_string(), history: codec::encode_forecast(&kept.forecast?) })
    });
    states.collect()
}

/// Encodes every history that has entries or metrics of earlier syncs, without the recommendations that cannot change
/// any decision. These are most of them, and would take two thirds of the bytes.
async fn candidates(histories: &Histories) -> Vec<Candidate> {
    let all = histories.all();
    let mut candidates = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        for (uid, kept) in some {
            let KeptHistory { history, policy, .. } = kept;
            if !history.is_empty() || policy.is_some() {
                let scaled = history.scale_ups.iter().chain(&history.scale_downs).map(|event| event.at).max();
                let history = Arc::new(history.condensed());
                let kept = KeptHistory { history, ..kept.clone() };
                let entry = Entry { uid: uid.to_string(), history: codec::encode(&kept) };
                candidates.push(Candidate { size: entry.size(), entry, scaled });
            }
        }
        tokio::task::yield_now().await;
    }
    candidates
}

#[cfg(test)]
mod tests;
