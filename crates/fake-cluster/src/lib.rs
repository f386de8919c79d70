//! A Kubernetes cluster in memory: API server, metrics APIs and workload controllers.
//!
//! Tests, the simulation, benches and the demo use the cluster. Clients connect to it with HTTP/1.1, as to
//! any API server: in process over a pipe ([`Cluster::dial`]) or over TCP ([`Cluster::serve`]). Timers are
//! tokio's, and the time of day comes from the [`Clock`](clock::Clock), so the cluster can run in virtual
//! time. The cluster handles plain JSON values and does not use the crate `cluster`, so errors in the encoding
//! and the decoding of that crate cannot cancel out. The same requests in the same order produce the same
//! bytes, because resourceVersions and uids are counters.
//!
//! # Supported
//!
//! - Discovery (plain form), `/version` (v1.37.1), `/healthz`, `/livez`, `/readyz`, and the part of
//!   `/openapi/v3` that `kubectl apply` and `kubectl explain` need.
//! - get, list (selectors, pages, resourceVersion and its match), watch (from a version, streaming lists,
//!   bookmarks, 410 Gone), create (also by generateName), update, patch (merge, strategic merge, JSON),
//!   delete, deletecollection, `dryRun=All`. Responses contain objects, metadata only, or the tables of
//!   `kubectl get`. The types are:
//!   - core: pods, namespaces, services, events, replicationcontrollers, configmaps, secrets, serviceaccounts,
//!     endpoints,
//!   - apps: deployments, replicasets, statefulsets, daemonsets,
//!   - horizontalpodautoscalers (autoscaling/v2), leases, ingresses,
//!   - admissionregistration.k8s.io/v1 webhook configurations, policies and bindings, without effect,
//!   - scalingpolicies and clusterscalingpolicies of Concertina, and deploymentconfigs of OpenShift,
//!   - example.com/v1 widgets (a custom resource with scale) and gadgets (one without).
//! - The subresources `scale` and `status`, with their conflicts. A scale target can also exist without a
//!   workload ([`Cluster::put_scale`]), with any text as its selector.
//! - HPAs as in Kubernetes 1.37: defaults, validation and its texts, canonical quantities, generation. A PUT
//!   of the status keeps the spec and updates the metadata. A PUT of the object keeps the status.
//! - The consequences of a deletion: finalizers, a grace period for pods on a node, owned objects, a
//!   namespace's content.
//! - The three metrics groups, served by a [`MetricsBackend`].
//! - SelfSubjectAccessReviews: everything is allowed, because the cluster does not authenticate.
//!   SelfSubjectReviews: every client is the same user. TokenReviews and SubjectAccessReviews: the configured
//!   answers ([`Reviews`]).
//! - Faults by request ([`Faults`]), a separate [`Link`] for each client, and a log of the requests
//!   ([`RequestLog`]).
//!
//! # Not supported
//!
//! - Protobuf: responses are JSON, and a protobuf body is refused with 415. `kubectl create deployment` fails
//!   for this reason. `kubectl apply` and `kubectl create -f` work.
//! - Server-side apply (415), and managed fields per field (a record names only the writer).
//! - Watches of HPAs in autoscaling/v1. Conversion serves the other verbs.
//! - Aggregated discovery and OpenAPI v2: clients fall back.
//! - Admission, quotas, `exec`, `logs` and `proxy`.
//!
//! Defaulting and validation of types other than HPAs are limited to the fields that `kubectl get` and
//! `describe` depend on.
//!
//! # Calls within the process
//!
//! [`Cluster::create`], [`Cluster::update`], [`Cluster::update_status`] and [`Cluster::delete`] follow the rules of the
//! corresponding requests, except that [`Cluster::create`] first creates a missing namespace. [`Cluster::put_raw`]
//! bypasses all rules.
//!
//! # Structure
//!
//! `server` (HTTP, faults) → `rest` (path to verb) → `list`, `watch`, `write`, `scale`, `patch` (the rules) →
//! `store` (objects as JSON text, versions, history). `registry` describes the differences between types.
//! `hpa`, `defaults` and `validation` process their objects. `format`, `table`, `discovery` and `openapi`
//! build the responses.

