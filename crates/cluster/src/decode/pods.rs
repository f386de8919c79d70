//! Decodes the fields of pods that an autoscaler needs, borrowed from the wire bytes.

use std::borrow::Cow;

use autoscaling::pod::{ConditionStatus, Phase, ReadyCondition};
use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Number;

use super::cursor::Cursor;
use super::{DecodeError, Text};

/// The decoded fields of a pod. The store converts them to a compact record.
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
    /// `metadata.labels`, in wire order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.podIP`. Empty until the pod has an address.
    pub ip: Cow<'a, str>,
    /// `status.hostIP`.
    pub host_ip: Cow<'a, str>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
    /// The first condition of type `Ready`.
    pub ready: Option<ReadyCondition>,
    /// `spec.containers`.
    pub containers: Vec<WireContainer<'a>>,
    /// `spec.initContainers`.
    pub init_containers: Vec<WireContainer<'a>>,
    /// `spec.resources.requests`, by resource name.
    pub requests: Vec<(Cow<'a, str>, Quantity)>,
}

/// A container of a [`WirePod`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WireContainer<'a> {
    /// `name`.
    pub name: Cow<'a, str>,
    /// Whether `restartPolicy` is `Always`.
    pub restartable: bool,
    /// `resources.requests`, by resource name.
    pub requests: Vec<(Cow<'a, str>, Quantity)>,
    /// `ports` as received. Most callers do not need the ports, so they stay undecoded.
    pub ports: Option<&'a [u8]>,
}

/// Decodes a pod. A pod without a name is an error.
pub fn pod(object: &[u8]) -> Result<WirePod<'_>, DecodeError> {
    let mut pod = WirePod::default();
    let mut cursor = Cursor::new(object);
    cursor.fields(|key, value| match key {
        b"metadata" => read_metadata(value, &mut pod),
        b"spec" => read_spec(value, &mut pod),
        b"status" => read_status(value, &mut pod),
        _ => value.skip(),
    })?;
    cursor.finish()?;
    if pod.name.is_empty() {
        return Err(DecodeError::new("a pod without metadata.name"));
    }
    Ok(pod)
}

fn read_metadata<'a>(metadata: &mut Cursor<'a>, pod: &mut WirePod<'a>) -> Result<(), DecodeError> {
    metadata.fields(|key, value| {
        let text = match key {
            b"name" => &mut pod.name,
            b"namespace" => &mut pod.namespace,
            b"uid" => &mut pod.uid,
            b"resourceVersion" => &mut pod.resource_version,
            b"labels" => {
                let labels = value.pairs(Cursor::text)?;
                pod.labels = labels.into_iter().map(|(key, value)| (key.0, value.0)).collect();
                return Ok(());
            }
            b"deletionTimestamp" => {
                pod.terminating = !value.null()?;
                return if pod.terminating { value.text().map(drop) } else { Ok(()) };
            }
            _ => return value.skip(),
        };
        *text = value.text()?.0;
        Ok(())
    })
}

