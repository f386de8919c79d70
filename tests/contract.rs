//! The contract of the API server: the requests of an autoscaler, of kubectl and of the tests, with the expected
//! responses.
//!
//! A run against the real kube-apiserver proves the expectations. A run against the embedded API server checks that the
//! embedded server meets them. [`run_suite`] needs a server that serves `widgets.example.com/v1` (see
//! `e2e/extensions.rs`) and runs no controllers, and the token of a user with full access.
//!
//! `CONCERTINA_CONTRACT_SHOW=text` prints the responses in the sections with a name that contains the text.

#![allow(
    clippy::indexing_slicing,
    reason = "the bodies are JSON literals, and indexing a JSON value creates missing fields"
)]
#![allow(dead_code, reason = "tests/e2e.rs shares the control plane modules and uses all of them")]

#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "contract/discovery.rs"]
mod discovery;
#[path = "e2e/extensions.rs"]
mod extensions;
#[path = "contract/hpas.rs"]
mod hpas;
#[path = "contract/lists.rs"]
mod lists;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "contract/scales.rs"]
mod scales;
#[path = "contract/step.rs"]
mod step;

use std::net::Ipv4Addr;
use std::sync::Arc;

use clock::SystemClock;
use fake_cluster::Cluster;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controlplane::{ADMIN_TOKEN, ControlPlane};
use crate::extensions::define_widgets;
use crate::outcome::{Failure, Outcome};
use crate::rest::Rest;
use crate::step::{SavedValues, Step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn real_api_server_meets_the_contract() -> Outcome {
    let plane = ControlPlane::start().await?;
    define_widgets(&plane.admin).await?;
    run_suite(&plane.url, ADMIN_TOKEN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_api_server_meets_the_same_contract() -> Outcome {
    let cluster = Cluster::new(Arc::new(SystemClock));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (cluster, stop) = (cluster.clone(), stop.clone());
        async move { cluster.serve(listener, stop).await }
    });
    // The embedded server does not authenticate, so any token works.
    let outcome = run_suite(&url, "token").await;
    stop.cancel();
    serving.await??;
    outcome
}

/// A sequence of requests that runs in its own namespace.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn sections() -> Vec<Section> {
    [
        discovery::sections(),
        hpas::sections(),
        scales::sections(),
        lists::sections(),
        scales::patch_sections(),
        lists::table_sections(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs all sections against a server. The failure names every unexpected response.
pub(crate) async fn run_suite(base_url: &str, token: &str) -> Outcome {
    let api = Rest::new(base_url, token)?;
    let show = std::env::var("CONCERTINA_CONTRACT_SHOW").ok();
    let (mut requests, mut failures) = (0, Vec::new());
    for section in sections() {
        let namespace = format!("contract-{}", section.name);
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        let mut saved = SavedValues::from([("ns".to_owned(), namespace)]);
        let show = show.as_deref().is_some_and(|text| section.name.contains(text));
        for step in &section.steps {
            requests += 1;
            if let Err(Failure(reason)) = step.run(&api, &mut saved, show).await {
                failures.push(format!("{}: {reason}", section.name));
            }
        }
    }
    if failures.is_empty() {
        eprintln!("{requests} requests, all responses as expected");
        return Ok(());
    }
    Err(Failure(format!(
        "{} of {requests} responses break the contract\n{}",
        failures.len(),
        failures.join("\n")
    )))
}
