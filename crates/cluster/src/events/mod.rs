//! Events about HPAs (core/v1). Correlated as in client-go, and sent by one task, separately from the syncs.

mod correlate;
mod recorder;
mod sender;

use std::sync::Arc;

use correlate::ObjectKey;
pub use correlate::{Correlated, Correlator, Verdict};
pub use recorder::{EventOptions, EventStats, Recorder};

/// The HPA (autoscaling/v2) of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// `metadata.namespace`, which is also the event's namespace.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
}

impl EventTarget {
    /// The HPA, whatever its version.
    fn object(&self) -> ObjectKey {
        let [namespace, name, uid] = [&self.namespace, &self.name, &self.uid].map(Arc::clone);
        ObjectKey { namespace, name, uid }
    }
}
