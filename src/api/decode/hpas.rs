//! HorizontalPodAutoscalers: understood, and kept as received, because a status PUT must send metadata back whole.

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
    pub spec_raw: Box<RawValue>,
    /// `spec` understood.
    pub spec: Spec,
    /// `status` understood.
    pub status: Status,
}

/// Decodes an HPA of autoscaling/v2.
pub fn hpa(object: &[u8]) -> Result<HpaObject, DecodeError> {
    let (mut metadata, mut spec, mut status) = (Metadata::default(), None, Status::default());
    let mut cursor = Cursor::new(object);
    cursor.fields(|key, value| {
        match key {
            b"metadata" => metadata = Metadata::read(value)?,
            b"spec" => spec = if value.null()? { None } else { Some(value.raw()?) },
            b"status" => status = value.parse::<Option<Status>>()?.unwrap_or_default(),
            _ => value.skip()?,
        }
        Ok(())
    })?;
    cursor.finish()?;
    if metadata.name.is_empty() {
        return Err(DecodeError::new("an HPA without metadata.name"));
    }
    let spec = spec.unwrap_or(b"{}");
    status.current_metrics.shrink_to_fit();
    status.conditions.shrink_to_fit();
    Ok(HpaObject {
        namespace: metadata.namespace.0.into_owned(),
        name: metadata.name.0.into_owned(),
        uid: metadata.uid.0.into_owned(),
        resource_version: metadata.resource_version.0.into_owned(),
        generation: metadata.generation,
        metadata: raw(metadata.json)?,
        status_writers: metadata.status_writers,
        spec: serde_json::from_slice(spec)?,
        spec_raw: raw(spec.to_vec())?,
        status,
    })
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

    #[test]
    fn an_hpa_without_a_name_or_with_a_broken_spec_is_an_error() {
        assert!(hpa(br#"{"metadata":{}}"#).is_err());
        assert!(hpa(br#"{"metadata":{"name":"a"},"spec":{"maxReplicas":"many"}}"#).is_err());
    }
}
