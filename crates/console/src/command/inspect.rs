//! The state of the controller, from its Lease, its pods and its pages.
//!
//! Each part requires its own permission. If a part cannot be read, the state contains the other parts and the reason.

use std::sync::Arc;
use std::time::Duration;

use crate::controller::{ControllerState, Handover, Inspect, LeaseState, Missing, Numbers, Parity, Replica};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::sync::Mutex;
use tokio::time::Instant;

use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use cluster::typed;
use terminal::forward::{Connection, ForwardError, WITHIN, Which, hostname};
use terminal::options::leader::{Leader, NAMESPACES};

/// The label on the pods of every installation.
const NAME: (&str, &str) = ("app.kubernetes.io/name", "concertina");
/// The label on the pods of a dry run.
const SHADOW: (&str, &str) = ("app.kubernetes.io/instance", "concertina-shadow");
/// Maximum number of pods to list per namespace.
const MAX_PODS: u32 = 50;
/// Maximum age of a cached state.
const FRESH: Duration = Duration::from_secs(4);

/// Reads the state of the controller and of a dry run.
#[derive(Debug, Clone)]
pub struct Inspector {
    clients: Clients,
    leaders: Vec<Leader>,
    /// The open connections and the last state. Locked during a read, so that concurrent requests share one read.
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    leader: Option<Connection>,
    shadow: Option<Connection>,
    last: Option<(Instant, ControllerState)>,
}

impl Inspector {
    /// Creates a reader for the controller with the first Lease of `leaders` that exists. If `leaders` is empty,
    /// nothing is read.
    pub fn new(clients: Clients, leaders: Vec<Leader>) -> Self {
        Self { clients, leaders, shared: Arc::default() }
    }

    async fn read(self) -> ControllerState {
        let mut shared = self.shared.lock().await;
        if let Some((at, state)) = &shared.last
            && at.elapsed() < FRESH
        {
            return state.clone();
        }
        let state = self.read_now(&mut shared).await;
        shared.last = Some((Instant::now(), state.clone()));
        state
    }

    async fn read_now(&self, shared: &mut Shared) -> ControllerState {
        let mut state = ControllerState::default();
        if self.leaders.is_empty() {
            state.missing.push(missing(
                "controller",
                "the state of the controller is not read with --record=off",
                "Start concertina console without --record=off.",
            ));
            return state;
        }
        let client = self.clients.core.unobserved();
        let refused = self.lease(&client, &mut state).await;
        self.replicas(&client, &mut state).await;
        if state.lease.is_none() && state.replicas.is_empty() && state.missing.is_empty() {
            state.missing.push(missing(
                "controller",
                format!("no Concertina controller runs in this cluster: there is no Lease {}", self.names()),
                "The other pages work with any HPA controller. For a controller with another Lease, start the \
                 console with --leader=NAMESPACE/NAME.",
            ));
            return state;
        }
        let may_run = state.lease.is_some() || refused;
        if may_run {
            self.leader(&mut shared.leader, &mut state).await;
        }
        if state.parity.is_none() && (!may_run || state.replicas.iter().any(|replica| replica.shadow)) {
            self.shadow(&mut shared.shadow, &mut state).await;
        }
        state
    }

    /// Formats the names of the Leases.
    fn names(&self) -> String {
        let names = self.leaders.iter().map(|leader| format!("{}/{}", leader.namespace, leader.lease));
        names.collect::<Vec<_>>().join(" or ")
    }

    /// Reads the first Lease that exists. Returns true if no Lease was found and at least one could
    /// not be read.
    async fn lease(&self, client: &Client, state: &mut ControllerState) -> bool {
        let mut failures = Vec::new();
        for Leader { namespace, lease, .. } in &self.leaders {
            match typed::get(&client.namespaced::<Lease>(namespace), lease).await {
                Ok(Some(found)) => {
                    state.lease = Some(lease_state(namespace, lease, found));
                    return false;
                }
                Ok(None) => {}
                Err(error) => failures.push((namespace, error)),
            }
        }
        let is_refused = !failures.is_empty();
        for (namespace, error) in failures {
            state.missing.push(refused("Lease", "get", "leases.coordination.k8s.io", namespace, &error));
        }
        is_refused
    }

