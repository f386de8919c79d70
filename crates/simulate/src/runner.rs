//! Runs the variants of a scenario in parallel. Each run has an embedded cluster, its workloads, load and metrics, and
//! the whole controller, in virtual time and one thread.
//!
//! A prelude runs before the start. In the prelude, pods run and metrics are sampled. The first sync therefore reads
//! the same state as in a cluster that has run for a long time. The HPAs are created at the start. Each HPA is synced
//! immediately, and then one period after the end of each sync. Each request takes a drawn time, so that syncs take
//! time, as in a cluster. Each sync takes a sample.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::observe::{Meter, MeteredTarget, Recorder};
use super::run::{HpaRun, Run};
use super::scenario::{HpaPlan, LoadPlan, Problem, Scenario};
use super::scoring::Unserved;
use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientError, ClientOptions, Clients};
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use engine::telemetry::RequestMetrics;
use engine::telemetry::metrics::Metrics as Telemetry;
use fake_cluster::load::{
    Load, LoadId, LoadMetrics, Outage, OverflowPolicy, Pipeline, Relay, Scraping, WorkState,
};
use fake_cluster::workload::{Failure, Span, WorkloadModel, Workloads};
use fake_cluster::{Cluster, Latency, Status};

/// The time of one direction of a request to the API server, and of a watch event.
const API_LATENCY: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(5);
/// The time of one direction of a request to a metrics API, which passes through the API server.
const METRICS_LATENCY: Range<Duration> = Duration::from_millis(3)..Duration::from_millis(15);

