//! One watched resource: decides whether a watch is possible and whether its content is current.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{WatchContext, WatchScope};
use super::{definition_permission, target_watch_permission};
use crate::store::{Target, TargetInput, TargetStore};
use clock::Jitter;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::mapper::Mapping;
use cluster::permission::{Permission, allowed};
use cluster::scale::{Scalable, Shape, WireTarget};
use cluster::watch::{DeletedObject, Handle, MAX_SILENCE, Sink, WatchOptions, watch_of};

/// Maximum time without a connection for which the content is still current. A server that ends a watch accepts the
/// next watch at once.
const MAX_DISCONNECTED: Duration = Duration::from_secs(5);
/// Interval between checks for permissions and for a changed definition.
const RECHECK: Duration = Duration::from_mins(1);
/// Wait before a retry after an obstacle that needs a change by an operator.
const OBSTACLE_RETRY: Duration = Duration::from_mins(5);
/// Wait before a retry after a temporary error.
const ERROR_RETRY: Duration = Duration::from_secs(15);

/// The objects of one resource in one scope.
#[derive(Debug)]
pub(super) struct View {
    pub(super) scope: WatchScope,
    mapping: Mapping,
    pub(super) objects: Arc<TargetStore>,
    /// Handle of the running watch. `None` if no watch is running.
    handle: Mutex<Option<Handle>>,
}

/// The reason why a resource cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Obstacle {
    /// Some verbs on the objects are not allowed.
    Forbidden(Vec<&'static str>),
    /// Reading the definition, which contains the paths of the replica counts, is not allowed.
    DefinitionForbidden,
    /// No definition contains the paths of the replica counts.
    NoDefinition,
    /// A temporary error.
    Error(ApiError),
}

impl View {
    pub(super) fn new(scope: WatchScope, mapping: Mapping) -> Self {
        Self { scope, mapping, objects: Arc::default(), handle: Mutex::default() }
    }

    /// Returns the name of the resource in RBAC rules.
    pub(super) fn resource(&self) -> Arc<str> {
        self.mapping.group_resource().into()
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.handle.lock().clone()
    }

    /// Returns the Scale of an object, if the watch is current.
    pub(super) fn scale(&self, namespace: &str, name: &str) -> Option<Target> {
        self.handle().filter(|watch| watch.is_current(MAX_DISCONNECTED, MAX_SILENCE))?;
        self.objects.get(namespace, name)
    }

