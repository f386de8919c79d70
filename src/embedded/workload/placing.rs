//! Nodes: which one a pod runs on, its addresses, and which images are there already.

use std::collections::BTreeMap;
use std::time::Duration;

/// The node of the pod that was placed as the n-th.
pub(super) fn node(place: u32, nodes: u32) -> String {
    format!("node-{}", place % nodes.max(1) + 1)
}

/// The address of a node.
pub(super) fn host_address(node: &str) -> String {
    let number: u32 = node.strip_prefix("node-").and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("172.18.{}.{}", number / 250 % 250, number % 250 + 1)
}

/// The address of a pod by its number.
pub(super) fn pod_address(number: u64) -> String {
    format!("10.{}.{}.{}", 244 + number / 62_500 % 10, number / 250 % 250, number % 250 + 2)
}

/// When which image is on which node.
#[derive(Debug, Default)]
pub(super) struct Images {
    there_at: BTreeMap<(String, String), Duration>,
}

impl Images {
    /// When an image is on a node; who asks first pulls it, which takes as long as `pull` says.
    pub(super) fn there_at(
        &mut self,
        node: &str,
        image: &str,
        now: Duration,
        pull: impl FnOnce() -> Duration,
    ) -> Duration {
        let key = (node.to_owned(), image.to_owned());
        *self.there_at.entry(key).or_insert_with(|| now.saturating_add(pull()))
    }
}
