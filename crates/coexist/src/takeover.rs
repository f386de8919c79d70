//! Takeover: prevents Concertina and another controller from acting on HPAs at the same time.
//!
//! Three signs show another controller:
//!
//! - A field manager other than Concertina's wrote the status of an HPA: its entry in `managedFields` changed. Only
//!   this sign stops Concertina, because every controller of HPAs writes statuses.
//! - A status write by Concertina conflicted although it was based on a fresh read. A changed spec also causes
//!   conflicts, so this sign only triggers a read of the HPA that bypasses the watch cache.
//! - A count that Concertina wrote was undone before the next sync, twice in a row. A tool that manages Deployments
//!   from a repository also undoes counts, and the built-in controller ignores such changes. This sign therefore only
//!   triggers a read of the HPA and a log line. Otherwise a user with permission to scale one Deployment could stop all
//!   scaling in the cluster.
//!
//! `machine` decides. [`TakeOver`] observes, checks, reports, and opens and closes the write gate. This file recognizes
//! foreign writes and rescales, and counts that are undone.

mod driver;
pub mod machine;

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::WriteOutcome;
use autoscaling::spec::Spec;
use autoscaling::status::{MetricStatus, Status};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::driver::{Parts, TakeOver};
use cluster::decode::HpaObject;
use engine::reconcile::{ConcludedSync, Controller, WatchedRescale};
use engine::store::{HpaRecord, Key, StatusWriter, is_older};

/// The inputs that are the same for every controller of an HPA, independent of the controller's history and
/// configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedState {
    /// `spec.replicas` of the target.
    pub replicas: i32,
    /// The current metrics, as in the status.
    pub metrics: Vec<MetricStatus>,
}

/// The part of a concluded sync that the state machines use.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncObservation {
    /// The spec that the sync used.
    pub spec: Arc<Spec>,
    /// The state that the sync read.
    pub found: ObservedState,
    /// The state in the stored status.
    pub stored: ObservedState,
    /// Whether the gate refused a write of the sync.
    pub withheld: bool,
    /// Whether no controller has ever written a status.
    pub untouched: bool,
}

impl SyncObservation {
    /// Creates the observation of a sync.
    pub(crate) fn new(sync: &ConcludedSync<'_>) -> Self {
        let observed = |status: &Status| {
            let (replicas, metrics) = (status.current_replicas, status.current_metrics.clone());
            ObservedState { replicas, metrics }
        };
        let stored = observed(&sync.hpa.status);
        // Another Concertina would withhold the same status, so its absence proves nothing.
        let found = sync.conclusion.status.as_deref().filter(|_| !sync.withholds_status);
        Self {
            spec: Arc::clone(&sync.hpa.spec),
            found: found.map_or_else(|| stored.clone(), observed),
            stored,
            withheld: *sync.outcome == WriteOutcome::Withheld,
            untouched: sync.hpa.status_writers.is_empty() && *sync.hpa.status == Status::default(),
        }
    }
}

/// Adds a foreign rescale to the history, so that the rate policies of `behavior` apply from the first write of this
/// process.
pub(crate) fn remember(controller: Option<Arc<Controller>>, hpa: &HpaRecord, rescale: WatchedRescale) {
    if let (Some(controller), Some(behavior)) = (controller, &hpa.spec.behavior) {
        controller.stores.histories.remember(&hpa.uid, behavior, rescale, controller.clock.now());
    }
}

/// Returns the last rescale between two states of an HPA's status.
///
/// With a rescale, a controller writes `lastScaleTime`, the count that it read and the count that it wrote. A later
/// write can overwrite the count that the controller read. The older status then contains the previous count.
pub fn rescale(old: &Status, new: &Status) -> Option<WatchedRescale> {
    let at = new.last_scale_time.filter(|at| old.last_scale_time.is_none_or(|before| before < *at))?;
    let to = new.desired_replicas;
    let counts = [new.current_replicas, old.desired_replicas, old.current_replicas];
    let from = counts.into_iter().find(|from| *from != to)?;
    Some(WatchedRescale { at, from, to })
}

/// Returns the foreign status write in an HPA that was read from the API server, and the cached HPA. `None` without
/// such a write, and for an HPA that is not in the store or is stored with another UID, which the watch will deliver.
pub(crate) fn uncached_status_write(
    controller: &Controller,
    ours: &str,
    key: &Key,
    object: HpaObject,
) -> Option<(Arc<HpaRecord>, StatusWriter)> {
    let cached = controller.stores.hpas.get(key).filter(|cached| *cached.uid == *object.uid)?;
    let wrote = controller.stores.hpas.acknowledged(key);
    let read = HpaRecord::from(object);
    let writer = status_write(ours, View::new(&cached), View::new(&read), wrote.as_deref())?.clone();
    Some((cached, writer))
}

