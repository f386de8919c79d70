//! A Kubernetes cluster in memory: API server, metrics APIs and workload controllers.
//!
//! Tests, the simulation, benches and the demo use the cluster. Clients connect with HTTP/1.1, as to any API server: in
//! process over a pipe ([`Cluster::dial`]) or over TCP ([`Cluster::serve`]). The cluster uses the timers of tokio and
//! the time of day of the [`Clock`](clock::Clock), so it can run in virtual time. It handles plain JSON values and does
//! not use the crate `cluster`. Therefore an error in the encoding of that crate cannot be hidden by the same error in
//! its decoding. The same requests in the same order produce the same bytes, because resourceVersions and uids are
//! counters.
//!
//! # Supported
//!
//! - Discovery (plain form), `/version` (v1.37.1), `/healthz`, `/livez`, `/readyz`, and the part of `/openapi/v3` that
//!   `kubectl apply` and `kubectl explain` need.
//! - get, list (selectors, pages, resourceVersion and its match), watch (from a version, streaming lists, bookmarks,
//!   410 Gone), create (also by generateName), update, patch (merge, strategic merge, JSON), delete, deletecollection,
//!   `dryRun=All`. Responses contain objects, metadata only, or the tables of `kubectl get`. The types are:
//!   - core: pods, namespaces, services, events, replicationcontrollers, configmaps, secrets, serviceaccounts,
//!     endpoints,
//!   - apps: deployments, replicasets, statefulsets, daemonsets,
//!   - horizontalpodautoscalers (autoscaling/v2), leases, ingresses,
//!   - admissionregistration.k8s.io/v1 webhook configurations, policies and bindings, without effect,
//!   - scalingpolicies and clusterscalingpolicies of Concertina, and deploymentconfigs of OpenShift,
//!   - example.com/v1 widgets (a custom resource with scale) and gadgets (without scale).
//! - The subresources `scale` and `status`, with their conflicts. A scale target can also exist without a workload
//!   ([`Cluster::put_scale`]), with any text as its selector.
//! - HPAs as in Kubernetes 1.37: defaults, validation and its texts, canonical quantities, generation. A PUT of the
//!   status keeps the spec and updates the metadata. A PUT of the object keeps the status.
//! - Deletions with finalizers, with a grace period for pods on a node, and with the removal of owned objects and of
//!   the content of a namespace.
//! - The three metrics groups, served by a [`MetricsBackend`].
//! - Reviews. A SelfSubjectAccessReview allows everything, because the cluster does not authenticate. A
//!   SelfSubjectReview returns the same user for every client. [`Reviews`] configures the results of TokenReviews and
//!   SubjectAccessReviews.
//! - Port-forwards through a WebSocket, as kube makes them, to streams that [`Cluster::set_pod_ports`] opens.
//! - Latencies ([`Latency`]), fault rules for requests ([`Faults`]), a separate [`Link`] for each client, and a log of
//!   the requests ([`RequestLog`]).
//!
//! # Not supported
//!
//! - Responses in protobuf: responses are JSON. Of protobuf bodies, only the kinds and fields that `kubectl create` and
//!   `kubectl autoscale` send are read.
//! - Server-side apply, which is refused with 415. An entry of `managedFields` names the manager but no fields.
//! - Watches of HPAs in autoscaling/v1. The other verbs are served by conversion.
//! - Aggregated discovery and OpenAPI v2. Clients fall back to plain discovery and OpenAPI v3.
//! - Admission, quotas, `exec`, `logs`, `proxy`, and `kubectl port-forward`, which uses SPDY.
//!
//! Defaulting and validation of types other than HPAs are limited to the fields that `kubectl get` and `describe`
//! depend on.
//!
//! # Calls within the process
//!
//! [`Cluster::create`], [`Cluster::update`], [`Cluster::update_status`] and [`Cluster::delete`] follow the rules of the
//! corresponding requests, except that [`Cluster::create`] first creates a missing namespace. [`Cluster::put_raw`]
//! bypasses all rules.
//!
//! # Structure
//!
//! `server` handles HTTP and faults, and `ports` port-forwards. `rest` maps a request (`route`) to a verb. `list`, `watch`, `write`, `scale` and
//! `patch` implement the verbs on the `store`, which contains the objects as JSON text. `registry` describes the
//! differences between types. `hpa` and `validation` contain the rules of single types. `table` and `discovery` build
//! responses.

