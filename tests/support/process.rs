//! Whole processes but for their command lines.

use std::sync::Arc;
use std::time::Duration;

use concertina::app::{AppError, Surroundings, client_options, run_with};
use concertina::cli::Config;
use concertina::telemetry::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Stage, link};

pub(crate) struct Process {
    pub(crate) telemetry: Metrics,
    stop: CancellationToken,
    network: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
}

impl Process {
    /// A process of this name among its like; health is served on a free port.
    pub(crate) fn start(stage: &Stage, identity: &str, config: Config) -> Self {
        let config = Config { health_address: "127.0.0.1:0".parse().unwrap(), ..config };
        let telemetry = Metrics::new();
        let (stop, network) = (CancellationToken::new(), CancellationToken::new());
        let options = client_options(&config, &telemetry);
        let clients = link::clients_until(&stage.cluster, &options, &network);
        let surroundings = Surroundings {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&stage.clock),
            identity: identity.to_owned(),
        };
        let (stopped, counted) = (stop.clone(), telemetry.clone());
        let running =
            tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
        Self { telemetry, stop, network, running }
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
        start.elapsed()
    }

    /// Waits until the process ends by itself; with which error and how long that took.
    pub(crate) async fn dies(self) -> (String, Duration) {
        let start = Instant::now();
        let error = self.running.await.unwrap().unwrap_err();
        (error.to_string(), start.elapsed())
    }
}
