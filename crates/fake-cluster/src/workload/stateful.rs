//! The statefulset controller: ordered pods with ordinals.

use super::Pass;
use super::informer_cache::InformerCache;
use super::objects::name;
use super::pod_state::{Id, Owner, Pod};
use crate::object::{int, text};

/// The label with the template hash of a StatefulSet's pod.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

/// A change of a StatefulSet's pods. Ordered management applies one change at a time. Parallel management
/// applies all changes.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Create(String),
    Terminate(Id),
}

impl Pass<'_> {
    /// Keeps the pods `name-0` to `name-(wanted - 1)`. Returns whether anything changed.
    pub(super) fn keep_ordinals(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.cache.owners.get(&id) else { return false };
        let actions = actions(&self.state.cache, owner);
        actions.into_iter().fold(false, |any, action| match action {
            Action::Create(pod_name) => self.create_pod(id, &pod_name) || any,
            Action::Terminate(pod) => {
                self.terminate(pod);
                true
            }
        })
    }
}

/// Computes the next changes. Pods are created in order, each after all previous pods are ready. Pods are
/// terminated from the highest ordinal down, each after the removal of the pod above. `podManagementPolicy:
/// Parallel` skips these waits. Afterwards, pods of an old template are terminated one by one, from the
/// highest ordinal down to the partition, and recreated.
fn actions(cache: &InformerCache, owner: &Owner) -> Vec<Action> {
    let in_order = text(&owner.object, &["spec", "podManagementPolicy"]) != "Parallel";
    let mut pods: Vec<_> =
        cache.pods_of(owner).filter_map(|(id, pod)| Some((ordinal(pod)?, id, pod))).collect();
    pods.sort_unstable_by_key(|(ordinal, ..)| *ordinal);
    let mut actions = Vec::new();
    for ordinal in 0..owner.wanted {
        match pods.binary_search_by_key(&ordinal, |(existing, ..)| *existing).ok().and_then(|at| pods.get(at))
        {
            None => {
                actions.push(Action::Create(format!("{}-{ordinal}", name(&owner.object))));
                if in_order {
                    return actions;
                }
            }
            // A terminating pod still holds its name.
            Some((.., pod)) if in_order && !is_healthy(pod) => return actions,
            Some(_) => {}
        }
    }
    for (_, id, pod) in pods.iter().rev().take_while(|(ordinal, ..)| *ordinal >= owner.wanted) {
        if pod.is_active() {
            actions.push(Action::Terminate(*id));
        }
        if in_order {
            return actions;
        }
    }
    if !actions.is_empty() || text(&owner.object, &["spec", "updateStrategy", "type"]) == "OnDelete" {
        return actions;
    }
    let partition =
        int(&owner.object, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or(0);
    let partition = usize::try_from(partition).unwrap_or(0);
    for (_, id, pod) in pods.iter().rev().take_while(|(ordinal, ..)| *ordinal >= partition) {
        if pod.revision != owner.hash && pod.is_active() {
            return vec![Action::Terminate(*id)];
        }
        if !is_healthy(pod) {
            return actions;
        }
    }
    actions
}

fn is_healthy(pod: &Pod) -> bool {
    pod.is_active() && pod.is_ready()
}

fn ordinal(pod: &Pod) -> Option<usize> {
    pod.stored.name().rsplit_once('-')?.1.parse().ok()
}
