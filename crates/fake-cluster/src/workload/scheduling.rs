//! Nodes: the placement of pods, addresses, and cached images.

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of nodes.
const NODES: u32 = 3;

/// Returns the node of the n-th placed pod.
pub(super) fn node(index: u32) -> String {
    format!("node-{}", index % NODES + 1)
}

/// Returns the address of a node.
pub(super) fn host_address(node: &str) -> String {
    let number: u32 = node.strip_prefix("node-").and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("172.18.{}.{}", number / 250 % 250, number % 250 + 1)
}

/// Returns the address of a pod by its number.
pub(super) fn pod_address(number: u64) -> String {
    format!("10.{}.{}.{}", 244 + number / 62_500 % 10, number / 250 % 250, number % 250 + 2)
}

/// The time at which each image is available on each node.
#[derive(Debug, Default)]
pub(super) struct Images {
    available_at: BTreeMap<(String, String), Duration>,
}

impl Images {
    /// Returns the time at which an image is available on a node. The first request starts the pull, with the
    /// duration from `pull`.
    pub(super) fn available_at(
        &mut self,
        node: &str,
        image: &str,
        now: Duration,
        pull: impl FnOnce() -> Duration,
    ) -> Duration {
        let key = (node.to_owned(), image.to_owned());
        *self.available_at.entry(key).or_insert_with(|| now.saturating_add(pull()))
    }
}
