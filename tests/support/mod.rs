//! Rigs for tests of the whole control loop in virtual time: the assembled controller with its queue, and whole
//! processes without their command lines. The cluster is embedded, and waiting takes no wall time.

pub(crate) mod logs;
pub(crate) mod objects;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use cluster::client::{ClientOptions, Clients};
use cluster::gate::Gate;
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use controller::assembly::{Assembly, Parts, Phase};
use engine::reconcile::{Controller, Histories, Observer, Observers, Stores};
use engine::telemetry::metrics::Metrics;
use fake_cluster::{Cluster, Link};
use flags::Config;
use flags::serving::Serving;
use hyper_util::rt::TokioIo;
use tokio::io::{copy_bidirectional, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::objects::{Fixture, HPAS};

/// A [`Fixture`] with a running controller.
#[derive(Debug)]
pub(crate) struct Harness {
    stage: Fixture,
    pub(crate) assembly: Assembly,
    pub(crate) telemetry: Metrics,
    pub(crate) gate: Arc<Gate>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Harness {
    /// Starts a controller with the default flags.
    pub(crate) fn start(stage: Fixture) -> Self {
        Self::with(stage, &Config::default())
    }

    pub(crate) fn with(stage: Fixture, config: &Config) -> Self {
        Self::start_with_phase(stage, config, Phase::FirstSync, Arc::clone)
    }

    /// Starts a [`copy`] of the assembled controller. `alter` changes the copy before the start.
    pub(crate) fn altered(stage: Fixture, config: &Config, alter: impl FnOnce(&mut Controller)) -> Self {
        Self::start_with_phase(stage, config, Phase::FirstSync, |controller| {
            let mut copy = copy(controller);
            alter(&mut copy);
            Arc::new(copy)
        })
    }

    /// Starts a controller with syncs that are spread over the period.
    pub(crate) fn spread(stage: Fixture, config: &Config) -> Self {
        Self::start_with_phase(stage, config, Phase::Name, Arc::clone)
    }

    fn start_with_phase(
        stage: Fixture,
        config: &Config,
        phase: Phase,
        alter: impl FnOnce(&Arc<Controller>) -> Arc<Controller>,
    ) -> Self {
        let telemetry = Metrics::new();
        let options = client_options(config, &telemetry);
        let gate = Arc::clone(&options.gate);
        let clients = Clients::over(stage.cluster.connector(), &options).unwrap();
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &config.controller,
            clock: Arc::clone(&stage.clock),
            telemetry: telemetry.clone(),
            observers: Vec::new(),
            seed: 0,
            phase,
        };
        let assembly = Assembly::start(parts, &stop);
        let synced = assembly.synced();
        let (controller, stopped) = (alter(&assembly.controller), stop.clone());
        let running = tokio::spawn(async move {
            synced.await;
            controller.run(stopped).await;
        });
        Self { stage, assembly, telemetry, gate, stop, running }
    }

    /// The value of a series in the text of `/metrics`, or 0 if it is missing.
    pub(crate) fn series(&self, series: &str) -> f64 {
        let text = self.telemetry.render();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// Number of reconciliations with the labels `action` and `error`.
    pub(crate) fn reconciliations(&self, action: &str, error: &str) -> f64 {
        self.series(&format!(
            "horizontal_pod_autoscaler_controller_reconciliations_total{{action=\"{action}\",error=\"{error}\"}}"
        ))
    }

    /// Shuts the controller down, waits until it has stopped, and returns the cluster.
    pub(crate) async fn end(self) -> Fixture {
        self.stop.cancel();
        self.running.await.unwrap();
        self.stage
    }
}

impl Deref for Harness {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.stage
    }
}

/// Copies a controller. The copy shares the stores, the queue, the clients and the watches of the original. Its
/// histories are empty.
pub(crate) fn copy(controller: &Controller) -> Controller {
    Controller {
        stores: Stores {
            hpas: Arc::clone(&controller.stores.hpas),
            pods: Arc::clone(&controller.stores.pods),
            overlap: Arc::clone(&controller.stores.overlap),
            targets: controller.stores.targets.clone(),
            histories: Histories::new(),
        },
        clients: controller.clients.clone(),
        guests: controller.guests.clone(),
        runtime: controller.runtime.clone(),
        telemetry: controller.telemetry.clone(),
        clock: Arc::clone(&controller.clock),
        settings: controller.settings.clone(),
        stale_guard: controller.stale_guard,
        period: controller.period,
    }
}

pub(crate) struct Process {
    pub(crate) telemetry: Metrics,
    stop: CancellationToken,
    network: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
}

impl Process {
    /// Starts a process with `identity`. The process serves no pages.
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

    /// Like [`Self::start`], but requests to the cluster pass through `link`, unless it is `None`.
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
        let surroundings = RunContext {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&stage.clock),
            identity: identity.to_owned(),
            observers,
            phase: Phase::FirstSync,
            election: ElectionRuntime::Shared,
        };
        let (stopped, counted) = (stop.clone(), telemetry.clone());
        let running =
            tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
        Self { telemetry, stop, network, running }
    }

    /// Disconnects the process from the network permanently. Other processes observe a crash.
    pub(crate) fn cut_off(&self) {
        self.network.cancel();
    }

    /// Shuts the process down and returns the duration of the shutdown.
    pub(crate) async fn end(self) -> Duration {
        let start = Instant::now();
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.network.cancel();
        start.elapsed()
    }

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

/// Clients of an embedded cluster. Once `cut` is cancelled, every open connection breaks, and new connections are
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
