//! The state of one load: its streams, the pods that serve them, and its metrics. Also the outages of the metrics APIs.

use std::time::Duration;

use super::model::{Load, Measure, Metric, Outage, OutageKind, Pipeline, Scraping, Shown, Work};
use super::pod_registry::{DelayedSamples, Group, Pod, PodActivity, Rate, Reading, Trace, Usage};
use super::stream::{ServingPods, Stream};
use crate::workload::model::Seed;
use crate::{Cluster, FaultAction, FaultId, FaultRule, MetricsApi};

/// Maximum waiting time in seconds, about 30 years.
const LONGEST_WAIT: f64 = 1e9;

/// A load and its state since the start of the run.
#[derive(Debug)]
pub(super) struct TrackedLoad {
    pub(super) load: Load,
    pub(super) streams: Vec<Stream>,
    pub(super) metrics: Vec<Series>,
    /// The indexes of the groups of pods with this load.
    pub(super) groups: Vec<usize>,
    all_serving: Vec<ServingPods>,
    /// The time up to which the streams are computed.
    computed_to: Duration,
    /// The step length of the streams.
    step: Duration,
    running: usize,
    ready: usize,
}

/// A metric and its samples. The samples of a metric of pods are stored in each pod instead.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) metric: Metric,
    work: usize,
    trace: Trace,
    pub(super) readings: DelayedSamples<Reading>,
}

/// The state of one load at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadState {
    /// The number of pods with a running container, ready or not.
    pub running: usize,
    /// The number of ready pods.
    pub ready: usize,
    /// The state of each work of the load.
    pub work: Vec<WorkState>,
}

/// The state of one stream of work at one instant. Each arrived unit is served, unserved, or waiting.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkState {
    /// Incoming units per second.
    pub demand: f64,
    /// Capacity of the ready pods in units per second.
    pub capacity: f64,
    /// The number of waiting units.
    pub waiting: f64,
    /// The number of units that arrived since the start of the run.
    pub arrived: f64,
    /// The number of units served since the start of the run.
    pub served: f64,
    /// The number of units lost since the start of the run.
    pub unserved: f64,
    /// Total time in which units were lost or had to wait.
    pub saturated: Duration,
}

impl TrackedLoad {
    pub(super) fn new(load: Load, now: Duration, step: Duration) -> Self {
        let series = |(index, work): (usize, &Work)| -> Vec<_> {
            let series = |metric: &Metric| Series {
                metric: metric.clone(),
                work: index,
                trace: Trace::starting_at(now),
                readings: DelayedSamples::default(),
            };
            work.metrics.iter().map(series).collect()
        };
        let serving = |work: &Work| ServingPods { capacity: capacity(&load, work), ..ServingPods::default() };
        Self {
            streams: vec![Stream::default(); load.work.len()],
            metrics: load.work.iter().enumerate().flat_map(series).collect(),
            all_serving: load.work.iter().map(serving).collect(),
            groups: Vec::new(),
            computed_to: now,
            step,
            running: 0,
            ready: 0,
            load,
        }
    }

    /// Advances the streams to `now`, with the current number of ready pods.
    pub(super) fn advance(&mut self, now: Duration) {
        for ((stream, work), serving) in self.streams.iter_mut().zip(&self.load.work).zip(&self.all_serving) {
            stream.flow(work, *serving, self.computed_to, now, self.step);
        }
        self.computed_to = now;
    }

    /// Updates the numbers of running and ready pods, which apply until the next update.
    pub(super) fn count_pods(&mut self, groups: &[Group]) {
        let pods = || {
            self.groups.iter().filter_map(|index| groups.get(*index)).flat_map(|group| group.pods.values())
        };
        let ready = || pods().filter(|pod| pod.activity == PodActivity::Working);
        self.running = pods().filter(|pod| pod.activity != PodActivity::Stopped).count();
        self.ready = ready().count();
        let bias = ready().map(|pod| pod.bias).sum::<f64>() / self.ready.max(1) as f64;
        for serving in &mut self.all_serving {
            (serving.ready, serving.bias) = (self.ready as f64, bias);
        }
    }