mod defaults;
mod discovery;
mod faults;
mod format;
mod hpa;
mod link;
mod list;
pub mod load;
pub mod metrics;
mod object;
mod openapi;
pub mod pages;
mod patch;
mod registry;
mod requests;
mod rest;
mod reviews;
mod route;
mod scale;
mod selectors;
mod server;
mod status;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod validation;
mod watch;
pub mod workload;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::ready;
use std::io;
use std::sync::Arc;

use http::Uri;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::{Service, service_fn};

pub use self::faults::{FaultAction, FaultId, FaultRule, Faults};
pub use self::link::{Answer, Exchange, Link, Pieces, Server, Whole};
pub use self::metrics::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
pub use self::requests::{LoggedRequest, RequestLog};
pub use self::reviews::Reviews;
pub use self::status::{FieldError, Status};
pub use self::store::{BareScale, ScalePath};

use self::registry::ResourceType;
use self::selectors::Filter;
use self::store::State;
use self::write::{DeleteOptions, Write};
use clock::SharedClock;

/// Capacity of an in-process connection in each direction, in bytes. A writer waits when it is full.
const PIPE: usize = 256 * 1024;

/// A cluster in memory. Clones are handles to the same cluster.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    clock: SharedClock,
    state: Mutex<State>,
    faults: Faults,
    requests: RequestLog,
    reviews: Reviews,
    backend: Mutex<Option<Arc<dyn MetricsBackend>>>,
    /// API groups of additional metrics adapters, by name.
    metrics_groups: Mutex<BTreeMap<String, MetricsGroup>>,
    /// Groups that discovery omits.
    hidden: Mutex<BTreeSet<String>>,
}

