//! The resources that can be watched, and the intake of their objects and events from a list or a watch. The function
//! [`each`] reads a list without a watch, page by page. Memory contains one item at a time, not the whole list.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::BytesMut;

use super::{DeletedObject, Handle, MAX_PAGE, PAGE, PAGE_TIMEOUT, Sink};
use crate::call::Call;
use crate::client::Client;
use crate::decode::{self, CachedHpa, DecodeError, HpaObject, WirePod};
use crate::error::{ApiError, Status};

/// A resource that can be watched, in one namespace or in all.
pub trait Watched: Send + Sync + 'static {
    /// The decoded object. May borrow from the wire bytes.
    type Object<'a>;

    /// Returns the path segments of the collection in all namespaces.
    fn path(&self) -> Vec<&str>;
    /// Returns the resource with its group, as in RBAC rules and error texts, such as
    /// `horizontalpodautoscalers.autoscaling`.
    fn name(&self) -> Arc<str>;
    /// Returns the label selector of the watch. The empty selector selects all objects. The server reports an object
    /// that no longer matches as deleted.
    fn labels(&self) -> &'static str {
        ""
    }
    /// Decodes one object.
    fn decode<'a>(&self, object: &'a [u8]) -> Result<Self::Object<'a>, DecodeError>;
    /// Returns `metadata.resourceVersion`.
    fn resource_version<'a>(object: &'a Self::Object<'_>) -> &'a str;
}

/// The resource `pods`.
#[derive(Debug, Default)]
pub struct Pods;

impl Watched for Pods {
    type Object<'a> = WirePod<'a>;

    fn path(&self) -> Vec<&str> {
        vec!["api", "v1", "pods"]
    }

    fn name(&self) -> Arc<str> {
        "pods".into()
    }

    fn decode<'a>(&self, object: &'a [u8]) -> Result<WirePod<'a>, DecodeError> {
        decode::pod(object)
    }

    fn resource_version<'a>(object: &'a WirePod<'_>) -> &'a str {
        &object.resource_version
    }
}

/// The resource `horizontalpodautoscalers` of autoscaling/v2.
#[derive(Debug, Default)]
pub struct Hpas {
    /// The cache of decoded HPAs, with which an unchanged spec is not decoded again.
    pub known: Option<Arc<dyn HpaCache>>,
}

/// The cache of decoded HPAs.
pub trait HpaCache: Debug + Send + Sync {
    /// Returns the cached parts of one HPA. `None` for an unknown HPA.
    fn known(&self, namespace: &str, name: &str) -> Option<CachedHpa>;
}

impl Watched for Hpas {
    type Object<'a> = HpaObject;

    fn path(&self) -> Vec<&str> {
        vec!["apis", "autoscaling", "v2", "horizontalpodautoscalers"]
    }

    fn name(&self) -> Arc<str> {
        "horizontalpodautoscalers.autoscaling".into()
    }

    fn decode(&self, object: &[u8]) -> Result<HpaObject, DecodeError> {
        decode::decode_cached_hpa(object, |namespace, name| self.known.as_ref()?.known(namespace, name))
    }

    fn resource_version(object: &HpaObject) -> &str {
        &object.resource_version
    }
}

/// The decoded meaning of one line of a watch.
pub(crate) enum Line {
    /// An object, a deletion or a bookmark, which has been applied, with its resourceVersion.
    Event { resource_version: String, bookmark: bool },
    /// The initial events are complete up to `resource_version`.
    InitialEventsEnd { resource_version: String },
    /// A line without a usable resourceVersion, or with an unknown type.
    Skipped,
}

/// Decodes wire bytes and applies them to the sink.
pub(crate) struct Intake<W, S> {
    pub(crate) sink: S,
    pub(crate) handle: Handle,
    pub(crate) watched: W,
}

