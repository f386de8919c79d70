//! Parts of objects that an explanation needs and a controller does not decode: owners, field managers and events.

use std::collections::BTreeMap;

use autoscaling::event::EventKind;
use autoscaling::selector::Labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::situation::{EventContent, FieldManager, Owner, RecentEvent};
use cluster::decode::DecodeError;

/// The `metadata` of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
    managed_fields: Option<Vec<ManagedFields>>,
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

/// The part of `fieldsV1` that shows whether a manager owns `spec.replicas`.
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

/// Decodes the `metadata` of an object.
pub(super) fn meta(object: &[u8]) -> Result<Meta, DecodeError> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    Ok(serde_json::from_slice::<Object>(object)?.metadata)
}

impl Labels for Meta {
    fn value(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}

impl Meta {
    pub(super) fn owners(&self) -> Vec<Owner> {
        self.owner_references.clone().unwrap_or_default()
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the managing controller.
    pub(super) fn controller(&self) -> Option<Owner> {
        self.owners().into_iter().find(|owner| owner.controller == Some(true))
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

/// Decodes an event of core/v1, including one written through events.k8s.io. Returns `None` if the event is
/// not about an HPA or has no time.
pub(super) fn event(object: &[u8]) -> Result<Option<AboutHpa>, DecodeError> {
    let event: Event = serde_json::from_slice(object)?;
    let about = event.involved_object;
    if about.kind.as_deref() != Some("HorizontalPodAutoscaler") {
        return Ok(None);
    }
    let series = event.series.as_ref();
    let observed = series.and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let created = event.metadata.creation_timestamp.map(|time| time.0);
    let [begin, time] = [event.first_timestamp.map(|time| time.0), event.event_time.map(|time| time.0)];
    let first = begin.or(time).or(created);
    let last = event.last_timestamp.map(|time| time.0).max(observed).or(first);
    let (Some(first), Some(last)) = (first.or(last), last) else { return Ok(None) };
    let count = event.count.max(series.and_then(|series| series.count)).unwrap_or(1);
    let reporter = event.reporting_component.filter(|reporter| !reporter.is_empty());
    let source = event.source.and_then(|source| source.component);
    let event = RecentEvent {
        content: EventContent {
            kind: if event.type_.as_deref() == Some("Normal") {
                EventKind::Normal
            } else {
                EventKind::Warning
            },
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        },
        count: u32::try_from(count).unwrap_or(1).max(1),
        first,
        last,
        reporter: reporter.or(source).unwrap_or_default(),
    };
    let [namespace, name, uid] = [about.namespace, about.name, about.uid].map(Option::unwrap_or_default);
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
