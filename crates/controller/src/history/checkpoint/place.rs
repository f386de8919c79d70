//! Location of a checkpoint.

use super::MOST_SHARDS;

/// Location of the histories of `--history-checkpoint`: next to the Lease, also without leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointPlace {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// The prefix of the ConfigMap names: the name of the Lease, so that installations with different Leases
    /// use different ConfigMaps.
    pub name: String,
}

impl Default for CheckpointPlace {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: "concertina".to_owned() }
    }
}

impl CheckpointPlace {
    /// The names of all ConfigMaps: `concertina-history-0` and so on.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..MOST_SHARDS).map(|number| format!("{}-history-{number}", self.name))
    }
}
