//! The controllers that keep pods: as many as `spec.replicas` says, and none without an owner.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names::pod_suffix;
use super::objects::{by_controller, controller, is_terminating, name, namespace, set, uid, wanted_replicas};
use super::pods::{announce_end, from_template, is_active, is_ready, node};
use super::{Memory, Moment, Timing};
use crate::embedded::Cluster;
use crate::embedded::object::{at, text};

/// The resources whose objects own pods, and their kinds.
const OWNERS: [(&str, &str); 4] = [
    ("apps/replicasets", "ReplicaSet"),
    ("apps/statefulsets", STATEFUL_SET),
    ("replicationcontrollers", "ReplicationController"),
    ("example.com/widgets", "Widget"),
];

const STATEFUL_SET: &str = "StatefulSet";

/// One pass over everything that owns pods.
pub(super) fn reconcile(cluster: &Cluster, memory: &mut Memory, now: Moment) {
    let pods = cluster.list("pods", None);
    let owned = by_controller(&pods);
    let mut alive = BTreeSet::new();
    for (resource, kind) in OWNERS {
        for owner in cluster.list(resource, None) {
            let all = owned.get(uid(&owner)).map_or(&[][..], Vec::as_slice);
            let active: Vec<_> = all.iter().copied().filter(|pod| is_active(pod)).collect();
            let timing = timing_of(memory, &owner);
            let wanted = if is_terminating(&owner) { 0 } else { wanted_replicas(&owner) };
            let mut set = PodSet { cluster, memory, owner: &owner, timing, now };
            if kind == STATEFUL_SET {
                set.keep_ordinals(&active, all, wanted);
            } else {
                set.keep_count(&active, wanted);
            }
            alive.insert(uid(&owner).to_owned());
        }
    }
    memory.created.retain(|owner, _| alive.contains(owner));
    for pod in pods.iter().filter(|pod| is_orphan(pod, &alive)) {
        cluster.put_raw(announce_end(pod, grace_of(memory, pod), now.time));
    }
}

/// Whether the pod is still running although the workload that it belonged to is gone.
fn is_orphan(pod: &Value, alive: &BTreeSet<String>) -> bool {
    controller(pod).is_some_and(|owner| {
        let ours = OWNERS.iter().any(|(_, kind)| text(owner, &["kind"]) == *kind);
        ours && is_active(pod) && !alive.contains(text(owner, &["uid"]))
    })
}

/// Timings are set for what a user writes: a Deployment's count for the pods of its replica sets.
fn timing_of(memory: &Memory, owner: &Value) -> Timing {
    let workload = controller(owner).map_or_else(|| name(owner), |it| text(it, &["name"]));
    memory.timing(namespace(owner), workload)
}

fn grace_of(memory: &Memory, pod: &Value) -> std::time::Duration {
    memory.pods.get(uid(pod)).map_or_else(Timing::default, |pod| pod.timing).grace
}

/// The pods of one workload, being brought to the wanted number.
struct PodSet<'a> {
    cluster: &'a Cluster,
    memory: &'a mut Memory,
    owner: &'a Value,
    timing: Timing,
    now: Moment,
}

impl PodSet<'_> {
    /// Keeps `wanted` pods that are all alike.
    fn keep_count(&mut self, active: &[&Value], wanted: usize) {
        for _ in active.len()..wanted {
            self.create_numbered();
        }
        let mut candidates: Vec<_> = active.to_vec();
        // The reference's order, shortened: first those that are not ready, then the youngest.
        candidates
            .sort_by_key(|pod| (is_ready(pod), std::cmp::Reverse(self.place(pod)), name(pod).to_owned()));
        for pod in candidates.iter().take(active.len().saturating_sub(wanted)) {
            self.end(pod);
        }
    }

    /// Keeps the pods `name-0` to `name-(wanted - 1)`; created in order, each when all before it are ready, unless
    /// `podManagementPolicy` is `Parallel`; ended from the highest on.
    fn keep_ordinals(&mut self, active: &[&Value], all: &[&Value], wanted: usize) {
        let ordered = text(self.owner, &["spec", "podManagementPolicy"]) != "Parallel";
        let names: Vec<_> = (0..wanted).map(|ordinal| format!("{}-{ordinal}", name(self.owner))).collect();
        for pod_name in &names {
            // A pod that is still ending holds its name.
            match all.iter().find(|pod| name(pod) == pod_name) {
                None => {
                    self.create(pod_name);
                    if ordered {
                        break;
                    }
                }
                Some(pod) if ordered && !(is_ready(pod) && is_active(pod)) => break,
                Some(_) => {}
            }
        }
        for pod in active.iter().filter(|pod| !names.iter().any(|kept| kept == name(pod))) {
            self.end(pod);
        }
    }

    fn create_numbered(&mut self) {
        let count = self.memory.created.entry(uid(self.owner).to_owned()).or_default();
        let pod_name = format!("{}-{}", name(self.owner), pod_suffix(name(self.owner), *count));
        *count += 1;
        self.create(&pod_name);
    }

    fn create(&mut self, pod_name: &str) {
        let template = template_of(self.owner);
        let mut pod = from_template(self.owner, &template, pod_name);
        set(&mut pod, &["spec", "nodeName"], node(self.memory.placed));
        // A name that is taken, or a namespace that is going: the next pass tries again, with another name.
        if let Ok(created) = self.cluster.create(pod) {
            self.memory.place(uid(&created), self.timing, self.now);
        }
    }

    fn end(&self, pod: &Value) {
        self.cluster.put_raw(announce_end(pod, grace_of(self.memory, pod), self.now.time));
    }

    fn place(&self, pod: &Value) -> u32 {
        self.memory.pods.get(uid(pod)).map_or(0, |pod| pod.place)
    }
}

/// `spec.template`; a Widget without one gets a container of its own, labelled with the Widget's name.
fn template_of(owner: &Value) -> Value {
    match at(owner, &["spec", "template"]) {
        Some(template) if template.is_object() => template.clone(),
        _ => json!({
            "metadata": {"labels": {"widget": name(owner)}},
            "spec": {"containers": [{"name": "app", "image": "widget", "resources": {"requests": {"cpu": "100m"}}}]},
        }),
    }
}
