//! Events about HPAs: core/v1, correlated as client-go does, sent by one task, off the path of the syncs.

mod correlate;
mod lru;
mod recorder;

pub use correlate::{Correlated, Correlator, Verdict};
pub use recorder::{EventOptions, EventStats, Recorder};

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// `metadata.namespace`; the event is created there too.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `autoscaling/v2`.
    pub api_version: String,
    /// `HorizontalPodAutoscaler`.
    pub kind: String,
}

impl EventTarget {
    /// An HPA of autoscaling/v2.
    pub fn hpa(namespace: &str, name: &str, uid: &str, resource_version: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
            api_version: "autoscaling/v2".to_owned(),
            kind: "HorizontalPodAutoscaler".to_owned(),
        }
    }
}
