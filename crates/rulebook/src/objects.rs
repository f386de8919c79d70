//! Decodes `ScalingPolicy`, `ClusterScalingPolicy`, and the annotation and labels of HPAs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use autoscaling::selector::{LabelSelector, Labels, Selector, SelectorError};
use autoscaling::status::Condition;
use jiff::Timestamp;
use memchr::memmem::Finder;
use policies::spec::MAX_BYTES;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use cluster::decode::{DecodeError, meta_of};
use cluster::watch::Watched;

/// The annotation of an HPA with its policy, in YAML or JSON.
pub const ANNOTATION: &str = "concertina.dev/policy";
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

    /// Returns the kind in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "ScalingPolicy",
            Self::Cluster => "ClusterScalingPolicy",
        }
    }

    /// Returns the resource in paths and roles.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Namespaced => "scalingpolicies",
            Self::Cluster => "clusterscalingpolicies",
        }
    }
}

/// The name of a policy object. Cluster-wide policies are ordered before namespaced policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    /// `metadata.namespace`. `None` for a `ClusterScalingPolicy`.
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
    /// The selector is too long. Contains the length in bytes.
    #[error("the selector has {0} bytes, at most {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// A requirement of the selector is invalid.
    #[error("the selector is invalid: {0}")]
    Invalid(#[from] SelectorError),
}

/// A policy object from the watch.
#[derive(Debug)]
pub struct PolicyObject {
    /// The namespace and name of the object.
    pub name: PolicyName,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`. The older of two policies of the same kind has precedence.
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
    /// Returns whether the policy selects an HPA with `labels` in a namespace with `namespace_labels`. The caller
    /// ensures that a `ScalingPolicy` is in the namespace of the HPA. An invalid selector selects nothing.
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
    /// The `metadata.generation` that the status describes.
    pub(super) observed_generation: i64,
    /// The number of HPAs that the policy applies to.
    pub(super) matched: i64,
    pub(super) conditions: Vec<Condition>,
}

impl PolicyStatus {
    /// Returns the status without the times of its conditions, which differ between equal writes.
    pub(super) fn without_times(&self) -> Self {
        let mut status = self.clone();
        for condition in &mut status.conditions {
            condition.last_transition_time = None;
        }
        status
    }
}

/// The labels of an HPA.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ObjectLabels<'a>(BTreeMap<Cow<'a, str>, Cow<'a, str>>);

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| &**value)
    }
}

/// Returns the text of [`ANNOTATION`] in `metadata`. Parses `metadata` only if a search of the bytes finds the name of
/// the annotation.
pub(super) fn annotation_of(metadata: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        annotations: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    }
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ANNOTATION));
    // The API server never escapes the slash.
    FINDER.find(metadata.get().as_bytes())?;
    let metadata: Metadata<'_> = serde_json::from_str(metadata.get()).ok()?;
    let text = metadata.annotations?.remove(ANNOTATION)?;
    serde_json::from_str(text.get()).ok()
}

/// Returns the labels in `metadata`, or none if they are invalid.
pub(super) fn labels_of(metadata: &RawValue) -> ObjectLabels<'_> {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    }
    let metadata: Option<Metadata<'_>> = serde_json::from_str(metadata.get()).ok();
    ObjectLabels(metadata.and_then(|metadata| metadata.labels).unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    spec: Fields<'a>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

/// The fields of a policy object's `spec`. The fields that are no selectors are text, because an object may have 100,000
/// of them.
#[derive(Default)]
struct Fields<'a> {
    selector: Option<&'a RawValue>,
    namespace_selector: Option<&'a RawValue>,
    /// The other fields, as members of a JSON object.
    others: String,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'a> Visitor<'a> for Members {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Fields<'a>, A::Error> {
                let mut fields = Fields::default();
                while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    match name.get() {
                        "\"selector\"" => fields.selector = Some(value),
                        "\"namespaceSelector\"" => fields.namespace_selector = Some(value),
                        name => {
                            let comma = if fields.others.is_empty() { "" } else { "," };
                            fields.others.extend([comma, name, ":", value.get()]);
                        }
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Members)
    }
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
        let Wire { metadata, spec, status } = serde_json::from_slice(object)?;
        let meta = meta_of(metadata)?;
        let WireMetadata { generation, creation_timestamp } = serde_json::from_str(metadata.get())?;
        if meta.name.is_empty() {
            return Err(DecodeError::new(format!("a {} without metadata.name", self.as_str())));
        }
        let namespace = (*self == Self::Namespaced).then(|| meta.namespace.into());
        Ok(PolicyObject {
            name: PolicyName { namespace, name: meta.name.into() },
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation,
            created: creation_timestamp,
            selector: selector_of(spec.selector),
            namespace_selector: selector_of(spec.namespace_selector),
            spec: format!("{{{}}}", spec.others),
            // A status that is too long is not the controller's, which then writes its own.
            status: match status {
                Some(status) if status.get().len() <= MAX_BYTES => serde_json::from_str(status.get())?,
                _ => PolicyStatus::default(),
            },
        })
    }

    fn resource_version(object: &PolicyObject) -> &str {
        &object.resource_version
    }
}

/// Reads a label selector. An absent or empty selector selects everything.
fn selector_of(value: Option<&RawValue>) -> Result<Selector, InvalidSelector> {
    let text = value.map_or("null", RawValue::get);
    if text.len() > MAX_BYTES {
        return Err(InvalidSelector::TooLarge(text.len()));
    }
    let selector: Option<LabelSelector> =
        serde_json::from_str(text).map_err(|error| InvalidSelector::Unreadable(error.to_string()))?;
    Ok(Selector::from_label_selector(Some(&selector.unwrap_or_default()))?)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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

    #[test]
    fn large_object_is_refused_by_its_length() {
        let entries = vec![serde_json::json!({"a": 0}); 20_000];
        let spec = serde_json::json!({"schedules": entries, "selector": {"matchLabels": entries}});
        let read = policy(Kind::Namespaced, &spec);
        assert!(read.selector.as_ref().unwrap_err().to_string().contains("at most 65536 are allowed"));
        let parsed = crate::read_object(&read);
        assert!(parsed.problems[0].to_string().starts_with("the policy has "), "{:?}", parsed.problems);
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn annotation_is_found_by_its_key_only() {
        let text = |json: &str| annotation_of(&raw(json));
        let annotated = r#"{"name":"web","annotations":{"a":"b","concertina.dev/policy":"mode: Paused\n"}}"#;
        assert_eq!(text(annotated).as_deref(), Some("mode: Paused\n"));
        for none in [
            r#"{"annotations":{"a":"concertina.dev/policy"}}"#,
            r#"{"labels":{"concertina.dev/policy":"x"}}"#,
            r#"{"annotations":null,"name":"concertina.dev/policy"}"#,
            r#"{"annotations":{"concertina.dev/policy":7}}"#,
            "{}",
        ] {
            assert_eq!(text(none), None, "{none}");
        }
    }

    #[test]
    fn labels_are_read_from_metadata() {
        let metadata = raw(r#"{"name":"web","labels":{"team":"shop","a\"b":"c"}}"#);
        let labels = labels_of(&metadata);
        assert_eq!(
            (labels.value("team"), labels.value("a\"b"), labels.value("x")),
            (Some("shop"), Some("c"), None)
        );
        assert_eq!(labels_of(&raw(r#"{"labels":7}"#)), ObjectLabels::default());
    }
}
