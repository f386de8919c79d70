//! HorizontalPodAutoscalers: understood, and kept as received, because a status PUT must send metadata back whole.

use autoscaling::spec::Spec;
use autoscaling::status::Status;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::text::Pairs;
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
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Pairs<'a, &'a RawValue>,
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
        status: Option<Status>,
    }

    let object: Object<'_> = serde_json::from_slice(object)?;
    let raw = |key: &str| object.metadata.0.iter().find(|(name, _)| &**name == key).map(|(_, value)| *value);
    let field = |key: &str| raw(key).map(RawValue::get);
    let string = |key: &str| -> Result<String, DecodeError> {
        Ok(field(key).map(serde_json::from_str).transpose()?.unwrap_or_default())
    };
    let name = string("name")?;
    if name.is_empty() {
        return Err(DecodeError::new("an HPA without metadata.name"));
    }
    let spec_raw = match object.spec {
        Some(spec) => spec.to_owned(),
        None => RawValue::from_string("{}".to_owned())?,
    };
    Ok(HpaObject {
        namespace: string("namespace")?,
        name,
        uid: string("uid")?,
        resource_version: string("resourceVersion")?,
        generation: field("generation").map(serde_json::from_str).transpose()?.flatten(),
        metadata: without_managed_fields(&object.metadata)?,
        status_writers: raw("managedFields").map(managed::status_writers).unwrap_or_default(),
        spec: serde_json::from_str(spec_raw.get())?,
        spec_raw,
        status: object.status.unwrap_or_default(),
    })
}

/// The same object, each value byte for byte as received, but for managedFields.
fn without_managed_fields(metadata: &Pairs<'_, &RawValue>) -> Result<Box<RawValue>, DecodeError> {
    let mut json = String::from("{");
    for (key, value) in metadata.0.iter().filter(|(key, _)| &**key != "managedFields") {
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(&serde_json::to_string(&**key)?);
        json.push(':');
        json.push_str(value.get());
    }
    json.push('}');
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