impl<W, S> Intake<W, S>
where
    W: Watched,
    S: for<'a> Sink<W::Object<'a>>,
{
    // A sink accepts objects of every lifetime. `start`, `done` and `delete` do not depend on the lifetime, so
    // `'static` suffices.
    pub(super) fn start(&mut self) {
        Sink::<W::Object<'static>>::start(&mut self.sink);
    }

    pub(super) fn done(&mut self) {
        Sink::<W::Object<'static>>::done(&mut self.sink);
    }

    pub(crate) fn line(&mut self, line: &BytesMut) -> Result<Line, ApiError> {
        let event = decode::watch_event(line)?;
        if &*event.kind == "ERROR" {
            return Err(match serde_json::from_slice::<Status>(event.object) {
                Ok(status) => status.into_error(500, None),
                Err(error) => ApiError::Decode(error.into()),
            });
        }
        let resource_version = match &*event.kind {
            "ADDED" | "MODIFIED" => self.apply(event.object),
            "DELETED" | "BOOKMARK" => self.meta(&event),
            // A newer server may send other event types.
            _ => None,
        };
        let bookmark = &*event.kind == "BOOKMARK";
        Ok(resource_version.map_or(Line::Skipped, |(resource_version, ends_initial_events)| {
            if ends_initial_events {
                Line::InitialEventsEnd { resource_version }
            } else {
                Line::Event { resource_version, bookmark }
            }
        }))
    }

    /// Applies a bookmark or a deletion. Returns its resourceVersion, and whether the bookmark ends the initial events.
    fn meta(&mut self, event: &decode::WatchEvent<'_>) -> Option<(String, bool)> {
        let meta = match decode::meta(event.object) {
            Ok(meta) => meta,
            Err(error) => {
                self.handle.skipped();
                tracing::warn!(resource = &*self.handle.resource(), kind = &*event.kind, %error, "skipped a watch event that could not be decoded");
                return None;
            }
        };
        let ends_initial_events = meta.ends_initial_events();
        if &*event.kind == "DELETED" {
            let gone = DeletedObject { namespace: meta.namespace, name: meta.name, uid: meta.uid };
            Sink::<W::Object<'static>>::delete(&mut self.sink, gone);
        }
        (!meta.resource_version.is_empty()).then_some((meta.resource_version, ends_initial_events))
    }

    /// Decodes an object into the sink. Logs and skips an object that cannot be decoded. Returns the resourceVersion
    /// and `false`, because an object does not end the initial events.
    pub(super) fn apply(&mut self, object: &[u8]) -> Option<(String, bool)> {
        let error = match self.watched.decode(object) {
            Ok(object) => {
                let resource_version = W::resource_version(&object).to_owned();
                self.sink.apply(object);
                return Some((resource_version, false));
            }
            Err(error) => error,
        };
        self.handle.skipped();
        let meta = decode::meta(object).unwrap_or_default();
        tracing::warn!(
            resource = &*self.handle.resource(), namespace = meta.namespace, name = meta.name, %error,
            "skipped an object that could not be decoded"
        );
        (!meta.resource_version.is_empty()).then_some((meta.resource_version, false))
    }
}

/// A collection of objects.
#[derive(Debug, Clone, Copy)]
pub struct Collection<'a> {
    /// The API group. Empty for the core group.
    pub group: &'a str,
    /// The version of the API group.
    pub version: &'a str,
    /// The namespace. `None` reads all namespaces.
    pub namespace: Option<&'a str>,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// A field selector. The empty selector selects all objects.
    pub fields: &'a str,
}

impl Collection<'_> {
    fn call(&self, labels: &str, next: &str, limit: &str) -> Call {
        let root: &[&str] = if self.group.is_empty() { &["api"] } else { &["apis", self.group] };
        let namespace = self.namespace.map(|namespace| ["namespaces", namespace]);
        let path = root.iter().copied().chain([self.version]).chain(namespace.into_iter().flatten());
        let about = if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        };
        Call::get(path.chain([self.resource]))
            .query("continue", next)
            .query("fieldSelector", self.fields)
            .query("labelSelector", labels)
            .query("limit", limit)
            .about(about, "")
            .within(PAGE_TIMEOUT)
            .at_most(MAX_PAGE)
    }
}

/// Passes every item of a collection to `item`. If the list expires between two pages, the whole list is read again
/// without pages, as in client-go. Items may then be repeated.
pub async fn each(
    client: &Client,
    collection: Collection<'_>,
    item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    each_labelled(client, collection, "", item).await
}

/// Like [`each`], but only for the items that a label selector matches.
pub async fn each_labelled(
    client: &Client,
    collection: Collection<'_>,
    labels: &str,
    mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    let mut next = String::new();
    let mut limit = PAGE;
    loop {
        match client.items(&collection.call(labels, &next, limit), &mut item).await {
            Ok(envelope) if envelope.metadata.resource_version.is_empty() => {
                let wrong = format!("{} is not a list of {}", envelope.kind, collection.resource);
                return Err(ApiError::Decode(DecodeError::new(wrong)));
            }
            Ok(envelope) if envelope.metadata.r#continue.is_empty() => return Ok(()),
            Ok(envelope) => next = envelope.metadata.r#continue,
            Err(error) if error.is_gone() && !next.is_empty() => {
                next.clear();
                limit = "";
            }
            Err(error) => return Err(error),
        }
    }
}
