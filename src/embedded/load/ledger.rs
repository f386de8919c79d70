//! One load with what has become of it: its streams, the pods that take them, and the metrics that show them.

use std::time::Duration;

use super::model::{Load, Measure, Metric, Shown, Work};
use super::pipeline::Scraping;
use super::roster::{Doing, Group, Pod, Reading, Usage};
use super::sample::{Delayed, Rate, Trace};
use super::stream::{Crew, Stream};

/// Seconds that a waiting time shows at most: 30 years.
const LONGEST_WAIT: f64 = 1e9;

/// A load from the beginning of the run.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) load: Load,
    pub(super) streams: Vec<Stream>,
    pub(super) metrics: Vec<Series>,
    /// The places of its groups.
    pub(super) groups: Vec<usize>,
    crews: Vec<Crew>,
    /// Up to when the streams are computed, and in what steps.
    computed_to: Duration,
    step: Duration,
    running: usize,
    ready: usize,
}

/// A metric, and its samples unless each pod has its own.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) metric: Metric,
    work: usize,
    trace: Trace,
    pub(super) readings: Delayed<Reading>,
}

/// One load at one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadState {
    /// Pods whose container runs, ready or not.
    pub running: usize,
    /// Pods that are ready.
    pub ready: usize,
    /// Each work of the load.
    pub work: Vec<WorkState>,
}

/// One stream of work at one instant. What has arrived is served, unserved, or waits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkState {
    /// Units per second that come in.
    pub demand: f64,
    /// Units per second that the ready pods can do.
    pub capacity: f64,
    /// Units that wait.
    pub waiting: f64,
    /// Units that have come in since the beginning of the run.
    pub arrived: f64,
    /// Units that have been done since then.
    pub served: f64,
    /// Units that were lost since then.
    pub unserved: f64,
    /// How long there was more to do than could be done.
    pub saturated: Duration,
}

impl Ledger {
    pub(super) fn new(load: Load, now: Duration, step: Duration) -> Self {
        let series = |(place, work): (usize, &Work)| -> Vec<_> {
            let series = |metric: &Metric| Series {
                metric: metric.clone(),
                work: place,
                trace: Trace::beginning(now),
                readings: Delayed::default(),
            };
            work.metrics.iter().map(series).collect()
        };
        let crew = |work: &Work| Crew { capacity: capacity(&load, work), ..Crew::default() };
        Self {
            streams: vec![Stream::default(); load.work.len()],
            metrics: load.work.iter().enumerate().flat_map(series).collect(),
            crews: load.work.iter().map(crew).collect(),
            groups: Vec::new(),
            computed_to: now,
            step,
            running: 0,
            ready: 0,
            load,
        }
    }

    /// Lets the streams flow up to now.
    pub(super) fn advance(&mut self, now: Duration) {
        for ((stream, work), crew) in self.streams.iter_mut().zip(&self.load.work).zip(&self.crews) {
            stream.flow(work, *crew, self.computed_to, now, self.step);
        }
        self.computed_to = now;
    }

    /// Counts the pods that take the work from now on.
    pub(super) fn muster(&mut self, groups: &[Group]) {
        let pods = || {
            self.groups.iter().filter_map(|place| groups.get(*place)).flat_map(|group| group.pods.values())
        };
        let ready = || pods().filter(|pod| pod.doing == Doing::Working);
        self.running = pods().filter(|pod| pod.doing != Doing::Nothing).count();
        self.ready = ready().count();
        let bias = ready().map(|pod| pod.bias).sum::<f64>() / self.ready.max(1) as f64;
        for crew in &mut self.crews {
            (crew.ready, crew.bias) = (self.ready as f64, bias);
        }
    }

    /// The load as it is at `now`, without being changed by the question.
    pub(super) fn state(&self, now: Duration) -> LoadState {
        let work = self.streams.iter().zip(&self.load.work).zip(&self.crews).map(|((stream, work), crew)| {
            let mut stream = *stream;
            stream.flow(work, *crew, self.computed_to, now, self.step);
            WorkState {
                demand: work.demand.at(now),
                capacity: total_capacity(crew),
                waiting: stream.waiting,
                arrived: stream.arrived,
                served: stream.served,
                unserved: stream.unserved,
                saturated: Duration::try_from_secs_f64(stream.saturated).unwrap_or(Duration::MAX),
            }
        });
        LoadState { running: self.running, ready: self.ready, work: work.collect() }
    }

