//! The scale targets without a workload, by their paths.

use std::fmt;

use super::State;

/// The location of a scale target: `…/{group}/{version}/namespaces/{namespace}/{resource}/{name}/scale`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScalePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, such as `deployments`.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ScalePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource, namespace, name } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        write!(f, "{root}/namespaces/{namespace}/{resource}/{name}/scale")
    }
}

/// A scale target without a workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BareScale {
    /// `spec.replicas`.
    pub spec_replicas: i64,
    /// `status.replicas`.
    pub status_replicas: i64,
    /// `status.selector`, free text.
    pub selector: String,
}

impl State {
    pub(crate) fn scale(&self, path: &ScalePath) -> Option<&(BareScale, u64)> {
        self.scales.get(path)
    }

    pub(crate) fn set_scale(&mut self, path: ScalePath, scale: BareScale) -> u64 {
        let version = self.advance();
        self.changed.send_replace(version);
        self.scales.insert(path, (scale, version));
        version
    }

    pub(crate) fn remove_scale(&mut self, path: &ScalePath) {
        self.scales.remove(path);
    }
}
