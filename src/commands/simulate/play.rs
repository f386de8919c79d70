//! One variant of a scenario, played to its end: an embedded cluster, its workloads, load and metrics, and the whole
//! controller, in virtual time and one thread.
//!
//! Before the start there is a prelude: pods run, metrics are sampled, so that the first sync finds the world as it is in a
//! cluster that has been there for long. The HPAs are created at the start; each is synced at once and then once per
//! period. Samples are taken a moment behind the syncs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::observe::Recorder;
use super::run::{HpaRun, Run, Sample};
use super::scenario::{HpaPlan, LoadPlan, Problem, Scenario};
use super::scores::{Unserved, scores};
use crate::api::client::{ClientError, ClientOptions, Clients};
use crate::app::{Assembly, Parts, Phase, client_options};
use crate::cli::Config;
use crate::clock::{SharedClock, VirtualClock};
use crate::embedded::load::{Excess, Load, LoadId, LoadMetrics, Outage, Pipeline, Scraping, WorkState};
use crate::embedded::workload::{Failure, Span, WorkloadModel, Workloads};
use crate::embedded::{Cluster, Status};
use crate::store::Key;
use crate::telemetry::metrics::Metrics as Telemetry;

/// How long behind the instant of a sync a sample is taken: what follows from the sync at once has happened by then.
const MOMENT: Duration = Duration::from_millis(1);