/// The parts of an HPA from which the writer of its status follows.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// `metadata.resourceVersion`.
    pub version: &'a str,
    /// The managers of the status, from `managedFields`.
    pub writers: &'a [StatusWriter],
    /// `status`.
    pub status: &'a Status,
}

impl<'a> View<'a> {
    /// Creates the view of a cached HPA.
    pub fn new(hpa: &'a HpaRecord) -> Self {
        Self { version: &hpa.resource_version, writers: &hpa.status_writers, status: &hpa.status }
    }
}

/// Returns the newest foreign status write between two views of an HPA, by a manager other than `ours`. `wrote` is the
/// version after the last status write of this process.
///
/// `managedFields` alone prove nothing: a client that may update an HPA can forge them, but cannot write the status. An
/// entry is evidence only if it changed together with the status, and no write of this process explains the new status.
/// The time of the entry may be earlier or later than before. One event of the watch never contains two writes. Two
/// views with a gap between them can contain a forged entry together with a write of this process. A view older than
/// the cached view is from a stale server, and is ignored.
pub fn status_write<'a>(
    ours: &str,
    old: View<'_>,
    new: View<'a>,
    wrote: Option<&str>,
) -> Option<&'a StatusWriter> {
    if new.status == old.status || is_older(new.version, old.version) {
        return None;
    }
    let is_between = |wrote: &str| is_older(old.version, wrote) && !is_older(new.version, wrote);
    if wrote.is_some_and(is_between) || own_write(ours, old, new).is_some() {
        return None;
    }
    first_status_write(ours, new).filter(|writer| !old.writers.contains(writer))
}

/// Returns the entry of `ours` if it changed between two views of an HPA.
pub fn own_write<'a>(ours: &str, old: View<'_>, new: View<'a>) -> Option<&'a StatusWriter> {
    new.writers.iter().find(|writer| *writer.manager == *ours && !old.writers.contains(writer))
}

/// Returns the newest foreign status write of a new HPA, by a manager other than `ours`. `None` if the HPA
/// has no status.
pub fn first_status_write<'a>(ours: &str, new: View<'a>) -> Option<&'a StatusWriter> {
    let foreign = new.writers.iter().filter(|writer| *writer.manager != *ours);
    foreign.max_by_key(|writer| writer.at).filter(|_| *new.status != Status::default())
}

/// Returns `metadata.creationTimestamp`, by the server's clock. Older `managedFields` entries are of another object,
/// from which a restore of a backup has copied them.
pub fn created(metadata: &RawValue) -> Option<Timestamp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<Timestamp>,
    }
    serde_json::from_str::<Metadata>(metadata.get()).ok()?.creation_timestamp
}

/// The number of consecutive undone counts that is reported. A user of `kubectl scale` is unlikely to cause it.
const IN_A_ROW: u32 = 2;

/// The last count written to each target, with the number of consecutive times that it was undone.
#[derive(Debug, Default)]
struct Undone {
    written: BTreeMap<Key, (i32, u32)>,
}

impl Undone {
    /// Records the count that a sync found, and the count that it wrote, if any. Returns true if the number of
    /// consecutive undone counts has reached [`IN_A_ROW`].
    fn synced(&mut self, key: &Key, found: i32, wrote: Option<i32>) -> bool {
        let times = match self.written.remove(key) {
            Some((written, times)) if written != found => times + 1,
            _ => 0,
        };
        if let Some(wrote) = wrote {
            self.written.insert(key.clone(), (wrote, times));
        }
        times == IN_A_ROW
    }

    fn forget(&mut self, key: &Key) {
        self.written.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(current: i32, desired: i32, scaled: Option<&str>) -> Status {
        Status {
            current_replicas: current,
            desired_replicas: desired,
            last_scale_time: scaled.map(at),
            ..Status::default()
        }
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T00:{time}Z").parse().unwrap()
    }

    fn writers(all: &[(&str, &str)]) -> Vec<StatusWriter> {
        all.iter().map(|(manager, time)| StatusWriter { manager: (*manager).into(), at: at(time) }).collect()
    }

    #[test]
    fn rescale_is_detected_by_its_last_scale_time() {
        let found = |from, to, time: &str| Some(WatchedRescale { at: at(time), from, to });
        let cases = [
            ("the first", status(2, 2, None), status(2, 4, Some("01:00")), found(2, 4, "01:00")),
            ("down", status(4, 4, Some("01:00")), status(4, 3, Some("02:00")), found(4, 3, "02:00")),
            ("none", status(4, 4, Some("01:00")), status(4, 4, Some("01:00")), None),
            ("only counts", status(2, 2, Some("01:00")), status(4, 4, Some("01:00")), None),
            ("a later write", status(2, 2, None), status(4, 4, Some("01:00")), found(2, 4, "01:00")),
            ("back to the same count", status(4, 4, None), status(4, 4, Some("01:00")), None),
            ("a clock that jumped back", status(4, 4, Some("02:00")), status(4, 5, Some("01:00")), None),
        ];
        for (what, old, new, expected) in cases {
            assert_eq!(rescale(&old, &new), expected, "{what}");
        }
    }

    /// A description, the version, managers and count of the old and the new view, and the expected foreign writer.
    type Case<'a> = (
        &'a str,
        (&'a str, &'a [(&'a str, &'a str)], i32),
        (&'a str, &'a [(&'a str, &'a str)], i32),
        Option<&'a str>,
    );

