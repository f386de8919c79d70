//! A rig for tests of the whole control loop: an embedded cluster and the assembled controller with its
//! queue, in virtual time. Waiting costs no wall time.

mod fixture;
pub(crate) mod link;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod objects;
pub(crate) mod process;

use std::ops::Deref;
use std::sync::Arc;

use cluster::gate::Gate;
use concertina::app::client_options;
use concertina::cli::Config;
use controller::assembly::{Assembly, Parts, Phase};
use controller::reconcile::{Bursts, Controller, Histories};
use controller::telemetry::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::fixture::{Fixture, HPAS};

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

    /// Starts a copy of the assembled controller, changed by `alter`. The copy shares the stores and the queue
    /// of the assembled one, with the watches that fill them, and has histories of its own.
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
        let clients = link::clients(&stage.cluster, &options);
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

    /// Number of reconciliations with `action` and `error`.
    pub(crate) fn reconciliations(&self, action: &str, error: &str) -> f64 {
        self.series(&format!(
            "horizontal_pod_autoscaler_controller_reconciliations_total{{action=\"{action}\",error=\"{error}\"}}"
        ))
    }

    /// Shuts the controller down and waits for its end.
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

fn copy(controller: &Controller) -> Controller {
    Controller {
        hpas: Arc::clone(&controller.hpas),
        pods: Arc::clone(&controller.pods),
        overlap: Arc::clone(&controller.overlap),
        mapper: Arc::clone(&controller.mapper),
        scales: controller.scales.clone(),
        guard_reads: controller.guard_reads.clone(),
        targets: controller.targets.clone(),
        statuses: controller.statuses.clone(),
        metrics: Arc::clone(&controller.metrics),
        events: controller.events.clone(),
        histories: Histories::new(),
        observers: controller.observers.clone(),
        comparator: controller.comparator.clone(),
        queue: Arc::clone(&controller.queue),
        phases: Arc::clone(&controller.phases),
        telemetry: controller.telemetry.clone(),
        clock: Arc::clone(&controller.clock),
        settings: controller.settings.clone(),
        stale_guard: controller.stale_guard,
        period: controller.period,
        workers: controller.workers.clone(),
        tasks: controller.tasks.clone(),
        policies: Arc::clone(&controller.policies),
        bursts: Bursts::default(),
        sources: controller.sources.clone(),
        decisions_end: controller.decisions_end.clone(),
    }
}
