//! Preserves histories across changes of the leader and restarts. Before its first sync, a leader restores them from the checkpoint
//! if one exists, otherwise from status and events.
//!
//! The restore covers HPAs with no history other than rescales from the watch. It takes a few seconds at most. For a
//! part that is still missing, the controller then assumes the worst case. The same applies to the past of an HPA that
//! appears later: the controller derives that past from the HPA's status ([`HpaIntake`](engine::reconcile::HpaIntake)).

pub mod checkpoint;
pub mod codec;
pub mod rebuild;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::{History, Recommendation};
use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};

use self::checkpoint::{Checkpoint, Entry, Shard, TOLERANCE};
use self::rebuild::{EventsError, Rescales};
use cluster::client::Client;
use engine::reconcile::{Controller, KeptHistory};
use engine::store::HpaRecord;

/// Time limit for reading the checkpoint. The same limit applies again to reading events and clearing the marks of the
/// checkpoint.
const WITHIN: Duration = Duration::from_millis(2500);

/// Number of HPAs by the source of their history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoreCounts {
    /// HPAs restored from an exact checkpoint.
    pub exact: usize,
    /// HPAs restored from a checkpoint that may lack the last seconds.
    pub inherited: usize,
    /// HPAs that have scaled before, with a history rebuilt from status and events.
    pub rebuilt: usize,
}

/// Restores the history of every HPA without recommendations. `namespaces`: the watched namespaces, or `None` for all.
pub async fn restore(
    controller: &Controller,
    reads: &Client,
    namespaces: Option<&BTreeSet<String>>,
    mut checkpoint: Option<&mut Checkpoint>,
) -> RestoreCounts {
    let mut restored = RestoreCounts::default();
    controller.stores.histories.start_restore();
    let mut hpas: Vec<_> = controller.stores.hpas.all().into_values().collect();
    hpas.retain(|hpa| controller.stores.histories.get(&hpa.uid).recommendations.is_empty());

    if let Some(checkpoint) = &mut checkpoint {
        let shards = checkpoint.read(WITHIN).await;
        let (forecasts, histories): (Vec<_>, Vec<_>) =
            shards.iter().partition(|shard| shard.holds_forecasts());
        let forecasts = newest(&forecasts);
        for hpa in &hpas {
            let entry = forecasts.get(&*hpa.uid).map(|(_, entry)| entry);
            if let Some(state) = entry.and_then(|entry| codec::forecast(&entry.history)) {
                controller.stores.histories.commit_forecast(&hpa.uid, Some(state.into()));
            }
        }
        let entries = newest(&histories);
        let now = controller.clock_reading().at;
        hpas.retain(|hpa| {
            let Some((shard, entry)) = entries.get(&*hpa.uid) else { return true };
            match read_entry(entry, now) {
                Ok(history) if is_exact(shard, hpa) => {
                    restored.exact += 1;
                    controller.stores.histories.inherit(&hpa.uid, history);
                    false
                }
                Ok(history) => {
                    restored.inherited += 1;
                    let history = after_crash(history, hpa, controller, now);
                    controller.stores.histories.inherit(&hpa.uid, history);
                    false
                }
                Err(error) => {
                    tracing::warn!(
                        hpa = %hpa.key, %error,
                        "skipping a history in the checkpoint; rebuilding it from status and events"
                    );
                    true
                }
            }
        });
    }

    let clear = async {
        if let Some(checkpoint) = checkpoint {
            checkpoint.clear_marks(WITHIN).await;
        }
    };
    hpas.retain(|hpa| hpa.spec.behavior.is_some());
    let ((), rescales) = join(clear, events(controller, reads, namespaces, &hpas)).await;
    let now = controller.clock_reading().at;
    for hpa in hpas {
        let history = History::rebuilt(&hpa.status, &rescales.for_hpa(&hpa.uid), controller.period, now);
        restored.rebuilt += usize::from(hpa.status.last_scale_time.is_some());
        controller.stores.histories.inherit(&hpa.uid, history);
    }

    let RestoreCounts { exact, inherited, rebuilt } = restored;
    for (source, count) in [("checkpoint", exact), ("crash", inherited), ("status", rebuilt)] {
        controller.telemetry.restored(source, count);
    }
    if restored != RestoreCounts::default() {
        tracing::info!(checkpoint = exact, crash = inherited, status = rebuilt, "restored HPA history");
    }
    restored
}

/// Returns the newest entry of each HPA, with its shard.
fn newest<'a>(shards: &[&'a Shard]) -> BTreeMap<&'a str, (&'a Shard, &'a Entry)> {
    let mut entries: BTreeMap<&str, (&Shard, &Entry)> = BTreeMap::new();
    for (shard, entry) in
        shards.iter().copied().flat_map(|shard| shard.entries.iter().map(move |entry| (shard, entry)))
    {
        let newest = entries.entry(&entry.uid).or_insert((shard, entry));
        if newest.0.written < shard.written {
            *newest = (shard, entry);
        }
    }
    entries
}