    /// Lists the pods of the controller and of a dry run.
    async fn replicas(&self, client: &Client, state: &mut ControllerState) {
        let mut namespaces: Vec<&str> = match &state.lease {
            Some(lease) => vec![lease.namespace.as_str()],
            None => self.leaders.iter().map(|leader| leader.namespace.as_str()).collect(),
        };
        namespaces.extend(NAMESPACES);
        namespaces.sort_unstable();
        namespaces.dedup();
        let holder = state.lease.as_ref().map(|lease| hostname(&lease.holder).to_owned());
        let holder = holder.filter(|holder| !holder.is_empty());
        let params = ListParams::default().labels(&format!("{}={}", NAME.0, NAME.1)).limit(MAX_PODS);
        let (mut replicas, mut missing) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            match client.namespaced::<Pod>(namespace).list(&params).await.map_err(ApiError::from) {
                Ok(list) => {
                    replicas.extend(list.items.into_iter().map(|pod| replica(&pod, holder.as_deref())));
                }
                // If the Lease is known, the replicas are in its namespace, and failures in other namespaces are
                // ignored.
                Err(error) if state.lease.as_ref().is_none_or(|lease| lease.namespace == namespace) => {
                    missing.push(refused("replicas", "list", "pods", namespace, &error));
                }
                Err(_) => {}
            }
        }
        replicas.sort_by(|a, b| a.pod.cmp(&b.pod));
        state.replicas = replicas;
        state.missing.extend(missing);
    }

    /// Reads the pages of the leader.
    async fn leader(&self, kept: &mut Option<Connection>, state: &mut ControllerState) {
        let candidates: Vec<_> = match &state.lease {
            Some(lease) => {
                let is_read =
                    |leader: &&Leader| leader.namespace == lease.namespace && leader.lease == lease.name;
                self.leaders.iter().filter(is_read).cloned().map(Which::Leader).collect()
            }
            None => Which::leaders(&self.leaders),
        };
        let Some(mut connection) = self.connect(kept.take(), &candidates, state).await else { return };
        state.from = Some(connection.peer.to_string());
        state.numbers = parsed(&mut connection, "metrics", state, Numbers::parse).await;
        state.handover = parsed(&mut connection, "handover", state, Handover::parse).await;
        // Only a dry run or a leader with --shadow-others has a comparison.
        let deadline = Instant::now() + WITHIN;
        if let Ok(page) = connection.get("/parity", deadline).await {
            state.parity = Parity::parse(&page).ok();
        }
        *kept = Some(connection).filter(Connection::is_open);
    }

    /// Reads the comparison from the pod of a dry run, and the metrics of this pod if those of the leader were not
    /// read.
    async fn shadow(&self, kept: &mut Option<Connection>, state: &mut ControllerState) {
        let candidates = Which::shadows(&self.leaders);
        let Some(mut connection) = self.connect(kept.take(), &candidates, state).await else { return };
        state.parity = parsed(&mut connection, "parity", state, Parity::parse).await;
        if state.numbers.is_none()
            && let Some(page) = get(&mut connection, "metrics", state).await
            && let Ok(numbers) = Numbers::parse(&page)
        {
            (state.from, state.numbers) = (Some(connection.peer.to_string()), Some(numbers));
        }
        *kept = Some(connection).filter(Connection::is_open);
    }

    async fn connect(
        &self,
        kept: Option<Connection>,
        candidates: &[Which],
        state: &mut ControllerState,
    ) -> Option<Connection> {
        if let Some(open) = kept.filter(Connection::is_open) {
            return Some(open);
        }
        match Connection::open_first(&self.clients, candidates, Instant::now() + WITHIN).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let advice = advice(&error);
                state.missing.push(missing("pages of the controller", error.to_string(), advice));
                None
            }
        }
    }
}