    #[test]
    fn status_write_is_foreign_when_status_and_foreign_entry_moved() {
        let (kcm, us) = ("kube-controller-manager", "concertina");
        let cases: [Case<'_>; 10] = [
            ("nothing new", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:00")], 2), None),
            ("moved", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:01")], 3), Some(kcm)),
            ("first", ("1", &[(us, "01:00")], 2), ("2", &[(us, "01:00"), (kcm, "01:01")], 3), Some(kcm)),
            ("ours", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:00"), (us, "01:01")], 3), None),
            (
                "merged with ours",
                ("1", &[(us, "01:00")], 2),
                ("3", &[(us, "01:01"), (kcm, "01:01")], 3),
                None,
            ),
            ("of two", ("1", &[], 2), ("2", &[("a", "01:00"), ("b", "01:01")], 3), Some("b")),
            ("an older view", ("2", &[(kcm, "01:01")], 3), ("1", &[(kcm, "01:00")], 2), None),
            ("a status alone", ("1", &[(kcm, "01:00")], 2), ("2", &[(kcm, "01:00")], 3), None),
            ("an entry alone is forged", ("1", &[], 2), ("2", &[(kcm, "59:59")], 2), None),
            ("after a forged one", ("1", &[(kcm, "59:59")], 2), ("2", &[(kcm, "01:00")], 3), Some(kcm)),
        ];
        for (what, old, new, expected) in cases {
            let (old_writers, new_writers) = (writers(old.1), writers(new.1));
            let (old_status, new_status) = (status(old.2, 0, None), status(new.2, 0, None));
            let old = View { version: old.0, writers: &old_writers, status: &old_status };
            let new = View { version: new.0, writers: &new_writers, status: &new_status };
            let found = status_write(us, old, new, None).map(|writer| &*writer.manager);
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn status_written_between_two_views_is_no_foreign_write() {
        // The times of entries are whole seconds, and a forged list can repeat the previous entry of this process.
        let (ours, forged) = (("concertina", "01:00"), ("another", "01:01"));
        let (old_writers, new_writers) = (writers(&[ours]), writers(&[ours, forged]));
        let (before, after) = (status(2, 2, None), status(3, 3, None));
        let old = View { version: "10", writers: &old_writers, status: &before };
        let new = View { version: "13", writers: &new_writers, status: &after };
        for (wrote, expected) in [("9", true), ("10", true), ("11", false), ("13", false), ("14", true)] {
            let found = status_write("concertina", old, new, Some(wrote)).is_some();
            assert_eq!(found, expected, "{wrote}");
        }
    }

    #[test]
    fn hpa_without_status_has_no_status_write() {
        let writers = writers(&[("kube-controller-manager", "01:00")]);
        let found = |status: &Status| {
            let view = View { version: "1", writers: &writers, status };
            first_status_write("concertina", view).is_some()
        };
        assert!(!found(&Status::default()));
        assert!(found(&status(2, 2, None)));
    }

    #[test]
    fn creation_time_is_read_from_metadata() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        let json = r#"{"name":"web","creationTimestamp":"2026-01-01T00:01:00Z"}"#;
        assert_eq!(created(&raw(json)), Some(at("01:00")));
        assert_eq!(created(&raw(r#"{"creationTimestamp":null}"#)), None);
        assert_eq!(created(&raw("null")), None);
    }

    fn run(syncs: &[(i32, Option<i32>)]) -> Vec<bool> {
        let (key, mut undone) = (Key::new("shop", "web"), Undone::default());
        syncs.iter().map(|(found, wrote)| undone.synced(&key, *found, *wrote)).collect()
    }

    #[test]
    fn only_the_second_undone_count_in_a_row_is_reported() {
        assert_eq!(run(&[(3, Some(5)), (3, Some(5)), (5, None), (5, None)]), [false; 4]);
        let again = [(3, Some(5)), (3, Some(5)), (3, Some(5)), (3, Some(5))];
        assert_eq!(run(&again), [false, false, true, false]);
    }

    #[test]
    fn count_that_lasted_one_sync_was_not_undone() {
        assert_eq!(run(&[(3, Some(5)), (5, None), (3, Some(5)), (5, None), (3, Some(5))]), [false; 5]);
    }
}