/// The reason why a scenario could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The async runtime cannot be built.
    #[error("failed to start the async runtime of the simulation: {0}")]
    Runtime(#[from] std::io::Error),
    /// The embedded cluster refuses the object of a workload.
    #[error("{0}")]
    Refused(#[from] Problem),
    /// The embedded cluster refuses an HPA or a policy that it accepted during the validation of the scenario.
    #[error("the embedded cluster refused an object: {0}")]
    Object(#[from] Status),
    /// The API clients cannot be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The caller has stopped the run.
    #[error("the run was stopped")]
    Stopped,
}

/// A receiver of the progress of a run, which can also stop the run.
pub(super) trait Progress: Send + Sync {
    /// Reports that `elapsed` of `duration` is complete.
    fn advance(&self, elapsed: Duration, duration: Duration);

    /// Returns whether the run must stop early, with [`RunError::Stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A run, and what it left out to bound its memory.
#[derive(Debug)]
pub(super) struct RunOutput {
    pub(super) run: Run,
    /// The number of decisions that were dropped at the limit.
    pub(super) left_out: usize,
    /// The largest number of syncs for which one sample stands.
    pub(super) merged: u32,
}

/// Runs the scenarios in parallel, each with its own `progress`. The results are in the order of the scenarios.
pub(super) fn run_all<P: Progress>(
    scenarios: &[Scenario],
    progress: impl Fn() -> P + Sync,
) -> Result<Vec<RunOutput>, RunError> {
    let next = AtomicUsize::new(0);
    let runs: Vec<_> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((scenario, run)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            scenarios.get(index).zip(runs.get(index))
        } {
            *run.lock() = Some(run_scenario(scenario, &progress()));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(scenarios.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    runs.into_iter().filter_map(Mutex::into_inner).collect()
}

/// Runs a scenario in its own async runtime, so that no run depends on another.
fn run_scenario(scenario: &Scenario, progress: &dyn Progress) -> Result<RunOutput, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(run(scenario, progress))
}

async fn run(scenario: &Scenario, progress: &dyn Progress) -> Result<RunOutput, RunError> {
    let stop = CancellationToken::new();
    let _stopping = stop.clone().drop_guard();
    let environment = Environment::start(scenario, &stop)?;
    let meter = environment.meter(scenario);
    let hpas = scenario.hpas.iter().map(|hpa| (hpa.key(), &*hpa.spec));
    let settings = &scenario.flags.controller.settings;
    let period = scenario.flags.controller.sync_period;
    let observer = Arc::new(Recorder::new(scenario.start, period, settings, meter, hpas));
    // The policies exist before the HPAs, so that the first sync already applies them.
    for policy in &scenario.policies {
        environment.cluster.create(policy.clone())?;
    }
    environment.start_controller(scenario, &observer, &stop).await?;
    sleep_until(environment.origin).await;
    let start = environment.work();
    environment.workloads.record_peaks();
    for hpa in &scenario.hpas {
        environment.cluster.create(hpa.manifest.clone())?;
    }
    environment.play(scenario, progress).await;
    if progress.is_stopped() {
        return Err(RunError::Stopped);
    }
    Ok(result(scenario, &observer, &environment, &[start, environment.work()]))
}

/// The cluster, and the models that act in it.
struct Environment {
    cluster: Cluster,
    clock: SharedClock,
    workloads: Arc<Workloads>,
    load: Arc<LoadMetrics>,
    /// One load per workload, in the order of the scenario.
    loads: Vec<LoadId>,
    /// The virtual time at which the scenario starts, after the prelude.
    origin: Instant,
}

impl Environment {
    /// Starts a cluster with running workloads, at the start of the prelude.
    fn start(scenario: &Scenario, stop: &CancellationToken) -> Result<Self, RunError> {
        let prelude = prelude(scenario);
        let origin = Instant::now() + prelude;
        let epoch = scenario.start.checked_sub(prelude).unwrap_or(scenario.start);
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(epoch));
        let cluster = Cluster::new(Arc::clone(&clock));
        cluster.requests().keep(0);
        let (api, metrics) = (API_LATENCY, METRICS_LATENCY);
        cluster.set_latency(Latency { api, metrics, seed: scenario.seed });
        let workloads =
            Arc::new(Workloads::new(cluster.clone(), Arc::clone(&clock)).with_seed(scenario.seed));
        for workload in &scenario.workloads {
            cluster.create(workload.object.clone()).map_err(|status| workload.refused(&status))?;
            workloads.set_model(&workload.namespace, &workload.name, shift_model(&workload.model, prelude));
        }
        workloads.warm_up();
        let load =
            Arc::new(LoadMetrics::new(Arc::clone(&clock), shift_pipeline(&scenario.pipeline, prelude)));
        let plans = scenario.loads.iter().zip(&scenario.workloads);
        let loads =
            plans.map(|(plan, workload)| load.add(shift_load(plan, workload.replicas, prelude))).collect();
        cluster.set_metrics(load.clone());
        let (models, token) = (Arc::clone(&workloads), stop.clone());
        tokio::spawn(async move { models.run(token).await });
        let (metrics, server, token) = (Arc::clone(&load), cluster.clone(), stop.clone());
        tokio::spawn(async move { metrics.run(server, token).await });
        for (at, index) in &scenario.rollouts {
            let Some(workload) = scenario.workloads.get(*index) else { continue };
            let (models, at) = (Arc::clone(&workloads), origin + *at);
            let (resource, namespace, name) =
                (workload.kind.resource(), workload.namespace.clone(), workload.name.clone());
            tokio::spawn(async move {
                sleep_until(at).await;
                // The restart cannot fail, because nothing deletes the workload.
                let _ = models.restart(resource, &namespace, &name);
            });
        }
        Ok(Self { cluster, clock, workloads, load, loads, origin })
    }

    /// Returns the meter of the targets of all HPAs.
    fn meter(&self, scenario: &Scenario) -> Meter {
        let target = |(hpa, index): (&HpaPlan, &usize)| {
            let workload = scenario.workloads.get(*index)?;
            let (namespace, name) = (workload.namespace.clone(), workload.name.clone());
            Some((hpa.key(), MeteredTarget { namespace, name, load: self.loads.get(*index).copied() }))
        };
        Meter {
            workloads: Arc::clone(&self.workloads),
            load: Arc::clone(&self.load),
            targets: scenario.hpas.iter().zip(&scenario.targets).filter_map(target).collect(),
        }
    }

    /// Starts the controller before any HPA exists.
    async fn start_controller(
        &self,
        scenario: &Scenario,
        observer: &Arc<Recorder>,
        stop: &CancellationToken,
    ) -> Result<(), RunError> {
        let telemetry = Telemetry::new();
        // The observer records the decisions. A record in the controller would be a second copy.
        let options = Options {
            decisions_per_hpa: 0,
            watch_scaling_policies: !scenario.policies.is_empty()
                || scenario.flags.controller.watch_scaling_policies,
            ..scenario.flags.controller.clone()
        };
        let requests = Arc::new(RequestMetrics::new(telemetry.clone()));
        let client_options = ClientOptions { observer: Some(requests), ..scenario.flags.client_options() };
        let clients = Clients::over(self.cluster.connector(), &client_options)?;
        let parts = Parts {
            clients: &clients,
            options: &options,
            clock: Arc::clone(&self.clock),
            telemetry,
            observers: vec![Arc::clone(observer) as _],
            seed: scenario.seed,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, stop);
        assembly.synced().await;
        tokio::spawn(assembly.controller.run(stop.clone()));
        Ok(())
    }

    /// Lets the run pass until its end, or until `progress` stops it.
    async fn play(&self, scenario: &Scenario, progress: &dyn Progress) {
        let mut at = Duration::ZERO;
        while at < scenario.duration && !progress.is_stopped() {
            progress.advance(at, scenario.duration);
            at = (at + scenario.flags.controller.sync_period).min(scenario.duration);
            sleep_until(self.origin + at).await;
        }
    }

    /// Returns the current state of each workload's first kind of work, in the order of the scenario.
    fn work(&self) -> Vec<WorkState> {
        let state = |load: &LoadId| self.load.state(*load)?.work.first().copied();
        self.loads.iter().map(|load| state(load).unwrap_or_default()).collect()
    }
}

/// Returns the unserved work of a workload from the start to the end of the run.
fn unserved(scenario: &Scenario, workload: usize, work: &[Vec<WorkState>; 2]) -> Unserved {
    if scenario.loads.get(workload).is_some_and(LoadPlan::queues) {
        return Unserved::Waits;
    }
    let [start, end] = work.each_ref().map(|work| work.get(workload).copied().unwrap_or_default());
    Unserved::Lost { units: end.unserved - start.unserved, arrived: end.arrived - start.arrived }
}

/// Returns the result of a run. `work` is the state of the work at the start and at the end.
fn result(
    scenario: &Scenario,
    observer: &Recorder,
    environment: &Environment,
    work: &[Vec<WorkState>; 2],
) -> RunOutput {
    let (mut left_out, mut merged) = (0, 1);
    let hpa_run = |(hpa, target): (&HpaPlan, &usize)| {
        let mut track = observer.take(&hpa.key())?;
        left_out += track.left_out;
        merged = merged.max(track.samples.syncs());
        let reference = &hpa.spec.target;
        let workload = scenario.workloads.get(*target)?;
        let peak = environment.workloads.peak(&workload.namespace, &workload.name).unwrap_or_default();
        let mut scores =
            track.scoring.finish(&track.rescales, scenario.duration, unserved(scenario, *target, work));
        scores.peak = scores.peak.max(i32::try_from(peak).unwrap_or(i32::MAX));
        let period = track.period.unwrap_or(scenario.flags.controller.sync_period);
        let interval = period * track.samples.syncs();
        let samples = track.samples.finish(&mut track.metrics);
        Some(HpaRun {
            namespace: hpa.namespace.clone(),
            name: hpa.name.clone(),
            target: format!("{}/{}", reference.kind, reference.name),
            unit: scenario.loads.get(*target).map(|plan| plan.unit.clone()).unwrap_or_default(),
            scores,
            period,
            interval,
            samples,
            metrics: track.metrics,
            policies: track.policies.finish(scenario.duration),
            decisions: track.decisions,
            events: track.events,
        })
    };
    let hpas: Vec<HpaRun> = scenario.hpas.iter().zip(&scenario.targets).filter_map(hpa_run).collect();
    let shortest = hpas.iter().map(|hpa| hpa.period).min();
    let run = Run {
        title: scenario.title.clone(),
        variant: scenario.variant.clone(),
        seed: scenario.seed,
        start: scenario.start,
        duration: scenario.duration,
        period: shortest.unwrap_or(scenario.flags.controller.sync_period),
        hpas,
        happenings: scenario.happenings.clone(),
    };
    RunOutput { run, left_out, merged }
}

/// Returns the length of the prelude. At the end of the prelude, each metrics API has samples of whole windows.
fn prelude(scenario: &Scenario) -> Duration {
    let pipeline = &scenario.pipeline;
    let needed = [pipeline.resource, pipeline.custom, pipeline.external].map(|scraping| {
        let relay = scraping.relay.map(|relay| relay.interval * 2).unwrap_or_default();
        scraping.window + scraping.interval * 2 + scraping.delay + scraping.first_after + relay
    });
    let longest = needed.into_iter().max().unwrap_or_default();
    longest + Duration::from_mins(1)
}

/// Shifts the failures of a model by the prelude, because the times of a scenario are relative to its start.
fn shift_model(model: &WorkloadModel, prelude: Duration) -> WorkloadModel {
    let mut model = model.clone();
    for failure in &mut model.failures {
        let (Failure::CrashLoop { during: span, .. }
        | Failure::NeverReady { created: span, .. }
        | Failure::Unready { during: span, .. }
        | Failure::SlowPull { created: span, .. }
        | Failure::Unschedulable { created: span, .. }) = failure;
        *span = shift_span(span, prelude);
    }
    model
}

/// Shifts a span by the prelude. A span that starts at 0 also covers the prelude, so that it is in effect at
/// the start.
fn shift_span(span: &Span, prelude: Duration) -> Span {
    Span {
        from: if span.from.is_zero() { span.from } else { span.from + prelude },
        until: span.until.map(|until| until + prelude),
    }
}

/// Shifts outages by the prelude. Scrapes, and the readings of a relay, are moved half an interval away from the start,
/// so that syncs read samples of average age.
fn shift_pipeline(pipeline: &Pipeline, prelude: Duration) -> Pipeline {
    let phase = |interval: Duration| {
        let phase = (prelude + interval / 2).as_nanos() % interval.as_nanos().max(1);
        Duration::from_nanos_u128(phase)
    };
    let scraping = |scraping: &Scraping| {
        let relay = scraping.relay.map(|relay| Relay { phase: phase(relay.interval), ..relay });
        Scraping { phase: phase(scraping.interval), relay, ..*scraping }
    };
    let outage = |outage: &Outage| Outage { during: shift_span(&outage.during, prelude), ..outage.clone() };
    Pipeline {
        resource: scraping(&pipeline.resource),
        custom: scraping(&pipeline.custom),
        external: scraping(&pipeline.external),
        outages: pipeline.outages.iter().map(outage).collect(),
    }
}

/// Shifts curves by the prelude. Before the start, curves have their first value. For a queue, this value is
/// at most the capacity of the pods, so that the queue is empty at the start.
fn shift_load(plan: &LoadPlan, replicas: u32, prelude: Duration) -> Load {
    let mut load = plan.load.clone();
    for work in &mut load.work {
        let first = work.demand.at(Duration::ZERO);
        let before = match work.excess {
            OverflowPolicy::Lost => first,
            OverflowPolicy::Waits => first.min(work.capacity * f64::from(replicas)),
        };
        work.demand = work.demand.clone().after(prelude, before);
    }
    load
}
