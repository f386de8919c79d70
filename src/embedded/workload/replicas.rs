//! The controllers that keep pods which are all alike: as many as `spec.replicas` says.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Value, json};

use super::life::Life;
use super::names::pod_suffix;
use super::objects::{name, namespace, set};
use super::pods::{announce_end, from_template};
use super::records::{Id, Kind, Owner, Pod, Standing};
use super::stateful::REVISION_LABEL;
use super::{Pass, RETRY, placing};
use crate::embedded::object::at;

impl Pass<'_> {
    /// Brings the pods of an owner to the wanted number; whether anything was to be done.
    pub(super) fn keep_count(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.book.owners.get(&id) else { return false };
        let wanted = owner.wanted;
        let mut active: Vec<_> = self
            .state
            .book
            .pods_of(owner)
            .filter(|(_, pod)| pod.is_active())
            .map(|(id, pod)| (rank(id, pod), id))
            .collect();
        let created = (active.len()..wanted).filter(|_| self.create_numbered(id)).count();
        active.sort_unstable();
        let too_many = active.len().saturating_sub(wanted);
        for (_, pod) in active.iter().take(too_many) {
            self.end(*pod);
        }
        created + too_many > 0
    }

    fn create_numbered(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.book.owners.get_mut(&id) else { return false };
        let suffix = pod_suffix(name(&owner.object), owner.created);
        owner.created += 1;
        let pod_name = format!("{}-{suffix}", name(&owner.object));
        self.create_pod(id, &pod_name)
    }

    /// Creates a pod on a node; false if that is refused, as in a namespace that is going.
    pub(super) fn create_pod(&mut self, id: Id, pod_name: &str) -> bool {
        let Some(owner) = self.state.book.owners.get(&id) else { return false };
        let mut pod = from_template(&owner.object, &template_of(owner), pod_name);
        if owner.kind == Kind::StatefulSet {
            set(&mut pod, &["metadata", "labels", REVISION_LABEL], owner.hash.as_str());
        }
        set(&mut pod, &["spec", "nodeName"], placing::node(self.state.placed, self.state.nodes));
        let is_created = self.cluster.create(pod).is_ok();
        if is_created {
            self.state.placed = self.state.placed.wrapping_add(1);
        } else {
            self.state.book.wake_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
        is_created
    }

    /// Announces the end of a pod.
    pub(super) fn end(&mut self, id: Id) {
        if let Some(pod) = self.state.book.pods.get(&id) {
            let ending = announce_end(pod.stored.value(), pod.grace, self.now.time);
            self.cluster.put_raw(ending);
        }
    }
}

/// Who goes first: the reference's order, without its costs and nodes. Those that have not started, then those that are
/// not ready, then those that have restarted more often, then the youngest.
fn rank(id: Id, pod: &Pod) -> (bool, bool, Reverse<u32>, Reverse<Id>) {
    let restarts = pod.life.as_ref().map_or(0, Life::restarts);
    (pod.standing != Standing::Pending, pod.is_ready(), Reverse(restarts), Reverse(id))
}

/// `spec.template`; a Widget without one gets a container of its own, labelled with the Widget's name.
fn template_of(owner: &Owner) -> Value {
    let object: &Arc<Value> = &owner.object;
    match at(object, &["spec", "template"]) {
        Some(template) if template.is_object() => template.clone(),
        _ => json!({
            "metadata": {"labels": {"widget": name(object)}},
            "spec": {"containers": [{"name": "app", "image": "widget", "resources": {"requests": {"cpu": "100m"}}}]},
        }),
    }
}

/// The name that a model is set for: that of what a user writes, a Deployment's for the pods of its sets.
pub(super) fn model_key(owner: &Value, parent: Option<&Value>) -> (String, String) {
    (namespace(owner).to_owned(), name(parent.unwrap_or(owner)).to_owned())
}
