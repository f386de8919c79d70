//! One resource that is watched: when that is possible, and whether what it shows will do.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Means, Place};
use crate::api::client::Client;
use crate::api::error::ApiError;
use crate::api::jitter::Jitter;
use crate::api::mapper::Mapping;
use crate::api::scale::{Scalable, Shape, WireTarget, scale_paths};
use crate::api::watch::{Deleted, Handle, Sink, WatchOptions, watch_of};
use crate::permissions::check::allowed;
use crate::permissions::{Permission, to_read_definition, to_watch_targets};
use crate::store::{Target, TargetInput, Targets};

/// A view counts for so long after its watch broke: the server that ends one takes the next at once.
const DOWN: Duration = Duration::from_secs(5);
/// The server sends a bookmark about once a minute. Of a watch that shows nothing for longer nobody knows whether it still
/// is one.
const SILENCE: Duration = Duration::from_secs(90);
/// How often it is looked whether the watch still may, and still reads the right fields.
const LOOK: Duration = Duration::from_mins(1);
/// After what time it is looked whether what stood in the way is gone.
const AGAIN: Duration = Duration::from_mins(5);
/// The same after an error that will pass.
const SOON: Duration = Duration::from_secs(15);

/// The objects of one resource in one place.
#[derive(Debug)]
pub(super) struct View {
    place: Place,
    mapping: Mapping,
    pub(super) objects: Arc<Targets>,
    /// Of the watch that feeds them, if there is one.
    handle: Mutex<Option<Handle>>,
}

/// Why a resource cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Obstacle {
    /// These verbs on its objects are not allowed.
    Forbidden(Vec<&'static str>),
    /// It is not said where its objects have their counts, because the definition may not be read.
    DefinitionForbidden,
    /// There is no definition that says so.
    NoDefinition,
    /// Something went wrong that will pass.
    Error(ApiError),
}

