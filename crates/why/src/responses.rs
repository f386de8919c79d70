//! The server's responses: the owners, field managers and events that a controller does not decode, and the refused
//! reads. Permissions are not checked beforehand.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::event::EventKind;
use autoscaling::query::Api;
use autoscaling::selector::Labels;
use autoscaling::spec::MetricSource;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::situation::{EventContent, FieldManager, Owner, RecentEvent, Refused, TargetObject};
use cluster::call::Call;
use cluster::client::RequestObserver;
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use engine::store::{HpaRecord, Key};

/// The part of an object's `metadata` that an explanation needs.
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

/// Decodes the `metadata` of an object into [`Meta`].
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

    /// Returns the owner with `controller: true`.
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

impl From<Meta> for TargetObject {
    fn from(meta: Meta) -> Self {
        Self { owners: meta.owners(), replicas_owners: meta.replicas_owners(), uid: meta.uid }
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

/// Decodes an event of core/v1, including an event that was written through events.k8s.io. Returns `None` if the event
/// is not about an HPA or has no time.
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

/// Collects the reads that fail with 403.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: Mutex<Vec<Refused>>,
}

impl RequestObserver for Refusals {
    fn failed(&self, call: &Call, error: &ApiError) {
        if !error.is_forbidden() {
            return;
        }
        let refused = refused(call.path(), error.to_string());
        let mut all = self.refused.lock();
        if !all.contains(&refused) {
            all.push(refused);
        }
    }
}

impl Refusals {
    /// Creates an empty collection.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Clears the collection, because permissions may have been granted in the meantime.
    pub(super) fn clear(&self) {
        self.refused.lock().clear();
    }

    /// Returns the refusals that concern one HPA, in order of occurrence.
    pub(super) fn about(&self, record: &HpaRecord) -> Vec<Refused> {
        let all = self.refused.lock();
        all.iter().filter(|refused| concerns(refused, record)).cloned().collect()
    }
}

/// Parses the path of a refused read into the terms of RBAC.
fn refused(path: &str, text: String) -> Refused {
    let path = path.split('?').next().unwrap_or_default();
    let segments = path.split('/').skip(1);
    let mut segments =
        segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).peekable();
    let group = match segments.next().as_deref() {
        Some("apis") => segments.next().unwrap_or_default(),
        _ => String::new(),
    };
    segments.next(); // the version
    let mut namespace = None;
    if segments.next_if(|segment| segment == "namespaces").is_some() {
        namespace = segments.next();
    }
    let mut resource = segments.next().unwrap_or_default();
    let name = segments.next();
    if let Some(subresource) = segments.next() {
        resource = format!("{resource}/{subresource}");
    }
    let decides = match group.as_str() {
        "" => resource == "pods",
        group if Api::from_group(group).is_some() => true,
        _ => resource.ends_with("/scale"),
    };
    let verb = if name.is_some() { "get" } else { "list" };
    Refused { verb, group, resource, namespace, name, text, decides }
}

/// Returns whether a refused read may affect the HPA of `record`.
fn concerns(refused: &Refused, record: &HpaRecord) -> bool {
    let Refused { group, resource, namespace, name, .. } = refused;
    let Key { namespace: own, .. } = &record.key;
    if namespace.as_deref().is_some_and(|namespace| namespace != &**own) {
        return false;
    }
    let has_metric = |is_kind: fn(&MetricSource) -> bool| record.spec.metrics.iter().any(is_kind);
    match Api::from_group(group) {
        Some(Api::Resource) => has_metric(|metric| {
            matches!(metric, MetricSource::Resource { .. } | MetricSource::ContainerResource { .. })
        }),
        Some(Api::Custom) => {
            has_metric(|metric| matches!(metric, MetricSource::Pods { .. } | MetricSource::Object { .. }))
        }
        Some(Api::External) => record.spec.metrics.iter().any(
            |metric| matches!(metric, MetricSource::External { metric, .. } if metric.name == *resource),
        ),
        // The Scale of another target does not affect the decision for this HPA.
        None if resource.ends_with("/scale") => name.as_deref() == Some(&*record.spec.target.name),
        None => true,
    }
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

    fn parsed(path: &str) -> (&'static str, String, String, Option<String>, Option<String>, bool) {
        let Refused { verb, group, resource, namespace, name, decides, .. } = refused(path, String::new());
        (verb, group, resource, namespace, name, decides)
    }

    #[test]
    fn path_is_parsed_into_rbac_terms() {
        let text = |text: &str| text.to_owned();
        let shop = || Some(text("shop"));
        assert_eq!(
            parsed("/api/v1/namespaces/shop/pods?limit=500"),
            ("list", text(""), text("pods"), shop(), None, true)
        );
        assert_eq!(
            parsed("/apis/apps/v1/namespaces/shop/deployments/web/scale"),
            ("get", text("apps"), text("deployments/scale"), shop(), Some(text("web")), true)
        );
        assert_eq!(
            parsed("/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/queue%2Fdepth"),
            ("get", text("custom.metrics.k8s.io"), text("pods/queue/depth"), shop(), Some(text("*")), true)
        );
        assert_eq!(
            parsed("/apis/autoscaling/v2/horizontalpodautoscalers"),
            ("list", text("autoscaling"), text("horizontalpodautoscalers"), None, None, false)
        );
        assert_eq!(
            parsed("/api/v1/namespaces/shop/events"),
            ("list", text(""), text("events"), shop(), None, false)
        );
    }
}
