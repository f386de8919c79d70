//! `ScalingPolicy` and `ClusterScalingPolicy` from the wire.

use std::sync::Arc;

use autoscaling::selector::{LabelSelector, Labels, Selector, SelectorError};
use autoscaling::status::Condition;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use cluster::decode::{DecodeError, meta_of};
use cluster::watch::Watched;

/// The API group of policies.
pub const GROUP: &str = "autoscaling.concertina.dev";
/// The version of [`GROUP`] that this controller reads and writes.
pub const VERSION: &str = "v1alpha1";

/// The kinds of policy objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `ScalingPolicy`: for HPAs of its namespace.
    Namespaced,
    /// `ClusterScalingPolicy`: for HPAs of all namespaces.
    Cluster,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Namespaced, Self::Cluster];

    /// The kind in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "ScalingPolicy",
            Self::Cluster => "ClusterScalingPolicy",
        }
    }

    /// The resource in paths and roles.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Namespaced => "scalingpolicies",
            Self::Cluster => "clusterscalingpolicies",
        }
    }
}

/// The name of a policy object. Sorts namespaced policies by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    /// The namespace. `None` for a `ClusterScalingPolicy`.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl std::fmt::Display for PolicyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", Kind::Namespaced.as_str(), self.name),
            None => write!(f, "{} {}", Kind::Cluster.as_str(), self.name),
        }
    }
}

/// The reason why a selector of a policy selects nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The value is not a label selector.
    #[error("the selector cannot be read: {0}")]
    Unreadable(String),
    /// A requirement of the selector is invalid.
    #[error("the selector is invalid: {0}")]
    Invalid(#[from] SelectorError),
}

/// A policy object as received.
#[derive(Debug)]
pub struct PolicyObject {
    /// Namespace and name.
    pub name: PolicyName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`: the older of two policies comes first.
    pub created: Option<Timestamp>,
    /// `spec.selector`. An absent selector selects every HPA.
    pub selector: Result<Selector, InvalidSelector>,
    /// `spec.namespaceSelector`, for a `ClusterScalingPolicy`. An absent selector selects every namespace.
    pub namespace_selector: Result<Selector, InvalidSelector>,
    /// `spec` without the selectors, as JSON.
    pub spec: String,
    /// `status`.
    pub(super) status: PolicyStatus,
}

impl PolicyObject {
    /// Whether the policy selects an HPA with `labels` in a namespace with `namespace_labels`. The caller ensures
    /// that a `ScalingPolicy` is in the namespace of the HPA. An invalid selector selects nothing.
    pub fn selects(&self, labels: &impl Labels, namespace_labels: &impl Labels) -> bool {
        let in_namespace = self.name.namespace.is_some()
            || self.namespace_selector.as_ref().is_ok_and(|selector| selector.matches(namespace_labels));
        in_namespace && self.selector.as_ref().is_ok_and(|selector| selector.matches(labels))
    }
}

/// `status` of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PolicyStatus {
    /// `metadata.generation` that the status describes.
    pub(super) observed_generation: i64,
    /// The number of HPAs that the policy applies to.
    pub(super) matched: i64,
    pub(super) conditions: Vec<Condition>,
}

impl PolicyStatus {
    /// The status without the times of its conditions, which differ between equal writes.
    pub(super) fn without_times(&self) -> Self {
        let mut status = self.clone();
        for condition in &mut status.conditions {
            condition.last_transition_time = None;
        }
        status
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default)]
    spec: serde_json::Map<String, Value>,
    #[serde(default)]
    status: PolicyStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    generation: i64,
    creation_timestamp: Option<Timestamp>,
}

impl Watched for Kind {
    type Object<'a> = PolicyObject;

    fn path(&self) -> Vec<&str> {
        vec!["apis", GROUP, VERSION, self.resource()]
    }

    fn name(&self) -> Arc<str> {
        format!("{}.{GROUP}", self.resource()).into()
    }

    fn decode(&self, object: &[u8]) -> Result<PolicyObject, DecodeError> {
        let Wire { metadata, mut spec, status } = serde_json::from_slice(object)?;
        let meta = meta_of(metadata)?;
        let WireMetadata { generation, creation_timestamp } = serde_json::from_str(metadata.get())?;
        if meta.name.is_empty() {
            return Err(DecodeError::new(format!("a {} without metadata.name", self.as_str())));
        }
        let selector = selector_of(spec.remove("selector"));
        let namespace_selector = selector_of(spec.remove("namespaceSelector"));
        let namespace = (*self == Self::Namespaced).then(|| meta.namespace.into());
        Ok(PolicyObject {
            name: PolicyName { namespace, name: meta.name.into() },
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation,
            created: creation_timestamp,
            selector,
            namespace_selector,
            spec: Value::Object(spec).to_string(),
            status,
        })
    }

    fn resource_version(object: &PolicyObject) -> &str {
        &object.resource_version
    }
}

/// Reads a label selector. An absent or empty selector selects everything.
fn selector_of(value: Option<Value>) -> Result<Selector, InvalidSelector> {
    let selector = match value {
        None | Some(Value::Null) => LabelSelector::default(),
        Some(value) => LabelSelector::deserialize(value)
            .map_err(|error| InvalidSelector::Unreadable(error.to_string()))?,
    };
    Ok(Selector::from_label_selector(Some(&selector))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(kind: Kind, spec: &Value) -> PolicyObject {
        let object = serde_json::json!({
            "metadata": {"name": "night", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": spec, "status": {"matched": 3},
        });
        kind.decode(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn policy_is_decoded_without_its_selectors() {
        let spec = serde_json::json!({
            "mode": "Paused", "selector": {"matchLabels": {"team": "shop"}}, "namespaceSelector": {"matchLabels": {"a": "b"}},
        });
        let read = policy(Kind::Cluster, &spec);
        assert_eq!(read.name.to_string(), "ClusterScalingPolicy night");
        assert_eq!(read.selector.unwrap().to_string(), "team=shop");
        assert_eq!(read.namespace_selector.unwrap().to_string(), "a=b");
        assert_eq!(read.spec, r#"{"mode":"Paused"}"#);
        assert_eq!(read.generation, 2);
        let read = policy(Kind::Namespaced, &serde_json::json!({"selector": {}}));
        assert_eq!(read.name.to_string(), "ScalingPolicy shop/night");
        assert!(read.selector.unwrap().is_empty());
    }

    #[test]
    fn invalid_selector_is_kept_as_an_error() {
        for selector in [serde_json::json!("team=shop"), serde_json::json!({"matchLabels": {"a b": "c"}})] {
            let read = policy(Kind::Namespaced, &serde_json::json!({"selector": selector, "mode": "Paused"}));
            assert!(read.selector.is_err(), "{selector}");
            assert_eq!(read.spec, r#"{"mode":"Paused"}"#);
        }
    }
}