impl Inspect for Inspector {
    fn inspect(&self) -> BoxFuture<'static, ControllerState> {
        self.clone().read().boxed()
    }
}

fn missing(part: &'static str, reason: impl Into<String>, advice: impl Into<String>) -> Missing {
    Missing { part, reason: reason.into(), advice: advice.into() }
}

/// Describes a failed read. If the API server refused the read, the advice names the permission.
fn refused(part: &'static str, verb: &str, resource: &str, namespace: &str, error: &ApiError) -> Missing {
    if error.is_forbidden() {
        let reason = format!("you may not {verb} {resource} in namespace {namespace}");
        return missing(part, reason, role(verb, resource, namespace));
    }
    missing(part, format!("failed to {verb} {resource} in namespace {namespace}: {error}"), "")
}

fn role(verbs: &str, resource: &str, namespace: &str) -> String {
    format!("A Role with {verbs} on {resource} in namespace {namespace} allows it.")
}

/// Returns the advice for a failed connection.
fn advice(error: &ForwardError) -> String {
    match error {
        ForwardError::Forbidden { verbs, resource, namespace } => {
            role(&verbs.join(" and "), resource, namespace)
        }
        ForwardError::NoUser | ForwardError::User(_) => {
            "The console sends the token or the client certificate of your kubeconfig to the controller."
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Reads a page of the controller. If the read fails, adds the reason and the advice to the missing parts.
async fn get(
    connection: &mut Connection,
    page: &'static str,
    state: &mut ControllerState,
) -> Option<bytes::Bytes> {
    let error = match connection.get(&format!("/{page}"), Instant::now() + WITHIN).await {
        Ok(body) => return Some(body),
        Err(error) => error,
    };
    let advice = match (&error, page) {
        (ForwardError::Status { code: 403, .. }, "metrics") => {
            "A ClusterRole with get on the nonResourceURL /metrics allows it.".to_owned()
        }
        (ForwardError::Status { code: 403, .. }, _) => {
            "A ClusterRole with list on horizontalpodautoscalers.autoscaling in all namespaces allows it."
                .to_owned()
        }
        _ => advice(&error),
    };
    state.missing.push(missing(page, error.to_string(), advice));
    None
}

/// Reads and parses a page of the controller. If either fails, adds the reason and the advice to the missing parts.
async fn parsed<T, E: std::fmt::Display>(
    connection: &mut Connection,
    page: &'static str,
    state: &mut ControllerState,
    parse: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Option<T> {
    let body = get(connection, page, state).await?;
    let failed = |error| {
        let reason = format!("cannot read the page /{page} of the controller: {error}");
        state.missing.push(missing(page, reason, "Use the version of the controller."));
    };
    parse(&body).map_err(failed).ok()
}

fn lease_state(namespace: &str, name: &str, lease: Lease) -> LeaseState {
    let spec = lease.spec.unwrap_or_default();
    LeaseState {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        holder: spec.holder_identity.unwrap_or_default(),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions,
        seconds: spec.lease_duration_seconds.unwrap_or(0),
    }
}

fn replica(pod: &Pod, holder: Option<&str>) -> Replica {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let name = pod.name_any();
    let has = |label: (&str, &str)| pod.labels().get(label.0).is_some_and(|value| value == label.1);
    let ready = status.and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let is_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let node = spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    // A pod with `hostNetwork` has the hostname of its node.
    let is_holder = |holder: &str| {
        if is_host { node.split('.').next() == Some(holder) || node == holder } else { name == holder }
    };
    Replica {
        leads: holder.is_some_and(is_holder) && !has(SHADOW),
        shadow: has(SHADOW),
        phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
        ready,
        restarts: containers.iter().map(|container| container.restart_count).sum(),
        started: status.and_then(|status| status.start_time.as_ref()).map(|time| -> Timestamp { time.0 }),
        image: spec
            .and_then(|spec| spec.containers.first())
            .and_then(|container| container.image.clone())
            .unwrap_or_default(),
        pod: name,
        node,
    }
}
