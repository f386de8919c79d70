//! The write gate. Every request that could change the cluster passes the gate immediately before it is sent.
//!
//! A request passes the gate after it has received its token and before it is authenticated. Closing the gate therefore
//! also stops requests that wait for a token. An admitted write that only the leader may send is aborted if it has no
//! response at the renew deadline. Three independent reasons close the gate: `--dry-run`, another controller that acts
//! on the same objects, and a Lease that another replica holds or may hold. A controller that is in charge of only some
//! HPAs also attaches a [`WritePermit`] to every write about an HPA. The gate checks the permit for each attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use super::call::ObjectPath;

/// The reason for refusing writes. Its text appears in logs but never in a condition, because the server has not
/// refused the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// `--dry-run` is set, so decisions are computed but not written.
    #[error("not written: dry run")]
    DryRun,
    /// Another replica is the leader or may be the leader.
    #[error("not written: this replica is not the leader")]
    NotLeader,
    /// Another controller still acts or may act on the same objects.
    #[error("not written: another controller still acts on the same objects")]
    TakeOver,
    /// This controller is not in charge of the HPA.
    #[error("not written: this controller is not in charge of the HPA")]
    NotInCharge,
}

/// The permission of writes about one HPA.
pub trait Permission: fmt::Debug + Send + Sync + 'static {
    /// Returns whether the write is permitted. Called immediately before each attempt to send the write. Must not
    /// block.
    fn may_write(&self) -> bool;
}

/// The permission of a write, attached to its request as an extension.
#[derive(Debug, Clone)]
pub struct WritePermit(pub Arc<dyn Permission>);

/// Issues the permissions for writes about HPAs.
pub trait Permits: fmt::Debug + Send + Sync + 'static {
    /// Returns the permission for the writes of the current sync of an HPA.
    fn permit(&self, namespace: &Arc<str>, name: &Arc<str>) -> WritePermit;
}

/// The kinds of writes. Some reasons stop only some kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Scales, statuses and events of HPAs.
    Autoscaling,
    /// Events about a replica that withholds writes because of another controller.
    Notices,
    /// The leader's checkpoint of histories, which the leader writes even while it withholds other writes.
    Checkpoint,
    /// The Lease of leader election.
    Lease,
    /// The creation of the ServiceAccount that the controller acts as, which standbys need too.
    Account,
    /// The certificates of the guard against the built-in controller, which standbys need too.
    Guard,
}

impl Writes {
    fn are_stopped_by(self, refusal: Refusal) -> bool {
        match self {
            Self::Autoscaling => true,
            Self::Notices | Self::Checkpoint => !matches!(refusal, Refusal::TakeOver | Refusal::NotInCharge),
            Self::Lease | Self::Account | Self::Guard => refusal == Refusal::DryRun,
        }
    }
}

/// Verb and resource of a request as in RBAC rules, such as (`update`, `deployments/scale`).
pub type VerbAndResource = (&'static str, String);

/// The write gate, which is open or closed for at least one reason. The gate can change while requests are in flight.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    /// Notified when `leads_until` changes.
    deadline_changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    closed: BTreeSet<Refusal>,
    /// The time at which the right to write expires unless the Lease is renewed. `None` without leader election.
    leads_until: Option<Instant>,
    /// Whether every write about an HPA needs a permit.
    needs_permits: bool,
    refused: BTreeMap<VerbAndResource, u64>,
}

impl Gate {
    /// Creates an open gate.
    pub fn open() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Creates a gate that is closed for one reason.
    pub fn refusing(reason: Refusal) -> Arc<Self> {
        let gate = Self::open();
        gate.close(reason);
        gate
    }

    /// Closes the gate for a reason. Writes that have already passed the gate are not affected.
    pub fn close(&self, reason: Refusal) {
        self.state.lock().closed.insert(reason);
    }

    /// Starts to refuse writes about HPAs without a [`WritePermit`].
    pub fn require_permits(&self) {
        self.state.lock().needs_permits = true;
    }

    /// Removes a reason for refusing writes. The gate is open when no reason remains.
    pub fn open_for(&self, reason: Refusal) {
        self.state.lock().closed.remove(&reason);
    }

    /// Permits the writes of the leader only before `deadline`. A deadline in the past stops these writes at once.
    pub fn leads_until(&self, deadline: Instant) {
        self.state.lock().leads_until = Some(deadline);
        self.deadline_changed.notify_waiters();
    }

    /// Returns the time at which the right to write expires unless the Lease is renewed. `None` without leader
    /// election.
    pub fn leading_until(&self) -> Option<Instant> {
        self.state.lock().leads_until
    }

