//! A cluster in memory: API server, metrics APIs and the workload side.
//!
//! The base of tests, simulation, benches and the demo. It is reached through HTTP/1.1 bytes like any API server, in
//! process over a pipe ([`Cluster::dial`]) or over TCP ([`Cluster::serve`]); timers are tokio's and the time of day
//! comes from the [`Clock`](crate::clock::Clock), so that it runs in virtual time. It handles plain JSON values and
//! uses nothing of `api`, so that a mistake in encoding cannot cancel out. Equal requests in equal order give equal
//! bytes: resourceVersions and uids count up.
//!
//! # What is served
//!
//! - Discovery (plain form), `/version` (v1.37.1), `/healthz`, `/livez`, `/readyz`, `/openapi/v3` as far as `kubectl
//!   apply` and `kubectl explain` need it.
//! - get, list (selectors, pages, resourceVersion and its match), watch (from a version, streaming lists, bookmarks,
//!   410 Gone), create (also by generateName), update, patch (merge, strategic merge, JSON), delete, deletecollection,
//!   `dryRun=All`; as objects, as metadata alone and as the tables of `kubectl get`. For
//!   - core: pods, namespaces, services, events, replicationcontrollers, configmaps, serviceaccounts, endpoints,
//!   - apps: deployments, replicasets, statefulsets, daemonsets,
//!   - horizontalpodautoscalers (autoscaling/v2), leases, ingresses,
//!   - example.com/v1 widgets (a custom resource with scale) and gadgets (one without).
//! - The subresources `scale` and `status`, with their conflicts. A scale target can also stand by itself
//!   ([`Cluster::put_scale`]), then without a workload behind it and with any text as its selector.
//! - HPAs as Kubernetes 1.37 treats them: defaults, validation and its texts, canonical quantities, generation; a PUT
//!   of the status keeps the spec and takes the metadata, a PUT of the object keeps the status.
//! - What follows from a deletion: finalizers, a grace period for pods on a node, owned objects, a namespace's content.
//! - The three metrics groups, by a [`MetricsBackend`].
//! - SelfSubjectAccessReviews: everything is allowed, as there is no authentication. TokenReviews and
//!   SubjectAccessReviews: what was set before ([`Reviews`]).
//! - Faults by request ([`Faults`]), a way of its own for each client ([`Link`]), and a log of the requests
//!   ([`RequestLog`]).
//!
//! # What is not
//!
//! Protobuf (answers are JSON; a body in protobuf is refused with 415, as `kubectl create deployment` finds out, while
//! `kubectl apply` and `kubectl create -f` work), server-side apply (415), managed fields field by field (a record says
//! who wrote), watches of HPAs in autoscaling/v1 (the rest of it is served by conversion), aggregated discovery and OpenAPI v2 (clients fall back), admission, quotas, `exec`, `logs`
//! and `proxy`. Other types than HPAs are defaulted and validated as far as `kubectl get` and `describe` notice.
//!
//! # What differs within the process
//!
//! [`Cluster::create`], [`Cluster::update`], [`Cluster::update_status`] and [`Cluster::delete`] obey the rules of the
//! requests of their names, except that a missing namespace is made. [`Cluster::put_raw`] stores around all rules.
//!
//! # How it is built
//!
//! `server` (HTTP, faults) → `rest` (path to verb) → `list`, `watch`, `write`, `scale`, `patch` (the rules) → `store`
//! (objects as JSON text, versions, history); `registry` says what differs between the types, `hpa`, `defaults` and
//! `validation` what is done to their objects, `format`, `table`, `discovery` and `openapi` how things are shown.

mod backend;
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

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Uri;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::{Service, service_fn};

pub use self::backend::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
pub use self::faults::{FaultAction, FaultId, FaultRule, Faults};
pub use self::link::{Answer, Exchange, Link, Pieces, Server, Whole};
pub use self::requests::{LoggedRequest, RequestLog};
pub use self::reviews::Reviews;
pub use self::scale::{BareScale, ScalePath};
pub use self::status::{FieldError, Status};

use self::registry::ResourceType;
use self::selectors::Filter;
use self::store::State;
use self::write::{DeleteOptions, Write};
use crate::clock::SharedClock;