/// Returns whether the entry is complete: a leader wrote its shard at a clean shutdown, and the status contains no
/// later rescale.
fn is_exact(shard: &Shard, hpa: &HpaRecord) -> bool {
    let scaled = hpa.status.last_scale_time;
    shard.ended && scaled.is_none_or(|scaled| scaled.as_second() < shard.written.as_second())
}

/// Adapts the history of a leader that did not shut down cleanly. The last entries may be missing.
fn after_crash(
    mut kept: KeptHistory,
    hpa: &HpaRecord,
    controller: &Controller,
    now: Timestamp,
) -> KeptHistory {
    let recommendations = &mut Arc::make_mut(&mut kept.history).recommendations;
    let newest = recommendations.iter().map(|recommendation| recommendation.at).max();
    let window = longest_window(hpa, controller);
    if newest.is_some_and(|newest| now.duration_since(newest) > window) {
        // The recommendations within the window are unknown. The window starts with the current count, as after a
        // process start.
        recommendations.clear();
    } else if let (Some(newest), Some(scaled)) = (newest, hpa.status.last_scale_time)
        && scaled > newest
    {
        // A missing rescale counts as a recommendation. Its time is at most `now`, because the clock of its writer may
        // be ahead.
        recommendations.push(Recommendation { at: scaled.min(now), replicas: hpa.status.desired_replicas });
    }
    kept.inherit(now)
}

/// Returns the longest window in which recommendations of an HPA matter.
fn longest_window(hpa: &HpaRecord, controller: &Controller) -> SignedDuration {
    let default =
        SignedDuration::try_from(controller.settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    let seconds = hpa.spec.behavior.iter().flat_map(|behavior| {
        [&behavior.scale_up, &behavior.scale_down].map(|rules| rules.stabilization_window_seconds)
    });
    let longest = seconds.flatten().map(|seconds| SignedDuration::from_secs(seconds.into())).max();
    longest.map_or(default, |longest| longest.max(default))
}

/// Reads rescale events if they can still affect one of the HPAs. With `namespaces`, reads only the namespaces of such
/// HPAs.
async fn events(
    controller: &Controller,
    reads: &Client,
    namespaces: Option<&BTreeSet<String>>,
    hpas: &[Arc<HpaRecord>],
) -> Rescales {
    let now = controller.clock.now();
    let relevant: BTreeSet<&str> =
        hpas.iter().filter(|hpa| rebuild::matters(hpa, now)).map(|hpa| &*hpa.key.namespace).collect();
    if relevant.is_empty() {
        return Rescales::default();
    }
    let scopes: Vec<_> = match namespaces {
        None => vec![None],
        Some(namespaces) => {
            namespaces.iter().map(String::as_str).filter(|name| relevant.contains(name)).map(Some).collect()
        }
    };
    let reads = scopes.iter().map(|scope| rebuild::read(reads, *scope, WITHIN));
    let mut rescales = Rescales::default();
    for (scope, answer) in scopes.iter().zip(join_all(reads).await) {
        match answer {
            Ok(some) => rescales.extend(some),
            Err(error) => log_events_error(*scope, &error),
        }
    }
    rescales
}

fn log_events_error(namespace: Option<&str>, error: &EventsError) {
    tracing::warn!(
        namespace, %error,
        "failed to read rescale events; an HPA with a lost history may not scale until the longest period of its \
         behavior policies has passed since its last rescale"
    );
}

/// The reason why an entry is not used.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    /// The history cannot be decoded.
    #[error(transparent)]
    History(#[from] codec::HistoryError),
    /// The history contains a time in the future, so one of the clocks is wrong.
    #[error("the newest entry of the history, at {0}, is in the future")]
    Future(Timestamp),
}

/// Decodes the history of an entry. Rejects a history from the future.
fn read_entry(entry: &Entry, now: Timestamp) -> Result<KeptHistory, EntryError> {
    let kept = codec::decode(&entry.history)?;
    let KeptHistory { history, policy, .. } = &kept;
    let latest = now.checked_add(TOLERANCE).unwrap_or(Timestamp::MAX);
    let times = history.recommendations.iter().map(|recommendation| recommendation.at);
    let events = history.scale_ups.iter().chain(&history.scale_downs).map(|event| event.at);
    let doubts = [history.unknown_up, history.unknown_down, history.unsettled.map(|unsettled| unsettled.at)];
    let metrics = policy.iter().flat_map(|policy| policy.metrics.values());
    let policy_times =
        metrics.flat_map(|metric| [metric.failing.map(|(since, _)| since), metric.last_nonzero]);
    let doubts = doubts.into_iter().chain(policy_times).flatten();
    match times.chain(events).chain(doubts).max() {
        Some(newest) if newest > latest => Err(EntryError::Future(newest)),
        _ => Ok(kept),
    }
}