/// Why a scenario cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// There is no runtime to be had.
    #[error("no runtime for the simulation: {0}")]
    Runtime(#[from] std::io::Error),
    /// The embedded cluster refuses an object.
    #[error("{0}")]
    Refused(#[from] Problem),
    /// The embedded cluster refuses what it took before.
    #[error("the embedded cluster refuses an object: {0}")]
    Object(#[from] Status),
    /// The clients cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Told how far a run is.
pub(super) trait Progress: Send + Sync {
    /// So much of so much was played.
    fn played(&self, elapsed: Duration, duration: Duration);
}

/// A run, and how many decisions that changed nothing were left out of it for want of room.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) run: Run,
    pub(super) left_out: usize,
}

/// Plays a scenario in a runtime of its own.
pub(super) fn play(scenario: &Scenario, progress: &dyn Progress) -> Result<Played, PlayError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(run(scenario, progress))
}

async fn run(scenario: &Scenario, progress: &dyn Progress) -> Result<Played, PlayError> {
    let stop = CancellationToken::new();
    let _stopping = stop.clone().drop_guard();
    let stage = Stage::set(scenario, &stop)?;
    let observer = Arc::new(Recorder::new(
        scenario.start,
        &scenario.config.settings,
        scenario.hpas.iter().map(|hpa| (key(hpa), &*hpa.spec)),
    ));
    stage.start_controller(scenario, &observer, &stop).await?;
    sleep_until(stage.origin).await;
    for hpa in &scenario.hpas {
        stage.cluster.create(hpa.manifest.clone())?;
    }
    let samples = stage.samples(scenario, &observer, progress).await;
    Ok(result(scenario, &observer, samples))
}

/// The cluster and those who act in it.
struct Stage {
    cluster: Cluster,
    clock: SharedClock,
    workloads: Arc<Workloads>,
    load: Arc<LoadMetrics>,
    /// One for each workload.
    loads: Vec<LoadId>,
    /// The start of the scenario.
    origin: Instant,
}

impl Stage {
    /// A cluster with its workloads at work, as long before the start as the metrics need.
    fn set(scenario: &Scenario, stop: &CancellationToken) -> Result<Self, PlayError> {
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
            workloads.set_model(&workload.namespace, &workload.name, later(&workload.model, prelude));
        }
        workloads.warm_up();
        let load =
            Arc::new(LoadMetrics::new(Arc::clone(&clock), later_pipeline(&scenario.pipeline, prelude)));
        let plans = scenario.loads.iter().zip(&scenario.workloads);
        let loads =
            plans.map(|(plan, workload)| load.add(later_load(plan, workload.replicas, prelude))).collect();
        cluster.set_metrics(load.clone());
        let (playing, token) = (Arc::clone(&workloads), stop.clone());
        tokio::spawn(async move { playing.run(token).await });
        let (playing, server, token) = (Arc::clone(&load), cluster.clone(), stop.clone());
        tokio::spawn(async move { playing.run(server, token).await });
        for (at, place) in &scenario.rollouts {
            let Some(workload) = scenario.workloads.get(*place) else { continue };
            let (playing, at) = (Arc::clone(&workloads), origin + *at);
            let (resource, namespace, name) =
                (workload.kind.resource(), workload.namespace.clone(), workload.name.clone());
            tokio::spawn(async move {
                sleep_until(at).await;
                // Nobody deletes the workload meanwhile, so that there is nothing to refuse.
                let _ = playing.restart(resource, &namespace, &name);
            });
        }
        Ok(Self { cluster, clock, workloads, load, loads, origin })
    }

    /// A controller that sees no HPA yet.
    async fn start_controller(
        &self,
        scenario: &Scenario,
        observer: &Arc<Recorder>,
        stop: &CancellationToken,
    ) -> Result<(), PlayError> {
        let telemetry = Telemetry::new();
        // The observer keeps what the record would keep a second time.
        let config = Config { decisions_per_hpa: 0, ..scenario.config.clone() };
        let clients = clients(&self.cluster, &client_options(&config, &telemetry))?;
        let parts = Parts {
            clients: &clients,
            config: &config,
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

    /// A sample of each HPA at each period, from the start to the end.
    async fn samples(
        &self,
        scenario: &Scenario,
        observer: &Recorder,
        progress: &dyn Progress,
    ) -> Vec<Samples> {
        let begin = |hpa: &HpaPlan| Samples {
            values: vec![Vec::new(); hpa.spec.metrics.len()],
            ..Samples::default()
        };
        let mut all: Vec<_> = scenario.hpas.iter().map(begin).collect();
        let mut at = Duration::ZERO;
        while at <= scenario.duration {
            sleep_until(self.origin + at + MOMENT).await;
            for ((hpa, target), samples) in scenario.hpas.iter().zip(&scenario.targets).zip(&mut all) {
                let latest = observer.latest(&key(hpa));
                let Some(workload) = scenario.workloads.get(*target) else { continue };
                let counts = self.workloads.counts(&workload.namespace, &workload.name).unwrap_or_default();
                let [wanted, running, ready] = [counts.wanted, counts.active, counts.ready].map(count);
                let sample = latest.sample(at, wanted, running, ready);
                let work = self.work(*target).unwrap_or_default();
                let (demand, capacity, queued) = (work.demand, work.capacity, work.waiting);
                samples.list.push(Sample { demand, capacity, queued, ..sample });
                for (values, value) in samples.values.iter_mut().zip(&latest.values) {
                    values.push(*value);
                }
                samples.before.get_or_insert(work);
                samples.after = work;
            }
            progress.played(at, scenario.duration);
            at += scenario.config.sync_period;
        }
        all
    }

    /// The first work of a workload, as it is now.
    fn work(&self, workload: usize) -> Option<WorkState> {
        self.load.state(*self.loads.get(workload)?)?.work.first().copied()
    }
}

/// The samples of one HPA, and at each the values of its metrics.
#[derive(Debug, Default)]
struct Samples {
    list: Vec<Sample>,
    /// Of each metric of the spec.
    values: Vec<Vec<Option<f64>>>,
    /// The work at the first sample and at the last.
    before: Option<WorkState>,
    after: WorkState,
}

impl Samples {
    /// What became of the work between the first sample and the last.
    fn excess(&self, queues: bool) -> Unserved {
        let before = self.before.unwrap_or_default();
        if queues {
            return Unserved::Waits;
        }
        Unserved::Lost {
            units: self.after.unserved - before.unserved,
            of: self.after.arrived - before.arrived,
        }
    }
}

fn result(scenario: &Scenario, observer: &Recorder, all: Vec<Samples>) -> Played {
    let mut left_out = 0;
    let hpa_run = |((hpa, target), mut samples): ((&_, &usize), Samples)| {
        let mut track = observer.take(&key(hpa))?;
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
        period: scenario.config.sync_period,
        hpas,
        happenings: scenario.happenings.clone(),
    };
    Played { run, left_out }
}

fn key(hpa: &HpaPlan) -> Key {
    Key::new(hpa.namespace.as_str(), hpa.name.as_str())
}

/// A count of pods; one that is too large is the largest.
fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

/// Clients whose every connection is a pipe to the cluster, with real HTTP on it.
pub(super) fn clients(cluster: &Cluster, options: &ClientOptions) -> Result<Clients, ClientError> {
    Clients::over(cluster.connector(), options)
}

/// How long the world runs before the start: each API has shown samples of whole windows by then.
fn prelude(scenario: &Scenario) -> Duration {
    let pipeline = &scenario.pipeline;
    let needed = [pipeline.resource, pipeline.custom, pipeline.external]
        .map(|scraping| scraping.window + scraping.interval * 2 + scraping.delay + scraping.first_after);
    let longest = needed.into_iter().max().unwrap_or_default();
    longest + Duration::from_mins(1)
}

/// A model whose failures are counted from the start instead of from the beginning of the prelude.
fn later(model: &WorkloadModel, prelude: Duration) -> WorkloadModel {
    let failure = |failure: &Failure| match failure.clone() {
        Failure::CrashLoop { during, fraction, runs_for } => {
            Failure::CrashLoop { during: later_span(&during, prelude), fraction, runs_for }
        }
        Failure::NeverReady { created, fraction } => {
            Failure::NeverReady { created: later_span(&created, prelude), fraction }
        }
        Failure::Unready { during, fraction } => {
            Failure::Unready { during: later_span(&during, prelude), fraction }
        }
        Failure::SlowPull { created, pull } => {
            Failure::SlowPull { created: later_span(&created, prelude), pull }
        }
    };
    WorkloadModel { failures: model.failures.iter().map(failure).collect(), ..model.clone() }
}

/// What is so from the start on has been so before, so that the warm start shows it.
fn later_span(span: &Span, prelude: Duration) -> Span {
    Span {
        from: if span.from.is_zero() { span.from } else { span.from + prelude },
        until: span.until.map(|until| until + prelude),
    }
}

/// Outages counted from the start, and scrapes half an interval away from it: syncs find samples of a middling age.
fn later_pipeline(pipeline: &Pipeline, prelude: Duration) -> Pipeline {
    let scraping = |scraping: &Scraping| {
        let interval = scraping.interval.as_nanos().max(1);
        let phase = (prelude + scraping.interval / 2).as_nanos() % interval;
        Scraping { phase: Duration::from_nanos_u128(phase), ..*scraping }
    };
    let outage = |outage: &Outage| Outage { during: later_span(&outage.during, prelude), ..outage.clone() };
    Pipeline {
        resource: scraping(&pipeline.resource),
        custom: scraping(&pipeline.custom),
        external: scraping(&pipeline.external),
        outages: pipeline.outages.iter().map(outage).collect(),
    }
}

/// Curves that begin at the start. Before it, there is what they begin with; of a queue, no more than the pods can do, so
/// that it is empty at the start.
fn later_load(plan: &LoadPlan, replicas: u32, prelude: Duration) -> Load {
    let mut load = plan.load.clone();
    for work in &mut load.work {
        let first = work.demand.at(Duration::ZERO);
        let before = match work.excess {
            Excess::Lost => first,
            Excess::Waits => first.min(work.capacity * f64::from(replicas)),
        };
        work.demand = work.demand.clone().after(prelude, before);
    }
    load
}