/// Bytes that a connection within the process holds in each direction before the writer waits.
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
    /// Groups that discovery does not show.
    hidden: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("resource_version", &self.resource_version()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster with the namespaces that every cluster has, and nothing in them.
    pub fn new(clock: SharedClock) -> Self {
        let now = clock.now();
        let mut state = State::new();
        for namespace in ["default", "kube-public", "kube-system"] {
            write::ensure_namespace(&mut state, namespace, now);
        }
        // The history begins now, as that of a server that has just started.
        state.compact();
        Self {
            inner: Arc::new(Inner {
                clock,
                state: Mutex::new(state),
                faults: Faults::new(),
                requests: RequestLog::default(),
                reviews: Reviews::default(),
                backend: Mutex::new(None),
                hidden: Mutex::default(),
            }),
        }
    }

    /// Connects from within the process: the client's end of a connection that speaks HTTP/1.1. Must be called
    /// within a tokio runtime; the connection ends when its client end is dropped.
    pub fn dial(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        tokio::spawn(server::serve_connection(self.clone(), None, server));
        client
    }

    /// The same for clients: every connection is a pipe to this cluster, with real HTTP on it.
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

    /// Serves one connection that somebody else has accepted, such as over TLS, by way of a link if there is one, until
    /// either side ends it.
    pub async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        link: Option<Arc<dyn Link>>,
    ) {
        server::serve_connection(self.clone(), link, stream).await;
    }

    /// Creates an object, by the rules of a POST; a namespace that is missing is made first, which a POST would not.
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
    pub fn update(&self, object: Value) -> Result<Value, Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), object::meta(&object, "name").to_owned());
        let stored = write::update(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(stored.value())
    }

    /// Updates the status of an object, by the rules of a PUT of the status subresource.
    pub fn update_status(&self, object: Value) -> Result<Value, Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), object::meta(&object, "name").to_owned());
        let stored = write::update_status(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(stored.value())
    }

    /// An object; `resource` is `group/resource`, or the resource alone in the core group: `apps/deployments`,
    /// `pods`. The namespace of what has none is empty.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let ty = ResourceType::named(resource)?;
        let stored = self.lock().get(ty, namespace, name).cloned();
        stored.map(|stored| stored.value())
    }

    /// The objects of a resource, of one namespace or of all, by namespace and name.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        self.select(resource, namespace, "").unwrap_or_default()
    }

    /// The objects of a resource whose labels match a selector in text form, by namespace and name.
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

    /// How many objects of a resource there are.
    pub fn count(&self, resource: &str) -> usize {
        ResourceType::named(resource).map_or(0, |ty| self.lock().count(ty))
    }

    /// Deletes an object, by the rules of a DELETE without options: pods that run somewhere get a deletionTimestamp
    /// and stay until they are deleted by [`Cluster::delete_now`]. Answers the object as it was last.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    /// Deletes an object without a grace period: what the kubelet does when a pod has ended.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
        self.delete_with(resource, namespace, name, &options)
    }

    /// Stores an object as it is, around defaulting and validation; watchers see it. What an object cannot be
    /// without is filled in: uid, creationTimestamp, generation and its namespace.
    ///
    /// An object of a kind that the cluster does not know is not stored and comes back as it went in.
    pub fn put_raw(&self, object: Value) -> Value {
        let Ok(ty) = type_of(&object) else { return object };
        write::put_raw(&mut self.lock(), ty, object, self.now()).value()
    }

    /// Puts a scale target that no workload object stands behind: it answers GET, PUT and PATCH of its path, before
    /// any workload of that name does. Its selector may be any text.
    pub fn put_scale(&self, path: &ScalePath, scale: BareScale) {
        self.lock().set_scale(path.clone(), scale);
    }

    /// A bare scale target as it is now.
    pub fn scale(&self, path: &ScalePath) -> Option<BareScale> {
        self.lock().scale(path).map(|(scale, _)| scale.clone())
    }

    /// Takes a bare scale target away.
    pub fn remove_scale(&self, path: &ScalePath) {
        self.lock().remove_scale(path);
    }

    /// The newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.lock().newest()
    }

    /// Shows the newest resourceVersion whenever it moves, to wait for changes without a watch.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().changed()
    }

    /// Forgets the history: watches from an older resourceVersion get 410 Gone. Running ones go on.
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// Remembers at most so many changes of each resource type, from which a watch can be started; 10,000 unless told
    /// otherwise. For long runs: each holds an object as it was.
    pub fn keep_history(&self, changes: usize) {
        self.lock().keep_history(changes);
    }

    /// The rules by which requests fail.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// What has been asked of the cluster.
    pub fn requests(&self) -> RequestLog {
        self.inner.requests.clone()
    }

    /// Whose token it is and who may do what, for reviews.
    pub fn reviews(&self) -> Reviews {
        self.inner.reviews.clone()
    }

    /// Sets who answers the metrics groups. Without a backend they answer 404, as if not installed.
    pub fn set_metrics(&self, backend: Arc<dyn MetricsBackend>) {
        *self.inner.backend.lock().unwrap_or_else(PoisonError::into_inner) = Some(backend);
    }

    /// Shows or hides a group: a hidden one is not in discovery and its paths answer 404.
    pub fn set_discovery(&self, group: &str, present: bool) {
        let mut hidden = self.inner.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if present {
            hidden.remove(group);
        } else {
            hidden.insert(group.to_owned());
        }
    }

    /// The time of day in the cluster.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hidden(&self) -> BTreeSet<String> {
        self.inner.hidden.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn metrics_backend(&self) -> Option<Arc<dyn MetricsBackend>> {
        self.inner.backend.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
    ResourceType::of(version, kind)
        .ok_or_else(|| Status::bad_request(format!("no kind {kind:?} is registered for version {version:?}")))
}

/// The namespace of an object that is written from within the process; `default` if it names none.
fn namespace_of(ty: &ResourceType, object: &Value) -> String {
    match object::meta(object, "namespace") {
        "" if ty.namespaced => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}
