//! Decodes HorizontalPodAutoscalers. Keeps the metadata, without managedFields, and the spec as received, because a
//! status PUT sends both back.
//!
//! Most watch events are echoes of this controller's status writes. The spec and status of an echo equal their cached
//! values and are not decoded again.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use autoscaling::spec::{MAX_SPEC_BYTES, Spec};
use autoscaling::status::Status;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::{DecodeError, Text};

/// A decoded HPA.
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
    /// `metadata.generation`. API servers before Kubernetes 1.37 do not set it for HPAs.
    pub generation: Option<i64>,
    /// `metadata` as received, without managedFields. The server keeps the stored managedFields if a request has none.
    pub metadata: Box<RawValue>,
    /// The writers of `status` and the times of their last writes, from `metadata.managedFields`.
    pub status_writers: Vec<(String, Timestamp)>,
    /// `spec` as received; `null` beyond [`MAX_SPEC_BYTES`].
    pub spec_raw: Arc<RawValue>,
    /// `spec`, decoded.
    pub spec: Arc<Spec>,
    /// `status`, decoded; without metrics if the spec [is too large](Spec::is_too_large).
    pub status: Arc<Status>,
}

/// The cached parts of an HPA.
#[derive(Debug, Clone)]
pub struct CachedHpa {
    /// `spec` as received.
    pub spec_raw: Arc<RawValue>,
    /// `spec`, decoded.
    pub spec: Arc<Spec>,
    /// The status of the last write. `None` if it is unknown.
    pub status: Option<Arc<Status>>,
}

/// Decodes an HPA of autoscaling/v2 without cached parts.
pub fn hpa(object: &[u8]) -> Result<HpaObject, DecodeError> {
    decode_cached_hpa(object, |_, _| None)
}

