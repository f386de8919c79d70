//! `ownedPodsOnly`: pods of other owners that the selector matches do not count (KEP-5325).

use std::fmt;
use std::sync::Arc;

use autoscaling::pod::Pod;
use serde::{Deserialize, Serialize};

/// The owner of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The target owns the pod, directly or through its ReplicaSets.
    Target,
    /// Another object owns the pod, or none does.
    Other,
    /// The owner could not be determined. The pod counts, as without the guard.
    Unknown,
}

/// Pods that do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPodsStep {
    /// The number of pods that the selector matches.
    pub matched: usize,
    /// The number of pods of other owners among them.
    pub other: usize,
}

impl fmt::Display for OwnedPodsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pods belong to other owners and do not count", self.other, self.matched)
    }
}

/// The pods that count, in the same order, and the effect of the guard if it has one.
pub fn owned_pods(
    pods: &[Arc<Pod>],
    ownership: impl Fn(&Pod) -> Ownership,
) -> (Vec<Arc<Pod>>, Option<OwnedPodsStep>) {
    let counted: Vec<_> = pods.iter().filter(|pod| ownership(pod) != Ownership::Other).cloned().collect();
    let (matched, other) = (pods.len(), pods.len() - counted.len());
    (counted, (other > 0).then_some(OwnedPodsStep { matched, other }))
}
