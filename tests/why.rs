//! `why` against the embedded cluster: its answers, the actions of a real controller, its requests, and `--watch`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the whole loop, which use all of it")]
mod support;

#[path = "why/answers.rs"]
mod answers;
#[path = "why/leader.rs"]
mod leader;
#[path = "why/many.rs"]
mod many;
#[path = "why/permissions.rs"]
mod permissions;
#[path = "why/port_forward_proxy.rs"]
mod port_forward_proxy;
#[path = "why/precision.rs"]
mod precision;
#[path = "why/process.rs"]
mod process;

use std::ffi::OsString;
use std::sync::Arc;

use clock::SharedClock;
use cluster::client::Clients;
use concertina::invocation::Invocation;
use concertina::tools::Command;
use fake_cluster::FaultAction;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use why::options::WhyOptions;
use why::{Connection, Diagnosis, Refusals, WhyError};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, HPAS};

/// Parses `words` as the arguments of `why`.
pub(crate) fn options(words: &[&str]) -> WhyOptions {
    let words = ["why"].iter().chain(words).map(OsString::from);
    match Invocation::from_args(words) {
        Ok(Invocation::Tool(Command::Why(options))) => *options,
        other => panic!("{other:?}"),
    }
}

/// Runs `why` with `clock` until it ends or `stop` is cancelled. Returns its result and its output.
pub(crate) async fn ask_until(
    stage: &Fixture,
    words: &[&str],
    clock: SharedClock,
    stop: CancellationToken,
) -> (Result<Diagnosis, WhyError>, String) {
    let refusals = Refusals::new();
    let clients = Clients::over(stage.cluster.connector(), &why::client_options(&refusals)).unwrap();
    let mut out = Vec::new();
    let way = Connection::Cluster { clients: &clients, refusals };
    let found = why::run_with(&options(words), way, clock, &mut out, stop).await;
    (found, String::from_utf8(out).unwrap())
}

/// Runs `why` in namespace `shop` and checks that it only reads.
pub(crate) async fn ask(stage: &Fixture, words: &[&str]) -> (Result<Diagnosis, WhyError>, String) {
    stage.cluster.requests().clear();
    let words: Vec<_> = ["-n", "shop"].iter().chain(words).copied().collect();
    let answer = ask_until(stage, &words, Arc::clone(&stage.clock), CancellationToken::new()).await;
    only_reads(stage);
    answer
}