fn read_spec<'a>(spec: &mut Cursor<'a>, pod: &mut WirePod<'a>) -> Result<(), DecodeError> {
    spec.fields(|key, value| {
        match key {
            b"containers" => pod.containers = containers(value)?,
            b"initContainers" => pod.init_containers = containers(value)?,
            b"hostNetwork" => pod.host_network = value.parse::<Option<bool>>()?.unwrap_or_default(),
            b"resources" => pod.requests = requests(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })
}

fn containers<'a>(containers: &mut Cursor<'a>) -> Result<Vec<WireContainer<'a>>, DecodeError> {
    let mut all = Vec::new();
    containers.elements(|value| {
        let mut container = WireContainer::default();
        value.fields(|key, value| {
            match key {
                b"name" => container.name = value.text()?.0,
                b"restartPolicy" => container.restartable = &*value.text()? == "Always",
                b"resources" => container.requests = requests(value)?,
                b"ports" => container.ports = Some(value.raw()?),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        all.push(container);
        Ok(())
    })?;
    Ok(all)
}

fn requests<'a>(resources: &mut Cursor<'a>) -> Result<Vec<(Cow<'a, str>, Quantity)>, DecodeError> {
    let mut requests = Vec::new();
    resources.fields(|key, value| {
        if key != b"requests" {
            return value.skip();
        }
        requests.clear();
        for (name, quantity) in value.pairs(quantity)? {
            let amount =
                quantity.parse().map_err(|error| DecodeError::new(format!("{}: {error}", &*name)))?;
            requests.push((name.0, amount));
        }
        Ok(())
    })?;
    Ok(requests)
}

/// Reads the text of a quantity. API servers write strings. As in Go, a number is accepted, and `null` is zero.
fn quantity<'a>(value: &mut Cursor<'a>) -> Result<Text<'a>, DecodeError> {
    if value.at_text() {
        return value.text();
    }
    let number = value.parse::<Option<Number>>()?;
    Ok(Text(number.map_or(Cow::Borrowed("0"), |number| number.to_string().into())))
}

fn read_status<'a>(status: &mut Cursor<'a>, pod: &mut WirePod<'a>) -> Result<(), DecodeError> {
    status.fields(|key, value| {
        match key {
            b"podIP" => pod.ip = value.text()?.0,
            b"hostIP" => pod.host_ip = value.text()?.0,
            b"phase" => pod.phase = Phase::parse(&value.text()?),
            b"startTime" => pod.start_time = time(value)?,
            b"conditions" => pod.ready = ready(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// Returns the first condition of type `Ready`.
fn ready(conditions: &mut Cursor<'_>) -> Result<Option<ReadyCondition>, DecodeError> {
    let mut ready = None;
    conditions.elements(|condition| {
        let (mut kind, mut status, mut since) = (Text::default(), Text::default(), None);
        condition.fields(|key, value| {
            match key {
                b"type" => kind = value.text()?,
                b"status" => status = value.text()?,
                b"lastTransitionTime" => since = Some(value.raw()?),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if ready.is_none() && &*kind == "Ready" {
            let since = since.map_or(Ok(None), |since| time(&mut Cursor::new(since)))?;
            ready = Some(ReadyCondition { status: ConditionStatus::parse(&status), since });
        }
        Ok(())
    })?;
    Ok(ready)
}

fn time(value: &mut Cursor<'_>) -> Result<Option<Timestamp>, DecodeError> {
    if value.null()? {
        return Ok(None);
    }
    let time = value.text()?.parse::<Timestamp>();
    time.map(Some).map_err(|error| DecodeError::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn pod_is_decoded_without_copying_its_strings() {
        let json = br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"9",
            "labels":{"app":"web","note":"a\"b"},"annotations":{"x":"y"},"managedFields":[{"fieldsV1":{"f:a":{}}}]},
            "spec":{"nodeName":"n","hostNetwork":true,"containers":[{"name":"app","resources":{"requests":{"cpu":"100m","memory":1024}}},{"name":"bare"}],
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
        assert!(!pod.terminating && pod.host_network);
    }

    #[test]
    fn absent_and_null_parts_are_empty() {
        let pod = pod(br#"{"metadata":{"name":"a","labels":null,"deletionTimestamp":"2026-01-01T00:00:00Z"},
            "spec":{"containers":null,"hostNetwork":null},"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":null}]}}"#)
        .unwrap();
        assert!(pod.terminating && !pod.host_network);
        assert_eq!(pod.phase, Phase::Unknown);
        assert_eq!(pod.ready, Some(ReadyCondition { status: ConditionStatus::Unknown, since: None }));
        assert!(super::pod(br#"{"metadata":{}}"#).is_err());
        assert!(super::pod(br#"{"metadata":{"name":"a"},"spec":{"containers":7}}"#).is_err());
        let bad =
            br#"{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"lots"}}}]}}"#;
        assert!(super::pod(bad).unwrap_err().message.starts_with("cpu: "));
    }
}
