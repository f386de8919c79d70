//! The write gate: every request that could change the cluster passes it right before it is sent.
//!
//! It sits below the token buckets, at the last moment before authentication and the wire, so that closing it stops
//! also what was already waiting. Its first user is `--dry-run`.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Why writes are refused. Its `Display` ends up in logs, never in a condition: a refused write is not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `--dry-run`: everything is computed, nothing written.
    DryRun,
    /// Another replica leads.
    NotLeader,
    /// Another controller still acts on the same objects.
    TakeOver,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DryRun => "not written: dry run",
            Self::NotLeader => "not written: this replica does not lead",
            Self::TakeOver => "not written: another controller still acts",
        })
    }
}

impl std::error::Error for Refusal {}

/// Verb and resource of a request, as RBAC names them: (`update`, `deployments/scale`).
pub type VerbAndResource = (&'static str, String);

/// Open, or refusing with a reason. Can be switched while requests are under way.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    refusal: Option<Refusal>,
    /// With leader election: when the right to write ends unless it is renewed.
    leads_until: Option<Instant>,
    refused: BTreeMap<VerbAndResource, u64>,
}

impl Gate {
    /// A gate that lets everything through.
    pub fn open() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A gate that refuses every write.
    pub fn refusing(reason: Refusal) -> Arc<Self> {
        let gate = Self::open();
        gate.set(Some(reason));
        gate
    }

    /// Closes the gate with a reason, or opens it. Holds for every request that has not been handed to the
    /// connection yet.
    pub fn set(&self, refusal: Option<Refusal>) {
        self.lock().refusal = refusal;
    }

    /// Lets writes begin until `deadline` and none from then on; an instant that has passed closes the gate.
    pub fn leads_until(&self, deadline: Instant) {
        self.lock().leads_until = Some(deadline);
    }

    /// Why writes are refused now, if they are.
    pub fn refusal(&self) -> Option<Refusal> {
        self.lock().refusal()
    }

    /// How many requests were refused so far, by verb and resource.
    pub fn refused(&self) -> BTreeMap<VerbAndResource, u64> {
        self.lock().refused.clone()
    }

    /// Asks for one request.
    fn pass<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if harmless(request.method(), request.uri().path()) {
            return Ok(());
        }
        let mut state = self.lock();
        let Some(refusal) = state.refusal() else { return Ok(()) };
        let key = (verb(request.method()), resource(request.uri().path()));
        *state.refused.entry(key).or_default() += 1;
        Err(refusal)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refusal(&self) -> Option<Refusal> {
        let fenced = self.leads_until.is_some_and(|deadline| Instant::now() >= deadline);
        self.refusal.or_else(|| fenced.then_some(Refusal::NotLeader))
    }
}

/// Whether a request cannot change anything: reads, and reviews, which are POSTs that only ask.
fn harmless(method: &Method, path: &str) -> bool {
    method == Method::GET
        || method == Method::HEAD
        || method == Method::POST
            && ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"]
                .iter()
                .any(|group| path.starts_with(group))
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

/// `deployments/scale` of `/apis/apps/v1/namespaces/shop/deployments/web/scale`; the path itself if it has no such form.
fn resource(path: &str) -> String {
    let mut segments = path.trim_matches('/').split('/');
    let versioned = match segments.next() {
        Some("api") => segments.next(),
        Some("apis") => segments.next().and_then(|_| segments.next()),
        _ => None,
    };
    if versioned.is_none() {
        return path.to_owned();
    }
    let rest: Vec<_> = segments.collect();
    match rest.as_slice() {
        ["namespaces", _, resource, _, subresource] | [resource, _, subresource]
            if *resource != "namespaces" =>
        {
            format!("{resource}/{subresource}")
        }
        ["namespaces", _, resource, ..] | [resource, ..] => (*resource).to_owned(),
        [] => path.to_owned(),
    }
}

/// Puts a [`Gate`] in front of a service.
#[derive(Debug, Clone)]
pub struct GateLayer(pub Arc<Gate>);

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService { gate: Arc::clone(&self.0), inner }
    }
}

/// A service behind a [`Gate`]. A refused request fails with [`Refusal`].
#[derive(Debug, Clone)]
pub struct GateService<S> {
    gate: Arc<Gate>,
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
        if let Err(refusal) = self.gate.pass(&request) {
            return Box::pin(async move { Err(refusal.into()) });
        }
        let sent = self.inner.call(request);
        Box::pin(async move { sent.await.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";

    #[test]
    fn a_closed_gate_lets_reads_and_reviews_through_and_nothing_else() {
        let gate = Gate::refusing(Refusal::DryRun);
        assert!(gate.pass(&request(Method::GET, SCALE)).is_ok());
        assert!(gate.pass(&request(Method::HEAD, SCALE)).is_ok());
        assert!(
            gate.pass(&request(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"))
                .is_ok()
        );
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert_eq!(gate.pass(&request(method, SCALE)), Err(Refusal::DryRun));
        }
    }

    #[test]
    fn it_counts_what_it_refused_by_verb_and_resource() {
        let gate = Gate::refusing(Refusal::DryRun);
        let _ = gate.pass(&request(Method::PUT, SCALE));
        let _ = gate.pass(&request(Method::PUT, SCALE));
        let _ = gate.pass(&request(Method::POST, "/api/v1/namespaces/shop/events"));
        let _ = gate.pass(&request(Method::PATCH, "/api/v1/namespaces/shop/events/web.1"));
        let _ = gate.pass(&request(Method::PUT, "/api/v1/namespaces/shop/replicationcontrollers/web/scale"));
        let counts: Vec<_> = gate.refused().into_iter().map(|((v, r), n)| format!("{v} {r} {n}")).collect();
        assert_eq!(
            counts,
            [
                "create events 1",
                "patch events 1",
                "update deployments/scale 2",
                "update replicationcontrollers/scale 1"
            ]
        );
    }

    #[test]
    fn it_can_be_switched_at_run_time() {
        let gate = Gate::open();
        assert!(gate.pass(&request(Method::PUT, SCALE)).is_ok());
        gate.set(Some(Refusal::NotLeader));
        assert_eq!(gate.pass(&request(Method::PUT, SCALE)), Err(Refusal::NotLeader));
        gate.set(None);
        assert!(gate.pass(&request(Method::PUT, SCALE)).is_ok());
    }
}