/// Runs `why` in namespace `shop`. Returns the answer as a JSON document.
pub(crate) async fn document(stage: &Fixture, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
    let (found, text) = ask(stage, &words).await;
    found.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Runs `why` for an HPA. Returns the sentence about it.
pub(crate) async fn sentence(stage: &Fixture, name: &str) -> String {
    document(stage, &[name]).await["sentence"].as_str().unwrap().to_owned()
}

/// Checks that the server received only reads since its request log was cleared.
pub(crate) fn only_reads(stage: &Fixture) {
    let entries = stage.cluster.requests().entries();
    assert!(!entries.is_empty());
    let others: Vec<_> = entries.iter().filter(|request| !matches!(request.verb, "get" | "list")).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// Returns the codes of the findings of a document.
pub(crate) fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// Creates a cluster with a queue of `items`, and with four workers at a target of 10 items each.
pub(crate) fn queue(items: &str) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", items);
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

/// Runs `why --watch` until `meanwhile` has ended.
async fn watch(
    stage: &Fixture,
    words: &[&str],
    meanwhile: impl AsyncFnOnce(&Fixture),
) -> (Result<Diagnosis, WhyError>, String) {
    let stop = CancellationToken::new();
    let words: Vec<_> = ["-n", "shop", "--watch"].iter().chain(words).copied().collect();
    let watching = ask_until(stage, &words, Arc::clone(&stage.clock), stop.clone());
    let action = async {
        meanwhile(stage).await;
        stop.cancel();
    };
    let (answer, ()) = tokio::join!(watching, action);
    only_reads(stage);
    answer
}

fn documents(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn text_is_printed_again_only_after_a_change() {
    let (found, text) = watch(&queue("40"), &["web"], async |stage| {
        stage.pass(16.0).await;
        stage.external("queue", "41");
        stage.pass(15.0).await;
        stage.external("queue", "80");
        stage.pass(25.0).await;
    })
    .await;
    assert_eq!(found.unwrap(), Diagnosis::Healthy, "{text}");
    let (stays, goes) = (text.find("stays at 4: "), text.find("goes from 4 to 8: "));
    assert!(stays < goes && goes.is_some(), "{text}");
    assert_eq!(text.matches("shop/web").count(), 2, "{text}");
}

#[tokio::test(start_paused = true)]
async fn recommendations_are_kept_from_the_first_round() {
    let (_, text) = watch(&queue("40"), &["web", "-o", "json"], async |stage| {
        stage.pass(61.0).await;
        stage.external("queue", "10");
        stage.pass(330.0).await;
    })
    .await;
    let documents = documents(&text);
    let sentence = |document: &Value| document["sentence"].as_str().unwrap().to_owned();
    assert_eq!(documents.len(), 27);
    assert!(sentence(&documents[5]).contains("still holds 4"), "{}", sentence(&documents[5]));
    // The last recommendation of 4 was at 60 s.
    assert!(sentence(&documents[24]).contains("still holds 4"), "{}", sentence(&documents[24]));
    assert!(sentence(&documents[25]).starts_with("goes from 4 to 1"), "{}", sentence(&documents[25]));
    let codes = |document: &Value| document["unknowns"].to_string();
    assert!(codes(&documents[0]).contains("recommendations"));
    assert!(!codes(&documents[26]).contains("recommendations"), "{}", codes(&documents[26]));
    assert_eq!(documents[26]["source"]["watchingSince"], documents[0]["at"]);
}

#[tokio::test(start_paused = true)]
async fn interval_sets_the_period() {
    let (_, text) = watch(&queue("40"), &["web", "-o", "json", "--interval=5s"], async |stage| {
        stage.pass(21.0).await;
    })
    .await;
    assert_eq!(documents(&text).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn only_changed_hpas_are_printed_again() {
    let stage = queue("40");
    stage.target("api", 2);
    stage.external("calls", "20");
    stage.create(hpa("api", &[external("calls", "10")]));
    let (_, text) = watch(&stage, &[], async |stage| {
        stage.pass(31.0).await;
        stage.external("calls", "40");
        stage.pass(31.0).await;
    })
    .await;
    assert_eq!(text.matches(" web ").count(), 1, "{text}");
    assert_eq!(text.matches(" api ").count(), 2, "{text}");
}

#[tokio::test(start_paused = true)]
async fn deletion_of_the_hpa_stops_the_watch() {
    let (found, _) = watch(&queue("40"), &["web"], async |stage| {
        stage.pass(20.0).await;
        stage.cluster.delete(HPAS, "shop", "web").unwrap();
        stage.pass(20.0).await;
    })
    .await;
    assert!(matches!(found, Err(WhyError::NotFound { .. })), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn temporary_server_failure_does_not_stop_the_watch() {
    let (found, text) = watch(&queue("40"), &["web", "-o", "json"], async |stage| {
        stage.pass(20.0).await;
        let fault = stage.fault("/horizontalpodautoscalers", FaultAction::Close);
        stage.pass(40.0).await;
        stage.cluster.faults().remove(fault);
        stage.pass(31.0).await;
    })
    .await;
    found.unwrap();
    let times: Vec<_> = documents(&text).iter().map(|document| document["at"].clone()).collect();
    assert_eq!(times.len(), 5, "{times:?}");
    assert_eq!(times[2], "2030-01-01T00:01:00Z");
}
