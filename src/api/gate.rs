//! The write gate: every request that could change the cluster passes it right before it is sent.
//!
//! It sits below the token buckets, right before authentication and the wire, so that closing it stops also what was
//! already waiting. What waits longer, for credentials or for a connection, is given up at the renew deadline. Three
//! things close it, each on its own: `--dry-run`, another controller that acts on the same objects, and a Lease that is
//! not ours or not known to be ours any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

/// Why writes are refused. Its `Display` ends up in logs, never in a condition: a refused write is not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// `--dry-run`: everything is computed, nothing written.
    DryRun,
    /// Another replica leads, or may.
    NotLeader,
    /// Another controller still acts on the same objects, or may.
    TakeOver,
}

/// What a client writes; not everything is stopped by every reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Scales, statuses and events of HPAs.
    Autoscaling,
    /// What tells people that this replica holds back because of another controller.
    Notices,
    /// What the leader remembers of HPAs, also while it holds back.
    Checkpoint,
    /// The Lease itself.
    Lease,
    /// The ServiceAccount to act as, if it is missing: who stands by needs it too.
    Account,
}

impl Writes {
    fn are_stopped_by(self, refusal: Refusal) -> bool {
        match self {
            Self::Autoscaling => true,
            Self::Notices | Self::Checkpoint => refusal != Refusal::TakeOver,
            Self::Lease | Self::Account => refusal == Refusal::DryRun,
        }
    }
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
    /// The right to write lasts longer than before, or shorter.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    closed: BTreeSet<Refusal>,
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
        gate.close(reason);
        gate
    }

    /// Closes the gate for a reason. Holds for every request that has not been handed to the connection yet.
    pub fn close(&self, reason: Refusal) {
        self.lock().closed.insert(reason);
    }

    /// Takes a reason away. The gate is open when none is left.
    pub fn open_for(&self, reason: Refusal) {
        self.lock().closed.remove(&reason);
    }

    /// Lets writes begin until `deadline` and none from then on; an instant that has passed closes the gate.
    pub fn leads_until(&self, deadline: Instant) {
        self.lock().leads_until = Some(deadline);
        self.moved.notify_waiters();
    }

    /// When the right to write ends unless it is renewed; none without leader election.
    pub fn leading_until(&self) -> Option<Instant> {
        self.lock().leads_until
    }

    /// Why writes about HPAs are refused now, if they are.
    pub fn refusal(&self) -> Option<Refusal> {
        self.lock().refusal(Writes::Autoscaling)
    }

    /// How many requests were refused so far, by verb and resource.
    pub fn refused(&self) -> BTreeMap<VerbAndResource, u64> {
        self.lock().refused.clone()
    }

    /// Asks for one request; answers whether it must be given up at the renew deadline.
    fn pass<B>(&self, request: &Request<B>, writes: Writes) -> Result<Fence, Refusal> {
        if harmless(request.method(), request.uri().path()) {
            return Ok(Fence::Without);
        }
        let mut state = self.lock();
        let Some(refusal) = state.refusal(writes) else {
            let is_fenced = state.leads_until.is_some() && writes.are_stopped_by(Refusal::NotLeader);
            return Ok(if is_fenced { Fence::Leading } else { Fence::Without });
        };
        let key = (verb(request.method()), resource(request.uri().path()));
        *state.refused.entry(key).or_default() += 1;
        Err(refusal)
    }

    /// Waits until the right to write has ended.
    async fn lost(&self) {
        loop {
            // Before it is read: what moves in between is told of.
            let moved = self.moved.notified();
            match self.leading_until() {
                None => moved.await,
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(deadline) => {}
                        () = moved => {}
                    }
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to when a request that passed may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// As long as it takes.
    Without,
    /// As long as this replica leads.
    Leading,
}

impl State {
    fn refusal(&self, writes: Writes) -> Option<Refusal> {
        let fenced = self.leads_until.is_some_and(|deadline| Instant::now() >= deadline);
        let reasons = self.closed.iter().copied().chain(fenced.then_some(Refusal::NotLeader));
        reasons.filter(|refusal| writes.are_stopped_by(*refusal)).min()
    }
}

/// Whether a request cannot change anything: reads, and POSTs that only ask, for a review or a token.
fn harmless(method: &Method, path: &str) -> bool {
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

/// Puts a [`Gate`] in front of a service that writes such things.
#[derive(Debug, Clone)]
pub struct GateLayer(pub Arc<Gate>, pub Writes);

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService { gate: Arc::clone(&self.0), writes: self.1, inner }
    }
}

