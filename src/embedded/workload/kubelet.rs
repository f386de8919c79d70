//! The kubelets: pods start, become ready, and end.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::time::Instant;

use super::objects::{is_terminating, name, namespace, set, uid};
use super::pods::{running, starting};
use super::{Memory, Moment, PodMemory, Timing};
use crate::embedded::Cluster;
use crate::embedded::object::text;

/// One pass over all pods, also those without an owner. Answers when the next of them is due for something, if nothing
/// changes until then.
pub(super) fn reconcile(cluster: &Cluster, memory: &mut Memory, now: Moment) -> Option<Instant> {
    let pods = cluster.list("pods", None);
    for pod in &pods {
        let known = match memory.pods.get(uid(pod)) {
            Some(known) => *known,
            None => memory.place(uid(pod), Timing::default(), now),
        };
        if is_terminating(pod) {
            end(cluster, memory, pod, known, now);
        } else if matches!(text(pod, &["status", "phase"]), "" | "Pending") {
            start(cluster, pod, known, now);
        }
    }
    let alive: BTreeSet<_> = pods.iter().map(uid).collect();
    memory.pods.retain(|pod, _| alive.contains(pod.as_str()));
    memory.pods.values().filter_map(PodMemory::due).filter(|due| *due > now.instant).min()
}

fn start(cluster: &Cluster, pod: &Value, known: PodMemory, now: Moment) {
    let status = if text(pod, &["status", "startTime"]).is_empty() {
        starting(pod, known.place, now.time)
    } else if now.instant.duration_since(known.since) >= known.timing.start_up {
        running(pod, known.place, now.time)
    } else {
        return;
    };
    let mut pod = pod.clone();
    set(&mut pod, &["status"], status);
    // Changed meanwhile: the next pass reads it again.
    let _ = cluster.update_status(pod);
}

fn end(cluster: &Cluster, memory: &mut Memory, pod: &Value, known: PodMemory, now: Moment) {
    let since = known.ending_since.unwrap_or(now.instant);
    memory.pods.insert(uid(pod).to_owned(), PodMemory { ending_since: Some(since), ..known });
    if now.instant.duration_since(since) >= known.timing.grace {
        // Gone already is as good.
        let _ = cluster.delete_now("pods", namespace(pod), name(pod));
    }
}
