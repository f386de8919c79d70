//! The demo as a process, and `why` in the terminal next to it.

#![allow(clippy::indexing_slicing, reason = "a missing field of JSON reads as null")]
#![allow(dead_code, reason = "the shared modules contain what other tests use")]

#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "e2e/rest.rs"]
mod rest;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::{Context, Outcome, Process, ensure, eventually};
use crate::rest::Rest;

fn why(kubeconfig: &Path, hpa: &str) -> Outcome<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    let answer = command.args(["why", hpa, "-o", "json"]).env("KUBECONFIG", kubeconfig).output()?;
    serde_json::from_slice(&answer.stdout).context(String::from_utf8_lossy(&answer.stderr))
}

/// Checks one answer of `why` against the decisions that the controller itself served before and after it.
async fn agrees(decisions: &Rest, kubeconfig: &Path, hpa: &str) -> Outcome<Value> {
    let newest = async || -> Outcome<Value> {
        let page = decisions.get(&format!("/decisions/shop/{hpa}")).await?;
        Ok(page["decisions"][0].clone())
    };
    let before = newest().await?;
    let answer = why(kubeconfig, hpa)?;
    let after = newest().await?;
    ensure(before["to"] == after["to"], || format!("{hpa} changes: {before}, {after}"))?;
    ensure(answer["desired"] == after["to"], || format!("{hpa}: {answer}, not {after}"))?;
    Ok(answer)
}

#[tokio::test]
async fn why_answers_from_the_record_of_the_demos_controller() -> Outcome {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo");
    fs::create_dir_all(&folder)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let kubeconfig = folder.join("kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.arg("demo").arg(format!("--metrics-port={port}"));
    command.arg(format!("--write-kubeconfig={}", kubeconfig.display()));
    let _demo = Process::start("demo", command, &folder)?;
    let decisions = Rest::new(&format!("http://127.0.0.1:{port}"), "")?;
    let limit = Duration::from_mins(1);

    for hpa in ["web", "worker", "burst"] {
        let answer = eventually(limit, hpa, async || agrees(&decisions, &kubeconfig, hpa).await).await?;
        ensure(answer["unknowns"] == json!([]), || format!("{hpa}: {}", answer["unknowns"]))?;
        let source = answer["source"].to_string();
        ensure(source.contains("pod concertina-system/concertina"), || format!("{hpa}: {source}"))?;
    }
    let sentence = async |hpa: &str, text: &str| {
        let answer = why(&kubeconfig, hpa)?;
        ensure(answer["sentence"].as_str().is_some_and(|it| it.contains(text)), || format!("{answer}"))
    };
    eventually(limit, "the policy holds worker", async || sentence("worker", "stays at 3: paused").await)
        .await?;
    eventually(limit, "burst is at its maximum", async || sentence("burst", "maxReplicas").await).await
}