    /// Returns the reason for refusing writes about HPAs. `None` if such writes are currently permitted.
    pub fn refusal(&self) -> Option<Refusal> {
        self.state.lock().refusal(Writes::Autoscaling)
    }

    /// Returns the number of refused requests, by verb and resource.
    pub fn refused(&self) -> BTreeMap<VerbAndResource, u64> {
        self.state.lock().refused.clone()
    }

    /// Admits or refuses one request. The [`WriteDeadline`] states whether the request must be aborted at the
    /// renew deadline.
    fn pass<B>(&self, request: &Request<B>, writes: Writes) -> Result<WriteDeadline, Refusal> {
        if is_read_only(request.method(), request.uri().path()) {
            return Ok(WriteDeadline::Unlimited);
        }
        let permit = request.extensions().get::<WritePermit>();
        let is_permitted = permit.map(|permit| permit.0.may_write());
        let mut state = self.state.lock();
        let is_forbidden = !is_permitted.unwrap_or(!state.needs_permits);
        let not_in_charge = (is_forbidden && writes == Writes::Autoscaling).then_some(Refusal::NotInCharge);
        let Some(refusal) = state.refusal(writes).or(not_in_charge) else {
            let is_limited = state.leads_until.is_some() && writes.are_stopped_by(Refusal::NotLeader);
            return Ok(if is_limited { WriteDeadline::Leadership } else { WriteDeadline::Unlimited });
        };
        let key = (verb(request.method()), resource(request.uri().path()));
        *state.refused.entry(key).or_default() += 1;
        Err(refusal)
    }

    /// Waits until the right to write has expired.
    async fn lost(&self) {
        loop {
            // The notification is requested before the deadline is read, so no change in between is missed.
            let deadline_changed = self.deadline_changed.notified();
            match self.leading_until() {
                None => deadline_changed.await,
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(deadline) => {}
                        () = deadline_changed => {}
                    }
                }
            }
        }
    }
}

/// The time limit of an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteDeadline {
    Unlimited,
    /// The request is aborted at the end of leadership.
    Leadership,
}

impl State {
    fn refusal(&self, writes: Writes) -> Option<Refusal> {
        let expired = self.leads_until.is_some_and(|deadline| Instant::now() >= deadline);
        let reasons = self.closed.iter().copied().chain(expired.then_some(Refusal::NotLeader));
        reasons.filter(|refusal| writes.are_stopped_by(*refusal)).min()
    }
}

/// Returns whether a request cannot change the cluster. True for reads, and for POSTs that only request a review or a
/// token.
fn is_read_only(method: &Method, path: &str) -> bool {
    let asks = |path: &str| {
        path.starts_with("/apis/authorization.k8s.io/")
            || path.starts_with("/apis/authentication.k8s.io/")
            || path.starts_with("/api/v1/namespaces/") && resource(path) == "serviceaccounts/token"
    };
    method == Method::GET || method == Method::HEAD || method == Method::POST && asks(path)
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// Returns `deployments/scale` for `/apis/apps/v1/namespaces/shop/deployments/web/scale`. Returns a path of another
/// form unchanged.
fn resource(path: &str) -> String {
    match ObjectPath::parse(path) {
        Some(ObjectPath { resource, subresource: "", .. }) => resource.to_owned(),
        Some(ObjectPath { resource, subresource, .. }) => format!("{resource}/{subresource}"),
        None => path.to_owned(),
    }
}

/// Puts a [`Gate`] in front of a service that sends one kind of writes.
#[derive(Debug, Clone)]
pub struct GateLayer(pub Arc<Gate>, pub Writes);

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService { gate: Arc::clone(&self.0), writes: self.1, inner }
    }
}

/// A service behind a [`Gate`]. Refused and aborted requests fail with a [`Refusal`].
#[derive(Debug, Clone)]
pub struct GateService<S> {
    gate: Arc<Gate>,
    writes: Writes,
    inner: S,
}

impl<S, B> Service<Request<B>> for GateService<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let deadline = match self.gate.pass(&request, self.writes) {
            Ok(deadline) => deadline,
            Err(refusal) => return Box::pin(async move { Err(refusal.into()) }),
        };
        let sent = self.inner.call(request);
        if deadline == WriteDeadline::Unlimited {
            return Box::pin(async move { sent.await.map_err(Into::into) });
        }
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            // The deadline is checked first. After a suspension of the process, a connection may become ready after the
            // deadline. The write must not use this connection.
            tokio::select! {
                biased;
                () = gate.lost() => Err(Refusal::NotLeader.into()),
                answer = sent => answer.map_err(Into::into),
            }
        })
    }
}

#[cfg(test)]
mod tests;