/// The API group of an additional metrics adapter.
#[derive(Debug, Clone)]
pub(crate) struct MetricsGroup {
    pub(crate) versions: &'static [&'static str],
    pub(crate) backend: Arc<dyn MetricsBackend>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("resource_version", &self.resource_version()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates a cluster that contains only the default namespaces.
    pub fn new(clock: SharedClock) -> Self {
        let now = clock.now();
        let mut state = State::new();
        for namespace in ["default", "kube-public", "kube-system"] {
            write::ensure_namespace(&mut state, namespace, now);
        }
        // As on a freshly started server, the history starts here.
        state.compact();
        Self {
            inner: Arc::new(Inner {
                clock,
                state: Mutex::new(state),
                faults: Faults::new(),
                requests: RequestLog::default(),
                reviews: Reviews::default(),
                backend: Mutex::new(None),
                metrics_groups: Mutex::default(),
                hidden: Mutex::default(),
            }),
        }
    }

    /// Connects in process and returns the client's end of a connection that speaks HTTP/1.1. Must be called
    /// within a tokio runtime. The connection ends when the client's end is dropped.
    pub fn dial(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        tokio::spawn(server::serve_connection(self.clone(), None, server));
        client
    }

    /// Connects in process through a link.
    pub fn dial_through(&self, link: Arc<dyn Link>) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        tokio::spawn(server::serve_connection(self.clone(), Some(link), server));
        client
    }

    /// Returns a connector for HTTP clients. Every connection is a pipe to the cluster and carries real HTTP.
    pub fn connector(
        &self,
    ) -> impl Service<Uri, Response = TokioIo<DuplexStream>, Error = io::Error, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
    + use<> {
        let cluster = self.clone();
        service_fn(move |_: Uri| ready(Ok(TokioIo::new(cluster.dial()))))
    }

    /// Serves a TCP port until `stop` is cancelled, then drops the connections.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        loop {
            let stream = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                accepted = listener.accept() => accepted?.0,
            };
            stream.set_nodelay(true)?;
            let connection = server::serve_connection(self.clone(), None, stream);
            tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
        }
    }

    /// Serves one accepted connection, such as a TLS stream, through `link` if it is set. Returns when either
    /// side ends the connection.
    pub async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        link: Option<Arc<dyn Link>>,
    ) {
        server::serve_connection(self.clone(), link, stream).await;
    }

    /// Creates an object by the rules of a POST. Unlike a POST, it first creates a missing namespace.
    pub fn create(&self, object: Value) -> Result<Value, Status> {
        let ty = type_of(&object)?;
        let namespace = namespace_of(ty, &object);
        let mut state = self.lock();
        write::ensure_namespace(&mut state, &namespace, self.now());
        let stored = write::create(&mut state, ty, &namespace, object, &self.write())?;
        drop(state);
        Ok(stored.value())
    }

    /// Updates an object, by the rules of a PUT.
    pub fn update(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), object::meta(&object, "name").to_owned());
        write::update(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Updates the status of an object, by the rules of a PUT of the status subresource.
    pub fn update_status(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), object::meta(&object, "name").to_owned());
        write::update_status(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Returns an object. `resource` is `group/resource`, or the resource alone in the core group:
    /// `apps/deployments`, `pods`. `namespace` is empty for cluster-scoped types.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let ty = ResourceType::named(resource)?;
        let stored = self.lock().get(ty, namespace, name).cloned();
        stored.map(|stored| stored.value())
    }

    /// Lists the objects of a resource in one namespace or in all, ordered by namespace and name.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        self.select(resource, namespace, "").unwrap_or_default()
    }

    /// Lists the objects of a resource with labels that match a selector in text form, ordered by namespace
    /// and name.
    pub fn select(
        &self,
        resource: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, Status> {
        let Some(ty) = ResourceType::named(resource) else {
            return Ok(Vec::new());
        };
        let filter = Filter::by_labels(labels)?;
        let matching: Vec<_> = {
            let state = self.lock();
            state.list(ty, namespace, None).filter(|stored| filter.matches(stored)).cloned().collect()
        };
        Ok(matching.iter().map(|stored| stored.value()).collect())
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, resource: &str) -> usize {
        ResourceType::named(resource).map_or(0, |ty| self.lock().count(ty))
    }

    /// Deletes an object by the rules of a DELETE without options and returns its last state. Pods on a node get a
    /// deletionTimestamp and stay until [`Cluster::delete_now`] deletes them.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    /// Deletes an object without a grace period, as the kubelet does when a pod has ended.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
        self.delete_with(resource, namespace, name, &options)
    }

    /// Stores an object without defaulting and validation, and notifies watches. Missing required fields are
    /// filled in: uid, creationTimestamp, generation and the namespace.
    ///
    /// An object of an unregistered kind is not stored and is returned unchanged.
    pub fn put_raw(&self, object: Value) -> Value {
        let Ok(ty) = type_of(&object) else { return object };
        write::put_raw(&mut self.lock(), ty, object, self.now()).value()
    }

    /// Creates or changes an object of a namespaced type by the JSON text of its spec, without defaulting and
    /// validation. Only the metadata is parsed, so an object of several megabytes costs only its copies. An
    /// unregistered resource is ignored.
    pub fn put_spec(&self, resource: &str, namespace: &str, name: &str, spec: &str) {
        if let Some(ty) = ResourceType::named(resource) {
            write::put_spec(&mut self.lock(), ty, namespace, name, spec, self.now());
        }
    }

    /// Adds a scale target without a workload object. The target serves GET, PUT and PATCH of its path and
    /// takes precedence over a workload of the same name. The selector may be any text.
    pub fn put_scale(&self, path: &ScalePath, scale: BareScale) {
        self.lock().set_scale(path.clone(), scale);
    }

    /// Returns the current state of a bare scale target.
    pub fn scale(&self, path: &ScalePath) -> Option<BareScale> {
        self.lock().scale(path).map(|(scale, _)| scale.clone())
    }

    /// Removes a bare scale target.
    pub fn remove_scale(&self, path: &ScalePath) {
        self.lock().remove_scale(path);
    }

    /// Returns the newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.lock().newest()
    }

    /// Returns a receiver of the newest resourceVersion, which reports changes without a watch.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().changed()
    }

    /// Drops the history: watches from an older resourceVersion get 410 Gone. Open watches continue.
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// Restores the state at `version`, like an etcd backup: resets objects and the resourceVersion, and ends
    /// open watches. The history must still contain all changes since then. Bare scale targets stay
    /// unchanged.
    pub fn restore(&self, version: u64) {
        self.lock().restore(version);
    }

    /// Advances the resourceVersion by `versions`, like writes of types that the cluster does not store.
    pub fn skip_versions(&self, versions: u64) {
        self.lock().skip(versions);
    }

    /// Keeps at most `changes` changes of each resource type as starting points of watches. The default is
    /// 10,000. Long runs need a lower limit, because each change holds a whole object.
    pub fn keep_history(&self, changes: usize) {
        self.lock().keep_history(changes);
    }

    /// Returns the fault rules.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Returns the log of requests.
    pub fn requests(&self) -> RequestLog {
        self.inner.requests.clone()
    }

    /// Returns the answers to token reviews and access reviews.
    pub fn reviews(&self) -> Reviews {
        self.inner.reviews.clone()
    }

    /// Sets the backend of the metrics groups. Without a backend, the groups return 404, like groups that are
    /// not installed.
    pub fn set_metrics(&self, backend: Arc<dyn MetricsBackend>) {
        *self.inner.backend.lock() = Some(backend);
    }

    /// Serves custom and external metrics in an additional group, like an adapter with its own APIService.
    /// `versions` are in order of preference.
    pub fn set_metrics_group(
        &self,
        group: &str,
        versions: &'static [&'static str],
        backend: Arc<dyn MetricsBackend>,
    ) {
        self.inner.metrics_groups.lock().insert(group.to_owned(), MetricsGroup { versions, backend });
    }

    /// Shows or hides a group. A hidden group is absent from discovery, and its paths return 404.
    pub fn set_discovery(&self, group: &str, present: bool) {
        let mut hidden = self.inner.hidden.lock();
        if present {
            hidden.remove(group);
        } else {
            hidden.insert(group.to_owned());
        }
    }

    /// Returns the cluster's time of day.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    pub(crate) fn hidden(&self) -> BTreeSet<String> {
        self.inner.hidden.lock().clone()
    }

    /// Returns the additional metrics groups that are not hidden.
    pub(crate) fn metrics_groups(&self) -> BTreeMap<String, MetricsGroup> {
        let hidden = self.inner.hidden.lock();
        let groups = self.inner.metrics_groups.lock();
        let shown = groups.iter().filter(|(group, _)| !hidden.contains(*group));
        shown.map(|(group, served)| (group.clone(), served.clone())).collect()
    }

    pub(crate) fn metrics_backend(&self) -> Option<Arc<dyn MetricsBackend>> {
        self.inner.backend.lock().clone()
    }

    fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value, Status> {
        let ty = ResourceType::named(resource).ok_or_else(Status::unknown_resource)?;
        let (stored, _) = write::delete(&mut self.lock(), ty, namespace, name, options, &self.write())?;
        Ok(stored.value())
    }

    fn write(&self) -> Write<'static> {
        Write { now: self.now(), dry_run: false, manager: None, subresource: "" }
    }
}

fn type_of(object: &Value) -> Result<&'static ResourceType, Status> {
    let (version, kind) = (object::text(object, &["apiVersion"]), object::text(object, &["kind"]));
    ResourceType::for_kind(version, kind)
        .ok_or_else(|| Status::bad_request(format!("no kind {kind:?} is registered for version {version:?}")))
}

/// Returns the namespace for a write from within the process: `default` if the object has none.
fn namespace_of(ty: &ResourceType, object: &Value) -> String {
    match object::meta(object, "namespace") {
        "" if ty.namespaced => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}
