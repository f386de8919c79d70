//! `--from`: the story of a controller's own record.

use std::sync::Arc;

use autoscaling::history::History;
use concertina::api::client::{ClientOptions, Clients};
use concertina::commands::why::{self, Found, Way, WhyError};
use concertina::serve::{Endpoints, Health, serve_connection};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask::options;
use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

async fn ask(rig: &Rig, words: &[&str]) -> (Result<Found, WhyError>, String) {
    let endpoints = Endpoints::new(Health::new(), rig.telemetry.clone(), rig.assembly.decisions.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (client, server) = tokio::io::duplex(1 << 20);
        tokio::spawn(serve_connection(server, endpoints.clone(), CancellationToken::new()));
        async move { Ok::<_, std::io::Error>(TokioIo::new(client)) }
    });
    let clients = Clients::over(connector, &ClientOptions::default()).unwrap();
    let words: Vec<_> = ["-n", "shop", "--from=http://controller"].iter().chain(words).copied().collect();
    let way = Way::Record { clients: &clients, url: "http://controller".to_owned() };
    let (clock, stop) = (std::sync::Arc::clone(&rig.clock), CancellationToken::new());
    let mut out = Vec::new();
    let found = why::run_with(&options(&words), way, clock, &mut out, stop).await;
    (found, String::from_utf8(out).unwrap())
}

fn rig() -> Rig {
    let stage = Stage::new();
    for (name, replicas) in [("web", 4), ("api", 2)] {
        stage.target(name, replicas);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    Rig::start(stage)
}

#[tokio::test(start_paused = true)]
async fn the_last_decision_is_told_with_the_controllers_own_history_and_flags() {
    let rig = rig();
    rig.pass(31.0).await;
    rig.external("queue", "80");
    rig.pass(31.0).await;
    rig.external("queue", "20");
    rig.pass(31.0).await;
    rig.cluster.requests().clear();
    let (found, text) = ask(&rig, &["web", "-o", "json"]).await;
    found.unwrap();
    assert!(rig.cluster.requests().entries().is_empty(), "the cluster was asked");
    let told: Value = serde_json::from_str(&text).unwrap();
    assert!(told["sentence"].as_str().unwrap().contains("still holds 8"), "{told}");
    assert_eq!(told["source"]["type"], "record");
    assert_eq!(told["source"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["unknowns"], json!([]));
    assert_eq!(told["flags"][0]["origin"], "record");
    let history = told["history"].as_array().unwrap();
    let rescale = history.iter().find(|entry| entry["type"] == "rescale").unwrap();
    assert_eq!((&rescale["from"], &rescale["to"]), (&json!(4), &json!(8)));
    assert!(history.iter().filter(|entry| entry["type"] == "recommendation").count() >= 5);
    let (_, text) = ask(&rig, &["web"]).await;
    assert!(text.contains("still holds 8"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_rescale_of_which_the_controller_does_not_know_the_size_is_told() {
    let rig = rig();
    rig.pass(31.0).await;
    let uid: Arc<str> = rig.hpa("web")["metadata"]["uid"].as_str().unwrap().into();
    let (histories, at) = (&rig.assembly.controller.histories, rig.clock.now());
    let doubted = History { unknown_up: Some(at), unknown_down: Some(at), ..histories.get(&uid) };
    histories.seed(&uid, doubted);
    let (_, text) = ask(&rig, &["web", "-o", "json"]).await;
    let told: Value = serde_json::from_str(&text).unwrap();
    let history = told["history"].as_array().unwrap();
    let unknown: Vec<_> = history.iter().filter(|entry| entry["type"] == "unknownRescale").collect();
    assert_eq!(unknown, [&json!({"type": "unknownRescale", "at": at, "origin": "record"})]);
}

#[tokio::test(start_paused = true)]
async fn all_that_the_controller_knows_are_told_in_one_line_each() {
    let rig = rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["-A"]).await;
    found.unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let (_, same) = ask(&rig, &[]).await;
    assert_eq!(same, text);
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_does_not_know_is_told_in_its_words() {
    let rig = rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["absent"]).await;
    let error = found.unwrap_err().to_string();
    assert!(error.starts_with("http://controller gives no record of shop/absent: "), "{error}");
    assert_eq!(text, "");
}
