//! `why` against the embedded cluster: its answers, the actions of a real controller, its requests.

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
#[path = "why/controller_state.rs"]
mod controller_state;
#[path = "why/leader.rs"]
mod leader;
#[path = "why/permissions.rs"]
mod permissions;
#[path = "why/port_forward_proxy.rs"]
mod port_forward_proxy;
#[path = "why/process.rs"]
mod process;
#[path = "why/watches.rs"]
mod watches;

use std::ffi::OsString;
use std::sync::Arc;

use clock::SharedClock;
use cluster::client::Clients;
use concertina::invocation::Invocation;
use concertina::tools::{Command, PROCESS};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolbox::options::WhyOptions;
use toolbox::why::{self, Connection, Diagnosis, Refusals, WhyError};

use crate::support::Fixture;

/// The options of `why` with `words` as arguments.
pub(crate) fn options(words: &[&str]) -> WhyOptions {
    let words = ["why"].iter().chain(words).map(OsString::from);
    match Invocation::from_args(words) {
        Ok(Invocation::Tool(Command::Why(options))) => *options,
        other => panic!("{other:?}"),
    }
}

/// Runs `why` with `clock` until `stop`.
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
    let found = why::run_with(&options(words), PROCESS, way, clock, &mut out, stop).await;
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

/// The answer as a JSON document.
pub(crate) async fn document(stage: &Fixture, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
    let (found, text) = ask(stage, &words).await;
    found.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The sentence about an HPA.
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

/// The codes of the findings of a document.
pub(crate) fn codes(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}
