//! The statefulset controller: pods with ordinals, one after the other.

use super::Pass;
use super::book::Book;
use super::objects::name;
use super::records::{Id, Owner, Pod};
use crate::embedded::object::{int, text};

/// The label that tells of which template a pod of a StatefulSet is.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

/// The one thing, or in parallel all things, to do about a StatefulSet.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Create(String),
    End(Id),
}

impl Pass<'_> {
    /// Keeps the pods `name-0` to `name-(wanted - 1)`; whether anything was to be done.
    pub(super) fn keep_ordinals(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.book.owners.get(&id) else { return false };
        let actions = actions(&self.state.book, owner);
        actions.into_iter().fold(false, |any, action| match action {
            Action::Create(pod_name) => self.create_pod(id, &pod_name) || any,
            Action::End(pod) => {
                self.end(pod);
                true
            }
        })
    }
}

/// Pods are created in order, each when all before it are ready, and ended from the highest on, each when the one above
/// is gone, unless `podManagementPolicy` is `Parallel`. Then, one by one from the highest down to the partition, those of
/// an old template are ended, to be created anew.
fn actions(book: &Book, owner: &Owner) -> Vec<Action> {
    let in_order = text(&owner.object, &["spec", "podManagementPolicy"]) != "Parallel";
    let mut pods: Vec<_> =
        book.pods_of(owner).filter_map(|(id, pod)| Some((ordinal(pod)?, id, pod))).collect();
    pods.sort_unstable_by_key(|(ordinal, ..)| *ordinal);
    let mut actions = Vec::new();
    for wanted in 0..owner.wanted {
        match pods.binary_search_by_key(&wanted, |(ordinal, ..)| *ordinal).ok().and_then(|at| pods.get(at)) {
            None => {
                actions.push(Action::Create(format!("{}-{wanted}", name(&owner.object))));
                if in_order {
                    return actions;
                }
            }
            // One that is still ending holds its name.
            Some((.., pod)) if in_order && !is_healthy(pod) => return actions,
            Some(_) => {}
        }
    }
    for (_, id, pod) in pods.iter().rev().take_while(|(ordinal, ..)| *ordinal >= owner.wanted) {
        if pod.is_active() {
            actions.push(Action::End(*id));
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
            return vec![Action::End(*id)];
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
