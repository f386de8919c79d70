//! Whole processes without their command lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::client::{ClientOptions, Clients};
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use concertina::cli::Config;
use concertina::serve::options::Serving;
use controller::assembly::Phase;
use controller::reconcile::{Observer, Observers};
use controller::telemetry::metrics::Metrics;
use fake_cluster::{Cluster, Link};
use hyper_util::rt::TokioIo;
use tokio::io::{copy_bidirectional, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Fixture;

pub(crate) struct Process {
    pub(crate) telemetry: Metrics,
    /// Address at which other replicas reach the process.
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    network: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
}

impl Process {
    /// Starts a process with `identity`. The process serves pages only to other replicas.
    pub(crate) fn start(stage: &Fixture, identity: &str, config: Config) -> Self {
        Self::start_with(stage, identity, config, None, Vec::new())
    }

    /// Like [`Self::start`], but with a further observer.
    pub(crate) fn start_observed(
        stage: &Fixture,
        identity: &str,
        config: Config,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self::start_with(stage, identity, config, None, vec![observer])
    }

    /// Like [`Self::start`], but with requests to the cluster through `link`, if there is one.
    pub(crate) fn start_behind(
        stage: &Fixture,
        identity: &str,
        config: Config,
        link: Option<Arc<dyn Link>>,
    ) -> Self {
        Self::start_with(stage, identity, config, link, Vec::new())
    }

    fn start_with(
        stage: &Fixture,
        identity: &str,
        config: Config,
        link: Option<Arc<dyn Link>>,
        observers: Observers,
    ) -> Self {
        let config = Config { serving: Serving { port: 0, ..Serving::default() }, ..config };
        let telemetry = Metrics::new();
        let (stop, network) = (CancellationToken::new(), CancellationToken::new());
        let options = client_options(&config, &telemetry);
        let clients = clients_until(&stage.cluster, link, &options, &network);
        let peer_link = stage.network.join(&network);
        let address = peer_link.advertised().unwrap().address;
        let surroundings = RunContext {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&stage.clock),
            identity: identity.to_owned(),
            link: Some(peer_link),
            observers,
            phase: Phase::FirstSync,
            election: ElectionRuntime::Shared,
        };
        let (stopped, counted) = (stop.clone(), telemetry.clone());
        let running =
            tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
        Self { telemetry, address, stop, network, running }
    }

    /// Disconnects the process from the network permanently. Other processes observe a crash.
    pub(crate) fn cut_off(&self) {
        self.network.cancel();
    }

    /// Shuts the process down. Returns the time until its end.
    pub(crate) async fn end(self) -> Duration {
        let start = Instant::now();
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.network.cancel();
        start.elapsed()
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Waits until the process fails. Returns the error and the elapsed time.
    pub(crate) async fn wait_for_failure(self) -> (String, Duration) {
        let start = Instant::now();
        let error = self.running.await.unwrap().unwrap_err();
        (error.to_string(), start.elapsed())
    }
}

/// Clients of an embedded cluster until `cut`. After `cut`, every connection breaks and new connections are
/// refused.
fn clients_until(
    cluster: &Cluster,
    link: Option<Arc<dyn Link>>,
    options: &ClientOptions,
    cut: &CancellationToken,
) -> Clients {
    let (server, cut) = (cluster.clone(), cut.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (near, mut far) = duplex(64 * 1024);
        let server = match &link {
            None => server.dial(),
            Some(link) => server.dial_through(Arc::clone(link)),
        };
        let (mut server, cut) = (server, cut.clone());
        let answer = if cut.is_cancelled() {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        } else {
            tokio::spawn(async move {
                cut.run_until_cancelled(copy_bidirectional(&mut far, &mut server)).await;
            });
            Ok::<_, std::io::Error>(TokioIo::new(near))
        };
        async move { answer }
    });
    Clients::over(connector, options).unwrap()
}
