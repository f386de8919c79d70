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
fn closed_gate_admits_only_reads_and_reviews() {
    let gate = Gate::refusing(Refusal::DryRun);
    assert!(passes(&gate, Method::GET, SCALE).is_ok());
    assert!(passes(&gate, Method::HEAD, SCALE).is_ok());
    assert!(passes(&gate, Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").is_ok());
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    assert!(passes(&gate, Method::POST, &format!("{accounts}/hpa/token")).is_ok());
    assert_eq!(passes(&gate, Method::POST, accounts), Err(Refusal::DryRun));
    assert_eq!(passes(&gate, Method::PUT, &format!("{accounts}/hpa/token")), Err(Refusal::DryRun));
    for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        assert_eq!(passes(&gate, method, SCALE), Err(Refusal::DryRun));
    }
}

#[test]
fn gate_counts_refusals_by_verb_and_resource() {
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
fn gate_switches_at_run_time() {
    let gate = Gate::open();
    assert!(passes(&gate, Method::PUT, SCALE).is_ok());
    gate.close(Refusal::NotLeader);
    assert_eq!(passes(&gate, Method::PUT, SCALE), Err(Refusal::NotLeader));
    gate.open_for(Refusal::NotLeader);
    assert!(passes(&gate, Method::PUT, SCALE).is_ok());
}

#[derive(Debug)]
struct Fixed(bool);

impl Permission for Fixed {
    fn may_write(&self) -> bool {
        self.0
    }
}

#[test]
fn permit_of_a_write_is_asked() {
    let gate = Gate::open();
    let passes = |permit: Option<bool>, method: Method, writes| {
        let mut request = request(method, SCALE);
        request.extensions_mut().extend(
            permit
                .map(|may| {
                    let mut extensions = http::Extensions::new();
                    extensions.insert(WritePermit(Arc::new(Fixed(may))));
                    extensions
                })
                .unwrap_or_default(),
        );
        gate.pass(&request, writes).map(drop)
    };
    assert!(passes(None, Method::PUT, Writes::Autoscaling).is_ok());
    gate.require_permits();
    for (permit, expected) in
        [(None, Err(Refusal::NotInCharge)), (Some(false), Err(Refusal::NotInCharge)), (Some(true), Ok(()))]
    {
        assert_eq!(passes(permit, Method::PUT, Writes::Autoscaling), expected, "{permit:?}");
        assert_eq!(passes(permit, Method::GET, Writes::Autoscaling), Ok(()));
        assert_eq!(passes(permit, Method::PUT, Writes::Lease), Ok(()));
        assert_eq!(passes(permit, Method::POST, Writes::Notices), Ok(()));
    }
    gate.close(Refusal::NotLeader);
    assert_eq!(passes(Some(true), Method::PUT, Writes::Autoscaling), Err(Refusal::NotLeader));
}

#[test]
fn each_reason_is_removed_separately() {
    let gate = Gate::refusing(Refusal::DryRun);
    gate.close(Refusal::TakeOver);
    gate.open_for(Refusal::DryRun);
    assert_eq!(gate.refusal(), Some(Refusal::TakeOver));
    gate.open_for(Refusal::TakeOver);
    assert_eq!(gate.refusal(), None);
}

#[test]
fn standbys_write_leases_and_held_back_leaders_write_notices() {
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

/// Sends a request that never receives a response. Returns the time until the gate aborts the request, or `None` if the
/// request is still in flight after a minute.
async fn aborted_after(gate: &Arc<Gate>, writes: Writes, method: Method) -> Option<Duration> {
    let waits = tower::service_fn(|_: Request<()>| std::future::pending::<Result<(), BoxError>>());
    let started = Instant::now();
    let sent = GateLayer(Arc::clone(gate), writes).layer(waits).call(request(method, SCALE));
    let answer = tokio::time::timeout(Duration::from_mins(1), sent).await.ok()?;
    assert_eq!(answer.unwrap_err().downcast_ref(), Some(&Refusal::NotLeader));
    Some(started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn writes_are_refused_from_the_end_of_leadership_on() {
    let gate = Gate::open();
    let until = Instant::now() + Duration::from_secs(10);
    gate.leads_until(until);
    assert_eq!((passes(&gate, Method::PUT, SCALE), gate.leading_until()), (Ok(()), Some(until)));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(passes(&gate, Method::PUT, SCALE), Err(Refusal::NotLeader));
    assert!(passes(&gate, Method::GET, SCALE).is_ok());
    assert!(gate.pass(&request(Method::PUT, SCALE), Writes::Lease).is_ok());
    gate.leads_until(until + Duration::from_secs(1));
    assert_eq!(passes(&gate, Method::PUT, SCALE), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn waiting_write_is_aborted_when_the_right_to_write_ends() {
    let (gate, seconds) = (Gate::open(), Duration::from_secs);
    gate.leads_until(Instant::now() + seconds(10));
    assert_eq!(aborted_after(&gate, Writes::Autoscaling, Method::PUT).await, Some(seconds(10)));
    gate.leads_until(Instant::now() + seconds(10));
    let moves = async {
        sleep_until(Instant::now() + seconds(8)).await;
        gate.leads_until(Instant::now() + seconds(10));
        sleep_until(Instant::now() + seconds(3)).await;
        gate.leads_until(Instant::now());
    };
    let (aborted, ()) = tokio::join!(aborted_after(&gate, Writes::Autoscaling, Method::PUT), moves);
    assert_eq!(aborted, Some(seconds(11)), "the deadline was extended, then cut short");
}

#[tokio::test(start_paused = true)]
async fn reads_leases_and_writes_without_election_are_never_aborted() {
    let gate = Gate::open();
    assert_eq!(aborted_after(&gate, Writes::Autoscaling, Method::PUT).await, None);
    for (writes, method) in [(Writes::Autoscaling, Method::GET), (Writes::Lease, Method::PUT)] {
        gate.leads_until(Instant::now() + Duration::from_secs(10));
        assert_eq!(aborted_after(&gate, writes, method).await, None);
    }
}
