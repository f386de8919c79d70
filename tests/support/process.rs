//! Whole processes but for their command lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use concertina::api::client::{ClientOptions, Clients};
use concertina::app::{AppError, Phase, Surroundings, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::Serving;
use concertina::embedded::{Cluster, Link};
use concertina::telemetry::metrics::Metrics;
use hyper_util::rt::TokioIo;
use tokio::io::{copy_bidirectional, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Stage;

pub(crate) struct Process {
    pub(crate) telemetry: Metrics,
    /// Where the others find it.
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    network: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
}

impl Process {
    /// A process of this name among its like, of which nothing is served but to them.
    pub(crate) fn start(stage: &Stage, identity: &str, config: Config) -> Self {
        Self::start_behind(stage, identity, config, None)
    }

    /// The same; whatever it asks of the cluster goes by this way, if there is one.
    pub(crate) fn start_behind(
        stage: &Stage,
        identity: &str,
        config: Config,
        way: Option<Arc<dyn Link>>,
    ) -> Self {
        let config = Config { serving: Serving { port: 0, ..Serving::default() }, ..config };
        let telemetry = Metrics::new();
        let (stop, network) = (CancellationToken::new(), CancellationToken::new());
        let options = client_options(&config, &telemetry);
        let clients = clients_until(&stage.cluster, way, &options, &network);
        let link = stage.network.join(&network);
        let address = link.here().unwrap().address;
        let surroundings = Surroundings {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&stage.clock),
            identity: identity.to_owned(),
            link: Some(link),
            observers: Vec::new(),
            phase: Phase::FirstSync,
        };
        let (stopped, counted) = (stop.clone(), telemetry.clone());
        let running =
            tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
        Self { telemetry, address, stop, network, running }
    }

    /// Takes the network away for good, which to all others is a death.
    pub(crate) fn cut_off(&self) {
        self.network.cancel();
    }

    /// Asks the process to end and waits for that; how long it took.
    pub(crate) async fn end(self) -> Duration {
        let start = Instant::now();
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.network.cancel();
        start.elapsed()
    }

    /// Waits until the process ends by itself; with which error and how long that took.
    pub(crate) async fn dies(self) -> (String, Duration) {
        let start = Instant::now();
        let error = self.running.await.unwrap().unwrap_err();
        (error.to_string(), start.elapsed())
    }
}

/// Clients of an embedded cluster until `cut`: then every connection breaks, and none can be made any more.
fn clients_until(
    cluster: &Cluster,
    way: Option<Arc<dyn Link>>,
    options: &ClientOptions,
    cut: &CancellationToken,
) -> Clients {
    let (server, cut) = (cluster.clone(), cut.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (near, mut far) = duplex(64 * 1024);
        let server = match &way {
            None => server.dial(),
            Some(way) => server.dial_through(Arc::clone(way)),
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