/// Decodes an HPA of autoscaling/v2. `known` returns the cached parts of an HPA by namespace and name.
pub fn decode_cached_hpa(
    object: &[u8],
    known: impl FnOnce(&str, &str) -> Option<CachedHpa>,
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
        // The server keeps the stored spec at a status PUT, whatever the request contains.
        _ if spec_json.len() > MAX_SPEC_BYTES => (RawValue::NULL.to_owned().into(), Spec::too_large().into()),
        _ => (raw(spec_json.to_vec())?.into(), Arc::new(serde_json::from_slice(spec_json)?)),
    };
    let written = known.and_then(|known| known.status);
    let status = match (status, written) {
        (None, _) => Arc::default(),
        (Some(json), Some(written)) if is_written_as(&written, json) => written,
        (Some(json), written) => {
            let mut status: Status = serde_json::from_slice(json)?;
            if spec.is_too_large {
                status.current_metrics = Vec::new();
            }
            status.current_metrics.shrink_to_fit();
            status.conditions.shrink_to_fit();
            // A server may order fields differently, so the decoded values are compared too. Equal statuses share the
            // cached copy.
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

/// Returns whether `status` serializes to exactly the bytes of `json`.
fn is_written_as(status: &Status, json: &[u8]) -> bool {
    let mut left = ExpectedBytes(json);
    serde_json::to_writer(&mut left, status).is_ok() && left.0.is_empty()
}

/// A writer that compares its input with the expected bytes. A difference is an error.
struct ExpectedBytes<'a>(&'a [u8]);

impl Write for ExpectedBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or(ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The decoded fields of `metadata`, and a copy of `metadata` without managedFields. The copy keeps each
/// value byte for byte as received.
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
                metadata.status_writers = status_writers(value);
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

/// Validates JSON that a later status PUT sends back.
fn raw(json: Vec<u8>) -> Result<Box<RawValue>, DecodeError> {
    let json = String::from_utf8(json).map_err(|error| DecodeError::new(error.to_string()))?;
    Ok(RawValue::from_string(json)?)
}

/// Returns the writers of an object's status: manager and time of every entry of `metadata.managedFields` for the
/// subresource `status`. The server updates the time, in whole seconds, whenever a manager changes a value.
///
/// Skips entries without a time. Returns an empty list if `managed_fields` is unreadable, because the HPA is usable
/// without the list.
pub(super) fn status_writers(managed_fields: &[u8]) -> Vec<(String, Timestamp)> {
    read(managed_fields).unwrap_or_default()
}

fn read(managed_fields: &[u8]) -> Result<Vec<(String, Timestamp)>, DecodeError> {
    let mut writers = Vec::new();
    Cursor::new(managed_fields).elements(|entry| {
        let (mut manager, mut subresource, mut time) = (Text::default(), Text::default(), None);
        entry.fields(|key, value| {
            match key {
                b"manager" => manager = value.text()?,
                b"subresource" => subresource = value.text()?,
                b"time" => time = value.parse::<Option<Timestamp>>()?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        if let Some(time) = time.filter(|_| &*subresource == "status") {
            writers.push((manager.0.into_owned(), time));
        }
        Ok(())
    })?;
    Ok(writers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_as_received_except_managed_fields() {
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

    const CACHED: &str = r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"12"},"spec":{"maxReplicas":5},"status":{"desiredReplicas":2,"currentMetrics":null}}"#;

    fn cached(object: &HpaObject) -> CachedHpa {
        CachedHpa {
            spec_raw: Arc::clone(&object.spec_raw),
            spec: Arc::clone(&object.spec),
            status: Some(Arc::clone(&object.status)),
        }
    }

    #[test]
    fn equal_bytes_are_not_decoded_again() {
        let first = hpa(CACHED.as_bytes()).unwrap();
        let status = serde_json::to_string(&*first.status).unwrap();
        assert!(CACHED.contains(&status), "a status serializes as on the server: {status}");
        let again = decode_cached_hpa(CACHED.replace("12", "13").as_bytes(), |namespace, name| {
            ((namespace, name) == ("shop", "web")).then(|| cached(&first))
        });
        let again = again.unwrap();
        assert!(Arc::ptr_eq(&again.spec, &first.spec) && Arc::ptr_eq(&again.spec_raw, &first.spec_raw));
        assert!(Arc::ptr_eq(&again.status, &first.status));
        assert_eq!(again.resource_version, "13");
    }

    #[test]
    fn status_in_another_field_order_is_stored_once() {
        let first = hpa(CACHED.as_bytes()).unwrap();
        let reordered = CACHED.replace(
            r#"{"desiredReplicas":2,"currentMetrics":null}"#,
            r#"{"currentMetrics":null, "desiredReplicas":2}"#,
        );
        assert_ne!(reordered, CACHED);
        let again = decode_cached_hpa(reordered.as_bytes(), |_, _| Some(cached(&first))).unwrap();
        assert!(Arc::ptr_eq(&again.status, &first.status));
    }

    #[test]
    fn any_different_byte_is_decoded() {
        let first = hpa(CACHED.as_bytes()).unwrap();
        let read = |json: String| decode_cached_hpa(json.as_bytes(), |_, _| Some(cached(&first))).unwrap();
        assert_eq!(read(CACHED.replace(":5", ":6")).spec.max_replicas, 6);
        assert_eq!(read(CACHED.replace("s\":2", "s\":3")).status.desired_replicas, 3);
        let empty = read(CACHED.replace(r#","status":{"desiredReplicas":2,"currentMetrics":null}"#, ""));
        assert_eq!(*empty.status, Status::default());
        assert!(
            decode_cached_hpa(CACHED.replace(":5", ":many").as_bytes(), |_, _| Some(cached(&first))).is_err()
        );
    }

    #[test]
    fn hpa_without_a_name_or_with_a_broken_spec_is_an_error() {
        assert!(hpa(br#"{"metadata":{}}"#).is_err());
        assert!(hpa(br#"{"metadata":{"name":"a"},"spec":{"maxReplicas":"many"}}"#).is_err());
    }

    fn writers(json: &str) -> Vec<(String, String)> {
        status_writers(json.as_bytes()).into_iter().map(|(manager, at)| (manager, at.to_string())).collect()
    }

    #[test]
    fn only_status_writes_count() {
        let json = r#"[
            {"manager":"kubectl","operation":"Update","time":"2026-01-02T03:04:05Z","fieldsV1":{"f:spec":{}}},
            {"manager":"kube-controller-manager","operation":"Update","apiVersion":"autoscaling/v2",
             "time":"2026-01-02T03:04:06Z","fieldsV1":{"f:status":{}},"subresource":"status"},
            {"manager":"timeless","subresource":"status"}]"#;
        assert_eq!(
            writers(json),
            [("kube-controller-manager".to_owned(), "2026-01-02T03:04:06Z".to_owned())]
        );
    }

    #[test]
    fn unreadable_fields_give_no_writers() {
        for json in ["null", "[]", "{}", r#"[{"subresource":"status","time":"soon"}]"#] {
            assert_eq!(writers(json), [], "{json}");
        }
    }
}
