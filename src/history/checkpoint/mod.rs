//! Histories in ConfigMaps beside the Lease, so that a restart of all replicas loses nothing (`--history-checkpoint`).
//!
//! The leader writes what has changed, each ConfigMap at most every [`EVERY`], and once more on its way down. That last
//! write carries a mark: nothing happened after it, so what the next leader reads is exact. A checkpoint without the mark is
//! the leader's of a crash; it may lack what came after it, which the core looks for (`History::inherit`). The next
//! leader takes the mark away before its first sync. What is wrong with a ConfigMap, or with one history in it, costs
//! that one alone: the HPA's history is then rebuilt.

mod arrange;
mod format;
mod hash;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::History;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

pub use self::arrange::MOST_SHARDS;
use self::arrange::{Arrangement, Candidate, arrange};
pub use self::format::{Entry, Shard, ShardError};
use self::hash::fnv1a;
use crate::api::client::Clients;
use crate::api::config_maps::{ConfigMap, ConfigMaps};
use crate::api::error::ApiError;
use crate::cli::config::HistoryCheckpoint;
use crate::clock::SharedClock;
use crate::controller::{Controller, Histories, Revision};
use crate::telemetry::metrics::Metrics as Telemetry;

/// How long between two writes of a ConfigMap.
pub const EVERY: Duration = Duration::from_secs(15);
/// The longest wait after writes that failed.
const MOST_WAIT: Duration = Duration::from_mins(4);
/// The most bytes of one ConfigMap. The API server allows 1 MiB.
pub const LIMIT: usize = 900 << 10;
/// The key of `binaryData`.
const KEY: &str = "histories";
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How often one write is tried that meets conflicts.
const TRIES: usize = 3;
/// How far the clock of the leader before may have been ahead of ours.
pub const TOLERANCE: SignedDuration = SignedDuration::from_mins(1);
/// After so many histories others get a turn.
const AT_ONCE: usize = 500;

/// The checkpoint of one leader.
#[derive(Debug)]
pub struct Checkpoint {
    maps: ConfigMaps,
    clock: SharedClock,
    telemetry: Telemetry,
    shards: Vec<Known>,
    /// How many of them are in use.
    used: usize,
    /// How far the histories were saved.
    saved: Option<Revision>,
    /// The most bytes of a shard.
    limit: usize,
    /// How many HPAs were left out last.
    left_out: usize,
    /// It was told that writes fail.
    told: bool,
}

/// What is known of one ConfigMap.
#[derive(Debug)]
struct Known {
    name: String,
    /// As it was last seen; `None` if it is not there, or was never read.
    object: Option<ConfigMap>,
    held: Held,
}

/// What it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    /// Nothing, or something that does not matter.
    Nothing,
    /// What a leader before wrote.
    Found(Shard),
    /// What this leader wrote: the hash of the entries.
    Ours(u64),
}

/// A checkpoint that is being kept.
#[derive(Debug)]
pub struct Running {
    /// Whether the end is in order.
    finish: oneshot::Sender<bool>,
    task: AbortOnDropHandle<()>,
}

impl Checkpoint {
    /// A checkpoint that was not read yet.
    pub fn new(
        clients: &Clients,
        place: &HistoryCheckpoint,
        clock: SharedClock,
        telemetry: Telemetry,
    ) -> Self {
        let known = |name| Known { name, object: None, held: Held::Nothing };
        Self {
            maps: ConfigMaps::new(clients.checkpoint.clone(), &place.namespace, KEY, REQUEST),
            clock,
            telemetry,
            shards: place.names().map(known).collect(),
            used: 1,
            saved: None,
            limit: LIMIT,
            left_out: 0,
            told: false,
        }
    }