    /// Takes a sample of a pod's cpu and memory. The streams are computed up to now.
    pub(super) fn sample_usage(&self, pod: &mut Pod, scraping: &Scraping, now: Duration) {
        let usage = (pod.doing != Doing::Nothing).then(|| {
            pod.settle(&self.load, &self.streams, now);
            let rate = pod.cpu.take(now, pod.cpu_used(&self.load), scraping.window_or_interval())?;
            let usage = Usage {
                at: now,
                window: rate.window,
                millicores: rate.per_second.min(self.load.cpu.limit.unwrap_or(f64::INFINITY)),
                bytes: self.bytes(pod, now),
            };
            is_in_sample(pod, scraping, now).then_some(usage)
        });
        pod.usage.push(now, scraping.delay, usage.flatten());
    }

    fn bytes(&self, pod: &Pod, now: Duration) -> f64 {
        let memory = self.load.memory;
        let own = memory.base + memory.growth * now.saturating_sub(pod.started).as_secs_f64();
        if pod.doing != Doing::Working {
            return own;
        }
        let work = self.load.work.iter().zip(&self.streams);
        own + work.map(|(work, stream)| work.memory_per_unit * stream.rate).sum::<f64>()
    }

    /// Takes a sample of each metric that a pod has. The streams are computed up to now.
    pub(super) fn sample_metrics(&self, pod: &mut Pod, scraping: &Scraping, now: Duration) {
        if pod.doing != Doing::Nothing {
            pod.settle(&self.load, &self.streams, now);
        }
        let is_in_sample = is_in_sample(pod, scraping, now);
        for (place, series) in self.metrics.iter().enumerate() {
            if series.metric.shown != Shown::Pods {
                continue;
            }
            let counter = pod.counter(series.work, series.metric.measure);
            let Some((trace, readings)) = pod.metrics.get_mut(place) else { continue };
            let rate = trace.take(now, counter, scraping.window_or_interval());
            let crew = self.crews.get(series.work).copied().unwrap_or_default();
            let stream = self.streams.get(series.work).copied().unwrap_or_default();
            let waiting =
                if pod.doing == Doing::Working { stream.waiting / crew.ready.max(1.0) } else { 0.0 };
            let reading = reading(series.metric.measure, rate, waiting, crew.capacity, now);
            readings.push(now, scraping.delay, reading.filter(|_| is_in_sample));
        }
    }

    /// Takes a sample of each metric in all that the API shows. The streams are computed up to now.
    pub(super) fn sample_totals(&mut self, is_external: bool, scraping: &Scraping, now: Duration) {
        for series in &mut self.metrics {
            let is_of_api = match series.metric.shown {
                Shown::Pods => false,
                Shown::Object { .. } => !is_external,
                Shown::External { .. } => is_external,
            };
            let (Some(stream), Some(crew)) = (self.streams.get(series.work), self.crews.get(series.work))
            else {
                continue;
            };
            if is_of_api {
                let measure = series.metric.measure;
                let counter = if measure == Measure::Demand { stream.arrived } else { stream.served };
                let rate = series.trace.take(now, counter, scraping.window_or_interval());
                // Without pods a queue is as long as one pod would find it.
                let capacity = if crew.ready > 0.0 { total_capacity(crew) } else { crew.capacity };
                if let Some(reading) = reading(measure, rate, stream.waiting, capacity, now) {
                    series.readings.push(now, scraping.delay, reading);
                }
            }
        }
    }

    /// Whether a metric of the custom metrics API is sampled pod by pod.
    pub(super) fn has_pod_metrics(&self) -> bool {
        self.metrics.iter().any(|series| series.metric.shown == Shown::Pods)
    }
}

/// Units per second that one pod can do: its own limit, or what its cpu allows.
fn capacity(load: &Load, work: &Work) -> f64 {
    match load.cpu.limit {
        Some(limit) if work.cpu_per_unit > 0.0 => {
            work.capacity.min((limit - load.cpu.base).max(0.0) / work.cpu_per_unit)
        }
        _ => work.capacity,
    }
}

fn total_capacity(crew: &Crew) -> f64 {
    if crew.ready > 0.0 { crew.ready * crew.capacity } else { 0.0 }
}

fn is_in_sample(pod: &Pod, scraping: &Scraping, now: Duration) -> bool {
    pod.doing != Doing::Nothing && now.saturating_sub(pod.started) >= scraping.first_after
}

/// What a metric reads, of a pod or in all.
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
        // For ever, if nothing is ever done: a long time will do.
        Measure::WaitingTime if waiting > 0.0 => instant((waiting / capacity).min(LONGEST_WAIT)),
        Measure::WaitingTime => instant(0.0),
    }
}
