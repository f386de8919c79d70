//! What a leader knows of the past before its first sync: from the checkpoint if there is one, else from status and events.
//!
//! Only for HPAs that this process remembers nothing of but what its watch has shown. It takes a few seconds at most;
//! what is not known by then counts to the safe side. So does the past of an HPA that is seen only later: it has what its
//! status tells (`controller::HpaIntake`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::{History, Recommendation};
use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};

use super::checkpoint::{Checkpoint, Entry, Shard, read_entry};
use super::rebuild::{self, EventsError, Rescales};
use super::replica::Inheritance;
use crate::api::client::Client;
use crate::controller::Controller;
use crate::store::HpaRecord;

/// How long the checkpoint may take to be read, and then once more events and what is written before the first sync.
const WITHIN: Duration = Duration::from_millis(2500);

/// How many HPAs got their history from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// From a checkpoint, exactly.
    pub exact: usize,
    /// From a checkpoint that may lack the last seconds.
    pub inherited: usize,
    /// From status and events.
    pub rebuilt: usize,
}

/// Gives every HPA without a history what is known of its past. `namespaces`: those that are watched, none is all. What the
/// leader before handed over is all there is to know.
pub async fn restore(
    controller: &Controller,
    reads: &Client,
    namespaces: Option<&BTreeSet<String>>,
    mut checkpoint: Option<&mut Checkpoint>,
    inheritance: Inheritance,
) -> Restored {
    let mut restored = Restored::default();
    controller.histories.begin_past();
    let mut hpas: Vec<_> = controller.hpas.all().into_values().collect();
    hpas.retain(|hpa| {
        inheritance != Inheritance::HandedOver
            && controller.histories.get(&hpa.uid).recommendations.is_empty()
    });

    if let Some(checkpoint) = &mut checkpoint {
        let shards = checkpoint.read(WITHIN).await;
        let entries = newest(&shards);
        let now = controller.moment().at;
        hpas.retain(|hpa| {
            let Some((shard, entry)) = entries.get(&*hpa.uid) else { return true };
            match read_entry(entry, now) {
                Ok(history) if is_exact(shard, hpa) => {
                    restored.exact += 1;
                    controller.histories.inherit(&hpa.uid, history);
                    false
                }
                Ok(history) => {
                    restored.inherited += 1;
                    let history = after_crash(history, hpa, controller, now);
                    controller.histories.inherit(&hpa.uid, history);
                    false
                }
                Err(error) => {
                    tracing::warn!(
                        hpa = %hpa.key, %error,
                        "a history in the checkpoint is not used; it is rebuilt from status and events"
                    );
                    true
                }
            }
        });
    }

    let begin = async {
        if let Some(checkpoint) = checkpoint {
            checkpoint.begin(WITHIN).await;
        }
    };
    hpas.retain(|hpa| hpa.spec.behavior.is_some());
    let ((), rescales) = join(begin, events(controller, reads, namespaces, &hpas)).await;
    let now = controller.moment().at;
    for hpa in hpas {
        let history = History::rebuilt(&hpa.status, &rescales.of(&hpa.uid), controller.period, now);
        restored.rebuilt += usize::from(hpa.status.last_scale_time.is_some());
        controller.histories.inherit(&hpa.uid, history);
    }

    let Restored { exact, inherited, rebuilt } = restored;
    for (source, count) in [("checkpoint", exact), ("crash", inherited), ("status", rebuilt)] {
        controller.telemetry.restored(source, count);
    }
    if restored != Restored::default() {
        tracing::info!(
            checkpoint = exact,
            crash = inherited,
            status = rebuilt,
            "HPAs whose past is known, by where from"
        );
    }
    restored
}

/// The newest entry of each HPA, with its shard.
fn newest(shards: &[Shard]) -> BTreeMap<&str, (&Shard, &Entry)> {
    let mut entries: BTreeMap<&str, (&Shard, &Entry)> = BTreeMap::new();
    for (shard, entry) in
        shards.iter().flat_map(|shard| shard.entries.iter().map(move |entry| (shard, entry)))
    {
        let known = entries.entry(&entry.uid).or_insert((shard, entry));
        if known.0.written < shard.written {
            *known = (shard, entry);
        }
    }
    entries
}

/// Whether nothing happened to an HPA after its shard was written: its leader ended in order with that write, and
/// nobody has scaled it since.
fn is_exact(shard: &Shard, hpa: &HpaRecord) -> bool {
    let scaled = hpa.status.last_scale_time;
    shard.ended && scaled.is_none_or(|scaled| scaled.as_second() < shard.written.as_second())
}

/// What a leader left that did not end in order: what came last may be missing.
fn after_crash(mut history: History, hpa: &HpaRecord, controller: &Controller, now: Timestamp) -> History {
    let recommendations = &mut history.recommendations;
    let newest = recommendations.iter().map(|recommendation| recommendation.at).max();
    let window = longest_window(hpa, controller);
    if newest.is_some_and(|newest| now.duration_since(newest) > window) {
        // Nobody knows what was recommended within the window: it begins with the current count, as after a start.
        recommendations.clear();
    } else if let (Some(newest), Some(scaled)) = (newest, hpa.status.last_scale_time)
        && scaled > newest
    {
        // A rescale that is missing here was recommended, at least. By a clock that is ahead of ours, it was so just now.
        recommendations.push(Recommendation { at: scaled.min(now), replicas: hpa.status.desired_replicas });
    }
    history.inherit(now)
}

/// The longest window over which recommendations of an HPA matter.
fn longest_window(hpa: &HpaRecord, controller: &Controller) -> SignedDuration {
    let default =
        SignedDuration::try_from(controller.settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    let seconds = hpa.spec.behavior.iter().flat_map(|behavior| {
        [&behavior.scale_up, &behavior.scale_down].map(|rules| rules.stabilization_window_seconds)
    });
    let longest = seconds.flatten().map(|seconds| SignedDuration::from_secs(seconds.into())).max();
    longest.map_or(default, |longest| longest.max(default))
}

/// The rescales that events tell of, where that can still matter.
async fn events(
    controller: &Controller,
    reads: &Client,
    namespaces: Option<&BTreeSet<String>>,
    hpas: &[Arc<HpaRecord>],
) -> Rescales {
    let now = controller.clock.now();
    let wanted: BTreeSet<&str> =
        hpas.iter().filter(|hpa| rebuild::matters(hpa, now)).map(|hpa| &*hpa.key.namespace).collect();
    if wanted.is_empty() {
        return Rescales::default();
    }
    let places: Vec<_> = match namespaces {
        None => vec![None],
        Some(namespaces) => {
            namespaces.iter().map(String::as_str).filter(|name| wanted.contains(name)).map(Some).collect()
        }
    };
    let reads = places.iter().map(|place| rebuild::read(reads, *place, WITHIN));
    let mut rescales = Rescales::default();
    for (place, answer) in places.iter().zip(join_all(reads).await) {
        match answer {
            Ok(some) => rescales.extend(some),
            Err(error) => tell(*place, &error),
        }
    }
    rescales
}

fn tell(namespace: Option<&str>, error: &EventsError) {
    tracing::warn!(
        namespace, %error,
        "events do not tell what rescales there were: until the longest period of its policies after its last one, an \
         HPA whose history is lost is not scaled"
    );
}