    /// Returns the state at `now` without changing it.
    pub(super) fn state(&self, now: Duration) -> LoadState {
        let work = self.streams.iter().zip(&self.load.work).zip(&self.all_serving).map(
            |((stream, work), serving)| {
                let mut stream = *stream;
                stream.flow(work, *serving, self.computed_to, now, self.step);
                WorkState {
                    demand: work.demand.at(now),
                    capacity: total_capacity(serving),
                    waiting: stream.waiting,
                    arrived: stream.arrived,
                    served: stream.served,
                    unserved: stream.unserved,
                    saturated: Duration::try_from_secs_f64(stream.saturated).unwrap_or(Duration::MAX),
                }
            },
        );
        LoadState { running: self.running, ready: self.ready, work: work.collect() }
    }

    /// Samples a pod's cpu and memory. The streams must be computed up to `now`.
    pub(super) fn sample_usage(&self, pod: &mut Pod, scraping: &Scraping, now: Duration) {
        let usage = (pod.activity != PodActivity::Stopped).then(|| {
            pod.settle(&self.load, &self.streams, now);
            let rate = pod.cpu.record(now, pod.cpu_used(&self.load), scraping.window_or_interval())?;
            let usage = Usage {
                at: now,
                window: rate.window,
                millicores: rate.per_second.min(self.load.cpu.limit.unwrap_or(f64::INFINITY)),
                bytes: self.bytes(pod, now),
            };
            is_in_sample(pod, scraping, now).then_some(usage)
        });
        pod.usage.push(now, scraping.delay, scraping.served_at(now), usage.flatten());
    }

    fn bytes(&self, pod: &Pod, now: Duration) -> f64 {
        let memory = self.load.memory;
        let own_memory = memory.base + memory.growth * now.saturating_sub(pod.started).as_secs_f64();
        if pod.activity != PodActivity::Working {
            return own_memory;
        }
        let work = self.load.work.iter().zip(&self.streams);
        own_memory + work.map(|(work, stream)| work.memory_per_unit * stream.rate).sum::<f64>()
    }

    /// Samples each metric of a pod. The streams must be computed up to `now`.
    pub(super) fn sample_metrics(&self, pod: &mut Pod, scraping: &Scraping, now: Duration) {
        if pod.activity != PodActivity::Stopped {
            pod.settle(&self.load, &self.streams, now);
        }
        let is_in_sample = is_in_sample(pod, scraping, now);
        for (index, series) in self.metrics.iter().enumerate() {
            if series.metric.shown != Shown::Pods {
                continue;
            }
            let counter = pod.counter(series.work, series.metric.measure);
            let Some((trace, readings)) = pod.metrics.get_mut(index) else { continue };
            let rate = trace.record(now, counter, scraping.window_or_interval());
            let serving = self.all_serving.get(series.work).copied().unwrap_or_default();
            let stream = self.streams.get(series.work).copied().unwrap_or_default();
            let waiting = if pod.activity == PodActivity::Working {
                stream.waiting / serving.ready.max(1.0)
            } else {
                0.0
            };
            let reading = reading(series.metric.measure, rate, waiting, serving.capacity, now);
            readings.push(now, scraping.delay, scraping.served_at(now), reading.filter(|_| is_in_sample));
        }
    }

    /// Samples the total of each metric of the API. The streams must be computed up to `now`.
    pub(super) fn sample_totals(&mut self, is_external: bool, scraping: &Scraping, now: Duration) {
        for series in &mut self.metrics {
            let belongs_to_api = match series.metric.shown {
                Shown::Pods => false,
                Shown::Object { .. } => !is_external,
                Shown::External { .. } => is_external,
            };
            let (Some(stream), Some(serving)) =
                (self.streams.get(series.work), self.all_serving.get(series.work))
            else {
                continue;
            };
            if belongs_to_api {
                let measure = series.metric.measure;
                let counter = if measure == Measure::Demand { stream.arrived } else { stream.served };
                let rate = series.trace.record(now, counter, scraping.window_or_interval());
                // Without ready pods, the capacity of one pod is used.
                let capacity = if serving.ready > 0.0 { total_capacity(serving) } else { serving.capacity };
                if let Some(reading) = reading(measure, rate, stream.waiting, capacity, now) {
                    series.readings.push(now, scraping.delay, scraping.served_at(now), reading);
                }
            }
        }
    }

    /// Returns whether a metric of the custom metrics API is sampled per pod.
    pub(super) fn has_pod_metrics(&self) -> bool {
        self.metrics.iter().any(|series| series.metric.shown == Shown::Pods)
    }
}

