//! `--from`: the explanation of a controller's record.

use std::sync::Arc;

use autoscaling::history::History;
use cluster::client::{ClientOptions, Clients};
use concertina::serve::{Endpoints, Health, serve_connection};
use concertina::tools::PROCESS;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbox::why::{self, Connection, Diagnosis, WhyError};

use super::command::options;
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

async fn ask(rig: &Harness, words: &[&str]) -> (Result<Diagnosis, WhyError>, String) {
    let endpoints = Endpoints::new(Health::new(), rig.telemetry.clone(), rig.assembly.decisions.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (client, server) = tokio::io::duplex(1 << 20);
        tokio::spawn(serve_connection(server, endpoints.clone(), CancellationToken::new()));
        async move { Ok::<_, std::io::Error>(TokioIo::new(client)) }
    });
    let clients = Clients::over(connector, &ClientOptions::default()).unwrap();
    let words: Vec<_> = ["-n", "shop", "--from=http://controller"].iter().chain(words).copied().collect();
    let way = Connection::Record { clients: &clients, url: "http://controller".to_owned() };
    let (clock, stop) = (std::sync::Arc::clone(&rig.clock), CancellationToken::new());
    let mut out = Vec::new();
    let found = why::run_with(&options(&words), PROCESS, way, clock, &mut out, stop).await;
    (found, String::from_utf8(out).unwrap())
}

fn rig() -> Harness {
    let stage = Fixture::new();
    for (name, replicas) in [("web", 4), ("api", 2)] {
        stage.target(name, replicas);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    Harness::start(stage)
}

#[tokio::test(start_paused = true)]
async fn last_decision_has_the_controllers_history_and_flags() {
    let rig = rig();
    rig.pass(31.0).await;
    rig.external("queue", "80");
    rig.pass(31.0).await;
    rig.external("queue", "20");
    rig.pass(31.0).await;
    rig.cluster.requests().clear();
    let (found, text) = ask(&rig, &["web", "-o", "json"]).await;
    found.unwrap();
    assert!(rig.cluster.requests().entries().is_empty(), "the cluster received requests");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert!(answer["sentence"].as_str().unwrap().contains("still holds 8"), "{answer}");
    assert_eq!(answer["source"]["type"], "record");
    assert_eq!(answer["source"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["unknowns"], json!([]));
    assert_eq!(answer["flags"][0]["origin"], "record");
    let history = answer["history"].as_array().unwrap();
    let rescale = history.iter().find(|entry| entry["type"] == "rescale").unwrap();
    assert_eq!((&rescale["from"], &rescale["to"]), (&json!(4), &json!(8)));
    assert!(history.iter().filter(|entry| entry["type"] == "recommendation").count() >= 5);
    let (_, text) = ask(&rig, &["web"]).await;
    assert!(text.contains("still holds 8"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn rescale_of_unknown_size_is_shown() {
    let rig = rig();
    rig.pass(31.0).await;
    let uid: Arc<str> = rig.hpa("web")["metadata"]["uid"].as_str().unwrap().into();
    let (histories, at) = (&rig.assembly.controller.histories, rig.clock.now());
    let uncertain = History { unknown_up: Some(at), unknown_down: Some(at), ..histories.get(&uid) };
    histories.seed(&uid, uncertain);
    let (_, text) = ask(&rig, &["web", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let history = answer["history"].as_array().unwrap();
    let unknown: Vec<_> = history.iter().filter(|entry| entry["type"] == "unknownRescale").collect();
    assert_eq!(unknown, [&json!({"type": "unknownRescale", "at": at, "origin": "record"})]);
}

#[tokio::test(start_paused = true)]
async fn all_hpas_of_the_controller_have_one_line_each() {
    let rig = rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["-A"]).await;
    found.unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let (_, same) = ask(&rig, &[]).await;
    assert_eq!(same, text);
}

#[tokio::test(start_paused = true)]
async fn unknown_hpa_has_the_controllers_error() {
    let rig = rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["absent"]).await;
    let error = found.unwrap_err().to_string();
    assert!(
        error.starts_with("failed to read the record of shop/absent from http://controller: "),
        "{error}"
    );
    assert_eq!(text, "");
}
