//! Pods: what an autoscaler must know, borrowed from the wire bytes.

use std::borrow::Cow;

use autoscaling::pod::{ConditionStatus, Phase, ReadyCondition};
use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde::Deserialize;

use super::DecodeError;
use super::text::{Pairs, QuantityText, Text};

/// One pod as the wire shows it. Turning it into the compact, interned record is the store's work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WirePod<'a> {
    /// `metadata.namespace`.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Cow<'a, str>,
    /// `metadata.labels`, in the order of the wire.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
    /// The condition of type `Ready`; the first, should there be several.
    pub ready: Option<ReadyCondition>,
    /// `spec.containers`.
    pub containers: Vec<WireContainer<'a>>,
    /// `spec.initContainers`.
    pub init_containers: Vec<WireContainer<'a>>,
    /// `spec.resources.requests`, by resource name.
    pub requests: Vec<(Cow<'a, str>, Quantity)>,
}

/// One container of a [`WirePod`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WireContainer<'a> {
    /// `name`.
    pub name: Cow<'a, str>,
    /// Whether `restartPolicy` is `Always`.
    pub restartable: bool,
    /// `resources.requests`, by resource name.
    pub requests: Vec<(Cow<'a, str>, Quantity)>,
}

/// Decodes a pod. A pod without a name is an error.
pub fn pod(object: &[u8]) -> Result<WirePod<'_>, DecodeError> {
    let Object { metadata, spec, status } = serde_json::from_slice(object)?;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    if metadata.name.is_empty() {
        return Err(DecodeError::new("a pod without metadata.name"));
    }
    let ready =
        status.conditions.unwrap_or_default().into_iter().find(|condition| &*condition.kind == "Ready");
    Ok(WirePod {
        namespace: metadata.namespace.0,
        name: metadata.name.0,
        uid: metadata.uid.0,
        resource_version: metadata.resource_version.0,
        labels: metadata.labels.0.into_iter().map(|(key, value)| (key.0, value.0)).collect(),
        terminating: metadata.deletion_timestamp.is_some(),
        phase: Phase::parse(&status.phase),
        start_time: status.start_time,
        ready: ready.map(|condition| ReadyCondition {
            status: ConditionStatus::parse(&condition.status),
            since: condition.last_transition_time,
        }),
        containers: containers(spec.containers)?,
        init_containers: containers(spec.init_containers)?,
        requests: requests(spec.resources)?,
    })
}

fn containers(containers: Option<Vec<Container<'_>>>) -> Result<Vec<WireContainer<'_>>, DecodeError> {
    containers.unwrap_or_default().into_iter().map(read_container).collect()
}

fn read_container(container: Container<'_>) -> Result<WireContainer<'_>, DecodeError> {
    Ok(WireContainer {
        restartable: container.restart_policy.as_deref() == Some("Always"),
        requests: requests(container.resources)?,
        name: container.name.0,
    })
}

fn requests(resources: Option<Resources<'_>>) -> Result<Vec<(Cow<'_, str>, Quantity)>, DecodeError> {
    let requests = resources.unwrap_or_default().requests.0.into_iter();
    requests
        .map(|(name, quantity)| {
            let amount =
                quantity.0.parse().map_err(|error| DecodeError::new(format!("{}: {error}", &*name)))?;
            Ok((name.0, amount))
        })
        .collect()
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    labels: Pairs<'a, Text<'a>>,
    #[serde(borrow)]
    deletion_timestamp: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    resources: Option<Resources<'a>>,
}

#[derive(Deserialize, Default)]
struct Resources<'a> {
    #[serde(borrow, default)]
    requests: Pairs<'a, QuantityText<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
    start_time: Option<Timestamp>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    last_transition_time: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn a_pod_is_read_without_copying_its_strings() {
        let json = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"9",
            "labels":{"app":"web","note":"a\"b"},"annotations":{"x":"y"},"managedFields":[{"fieldsV1":{"f:a":{}}}]},
            "spec":{"nodeName":"n","containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":1024}}},{"name":"bare"}],
              "initContainers":[{"name":"proxy","restartPolicy":"Always","resources":{"requests":null}}],
              "resources":{"requests":{"cpu":"1"}}},
            "status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z",
              "conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:05Z","lastProbeTime":null}]}}"#;
        let pod = pod(json).unwrap();
        assert!(matches!(pod.name, Cow::Borrowed("web-0")));
        assert_eq!(pod.labels, [("app".into(), "web".into()), ("note".into(), "a\"b".into())]);
        assert_eq!(
            pod.containers[0].requests,
            [("cpu".into(), amount("100m")), ("memory".into(), amount("1024"))]
        );
        assert!(pod.containers[1].requests.is_empty());
        assert!(pod.init_containers[0].restartable && !pod.containers[0].restartable);
        assert_eq!(pod.requests, [("cpu".into(), amount("1"))]);
        assert_eq!(pod.phase, Phase::Running);
        assert_eq!(pod.ready.unwrap().status, ConditionStatus::False);
        assert_eq!(pod.ready.unwrap().since, Some("2026-01-01T00:00:05Z".parse().unwrap()));
        assert!(!pod.terminating);
    }

    #[test]
    fn absent_and_null_parts_are_empty() {
        let pod = pod(br#"{"metadata":{"name":"a","labels":null,"deletionTimestamp":"2026-01-01T00:00:00Z"},
            "spec":{"containers":null},"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":null}]}}"#)
        .unwrap();
        assert!(pod.terminating);
        assert_eq!(pod.phase, Phase::Unknown);
        assert_eq!(pod.ready, Some(ReadyCondition { status: ConditionStatus::Unknown, since: None }));
        assert!(super::pod(br#"{"metadata":{}}"#).is_err());
        assert!(super::pod(br#"{"metadata":{"name":"a"},"spec":{"containers":7}}"#).is_err());
        let bad =
            br#"{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"lots"}}}]}}"#;
        assert!(super::pod(bad).unwrap_err().message.starts_with("cpu: "));
    }
}