/// Returns the capacity of one pod in units per second. The cpu limit may lower the capacity of the work.
fn capacity(load: &Load, work: &Work) -> f64 {
    match load.cpu.limit {
        Some(limit) if work.cpu_per_unit > 0.0 => {
            work.capacity.min((limit - load.cpu.base).max(0.0) / work.cpu_per_unit)
        }
        _ => work.capacity,
    }
}

fn total_capacity(serving: &ServingPods) -> f64 {
    if serving.ready > 0.0 { serving.ready * serving.capacity } else { 0.0 }
}

fn is_in_sample(pod: &Pod, scraping: &Scraping, now: Duration) -> bool {
    pod.activity != PodActivity::Stopped && now.saturating_sub(pod.started) >= scraping.first_after
}

/// Computes the sample of a metric for one pod or for the total. `waiting` and `capacity` refer to the same pods.
fn reading(
    measure: Measure,
    rate: Option<Rate>,
    waiting: f64,
    capacity: f64,
    now: Duration,
) -> Option<Reading> {
    let instant = |value: f64| Some(Reading { at: now, window: Duration::ZERO, value });
    let mean = |value: f64| Some(Reading { at: now, window: rate?.window, value });
    match measure {
        Measure::Demand | Measure::Served => mean(rate?.per_second),
        Measure::Saturation => mean(rate?.per_second / capacity),
        Measure::Waiting => instant(waiting),
        // The waiting time is capped, because it is infinite without capacity.
        Measure::WaitingTime if waiting > 0.0 => instant((waiting / capacity).min(LONGEST_WAIT)),
        Measure::WaitingTime => instant(0.0),
    }
}

/// The fault rules of a pipeline's outages.
#[derive(Debug, Default)]
pub(super) struct OutageRules {
    /// One entry per outage. `None` while the outage is inactive, and if it needs no fault rule.
    rules: Vec<Option<FaultId>>,
}

impl OutageRules {
    /// Adds and removes the fault rules of outages that have started or ended.
    pub(super) fn update(&mut self, pipeline: &Pipeline, cluster: &Cluster, now: Duration) {
        self.rules.resize(pipeline.outages.len(), None);
        for (rule, outage) in self.rules.iter_mut().zip(&pipeline.outages) {
            match (action(outage).filter(|_| outage.during.contains(now)), *rule) {
                (Some(action), None) => {
                    let prefix = format!("/apis/{}/", outage.api.group());
                    *rule = Some(cluster.faults().add(FaultRule::new(action).path_prefix(&prefix)));
                }
                (None, Some(id)) => {
                    cluster.faults().remove(id);
                    *rule = None;
                }
                _ => {}
            }
        }
    }

    /// Returns the next time at which a fault rule is added or removed.
    pub(super) fn due(pipeline: &Pipeline, now: Duration) -> Option<Duration> {
        let failing = pipeline.outages.iter().filter(|outage| action(outage).is_some());
        let edges = failing.flat_map(|outage| [Some(outage.during.from), outage.during.until]);
        edges.flatten().filter(|edge| *edge > now).min()
    }
}

fn action(outage: &Outage) -> Option<FaultAction> {
    match &outage.kind {
        OutageKind::Error { code, message } => Some(FaultAction::Text { code: *code, body: message.clone() }),
        OutageKind::Timeout => Some(FaultAction::Silence),
        OutageKind::Empty | OutageKind::Missing { .. } | OutageKind::Stale => None,
    }
}

/// The data that one API lacks at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) api: MetricsApi,
    pub(super) now: Duration,
}

impl Gaps<'_> {
    /// Returns whether sampling is suspended.
    pub(super) fn are_stale(&self) -> bool {
        self.outages().any(|(_, kind)| *kind == OutageKind::Stale)
    }

    /// Returns whether the sample of the named pod, object or series is missing.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.outages().any(|(index, kind)| match kind {
            OutageKind::Empty => true,
            OutageKind::Missing { fraction } => Seed::new(index).for_name(name).share() < *fraction,
            _ => false,
        })
    }

    fn outages(&self) -> impl Iterator<Item = (u64, &OutageKind)> {
        let applies = |outage: &Outage| outage.api == self.api && outage.during.contains(self.now);
        let all = (0..).zip(&self.pipeline.outages);
        all.filter(move |(_, outage)| applies(outage)).map(|(index, outage)| (index, &outage.kind))
    }
}
