//! Runs the variants of a scenario in parallel. Each run has an embedded cluster, its workloads, load and metrics, and
//! the whole controller, in virtual time and one thread.
//!
//! A prelude runs before the start. In the prelude, pods run and metrics are sampled. The first sync therefore reads
//! the same state as in a cluster that has run for a long time. The HPAs are created at the start. Each HPA is synced
//! immediately and then once per period. Samples are taken 1 ms after the syncs.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::observe::Recorder;
use super::run::{HpaRun, Run, Sample, Unserved, scores};
use super::scenario::{HpaPlan, LoadPlan, Problem, Scenario};
use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientError, ClientOptions, Clients};
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use controller::telemetry::RequestMetrics;
use controller::telemetry::metrics::Metrics as Telemetry;
use fake_cluster::load::{
    Load, LoadId, LoadMetrics, Outage, OverflowPolicy, Pipeline, Relay, Scraping, WorkState,
};
use fake_cluster::workload::{Failure, Span, WorkloadModel, Workloads};
use fake_cluster::{Cluster, Status};

/// The delay between a sync and its sample. The sample includes the immediate effects of the sync.
const SAMPLE_DELAY: Duration = Duration::from_millis(1);

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

/// A run, and the number of decisions without a scale write that were dropped at the limit.
#[derive(Debug)]
pub(super) struct RunOutput {
    pub(super) run: Run,
    pub(super) left_out: usize,
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
    let observer = Arc::new(Recorder::new(
        scenario.start,
        &scenario.flags.options.settings,
        scenario.hpas.iter().map(|hpa| (hpa.key(), &*hpa.spec)),
    ));
    // The policies exist before the HPAs, so that the first sync already applies them.
    for policy in &scenario.policies {
        environment.cluster.create(policy.clone())?;
    }
    environment.start_controller(scenario, &observer, &stop).await?;
    sleep_until(environment.origin).await;
    for hpa in &scenario.hpas {
        environment.cluster.create(hpa.manifest.clone())?;
    }
    let samples = environment.samples(scenario, &observer, progress).await;
    if progress.is_stopped() {
        return Err(RunError::Stopped);
    }
    Ok(result(scenario, &observer, samples))
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
                || scenario.flags.options.watch_scaling_policies,
            ..scenario.flags.options.clone()
        };
        let requests = Arc::new(RequestMetrics::new(telemetry.clone()));
        let client_options = ClientOptions { observer: Some(requests), ..scenario.flags.clients.clone() };
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

    /// Takes a sample of each HPA in each period, from the start to the end.
    async fn samples(
        &self,
        scenario: &Scenario,
        observer: &Recorder,
        progress: &dyn Progress,
    ) -> Vec<Samples> {
        let empty = |hpa: &HpaPlan| Samples {
            values: vec![Vec::new(); hpa.spec.metrics.len()],
            ..Samples::default()
        };
        let mut all: Vec<_> = scenario.hpas.iter().map(empty).collect();
        let mut at = Duration::ZERO;
        while at <= scenario.duration && !progress.is_stopped() {
            sleep_until(self.origin + at + SAMPLE_DELAY).await;
            for ((hpa, target), samples) in scenario.hpas.iter().zip(&scenario.targets).zip(&mut all) {
                let latest = observer.latest(&hpa.key());
                let Some(workload) = scenario.workloads.get(*target) else { continue };
                let counts = self.workloads.counts(&workload.namespace, &workload.name).unwrap_or_default();
                let [wanted, running, ready] = [counts.wanted, counts.active, counts.ready]
                    .map(|pods| i32::try_from(pods).unwrap_or(i32::MAX));
                let work = self.work(*target).unwrap_or_default();
                let WorkState { demand, capacity, waiting: queued, .. } = work;
                let sample = Sample { at, wanted, running, ready, demand, capacity, queued, ..latest.sample };
                samples.list.push(sample);
                for (values, value) in samples.values.iter_mut().zip(&latest.values) {
                    values.push(*value);
                }
                samples.before.get_or_insert(work);
                samples.after = work;
            }
            progress.advance(at, scenario.duration);
            at += scenario.flags.options.sync_period;
        }
        all
    }

    /// Returns the current state of a workload's first kind of work.
    fn work(&self, workload: usize) -> Option<WorkState> {
        self.load.state(*self.loads.get(workload)?)?.work.first().copied()
    }
}

/// The samples of one HPA, with the values of its metrics at each sample.
#[derive(Debug, Default)]
struct Samples {
    list: Vec<Sample>,
    /// One list per metric of the spec.
    values: Vec<Vec<Option<f64>>>,
    /// The state of the work at the first sample.
    before: Option<WorkState>,
    /// The state of the work at the last sample.
    after: WorkState,
}

impl Samples {
    /// Returns the unserved work between the first and the last sample. `queues` means that excess work waits in a
    /// queue.
    fn excess(&self, queues: bool) -> Unserved {
        if queues {
            return Unserved::Waits;
        }
        let before = self.before.unwrap_or_default();
        Unserved::Lost {
            units: self.after.unserved - before.unserved,
            arrived: self.after.arrived - before.arrived,
        }
    }
}

fn result(scenario: &Scenario, observer: &Recorder, all: Vec<Samples>) -> RunOutput {
    let mut left_out = 0;
    let hpa_run = |((hpa, target), mut samples): ((&HpaPlan, &usize), Samples)| {
        let mut track = observer.take(&hpa.key())?;
        left_out += track.left_out;
        for (series, values) in track.metrics.iter_mut().zip(samples.values.drain(..)) {
            series.values = values;
        }
        let queues = scenario.loads.get(*target).is_some_and(LoadPlan::queues);
        let reference = &hpa.spec.target;
        Some(HpaRun {
            namespace: hpa.namespace.clone(),
            name: hpa.name.clone(),
            target: format!("{}/{}", reference.kind, reference.name),
            unit: scenario.loads.get(*target).map(|plan| plan.unit.clone()).unwrap_or_default(),
            scores: scores(
                &samples.list,
                &track.metrics,
                &track.rescales,
                scenario.duration,
                samples.excess(queues),
            ),
            samples: samples.list,
            metrics: track.metrics,
            policies: track.policies.finish(scenario.duration),
            decisions: track.decisions,
            events: track.events,
        })
    };
    let hpas = scenario.hpas.iter().zip(&scenario.targets).zip(all).filter_map(hpa_run).collect();
    let run = Run {
        title: scenario.title.clone(),
        variant: scenario.variant.clone(),
        seed: scenario.seed,
        start: scenario.start,
        duration: scenario.duration,
        period: scenario.flags.options.sync_period,
        hpas,
        happenings: scenario.happenings.clone(),
    };
    RunOutput { run, left_out }
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