/// A service behind a [`Gate`]. A refused request fails with [`Refusal`], and so does one that is given up.
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
        let fence = match self.gate.pass(&request, self.writes) {
            Ok(fence) => fence,
            Err(refusal) => return Box::pin(async move { Err(refusal.into()) }),
        };
        let sent = self.inner.call(request);
        if fence == Fence::Without {
            return Box::pin(async move { sent.await.map_err(Into::into) });
        }
        let gate = Arc::clone(&self.gate);
        Box::pin(async move {
            // The deadline first: after a sleep of the process a connection must not be used that is there only now.
            tokio::select! {
                biased;
                () = gate.lost() => Err(Refusal::NotLeader.into()),
                answer = sent => answer.map_err(Into::into),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(method: Method, path: &str) -> Request<()> {
        Request::builder().method(method).uri(path).body(()).unwrap()
    }

    fn passes(gate: &Gate, method: Method, path: &str) -> Result<(), Refusal> {
        gate.pass(&request(method, path), Writes::Autoscaling).map(drop)
    }

    const SCALE: &str = "/apis/apps/v1/namespaces/shop/deployments/web/scale";

    #[test]
    fn a_closed_gate_lets_reads_and_reviews_through_and_nothing_else() {
        let gate = Gate::refusing(Refusal::DryRun);
        assert!(passes(&gate, Method::GET, SCALE).is_ok());
        assert!(passes(&gate, Method::HEAD, SCALE).is_ok());
        assert!(
            passes(&gate, Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").is_ok()
        );
        let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
        assert!(passes(&gate, Method::POST, &format!("{accounts}/hpa/token")).is_ok());
        assert_eq!(passes(&gate, Method::POST, accounts), Err(Refusal::DryRun));
        assert_eq!(passes(&gate, Method::PUT, &format!("{accounts}/hpa/token")), Err(Refusal::DryRun));
        for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert_eq!(passes(&gate, method, SCALE), Err(Refusal::DryRun));
        }
    }

    #[test]
    fn it_counts_what_it_refused_by_verb_and_resource() {
        let gate = Gate::refusing(Refusal::DryRun);
        let _ = passes(&gate, Method::PUT, SCALE);
        let _ = passes(&gate, Method::PUT, SCALE);
        let _ = passes(&gate, Method::POST, "/api/v1/namespaces/shop/events");
        let _ = passes(&gate, Method::PATCH, "/api/v1/namespaces/shop/events/web.1");
        let _ = passes(&gate, Method::PUT, "/api/v1/namespaces/shop/replicationcontrollers/web/scale");
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
        assert!(passes(&gate, Method::PUT, SCALE).is_ok());
        gate.close(Refusal::NotLeader);
        assert_eq!(passes(&gate, Method::PUT, SCALE), Err(Refusal::NotLeader));
        gate.open_for(Refusal::NotLeader);
        assert!(passes(&gate, Method::PUT, SCALE).is_ok());
    }

    #[test]
    fn each_reason_is_taken_away_on_its_own() {
        let gate = Gate::refusing(Refusal::DryRun);
        gate.close(Refusal::TakeOver);
        gate.open_for(Refusal::DryRun);
        assert_eq!(gate.refusal(), Some(Refusal::TakeOver));
        gate.open_for(Refusal::TakeOver);
        assert_eq!(gate.refusal(), None);
    }

    #[test]
    fn a_lease_is_written_by_who_does_not_lead_and_a_notice_by_who_holds_back() {
        const EVENTS: &str = "/api/v1/namespaces/shop/events";
        let stopped = |reason| {
            let gate = Gate::refusing(reason);
            [Writes::Autoscaling, Writes::Notices, Writes::Checkpoint, Writes::Lease, Writes::Account]
                .map(|writes| gate.pass(&request(Method::POST, EVENTS), writes).is_err())
        };
        assert_eq!(stopped(Refusal::DryRun), [true, true, true, true, true]);
        assert_eq!(stopped(Refusal::NotLeader), [true, true, true, false, false]);
        assert_eq!(stopped(Refusal::TakeOver), [true, false, false, false, false]);
    }

    /// Has a request wait below the gate, for a token or a connection, and tells how long until it was given up.
    async fn given_up(gate: &Arc<Gate>, writes: Writes, method: Method) -> Option<Duration> {
        let waits = tower::service_fn(|_: Request<()>| std::future::pending::<Result<(), BoxError>>());
        let begun = Instant::now();
        let sent = GateLayer(Arc::clone(gate), writes).layer(waits).call(request(method, SCALE));
        let answer = tokio::time::timeout(Duration::from_mins(1), sent).await.ok()?;
        assert_eq!(answer.unwrap_err().downcast_ref(), Some(&Refusal::NotLeader));
        Some(begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_still_waits_is_given_up_when_the_right_to_write_ends() {
        let (gate, seconds) = (Gate::open(), Duration::from_secs);
        gate.leads_until(Instant::now() + seconds(10));
        assert_eq!(given_up(&gate, Writes::Autoscaling, Method::PUT).await, Some(seconds(10)));
        gate.leads_until(Instant::now() + seconds(10));
        let moves = async {
            sleep_until(Instant::now() + seconds(8)).await;
            gate.leads_until(Instant::now() + seconds(10));
            sleep_until(Instant::now() + seconds(3)).await;
            gate.leads_until(Instant::now());
        };
        let (given_up_after, ()) = tokio::join!(given_up(&gate, Writes::Autoscaling, Method::PUT), moves);
        assert_eq!(given_up_after, Some(seconds(11)), "renewed, and ended before its time");
    }

    #[tokio::test(start_paused = true)]
    async fn reads_the_lease_and_all_without_election_wait_as_long_as_they_like() {
        let gate = Gate::open();
        assert_eq!(given_up(&gate, Writes::Autoscaling, Method::PUT).await, None);
        for (writes, method) in [(Writes::Autoscaling, Method::GET), (Writes::Lease, Method::PUT)] {
            gate.leads_until(Instant::now() + Duration::from_secs(10));
            assert_eq!(given_up(&gate, writes, method).await, None);
        }
    }
}
