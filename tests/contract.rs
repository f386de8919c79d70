//! The API server contract: the requests of an autoscaler, of kubectl and of the tests, with the
//! expected responses, as data for every server that implements the API.
//!
//! Against the real kube-apiserver, the suite proves the list of requests. Against the embedded API
//! server, it proves that server. [`run_suite`] needs a URL and the token of a user with full access, on
//! a server that serves `widgets.example.com/v1` (see `e2e/widgets.rs`) and runs no controllers.
//!
//! `CONCERTINA_CONTRACT_SHOW=text` prints the responses of the sections with a name that contains the
//! text, for work on the list.

#![allow(
    clippy::indexing_slicing,
    reason = "the bodies are JSON literals, and indexing a JSON value creates missing fields"
)]
#![allow(dead_code, reason = "tests/e2e.rs shares the control plane modules and uses all of them")]

#[path = "e2e/assets.rs"]
mod assets;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "contract/discovery.rs"]
mod discovery;
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
#[path = "contract/sections.rs"]
mod sections;
#[path = "contract/step.rs"]
mod step;
#[path = "contract/tables.rs"]
mod tables;
#[path = "e2e/widgets.rs"]
mod widgets;

use std::net::Ipv4Addr;
use std::sync::Arc;

use clock::SystemClock;
use fake_cluster::Cluster;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controlplane::{ADMIN_TOKEN, ControlPlane};
use crate::outcome::Outcome;
use crate::sections::run_suite;
use crate::widgets::define_widgets;

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