impl View {
    pub(super) fn new(place: Place, mapping: Mapping) -> Self {
        Self { place, mapping, objects: Arc::default(), handle: Mutex::default() }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// As RBAC names it.
    pub(super) fn resource(&self) -> Arc<str> {
        self.mapping.group_resource().into()
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What an object's Scale shows, if this view will do.
    pub(super) fn look(&self, namespace: &str, name: &str) -> Option<Target> {
        self.handle().filter(|watch| watch.is_current(DOWN, SILENCE))?;
        self.objects.get(namespace, name)
    }

    /// Watches whenever that is possible. Never ends by itself.
    pub(super) async fn run(self: Arc<Self>, means: Arc<Means>, number: u64) {
        let mut told = None;
        loop {
            let obstacle = match self.shape(&means).await {
                Ok(shape) => {
                    if told.take().is_some() {
                        tracing::info!("{} are watched from now on", self.mapping.group_resource());
                    }
                    self.follow(&means, shape, number).await
                }
                Err(obstacle) => Some(obstacle),
            };
            let wait = match obstacle {
                None => continue,
                Some(Obstacle::Error(error)) => {
                    let resource = self.mapping.group_resource();
                    tracing::debug!(%resource, %error, "whether targets can be watched is not known yet");
                    SOON
                }
                Some(obstacle) => {
                    if told.as_ref() != Some(&obstacle) {
                        self.tell(&obstacle, means.options.warn);
                        told = Some(obstacle);
                    }
                    AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Where the objects have what a Scale shows, if they may be watched.
    async fn shape(&self, means: &Means) -> Result<Shape, Obstacle> {
        let Place { group, resource, namespace, .. } = &self.place;
        if Shape::built_in(group, resource).is_none() {
            let definition = self.mapping.group_resource();
            let missing = missing(&means.watch, &to_read_definition(&definition), &definition).await;
            if !missing.is_empty() {
                return Err(Obstacle::DefinitionForbidden);
            }
        }
        let shape = self.read_shape(&means.discovery).await?;
        let permission = to_watch_targets(group, resource, namespace.as_deref());
        let missing = missing(&means.watch, &permission, "").await;
        if missing.is_empty() { Ok(shape) } else { Err(Obstacle::Forbidden(missing)) }
    }

    async fn read_shape(&self, client: &Client) -> Result<Shape, Obstacle> {
        if let Some(shape) = Shape::built_in(&self.place.group, &self.place.resource) {
            return Ok(shape);
        }
        match scale_paths(client, &self.mapping).await {
            Ok(Some(paths)) => Ok(Shape::Custom(paths)),
            Ok(None) => Err(Obstacle::NoDefinition),
            Err(error) if error.is_forbidden() => Err(Obstacle::DefinitionForbidden),
            Err(error) => Err(Obstacle::Error(error)),
        }
    }

    /// Watches until that is forbidden, or until other fields have to be read, which is `None`.
    async fn follow(&self, means: &Means, shape: Shape, number: u64) -> Option<Obstacle> {
        let options = WatchOptions {
            namespace: self.place.namespace.clone(),
            longest_wait: means.options.longest_wait,
            jitter: Jitter::seeded(means.options.seed.wrapping_add(number)),
            ..WatchOptions::default()
        };
        let scalable = Scalable { mapping: self.mapping.clone(), shape: shape.clone() };
        let intake = Intake(Arc::clone(&self.objects));
        let (handle, watching) = watch_of(scalable, means.watch.clone(), options, intake);
        self.set_handle(Some(handle.clone()));
        let ended = tokio::select! {
            biased;
            ended = self.until_it_has_to_end(&means.discovery, &handle, &shape) => ended,
            () = watching => None,
        };
        self.set_handle(None);
        ended
    }

    async fn until_it_has_to_end(&self, client: &Client, handle: &Handle, shape: &Shape) -> Option<Obstacle> {
        loop {
            tokio::time::sleep(LOOK).await;
            if handle.status().error.is_some_and(|error| error.is_forbidden()) {
                return Some(Obstacle::Forbidden(vec!["list", "watch"]));
            }
            match self.read_shape(client).await {
                Ok(now) if now == *shape => {}
                Ok(_) => return None,
                Err(Obstacle::Error(error)) => tracing::debug!(%error, "a definition cannot be read again"),
                Err(obstacle) => return Some(obstacle),
            }
        }
    }

    fn set_handle(&self, handle: Option<Handle>) {
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    fn tell(&self, obstacle: &Obstacle, warn: bool) {
        let resource = self.mapping.group_resource();
        let place = Somewhere(self.place.namespace.as_deref());
        let why = match obstacle {
            Obstacle::Forbidden(verbs) => {
                format!("not allowed to {} {resource}{place}", verbs.join(", "))
            }
            Obstacle::DefinitionForbidden => {
                format!("not allowed to get customresourcedefinitions.apiextensions.k8s.io {resource}")
            }
            Obstacle::NoDefinition => {
                format!("no CustomResourceDefinition says where {resource} have their counts")
            }
            Obstacle::Error(error) => error.to_string(),
        };
        let rule = match obstacle {
            Obstacle::Forbidden(_) => {
                Some(to_watch_targets(&self.place.group, &self.place.resource, None).rule())
            }
            Obstacle::DefinitionForbidden => Some(to_read_definition(&resource).rule()),
            Obstacle::NoDefinition | Obstacle::Error(_) => None,
        };
        match rule {
            Some(rule) if warn => {
                tracing::warn!(
                    "{why}: each of their Scales is read by itself, in each sync; add the rule {rule}"
                );
            }
            _ => tracing::info!("{why}: each of their Scales is read by itself, in each sync"),
        }
    }
}

/// The verbs of a permission that are not allowed, on one object or on all.
async fn missing(client: &Client, permission: &Permission, name: &str) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for verb in permission.verbs {
        match allowed(client, permission, name, verb).await {
            Ok(true) => {}
            Ok(false) => missing.push(*verb),
            // What it is asked for will tell.
            Err(error) => tracing::debug!(%error, "permissions could not be checked"),
        }
    }
    missing
}

/// ` in namespace shop`, or nothing.
struct Somewhere<'a>(Option<&'a str>);

impl fmt::Display for Somewhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

/// From the watch into the store.
struct Intake(Arc<Targets>);

impl Sink<WireTarget<'_>> for Intake {
    fn start(&mut self) {
        self.0.begin();
    }

    fn apply(&mut self, object: WireTarget<'_>) {
        let scale = object.scale.as_ref();
        self.0.apply(&TargetInput {
            namespace: &object.namespace,
            name: &object.name,
            resource_version: &object.resource_version,
            scale: scale.map(|scale| (scale.replicas, scale.status_replicas, &*scale.selector)),
        });
    }

    fn delete(&mut self, object: Deleted) {
        self.0.delete(&object.namespace, &object.name);
    }

    fn done(&mut self) {
        self.0.finish();
    }
}