    /// Reads what a leader before wrote: the shards that are sound. Each other one is told of.
    pub async fn read(&mut self, within: Duration) -> Vec<Shard> {
        let maps = &self.maps;
        let reads = self.shards.iter().map(|shard| maps.get(&shard.name));
        let Ok(answers) = timeout(within, join_all(reads)).await else {
            tracing::warn!(
                namespace = self.maps.namespace(),
                "the checkpoint of histories could not be read within {within:?}; they are rebuilt from status and events"
            );
            return Vec::new();
        };
        let latest = self.clock.now().checked_add(TOLERANCE).unwrap_or(Timestamp::MAX);
        let mut error = None;
        for (known, answer) in self.shards.iter_mut().zip(answers) {
            let mut object = match answer {
                Ok(Some(object)) => object,
                Ok(None) => continue,
                Err(failure) => {
                    error = Some(failure);
                    continue;
                }
            };
            let content = object.content.take();
            known.object = Some(object);
            let shard = match content {
                // As it was shipped, or cleared.
                None => continue,
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) => Shard::decode(&bytes).map_err(|error| error.to_string()),
                Some(Err(error)) => Err(error.to_string()),
            };
            let shard = shard.and_then(|shard| match shard.written {
                written if written > latest => Err(ShardError::Future(written).to_string()),
                _ => Ok(shard),
            });
            match shard {
                Ok(shard) => known.held = Held::Found(shard),
                Err(error) => tracing::warn!(
                    config_map = known.name, %error,
                    "a ConfigMap of the checkpoint is not used; the histories in it are rebuilt from status and events"
                ),
            }
        }
        if let Some(error) = error {
            tracing::warn!(
                namespace = self.maps.namespace(), %error,
                "not all of the checkpoint of histories can be read; what is missing is rebuilt from status and events"
            );
        }
        self.found().cloned().collect()
    }

    fn found(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter_map(|known| match &known.held {
            Held::Found(shard) => Some(shard),
            _ => None,
        })
    }

    /// Takes the marks of an end in order away: from now on something happens. What cannot be written within this time
    /// is written later; a leader that would read the mark meanwhile compares with the statuses.
    pub async fn begin(&mut self, within: Duration) {
        let marked: Vec<_> = (0..self.shards.len())
            .filter_map(|number| match &self.shards.get(number)?.held {
                Held::Found(shard) if shard.ended => Some((number, Shard { ended: false, ..shard.clone() })),
                _ => None,
            })
            .collect();
        let clear = async {
            for (number, shard) in marked {
                self.write(number, &shard.encode()).await?;
                if let Some(known) = self.shards.get_mut(number) {
                    known.held = Held::Found(shard);
                }
            }
            Ok::<_, ApiError>(())
        };
        match timeout(within, clear).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the checkpoint still looks as after an end in order"),
            Err(_) => tracing::debug!("the checkpoint still looks as after an end in order: no answer"),
        }
    }

    /// Keeps it up to date from now on, until it is finished or dropped.
    pub fn start(mut self, controller: Arc<Controller>) -> Running {
        let (finish, finished) = oneshot::channel();
        let keep = async move {
            let histories = &controller.histories;
            let in_order = tokio::select! {
                biased;
                in_order = finished => in_order,
                never = self.keep(histories) => match never {},
            };
            // Whoever is dropped does not lead any more.
            if let Ok(in_order) = in_order {
                let _ = self.save(histories, in_order).await;
            }
        };
        Running { finish, task: AbortOnDropHandle::new(tokio::spawn(keep)) }
    }

    async fn keep(&mut self, histories: &Histories) -> std::convert::Infallible {
        let mut wait = EVERY;
        loop {
            sleep(wait).await;
            wait = match self.save(histories, false).await {
                Ok(()) => EVERY,
                Err(error) if error.is_refused() => EVERY,
                Err(_) => (wait * 2).min(MOST_WAIT),
            };
        }
    }

    /// Writes what has changed; with `ended` everything, with the mark.
    async fn save(&mut self, histories: &Histories, ended: bool) -> Result<(), ApiError> {
        // Whatever became of the clock, what is written is as old as it was.
        histories.moment(self.clock.now());
        let revision = histories.revision();
        if !ended && self.saved == Some(revision) {
            return Ok(());
        }
        let Arrangement { shards, left_out } = arrange(candidates(histories).await, self.used, self.limit);
        self.used = shards.len();
        self.tell_left_out(left_out);
        let written = self.clock.now();
        let (mut size, mut error) = (0, None);
        // The highest first: where the number of shards has grown, an HPA is in its new one before it leaves the old one.
        let all = shards.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let mut all: Vec<_> = all.take(self.shards.len()).enumerate().collect();
        while let Some((number, entries)) = all.pop() {
            let is_used = entries.is_some();
            let bytes = Shard { written, ended, entries: entries.unwrap_or_default() }.encode();
            let digest = fnv1a(Shard::entries_of(&bytes));
            let Some(known) = self.shards.get(number) else { continue };
            size += if is_used { bytes.len() } else { 0 };
            match &known.held {
                Held::Ours(held) if *held == digest && !(ended && is_used) => continue,
                Held::Nothing if !is_used => continue,
                _ => {}
            }
            match self.write(number, &bytes).await {
                Ok(()) => {
                    if let Some(known) = self.shards.get_mut(number) {
                        known.held = Held::Ours(digest);
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
        self.tell(error.as_ref());
        match error {
            None => {
                self.saved = Some(revision);
                Ok(())
            }
            Some(error) => Err(error),
        }
    }

    /// Writes one ConfigMap. Whoever holds the Lease wins: on a conflict only the version is read again.
    async fn write(&mut self, number: usize, bytes: &[u8]) -> Result<(), ApiError> {
        let Some(known) = self.shards.get_mut(number) else { return Ok(()) };
        let mut tries = 1;
        let result = loop {
            let answer = match &known.object {
                Some(object) => self.maps.replace(&known.name, object, bytes).await,
                None => self.maps.create(&known.name, bytes).await,
            };
            match answer {
                Ok(object) => {
                    known.object = Some(object);
                    break Ok(());
                }
                Err(ApiError::Status { code: 409, .. }) if tries < TRIES => {
                    self.telemetry.checkpoint_write("conflict");
                    match self.maps.get(&known.name).await {
                        Ok(object) => known.object = object,
                        Err(error) => break Err(error),
                    }
                }
                Err(error) if error.is_not_found() && known.object.is_some() => known.object = None,
                Err(error) => break Err(error),
            }
            tries += 1;
        };
        match &result {
            Ok(()) => self.telemetry.checkpoint_write("written"),
            Err(error) if error.is_refused() => {}
            Err(_) => self.telemetry.checkpoint_write("failed"),
        }
        result
    }

    /// Tells of the first failure in a row, and of its end.
    fn tell(&mut self, error: Option<&ApiError>) {
        let namespace = self.maps.namespace();
        match error {
            Some(error) if error.is_refused() => {}
            Some(error) if !self.told => {
                self.told = true;
                tracing::warn!(
                    namespace, %error,
                    "the checkpoint of histories cannot be written, it is tried again; concertina rbac \
                     --history-checkpoint prints the ConfigMaps and the Role that it needs"
                );
            }
            Some(error) => tracing::debug!(namespace, %error, "the checkpoint still cannot be written"),
            None if self.told => {
                self.told = false;
                tracing::info!(namespace, "the checkpoint of histories is written again");
            }
            None => {}
        }
    }

    fn tell_left_out(&mut self, left_out: usize) {
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                hpas = left_out,
                "the histories of so many HPAs do not fit into the checkpoint; a restart of all replicas rebuilds \
                 them from status and events"
            );
        }
        self.left_out = left_out;
    }
}

impl Running {
    /// Writes once more. `in_order`: every sync that began has ended.
    pub async fn finish(self, in_order: bool) {
        // An error means that the task has ended.
        let _ = self.finish.send(in_order);
        let _ = self.task.await;
    }
}

/// Every history that there is, in bytes.
async fn candidates(histories: &Histories) -> Vec<Candidate> {
    let all = histories.changed_since(None, usize::MAX).histories;
    let mut candidates = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        for (uid, history) in some {
            if !history.is_empty() {
                let scaled = history.scale_ups.iter().chain(&history.scale_downs).map(|event| event.at).max();
                let entry = Entry { uid: uid.to_string(), history: history.encode() };
                candidates.push(Candidate { entry, scaled });
            }
        }
        tokio::task::yield_now().await;
    }
    candidates
}

/// Reads one history; one from the future is none.
pub(super) fn read_entry(entry: &Entry, now: Timestamp) -> Result<History, String> {
    let history = History::decode(&entry.history).map_err(|error| error.to_string())?;
    let latest = now.checked_add(TOLERANCE).unwrap_or(Timestamp::MAX);
    let times = history.recommendations.iter().map(|recommendation| recommendation.at);
    let events = history.scale_ups.iter().chain(&history.scale_downs).map(|event| event.at);
    let doubts = [history.unknown_up, history.unknown_down, history.unsettled.map(|unsettled| unsettled.at)];
    match times.chain(events).chain(doubts.into_iter().flatten()).max() {
        Some(newest) if newest > latest => Err(format!("a history of {newest}, which is yet to come")),
        _ => Ok(history),
    }
}

#[cfg(test)]
#[cfg(feature = "tools")]
mod tests;
