//! HorizontalPodAutoscalers: understood, and kept as received, because a status PUT must send metadata back whole.
//!
//! Most events of a watch are the echo of a status that this controller has written: spec and status are then what is
//! known already, byte for byte, and are not understood again.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use autoscaling::spec::Spec;
use autoscaling::status::Status;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::text::Text;
use super::{DecodeError, managed};

/// One HPA.
#[derive(Debug, Clone)]
pub struct HpaObject {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`; servers before 1.37 do not count it for HPAs.
    pub generation: Option<i64>,
    /// `metadata` as received, without managedFields (the server keeps its own where a request has none).
    pub metadata: Box<RawValue>,
    /// Who wrote `status`, and when last, by `metadata.managedFields`.
    pub status_writers: Vec<(String, Timestamp)>,
    /// `spec` as received.
    pub spec_raw: Arc<RawValue>,
    /// `spec` understood.
    pub spec: Arc<Spec>,
    /// `status` understood.
    pub status: Arc<Status>,
}

/// What is known of an HPA before it is received again.
#[derive(Debug, Clone)]
pub struct Known {
    /// `spec` as it was received.
    pub spec_raw: Arc<RawValue>,
    /// `spec` understood.
    pub spec: Arc<Spec>,
    /// The status that was written last.
    pub status: Option<Arc<Status>>,
}

/// Decodes an HPA of autoscaling/v2 of which nothing is known.
pub fn hpa(object: &[u8]) -> Result<HpaObject, DecodeError> {
    hpa_known(object, |_, _| None)
}

/// Decodes an HPA of autoscaling/v2. `known` is asked by namespace and name.
pub fn hpa_known(
    object: &[u8],
    known: impl FnOnce(&str, &str) -> Option<Known>,
) -> Result<HpaObject, DecodeError> {
    let (mut metadata, mut spec, mut status) = (Metadata::default(), None, None);
    let mut cursor = Cursor::new(object);
    cursor.fields(|key, value| {
        match key {
            b"metadata" => metadata = Metadata::read(value)?,
            b"spec" => spec = if value.null()? { None } else { Some(value.raw()?) },
            b"status" => status = if value.null()? { None } else { Some(value.raw()?) },
            _ => value.skip()?,
        }
        Ok(())
    })?;
    cursor.finish()?;
    if metadata.name.is_empty() {
        return Err(DecodeError::new("an HPA without metadata.name"));
    }
    let spec_json = spec.unwrap_or(b"{}");
    let known = known(&metadata.namespace, &metadata.name);
    let (spec_raw, spec) = match &known {
        Some(known) if known.spec_raw.get().as_bytes() == spec_json => {
            (Arc::clone(&known.spec_raw), Arc::clone(&known.spec))
        }
        _ => (raw(spec_json.to_vec())?.into(), Arc::new(serde_json::from_slice(spec_json)?)),
    };
    let written = known.and_then(|known| known.status);
    let status = match (status, written) {
        (None, _) => Arc::default(),
        (Some(json), Some(written)) if is_written_as(&written, json) => written,
        (Some(json), written) => {
            let mut status: Status = serde_json::from_slice(json)?;
            status.current_metrics.shrink_to_fit();
            status.conditions.shrink_to_fit();
            // A server may write it in another order; one copy is enough.
            written.filter(|written| **written == status).unwrap_or_else(|| Arc::new(status))
        }
    };
    Ok(HpaObject {
        namespace: metadata.namespace.0.into_owned(),
        name: metadata.name.0.into_owned(),
        uid: metadata.uid.0.into_owned(),
        resource_version: metadata.resource_version.0.into_owned(),
        generation: metadata.generation,
        metadata: raw(metadata.json)?,
        status_writers: metadata.status_writers,
        spec_raw,
        spec,
        status,
    })
}

/// Whether a status is written with exactly these bytes.
fn is_written_as(status: &Status, json: &[u8]) -> bool {
    let mut left = Left(json);
    serde_json::to_writer(&mut left, status).is_ok() && left.0.is_empty()
}

/// Bytes that are expected to be written. What differs is an error.
struct Left<'a>(&'a [u8]);

impl Write for Left<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is read of `metadata`, and all of it, each value byte for byte as received, but for managedFields.
#[derive(Default)]
struct Metadata<'a> {
    namespace: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
    resource_version: Text<'a>,
    generation: Option<i64>,
    status_writers: Vec<(String, Timestamp)>,
    json: Vec<u8>,
}

impl<'a> Metadata<'a> {
    fn read(value: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let mut metadata = Self { json: vec![b'{'], ..Self::default() };
        value.fields(|key, value| {
            let value = value.raw()?;
            if key == b"managedFields" {
                metadata.status_writers = managed::status_writers(value);
                return Ok(());
            }
            metadata.put(key, value)?;
            let text = match key {
                b"namespace" => &mut metadata.namespace,
                b"name" => &mut metadata.name,
                b"uid" => &mut metadata.uid,
                b"resourceVersion" => &mut metadata.resource_version,
                b"generation" => {
                    metadata.generation = serde_json::from_slice(value)?;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            *text = Cursor::new(value).text()?;
            Ok(())
        })?;
        metadata.json.push(b'}');
        Ok(metadata)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        let key = std::str::from_utf8(key).map_err(|error| DecodeError::new(error.to_string()))?;
        serde_json::to_writer(&mut self.json, key)?;
        self.json.push(b':');
        self.json.extend_from_slice(value);
        Ok(())
    }
}

/// What is sent back must be sound.
fn raw(json: Vec<u8>) -> Result<Box<RawValue>, DecodeError> {
    let json = String::from_utf8(json).map_err(|error| DecodeError::new(error.to_string()))?;
    Ok(RawValue::from_string(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_as_received_but_for_managed_fields() {
        let json = br#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2",
            "metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"12","generation":3,
              "labels":{"a":"b"},"ownerReferences":[{"kind":"X"}],"managedFields":[{"manager":"kubectl"}],"future":{"x":[1, 2]}},
            "spec":{"maxReplicas":5,"scaleTargetRef":{"kind":"Deployment","name":"web","apiVersion":"apps/v1"},"novel":true},
            "status":{"currentMetrics":null,"desiredReplicas":2,"currentReplicas":2}}"#;
        let hpa = hpa(json).unwrap();
        assert_eq!(
            hpa.metadata.get(),
            r#"{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"12","generation":3,"labels":{"a":"b"},"ownerReferences":[{"kind":"X"}],"future":{"x":[1, 2]}}"#
        );
        assert!(hpa.spec_raw.get().contains("\"novel\":true"));
        assert_eq!(hpa.generation, Some(3));
        assert_eq!(hpa.spec.max_replicas, 5);
        assert_eq!(hpa.spec.target.name, "web");
        assert_eq!(hpa.status.desired_replicas, 2);
        assert_eq!((hpa.namespace.as_str(), hpa.name.as_str(), hpa.uid.as_str()), ("shop", "web", "u1"));
    }

    const KNOWN: &str = r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"12"},"spec":{"maxReplicas":5},"status":{"desiredReplicas":2,"currentMetrics":null}}"#;

    fn known(object: &HpaObject) -> Known {
        Known {
            spec_raw: Arc::clone(&object.spec_raw),
            spec: Arc::clone(&object.spec),
            status: Some(Arc::clone(&object.status)),
        }
    }

    #[test]
    fn what_is_known_byte_for_byte_is_not_understood_again() {
        let first = hpa(KNOWN.as_bytes()).unwrap();
        let status = serde_json::to_string(&*first.status).unwrap();
        assert!(KNOWN.contains(&status), "a status is written as the server has it: {status}");
        let again = hpa_known(KNOWN.replace("12", "13").as_bytes(), |namespace, name| {
            ((namespace, name) == ("shop", "web")).then(|| known(&first))
        });
        let again = again.unwrap();
        assert!(Arc::ptr_eq(&again.spec, &first.spec) && Arc::ptr_eq(&again.spec_raw, &first.spec_raw));
        assert!(Arc::ptr_eq(&again.status, &first.status));
        assert_eq!(again.resource_version, "13");
    }

    #[test]
    fn a_status_that_came_back_in_another_order_is_kept_once() {
        let first = hpa(KNOWN.as_bytes()).unwrap();
        let turned = KNOWN.replace(
            r#"{"desiredReplicas":2,"currentMetrics":null}"#,
            r#"{"currentMetrics":null, "desiredReplicas":2}"#,
        );
        assert_ne!(turned, KNOWN);
        let again = hpa_known(turned.as_bytes(), |_, _| Some(known(&first))).unwrap();
        assert!(Arc::ptr_eq(&again.status, &first.status));
    }

    #[test]
    fn what_differs_by_a_byte_is_read() {
        let first = hpa(KNOWN.as_bytes()).unwrap();
        let read = |json: String| hpa_known(json.as_bytes(), |_, _| Some(known(&first))).unwrap();
        assert_eq!(read(KNOWN.replace(":5", ":6")).spec.max_replicas, 6);
        assert_eq!(read(KNOWN.replace("s\":2", "s\":3")).status.desired_replicas, 3);
        let empty = read(KNOWN.replace(r#","status":{"desiredReplicas":2,"currentMetrics":null}"#, ""));
        assert_eq!(*empty.status, Status::default());
        assert!(hpa_known(KNOWN.replace(":5", ":many").as_bytes(), |_, _| Some(known(&first))).is_err());
    }

    #[test]
    fn an_hpa_without_a_name_or_with_a_broken_spec_is_an_error() {
        assert!(hpa(br#"{"metadata":{}}"#).is_err());
        assert!(hpa(br#"{"metadata":{"name":"a"},"spec":{"maxReplicas":"many"}}"#).is_err());
    }
}
