//! A rig for tests of the whole loop: an embedded cluster and the assembled controller with its queue running, in
//! virtual time. A test that waits costs no wall time.

pub(crate) mod link;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod objects;
pub(crate) mod process;
mod stage;

use std::ops::Deref;
use std::sync::Arc;

use concertina::api::gate::Gate;
use concertina::app::{Assembly, Parts, Phase, client_options};
use concertina::cli::Config;
use concertina::controller::Controller;
use concertina::telemetry::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::stage::{HPAS, Stage};

/// A [`Stage`] with a controller at work on it.
#[derive(Debug)]
pub(crate) struct Rig {
    stage: Stage,
    pub(crate) assembly: Assembly,
    pub(crate) telemetry: Metrics,
    pub(crate) gate: Arc<Gate>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Rig {
    /// A controller with the defaults of the command line.
    pub(crate) fn start(stage: Stage) -> Self {
        Self::with(stage, &Config::default())
    }

    pub(crate) fn with(stage: Stage, config: &Config) -> Self {
        Self::altered(stage, config, Arc::clone)
    }

    /// A controller of which `alter` makes the one that syncs. It shares the stores and the queue of the first, whose
    /// watches fill them.
    pub(crate) fn altered(
        stage: Stage,
        config: &Config,
        alter: impl FnOnce(&Arc<Controller>) -> Arc<Controller>,
    ) -> Self {
        Self::begin(stage, config, Phase::FirstSync, alter)
    }

    /// A controller whose syncs are spread over the period.
    pub(crate) fn spread(stage: Stage, config: &Config) -> Self {
        Self::begin(stage, config, Phase::Name, Arc::clone)
    }

    fn begin(
        stage: Stage,
        config: &Config,
        phase: Phase,
        alter: impl FnOnce(&Arc<Controller>) -> Arc<Controller>,
    ) -> Self {
        let telemetry = Metrics::new();
        let options = client_options(config, &telemetry);
        let gate = Arc::clone(&options.gate);
        let clients = link::clients(&stage.cluster, &options);
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            config,
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

    /// The value of a series in the text of `/metrics`, 0 if it is not there.
    pub(crate) fn series(&self, series: &str) -> f64 {
        let text = self.telemetry.render();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// How many reconciliations ended with this action and this error.
    pub(crate) fn reconciliations(&self, action: &str, error: &str) -> f64 {
        self.series(&format!(
            "horizontal_pod_autoscaler_controller_reconciliations_total{{action=\"{action}\",error=\"{error}\"}}"
        ))
    }

    /// Stops the controller in order.
    pub(crate) async fn end(self) -> Stage {
        self.stop.cancel();
        self.running.await.unwrap();
        self.stage
    }
}

impl Deref for Rig {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}
