//! Parts of objects that an explanation needs and a controller does not need: owners, field managers, events.

use autoscaling::event::EventKind;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::situation::{EventContent, FieldManager, Owner, RecentEvent};
use cluster::decode::DecodeError;

/// `metadata` of any object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    owner_references: Option<Vec<OwnerReference>>,
    managed_fields: Option<Vec<ManagedFields>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFields {
    manager: String,
    operation: String,
    subresource: String,
    time: Option<Timestamp>,
    fields_v1: Option<Box<RawValue>>,
}

/// The managed field `spec.replicas`.
#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "f:spec")]
    spec: Option<SpecFields>,
}

#[derive(Deserialize)]
struct SpecFields {
    #[serde(rename = "f:replicas")]
    replicas: Option<serde::de::IgnoredAny>,
}

/// Decodes only `metadata`.
pub(super) fn meta(object: &[u8]) -> Result<Meta, DecodeError> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    Ok(serde_json::from_slice::<Object>(object)?.metadata)
}

impl Meta {
    /// Returns all owners.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let references = self.owner_references.iter().flatten();
        let owners = references.map(|owner| Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            controller: owner.controller == Some(true),
        });
        owners.collect()
    }

    /// Returns the managing controller.
    pub(super) fn controller(&self) -> Option<Owner> {
        self.owners().into_iter().find(|owner| owner.controller)
    }

    /// Returns the field managers of `spec.replicas`.
    pub(super) fn replicas_owners(&self) -> Vec<FieldManager> {
        let owns = |fields: &&ManagedFields| {
            let fields =
                fields.fields_v1.as_deref().map(|fields| serde_json::from_str::<Fields>(fields.get()));
            matches!(fields, Some(Ok(Fields { spec: Some(SpecFields { replicas: Some(_) }) })))
        };
        self.managed_fields.iter().flatten().filter(owns).map(ManagedFields::manager).collect()
    }

    /// Returns the field manager of the last status write.
    pub(super) fn status_writer(&self) -> Option<FieldManager> {
        let writers = self.managed_fields.iter().flatten().filter(|fields| fields.subresource == "status");
        writers.max_by_key(|fields| fields.time).map(ManagedFields::manager)
    }
}

impl ManagedFields {
    fn manager(&self) -> FieldManager {
        FieldManager {
            manager: self.manager.clone(),
            operation: self.operation.clone(),
            subresource: self.subresource.clone(),
            time: self.time,
        }
    }
}

/// An event with the name and the UID of its HPA.
#[derive(Debug, Clone)]
pub(super) struct AboutHpa {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) event: RecentEvent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    involved_object: Involved,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    count: Option<u32>,
    first_timestamp: Option<Timestamp>,
    last_timestamp: Option<Timestamp>,
    #[serde(rename = "eventTime")]
    time: Option<Timestamp>,
    series: Option<Series>,
    #[serde(default)]
    source: Option<Source>,
    #[serde(default)]
    reporting_component: String,
    #[serde(default)]
    metadata: EventMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Involved {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    count: Option<u32>,
    last_observed_time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Source {
    component: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EventMeta {
    creation_timestamp: Option<Timestamp>,
}

/// Decodes an event of core/v1, including one written through events.k8s.io. Returns `None` if the event is
/// not about an HPA or has no time.
pub(super) fn event(object: &[u8]) -> Result<Option<AboutHpa>, DecodeError> {
    let event: Event = serde_json::from_slice(object)?;
    if event.involved_object.kind != "HorizontalPodAutoscaler" {
        return Ok(None);
    }
    let series = event.series.as_ref();
    let first = event.first_timestamp.or(event.time).or(event.metadata.creation_timestamp);
    let last = event.last_timestamp.max(series.and_then(|series| series.last_observed_time)).or(first);
    let (Some(first), Some(last)) = (first.or(last), last) else { return Ok(None) };
    let reporter = if event.reporting_component.is_empty() {
        event.source.unwrap_or_default().component
    } else {
        event.reporting_component
    };
    let Involved { namespace, name, uid, .. } = event.involved_object;
    let event = RecentEvent {
        content: EventContent {
            kind: if event.kind == "Normal" { EventKind::Normal } else { EventKind::Warning },
            reason: event.reason,
            message: event.message,
        },
        count: event.count.max(series.and_then(|series| series.count)).unwrap_or(1).max(1),
        first,
        last,
        reporter,
    };
    Ok(Some(AboutHpa { namespace, name, uid, event }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_field_managers_are_decoded() {
        let meta = meta(
            br#"{"metadata":{"name":"web","uid":"u","ownerReferences":[
                {"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"1"},
                {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7","uid":"2","controller":true}],
              "managedFields":[
                {"manager":"helm","operation":"Apply","time":"2030-01-01T00:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{}}}},
                {"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{"f:template":{}}}},
                {"manager":"kcm","operation":"Update","subresource":"status","time":"2030-01-01T00:00:00Z"},
                {"manager":"concertina","operation":"Update","subresource":"status","time":"2030-01-01T00:01:00Z"}]}}"#,
        )
        .unwrap();
        assert_eq!(meta.owners().len(), 2);
        assert_eq!(meta.controller().unwrap().name, "web-7");
        let owners = meta.replicas_owners();
        assert_eq!(owners.iter().map(|owner| owner.manager.as_str()).collect::<Vec<_>>(), ["helm"]);
        assert_eq!(meta.status_writer().unwrap().manager, "concertina");
    }

    #[test]
    fn events_of_both_apis_have_times_and_counts() {
        let old = event(
            br#"{"involvedObject":{"kind":"HorizontalPodAutoscaler","namespace":"shop","name":"web","uid":"u"},
            "reason":"SuccessfulRescale","message":"New size: 3","type":"Normal","count":2,"source":{"component":"hpa"},
            "firstTimestamp":"2030-01-01T00:00:00Z","lastTimestamp":"2030-01-01T00:05:00Z","eventTime":null,
            "reportingComponent":"","metadata":{"name":"e"}}"#,
        )
        .unwrap()
        .unwrap();
        assert_eq!((old.event.count, old.event.reporter.as_str()), (2, "hpa"));
        assert_eq!(old.event.last.duration_since(old.event.first).as_secs(), 300);
        let new = event(
            br#"{"involvedObject":{"kind":"HorizontalPodAutoscaler","name":"web"},"type":"Warning","reason":"X",
            "eventTime":"2030-01-01T00:00:00.000000Z","firstTimestamp":null,"lastTimestamp":null,
            "series":{"count":7,"lastObservedTime":"2030-01-01T00:01:00.000000Z"},"reportingComponent":"c"}"#,
        )
        .unwrap()
        .unwrap();
        assert_eq!((new.event.count, new.event.content.kind), (7, EventKind::Warning));
        assert_eq!(new.event.last.duration_since(new.event.first).as_secs(), 60);
        let other =
            event(br#"{"involvedObject":{"kind":"Pod"},"eventTime":"2030-01-01T00:00:00Z"}"#).unwrap();
        assert!(other.is_none());
    }
}
