//! The known changes of the leader. The Lease shows the last change, and a record shows the last failover. Both are
//! read again while pages are open.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;

use crate::options::why::Leader;
use cluster::client::Client;
use cluster::typed;

/// Maximum difference between two times of one change: the Lease shows its acquisition, and a record shows the
/// restoration of histories.
const SAME: SignedDuration = SignedDuration::from_secs(60);
/// Maximum number of changes. The oldest is dropped.
const MAX_CHANGES: usize = 200;

/// A change of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    at: Timestamp,
    /// The new leader, if it is known.
    leader: Option<String>,
}

/// The known changes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaderChanges {
    /// Oldest first.
    changes: Arc<Mutex<Vec<Change>>>,
}

impl LeaderChanges {
    /// Adds a change, unless it is known.
    pub(super) fn add(&self, at: Timestamp, leader: Option<&str>) {
        let mut changes = self.changes.lock();
        let leader = leader.filter(|leader| !leader.is_empty()).map(str::to_owned);
        let is_same = |change: &&mut Change| {
            let differ = change.leader.is_some() && leader.is_some() && change.leader != leader;
            change.at.duration_since(at).abs() <= SAME && !differ
        };
        if let Some(known) = changes.iter_mut().find(is_same) {
            // Only the Lease names the leader, and its time is the exact time of the change.
            if known.leader.is_none() && leader.is_some() {
                *known = Change { at, leader };
            }
            return;
        }
        let index = changes.partition_point(|change| change.at <= at);
        changes.insert(index, Change { at, leader });
        if changes.len() > MAX_CHANGES {
            changes.remove(0);
        }
    }

    /// Reads the first Lease that exists. An unreadable Lease adds no change. The page of the controller shows the
    /// reason.
    pub(super) async fn read(&self, client: &Client, leaders: &[Leader]) {
        for Leader { namespace, lease } in leaders {
            let Ok(Some(found)) = typed::get(&client.namespaced::<Lease>(namespace), lease).await else {
                continue;
            };
            let Some(spec) = found.spec else { continue };
            if let Some(at) = spec.acquire_time {
                self.add(at.0, spec.holder_identity.as_deref());
            }
            return;
        }
    }

    /// The changes as marks of a drawing.
    pub(super) fn marks(&self) -> Vec<(Timestamp, String)> {
        let text = |change: &Change| match &change.leader {
            Some(leader) => format!("leader change: {leader} leads"),
            None => "leader change".to_owned(),
        };
        self.changes.lock().iter().map(|change| (change.at, text(change))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_change_is_kept_once_and_in_order() {
        let changes = LeaderChanges::default();
        changes.add(at(5_000), None);
        changes.add(at(1_000), Some("a"));
        changes.add(at(1_000), Some("a"));
        // The record of an HPA was restored some seconds after the Lease was acquired.
        changes.add(at(1_020), None);
        changes.add(at(4_990), Some("b"));
        changes.add(at(5_010), Some("c"));
        let marks: Vec<_> = changes.marks().into_iter().map(|(at, text)| (at.as_second(), text)).collect();
        let expected = [
            (1_000, "leader change: a leads".to_owned()),
            (4_990, "leader change: b leads".to_owned()),
            (5_010, "leader change: c leads".to_owned()),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn number_of_changes_is_bounded() {
        let changes = LeaderChanges::default();
        for number in 0..300 {
            changes.add(at(number * 100), None);
        }
        assert_eq!(changes.marks().len(), MAX_CHANGES);
        assert_eq!(changes.marks()[0].0, at(10_000));
    }
}
