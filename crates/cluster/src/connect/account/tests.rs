//! Tests against the embedded cluster. Fault rules provide the responses to TokenRequests.

use serde_json::json;

use super::*;
use crate::client::{ClientOptions, Clients};
use crate::gate::{Gate, Refusal};
use clock::VirtualClock;
use fake_cluster::{Cluster, FaultAction, FaultRule, Status as Failure};

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

struct Rig {
    cluster: Cluster,
    account: Arc<Account>,
}

fn rig_with(gate: Arc<Gate>) -> Rig {
    let cluster = Cluster::new(Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
    let clients =
        Clients::over(cluster.connector(), &ClientOptions { gate, ..ClientOptions::default() }).unwrap();
    let account = Account::new(clients.reviews, "kube-system", "hpa", Jitter::seeded(0));
    Rig { cluster, account: Arc::new(account) }
}

fn rig() -> Rig {
    rig_with(Gate::open())
}

impl Rig {
    fn answer(&self, action: FaultAction) {
        self.cluster.faults().clear();
        self.cluster.faults().add(FaultRule::new(action).path_suffix("/token"));
    }

    fn issue(&self, token: &str, seconds: u64) {
        let body = json!({"spec": {"expirationSeconds": seconds}, "status": {"token": token}});
        self.answer(FaultAction::Body(body.to_string()));
    }

    fn fail(&self, code: u16, reason: &str) {
        self.answer(FaultAction::Status(Failure::new(code, reason, "no")));
    }

    async fn token(&self) -> Result<String, String> {
        let token = self.account.current().await.map_err(|error| error.to_string())?;
        Ok(token.header.to_str().unwrap().to_owned())
    }

    /// Waits until a refresh in the background has ended.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn requests(&self) -> usize {
        self.cluster.requests().entries().len()
    }
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn token_serves_until_a_fifth_of_its_lifetime_is_left() {
    let rig = rig();
    rig.issue("one", 3600);
    let all = futures::future::join_all((0..5).map(|_| rig.token())).await;
    assert!(all.iter().all(|token| token.as_deref() == Ok("Bearer one")), "{all:?}");
    pass(2500).await;
    assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer one", 1));
    pass(400).await;
    rig.issue("two", 3600);
    // This request starts a refresh without waiting for its end.
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
    rig.settle().await;
    assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
}

#[tokio::test(start_paused = true)]
async fn token_is_used_until_it_expires_when_refreshes_fail() {
    let rig = rig();
    rig.issue("one", 3600);
    rig.token().await.unwrap();
    pass(3000).await;
    rig.fail(500, "InternalError");
    for _ in 0..5 {
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
        rig.settle().await;
    }
    assert_eq!(rig.requests(), 2, "one attempt, then a pause");
    pass(10).await;
    rig.token().await.unwrap();
    rig.settle().await;
    assert_eq!(rig.requests(), 3);
    pass(600).await;
    let error = rig.token().await.unwrap_err();
    assert!(error.starts_with("failed to create a token of ServiceAccount kube-system/hpa"), "{error}");
    rig.issue("two", 3600);
    pass(1).await;
    assert_eq!(rig.token().await.unwrap(), "Bearer two");
}

#[tokio::test(start_paused = true)]
async fn missing_token_is_requested_once_a_second_for_all_requests() {
    let rig = rig();
    rig.fail(500, "InternalError");
    for second in 1..=5 {
        for _ in 0..100 {
            let error = rig.token().await.unwrap_err();
            assert!(
                error.starts_with("failed to create a token of ServiceAccount kube-system/hpa"),
                "{error}"
            );
        }
        assert_eq!(rig.requests(), second);
        pass(1).await;
    }
    rig.issue("one", 3600);
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
}

#[tokio::test(start_paused = true)]
async fn refused_token_is_replaced_unless_it_is_recent() {
    let rig = rig();
    rig.issue("one", 3600);
    let first = rig.account.current().await.unwrap();
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer one", 1));
    pass(10).await;
    rig.issue("two", 3600);
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
    // A late response about the first token does not affect the second one.
    pass(10).await;
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.requests()), ("Bearer two", 2));
}

#[tokio::test(start_paused = true)]
async fn missing_account_is_created() {
    let rig = rig();
    let token = json!({"spec": {}, "status": {"token": "one"}}).to_string();
    let missing = FaultAction::Status(Failure::new(404, "NotFound", "no such account"));
    rig.cluster.faults().add(FaultRule::new(missing).path_suffix("/token").times(1));
    rig.cluster.faults().add(FaultRule::new(FaultAction::Body(token)).path_suffix("/token"));
    rig.cluster.faults().add(FaultRule::new(FaultAction::Body("{}".to_owned())).path_suffix("accounts"));
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
    let paths: Vec<_> = rig.cluster.requests().entries().into_iter().map(|request| request.path).collect();
    let token = format!("{ACCOUNTS}/hpa/token");
    assert_eq!(paths, [token.clone(), ACCOUNTS.to_owned(), token]);
}

#[tokio::test(start_paused = true)]
async fn dry_run_requests_tokens_and_creates_no_account() {
    let rig = rig_with(Gate::refusing(Refusal::DryRun));
    rig.fail(404, "NotFound");
    let error = rig.token().await.unwrap_err();
    assert!(error.ends_with("not written: dry run"), "{error}");
    rig.issue("one", 3600);
    pass(1).await;
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
}

#[tokio::test(start_paused = true)]
async fn shorter_lifetime_than_requested_is_respected() {
    let rig = rig();
    rig.issue("one", 600);
    rig.token().await.unwrap();
    pass(601).await;
    rig.issue("two", 600);
    assert_eq!(rig.token().await.unwrap(), "Bearer two");
}
