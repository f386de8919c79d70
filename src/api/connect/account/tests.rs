//! Against the embedded cluster, whose answers to TokenRequests are fault rules.

#![cfg(feature = "tools")]

use super::*;
use crate::api::client::{ClientOptions, Clients};
use crate::api::gate::{Gate, Refusal};
use crate::clock::VirtualClock;
use crate::embedded::{Cluster, FaultAction, FaultRule, Status as Failure};

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

    fn give(&self, token: &str, seconds: u64) {
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

    /// Lets a renewal in the background end.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn asked(&self) -> usize {
        self.cluster.requests().entries().len()
    }
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_token_serves_many_requests_until_a_fifth_of_its_life_is_left() {
    let rig = rig();
    rig.give("one", 3600);
    let all = futures::future::join_all((0..5).map(|_| rig.token())).await;
    assert!(all.iter().all(|token| token.as_deref() == Ok("Bearer one")), "{all:?}");
    pass(2500).await;
    assert_eq!((rig.token().await.unwrap().as_str(), rig.asked()), ("Bearer one", 1));
    pass(400).await;
    rig.give("two", 3600);
    // This one does not wait.
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
    rig.settle().await;
    assert_eq!((rig.token().await.unwrap().as_str(), rig.asked()), ("Bearer two", 2));
}

#[tokio::test(start_paused = true)]
async fn while_renewals_fail_the_old_token_is_used_until_it_expires() {
    let rig = rig();
    rig.give("one", 3600);
    rig.token().await.unwrap();
    pass(3000).await;
    rig.fail(500, "InternalError");
    for _ in 0..5 {
        assert_eq!(rig.token().await.unwrap(), "Bearer one");
        rig.settle().await;
    }
    assert_eq!(rig.asked(), 2, "one try, then a pause");
    pass(10).await;
    rig.token().await.unwrap();
    rig.settle().await;
    assert_eq!(rig.asked(), 3);
    pass(600).await;
    let error = rig.token().await.unwrap_err();
    assert!(error.starts_with("no token for ServiceAccount kube-system/hpa"), "{error}");
    rig.give("two", 3600);
    pass(1).await;
    assert_eq!(rig.token().await.unwrap(), "Bearer two");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_one_is_asked_for_once_a_second_however_many_requests_want_one() {
    let rig = rig();
    rig.fail(500, "InternalError");
    for second in 1..=5 {
        for _ in 0..100 {
            let error = rig.token().await.unwrap_err();
            assert!(error.starts_with("no token for ServiceAccount kube-system/hpa"), "{error}");
        }
        assert_eq!(rig.asked(), second);
        pass(1).await;
    }
    rig.give("one", 3600);
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_is_replaced_but_not_a_new_one() {
    let rig = rig();
    rig.give("one", 3600);
    let first = rig.account.current().await.unwrap();
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.asked()), ("Bearer one", 1));
    pass(10).await;
    rig.give("two", 3600);
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.asked()), ("Bearer two", 2));
    // A late answer about the old token says nothing about the new one.
    pass(10).await;
    rig.account.refused(&first);
    assert_eq!((rig.token().await.unwrap().as_str(), rig.asked()), ("Bearer two", 2));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_missing_is_made() {
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
async fn in_a_dry_run_tokens_are_given_and_no_account_is_made() {
    let rig = rig_with(Gate::refusing(Refusal::DryRun));
    rig.fail(404, "NotFound");
    let error = rig.token().await.unwrap_err();
    assert!(error.ends_with("not written: dry run"), "{error}");
    rig.give("one", 3600);
    pass(1).await;
    assert_eq!(rig.token().await.unwrap(), "Bearer one");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_life_than_asked_for_is_kept_to() {
    let rig = rig();
    rig.give("one", 600);
    rig.token().await.unwrap();
    pass(601).await;
    rig.give("two", 600);
    assert_eq!(rig.token().await.unwrap(), "Bearer two");
}