    /// Watches the resource whenever a watch is possible. Does not return. `number` varies the jitter.
    pub(super) async fn run(self: Arc<Self>, context: Arc<WatchContext>, number: u64) {
        let mut reported = None;
        loop {
            let obstacle = match self.shape(&context).await {
                Ok(shape) => {
                    if reported.take().is_some() {
                        tracing::info!(resource = %self.mapping.group_resource(), "watching targets again");
                    }
                    self.follow(&context, shape, number).await
                }
                Err(obstacle) => Some(obstacle),
            };
            let wait = match obstacle {
                None => continue,
                Some(Obstacle::Error(error)) => {
                    let resource = self.mapping.group_resource();
                    tracing::debug!(%resource, %error, "failed to check whether targets can be watched");
                    ERROR_RETRY
                }
                Some(obstacle) => {
                    if reported.as_ref() != Some(&obstacle) {
                        self.log_obstacle(&obstacle);
                        reported = Some(obstacle);
                    }
                    OBSTACLE_RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns the paths of the Scale fields in the objects, if watching is allowed.
    async fn shape(&self, context: &WatchContext) -> Result<Shape, Obstacle> {
        let WatchScope { group, resource, namespace, .. } = &self.scope;
        if Shape::built_in(group, resource).is_none() {
            let definition = self.mapping.group_resource();
            let missing = missing(&context.discovery, &definition_permission(&definition), &definition).await;
            if !missing.is_empty() {
                return Err(Obstacle::DefinitionForbidden);
            }
        }
        let shape = self.read_shape(&context.discovery).await?;
        let permission = target_watch_permission(group, resource, namespace.as_deref());
        let missing = missing(&context.discovery, &permission, "").await;
        if missing.is_empty() { Ok(shape) } else { Err(Obstacle::Forbidden(missing)) }
    }

    async fn read_shape(&self, client: &Client) -> Result<Shape, Obstacle> {
        match Shape::read(client, &self.mapping).await {
            Ok(Some(shape)) => Ok(shape),
            Ok(None) => Err(Obstacle::NoDefinition),
            Err(error) if error.is_forbidden() => Err(Obstacle::DefinitionForbidden),
            Err(error) => Err(Obstacle::Error(error)),
        }
    }

    /// Watches until an obstacle prevents it, and returns the obstacle. `None` if the paths of the Scale fields change.
    async fn follow(&self, context: &WatchContext, shape: Shape, number: u64) -> Option<Obstacle> {
        let options = WatchOptions {
            namespace: self.scope.namespace.clone(),
            longest_wait: context.options.longest_wait,
            jitter: Jitter::seeded(context.options.seed.wrapping_add(number)),
            ..WatchOptions::default()
        };
        let scalable = Scalable { mapping: self.mapping.clone(), shape: shape.clone() };
        let intake = Intake(Arc::clone(&self.objects));
        let (handle, watching) = watch_of(scalable, context.watch.clone(), options, intake);
        *self.handle.lock() = Some(handle.clone());
        let ended = tokio::select! {
            biased;
            ended = self.until_obstacle(&context.discovery, &handle, &shape) => ended,
            () = watching => None,
        };
        *self.handle.lock() = None;
        ended
    }

    async fn until_obstacle(&self, client: &Client, handle: &Handle, shape: &Shape) -> Option<Obstacle> {
        loop {
            tokio::time::sleep(RECHECK).await;
            if handle.status().error.is_some_and(|error| error.is_forbidden()) {
                return Some(Obstacle::Forbidden(vec!["list", "watch"]));
            }
            match self.read_shape(client).await {
                Ok(now) if now == *shape => {}
                Ok(_) => return None,
                Err(Obstacle::Error(error)) => {
                    tracing::debug!(%error, "failed to recheck the CustomResourceDefinition");
                }
                Err(obstacle) => return Some(obstacle),
            }
        }
    }

    fn log_obstacle(&self, obstacle: &Obstacle) {
        let resource = self.mapping.group_resource();
        let scope = self.scope.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}"));
        let scope = scope.unwrap_or_default();
        let reason = match obstacle {
            Obstacle::Forbidden(verbs) => {
                format!("not allowed to {} {resource}{scope}", verbs.join(", "))
            }
            Obstacle::DefinitionForbidden => {
                format!("not allowed to get customresourcedefinitions.apiextensions.k8s.io {resource}")
            }
            Obstacle::NoDefinition => {
                format!("no CustomResourceDefinition declares the replica counts of {resource}")
            }
            Obstacle::Error(error) => format!("cannot watch {resource}{scope}: {error}"),
        };
        let rule = match obstacle {
            Obstacle::Forbidden(_) => {
                Some(target_watch_permission(&self.scope.group, &self.scope.resource, None).rule())
            }
            Obstacle::DefinitionForbidden => Some(definition_permission(&resource).rule()),
            Obstacle::NoDefinition | Obstacle::Error(_) => None,
        };
        if let Some(rule) = rule {
            tracing::info!(%reason, %rule, "falling back to one Scale read per sync; add this rule to the ClusterRole");
        } else {
            tracing::info!(%reason, "falling back to one Scale read per sync");
        }
    }
}

/// Returns the verbs of a permission that are not allowed, on one object or on all.
async fn missing(client: &Client, permission: &Permission, name: &str) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for verb in permission.verbs {
        match allowed(client, permission, name, verb).await {
            Ok(true) => {}
            Ok(false) => missing.push(*verb),
            // If the check fails, the watch itself shows whether it is allowed.
            Err(error) => tracing::debug!(%error, "failed to check permissions"),
        }
    }
    missing
}

/// Applies the objects from the watch to the store.
struct Intake(Arc<TargetStore>);

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

    fn delete(&mut self, object: DeletedObject) {
        self.0.delete(&object.namespace, &object.name);
    }

    fn done(&mut self) {
        self.0.finish();
    }
}
