//! What an autoscaler, kubectl and the tests rely on in an API server: one
//! list of requests and expected answers, as data, for every server that
//! claims to be one.
//!
//! Against the real kube-apiserver this proves the list itself; against the
//! embedded one it proves that server. [`run_suite`] needs nothing but a URL
//! and a token of somebody who may do everything, on a server that serves
//! `widgets.example.com/v1` (see `e2e/widgets.rs`) and runs no controllers.
//!
//! `CONCERTINA_CONTRACT_SHOW=text` prints the answers of the chapters whose
//! name contains the text, for work on the list.

#![cfg(feature = "tools")]
#![allow(
    clippy::indexing_slicing,
    reason = "the bodies are JSON written here; indexing a JSON value makes what is missing"
)]
#![allow(
    dead_code,
    reason = "the control plane modules are shared with tests/e2e.rs, which uses all of them"
)]

#[path = "e2e/assets.rs"]
mod assets;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "contract/chapters.rs"]
mod chapters;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "contract/events.rs"]
mod events;
#[path = "contract/hpas.rs"]
mod hpas;
#[path = "contract/lists.rs"]
mod lists;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "contract/patches.rs"]
mod patches;
#[path = "e2e/process.rs"]
mod process;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "contract/scales.rs"]
mod scales;
#[path = "contract/step.rs"]
mod step;
#[path = "contract/surface.rs"]
mod surface;
#[path = "contract/tables.rs"]
mod tables;
#[path = "e2e/widgets.rs"]
mod widgets;

use std::net::Ipv4Addr;
use std::sync::Arc;

use concertina::clock::SystemClock;
use concertina::embedded::Cluster;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::chapters::run_suite;
use crate::controlplane::{ADMIN_TOKEN, ControlPlane};
use crate::outcome::Outcome;
use crate::widgets::define_widgets;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn the_real_api_server_keeps_the_contract() -> Outcome {
    let plane = ControlPlane::start().await?;
    define_widgets(&plane.admin).await?;
    run_suite(&plane.url, ADMIN_TOKEN).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_api_server_keeps_the_same_contract() -> Outcome {
    let cluster = Cluster::new(Arc::new(SystemClock));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (cluster, stop) = (cluster.clone(), stop.clone());
        async move { cluster.serve(listener, stop).await }
    });
    // It asks nobody who he is: any token will do.
    let outcome = run_suite(&url, "token").await;
    stop.cancel();
    serving.await??;
    outcome
}