mod discovery;
mod faults;
mod hpa;
mod hpa_validation;
mod latency;
mod list;
pub mod load;
mod metadata;
pub mod metrics;
mod names;
mod object;
pub mod pages;
mod patch;
mod ports;
mod protobuf;
mod registry;
mod requests;
mod rest;
mod reviews;
mod route;
mod scale;
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
pub use self::latency::Latency;
pub use self::metrics::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
pub use self::requests::{Answer, Exchange, Link, LoggedRequest, Pieces, RequestLog, Server, Whole};
pub use self::reviews::Reviews;
pub use self::status::{FieldError, Status};
pub use self::store::{BareScale, ScalePath};

use self::latency::Latencies;
use self::ports::PodPorts;
use self::store::State;
use clock::SharedClock;

/// Capacity of an in-process connection in each direction, in bytes. A writer waits while this capacity is used up.
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
    latencies: Mutex<Option<Arc<Latencies>>>,
    backend: Mutex<Option<Arc<dyn MetricsBackend>>>,
    /// The API groups of additional metrics adapters, by name.
    metrics_groups: Mutex<BTreeMap<String, MetricsGroup>>,
    /// Groups that discovery omits.
    hidden: Mutex<BTreeSet<String>>,
    pod_ports: Mutex<Option<Arc<PodPorts>>>,
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
        // A watch cannot start before the creation of these namespaces, as on a freshly started server.
        state.compact();
        Self {
            inner: Arc::new(Inner {
                clock,
                state: Mutex::new(state),
                faults: Faults::new(),
                requests: RequestLog::default(),
                reviews: Reviews::default(),
                latencies: Mutex::default(),
                backend: Mutex::new(None),
                metrics_groups: Mutex::default(),
                hidden: Mutex::default(),
                pod_ports: Mutex::default(),
            }),
        }
    }

    /// Connects in process. Returns the client's end of an HTTP/1.1 connection, which closes when this end is dropped.
    /// Must be called within a tokio runtime.
    pub fn dial(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        tokio::spawn(server::serve_connection(self.clone(), None, server));
        client
    }

    /// Connects in process through a link, like [`Self::dial`].
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

    /// Serves one accepted connection, such as a TLS stream, through `link` if it is set. Returns when the connection
    /// is closed.
    pub async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        link: Option<Arc<dyn Link>>,
    ) {
        server::serve_connection(self.clone(), link, stream).await;
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

    /// Restores the state at `version`, like a restore of an etcd backup. Resets the objects and the resourceVersion,
    /// and closes open watches. The history must still contain all changes since then. Bare scale targets are not
    /// changed.
    pub fn restore(&self, version: u64) {
        self.lock().restore(version);
    }

    /// Advances the resourceVersion by `versions`, like writes of types that the cluster does not store.
    pub fn skip_versions(&self, versions: u64) {
        self.lock().skip(versions);
    }

    /// Keeps at most `changes` changes of each resource type as starting points of watches. The default is 10,000. Long
    /// runs need a lower limit, because each change contains a whole object.
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

    /// Returns the configuration of token reviews and access reviews.
    pub fn reviews(&self) -> Reviews {
        self.inner.reviews.clone()
    }

    /// Delays all further requests, responses and watch events. Without this call, they take no time.
    pub fn set_latency(&self, latency: Latency) {
        *self.inner.latencies.lock() = Some(Arc::new(latency.into()));
    }

    /// Sets the backend of the metrics groups. Without a backend, the groups return 404, like groups that are not
    /// installed.
    pub fn set_metrics(&self, backend: Arc<dyn MetricsBackend>) {
        *self.inner.backend.lock() = Some(backend);
    }

    /// Serves custom and external metrics in an additional group, like an adapter with its own APIService. `versions`
    /// are in order of preference.
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

    /// Sets what port-forwards connect to: a stream to a port of a pod, or the reason why nothing listens there.
    /// Without this call, every port-forward is refused.
    pub fn set_pod_ports(
        &self,
        ports: impl Fn(&Value, u16) -> io::Result<DuplexStream> + Send + Sync + 'static,
    ) {
        *self.inner.pod_ports.lock() = Some(Arc::new(ports));
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

    pub(crate) fn latencies(&self) -> Option<Arc<Latencies>> {
        self.inner.latencies.lock().clone()
    }

    pub(crate) fn pod_ports(&self) -> Option<Arc<PodPorts>> {
        self.inner.pod_ports.lock().clone()
    }

    pub(crate) fn metrics_backend(&self) -> Option<Arc<dyn MetricsBackend>> {
        self.inner.backend.lock().clone()
    }
}
