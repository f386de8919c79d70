//! Events about HPAs: core/v1, correlated as client-go does, sent by one task, off the path of the syncs.

mod correlate;
mod recorder;

use std::sync::Arc;

pub use correlate::{Correlated, Correlator, Verdict};
pub use recorder::{EventOptions, EventStats, Recorder};

/// The HPA (of autoscaling/v2) that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// `metadata.namespace`; the event is created there too.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
}
