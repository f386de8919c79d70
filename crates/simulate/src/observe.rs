//! Records the controller's decisions, the effects of scaling policies and the state of workloads during a simulation.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::WriteOutcome;
use autoscaling::event::{EventIntent, EventKind};
use autoscaling::explanation::{
    DecisionPath, Explanation, LimitingStep, Measure, MetricExplanation, MetricReading, ProposalReason,
};
use autoscaling::settings::Settings;
use autoscaling::spec::{MetricSource, ResourceTarget, Spec, ValueTarget};
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::bounds::sync_period;
use policies::sentence::Decided;
use policies::steps::{PolicyEffect, Step, StepReason};

use super::run::{DecisionPoint, EventMark, ForecastSample, MetricSeries, PolicySpan, Sample};
use super::scoring::{KeptSamples, Scoring};
use engine::reconcile::{ConcludedSync, Observer};
use engine::store::Key;
use fake_cluster::load::{LoadId, LoadMetrics, WorkState};
use fake_cluster::workload::Workloads;

/// The maximum number of pods that a recorded explanation lists for each group other than `Ready`.
const LISTED_PODS: usize = 5;
/// The maximum number of decisions for all HPAs together. Each HPA has an equal share. Beyond its share, only decisions
/// that require a scale write are recorded, and beyond twice its share, none.
const KEPT_DECISIONS: usize = 40_000;
/// The maximum number of samples for all HPAs together. Each HPA has an equal share, within [`SHARES`].
const KEPT_SAMPLES: usize = 400_000;
/// The smallest and the largest share of one HPA in [`KEPT_SAMPLES`]. A day with the default period has 5,760 syncs.
const SHARES: (usize, usize) = (6_000, 20_000);

/// An observer that records the decisions about all HPAs of one run.
#[derive(Debug)]
pub(super) struct Recorder {
    start: Timestamp,
    /// The sync period of the controller.
    period: Duration,
    /// The share of one HPA in [`KEPT_DECISIONS`].
    keep: usize,
    meter: Meter,
    tracks: Mutex<BTreeMap<Key, Track>>,
}

/// Measures the state of workloads.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) workloads: Arc<Workloads>,
    pub(super) load: Arc<LoadMetrics>,
    /// The target of each HPA.
    pub(super) targets: BTreeMap<Key, MeteredTarget>,
}

/// A workload and its load.
#[derive(Debug)]
pub(super) struct MeteredTarget {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) load: Option<LoadId>,
}

/// The record of one HPA.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// The shortest sync period so far. `None` before the first sync.
    pub(super) period: Option<Duration>,
    pub(super) samples: KeptSamples,
    pub(super) scoring: Scoring,
    /// The metrics of the spec, in order. Their values are with the samples.
    pub(super) metrics: Vec<MetricSeries>,
    pub(super) policies: PolicySpans,
    pub(super) decisions: Vec<DecisionPoint>,
    pub(super) events: Vec<EventMark>,
    /// Each write of the replica count: time, previous count, new count.
    pub(super) rescales: Vec<(Duration, i32, i32)>,
    /// The number of decisions that were dropped beyond [`Recorder::keep`].
    pub(super) left_out: usize,
    /// The steps of the last decision. A decision with the same steps and no scale write is not recorded.
    shape: Option<DecisionSteps>,
    /// The events of the last sync, as reason and text.
    last_events: Vec<(&'static str, String)>,
}

/// The steps that a decision took, without their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DecisionSteps {
    course: DecisionPath,
    direction: Option<Ordering>,
    winner: Option<usize>,
    limiting: Option<LimitingStep>,
    metrics: Vec<Result<ProposalReason, Arc<str>>>,
    policy: Vec<StepReason>,
}

impl Recorder {
    pub(super) fn new<'a>(
        start: Timestamp,
        period: Duration,
        settings: &Settings,
        meter: Meter,
        hpas: impl ExactSizeIterator<Item = (Key, &'a Spec)>,
    ) -> Self {
        let keep = KEPT_DECISIONS / hpas.len().max(1);
        let samples = (KEPT_SAMPLES / hpas.len().max(1)).clamp(SHARES.0, SHARES.1);
        let tracks = hpas.map(|(key, spec)| {
            let track = Track::new(spec, &key.namespace, settings, samples);
            (key, track)
        });
        let tracks = tracks.collect();
        Self { start, period, keep, meter, tracks: Mutex::new(tracks) }
    }

    /// Removes and returns the record of an HPA.
    pub(super) fn take(&self, key: &Key) -> Option<Track> {
        self.tracks.lock().remove(key)
    }
}

impl Meter {
    /// Adds the state of an HPA's target to a sample. The server has applied the write of the sync before its response
    /// arrives, so the state includes the effect of the write.
    fn measure(&self, key: &Key, sample: Sample) -> Sample {
        let Some(target) = self.targets.get(key) else { return sample };
        let counts = self.workloads.counts(&target.namespace, &target.name).unwrap_or_default();
        let [wanted, running, ready] =
            [counts.wanted, counts.active, counts.ready].map(|pods| i32::try_from(pods).unwrap_or(i32::MAX));
        let state = target.load.and_then(|load| self.load.state(load));
        let work = state.and_then(|state| state.work.first().copied()).unwrap_or_default();
        let WorkState { demand, capacity, waiting: queued, .. } = work;
        Sample { wanted, running, ready, demand, capacity, queued, ..sample }
    }
}

impl Observer for Recorder {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let mut tracks = self.tracks.lock();
        let Some(track) = tracks.get_mut(&sync.hpa.key) else { return };
        let at = Duration::try_from(sync.at.duration_since(self.start)).unwrap_or_default();
        let explanation = &sync.conclusion.explanation;
        let sample = Sample { at, ..steps_of(explanation, sync.policy) };
        let period = sync.rules.and_then(|rules| sync_period(&rules.policy.spec)).unwrap_or(self.period);
        track.period = Some(track.period.map_or(period, |shortest| shortest.min(period)));
        track.note_sample(self.meter.measure(&sync.hpa.key, sample), explanation);
        track.policies.note(at, sync.policy);
        let decided = Decided::new(explanation, sync.policy);
        let applied = decided.count();
        let has_written = *sync.outcome == WriteOutcome::Done;
        if has_written && let Some(desired) = applied {
            track.rescales.push((at, explanation.current, desired));
        }
        let changes = *sync.outcome != WriteOutcome::NotNeeded;
        let shape = DecisionSteps::new(explanation, sync.policy);
        if changes || track.shape.as_ref() != Some(&shape) {
            let most = if changes { self.keep * 2 } else { self.keep };
            if track.decisions.len() < most {
                track.decisions.push(DecisionPoint {
                    at,
                    sentence: decided.sentence(sync.at),
                    explanation: Arc::new(explanation.condensed(LISTED_PODS)),
                    policy: sync.policy.cloned().map(Arc::new),
                });
            } else {
                track.left_out += 1;
            }
        }
        track.shape = Some(shape);
        track.note_events(at, sync.conclusion.events.iter().chain(&sync.conclusion.last_event));
    }
}

impl Track {
    fn new(spec: &Spec, namespace: &str, settings: &Settings, samples: usize) -> Self {
        Self {
            period: None,
            samples: KeptSamples::new(samples),
            scoring: Scoring::default(),
            metrics: spec.metrics.iter().map(|metric| series(metric, namespace, settings)).collect(),
            policies: PolicySpans::default(),
            decisions: Vec::new(),
            events: Vec::new(),
            rescales: Vec::new(),
            left_out: 0,
            shape: None,
            last_events: Vec::new(),
        }
    }

    /// Records a sample, and the values and the targets of the metrics.
    fn note_sample(&mut self, sample: Sample, explanation: &Explanation) {
        let mut values = Vec::with_capacity(self.metrics.len());
        for (index, series) in self.metrics.iter_mut().enumerate() {
            let reading = explanation.metrics.get(index).and_then(MetricExplanation::reading);
            if let Some(reading) = reading {
                set_target(series, reading);
            }
            values.push(reading.map(|reading| in_unit(reading.value)));
        }
        self.scoring.add(&sample, &values.iter().copied().zip(&self.metrics).collect::<Vec<_>>());
        self.samples.add(sample, values);
    }

    /// Records the events that are new in this sync. The controller repeats an event in every sync while its cause
    /// lasts.
    fn note_events<'a>(&mut self, at: Duration, events: impl Iterator<Item = &'a EventIntent>) {
        let mut current = Vec::new();
        for event in events {
            let is_new = !self
                .last_events
                .iter()
                .any(|(reason, text)| *reason == event.reason && *text == event.message);
            current.push((event.reason, event.message.clone()));
            if is_new {
                self.events.push(EventMark {
                    at,
                    reason: event.reason.to_owned(),
                    warning: event.kind == EventKind::Warning,
                    message: event.message.clone(),
                });
            }
        }
        self.last_events = current;
    }
}

/// Returns a sample with the bounds and steps of a decision. The other fields have their defaults.
pub(super) fn steps_of(explanation: &Explanation, policy: Option<&PolicyEffect>) -> Sample {
    let forecast = policy.and_then(|policy| policy.forecast.as_deref());
    // The count with the floor of a forecast, before guards and mode.
    let unguarded = policy.and_then(|policy| {
        let raised = policy.steps.iter().find_map(|step| match step {
            Step::Forecast(step) => step.to,
            _ => None,
        });
        raised.or(policy.recommended)
    });
    Sample {
        min: explanation.min,
        max: explanation.max,
        proposal: explanation.proposal,
        stabilized: explanation.stabilization.as_ref().map(|step| step.after),
        rate_allows: explanation.limit.as_ref().and_then(|step| step.rate_allows),
        withheld: unguarded.filter(|_| policy.is_some_and(|policy| policy.applied != unguarded)),
        forecast: forecast.map(|forecast| ForecastSample {
            applies: forecast.applies,
            floor: forecast.floor.map(|floor| floor.min(explanation.max)),
            band: forecast.band.map(|band| (band.usual, band.upper)),
        }),
        ..Sample::default()
    }
}

impl DecisionSteps {
    fn new(explanation: &Explanation, policy: Option<&PolicyEffect>) -> Self {
        let step = |metric: &MetricExplanation| match metric {
            MetricExplanation::Valid(reading) => Ok(reading.why),
            MetricExplanation::Failed(failed) => Err(Arc::clone(&failed.error)),
        };
        Self {
            course: explanation.path,
            direction: Decided::new(explanation, policy).count().map(|count| count.cmp(&explanation.current)),
            winner: explanation.winner,
            limiting: explanation.limiting_step(),
            metrics: explanation.metrics.iter().map(step).collect(),
            policy: policy.map_or_else(Vec::new, |policy| policy.steps.iter().map(Step::reason).collect()),
        }
    }
}

/// Returns the series of a metric, without values.
pub(super) fn series(metric: &MetricSource, namespace: &str, settings: &Settings) -> MetricSeries {
    let (target, unit) = match metric {
        MetricSource::Resource { resource, target }
        | MetricSource::ContainerResource { resource, target, .. } => match (target, &**resource) {
            (ResourceTarget::Utilization(percent), _) => (f64::from(*percent), "%"),
            (ResourceTarget::AverageValue(amount), "cpu") => (amount.as_f64(), "cores"),
            (ResourceTarget::AverageValue(amount), "memory") => (amount.as_f64(), "bytes"),
            (ResourceTarget::AverageValue(amount), _) => (amount.as_f64(), ""),
        },
        MetricSource::Pods { average, .. } => (average.as_f64(), ""),
        MetricSource::Object { target, .. } | MetricSource::External { target, .. } => match target {
            ValueTarget::Value(amount) | ValueTarget::AverageValue(amount) => (amount.as_f64(), ""),
        },
        MetricSource::Invalid(_) => (0.0, ""),
    };
    let tolerance = settings.tolerance;
    MetricSeries {
        subject: metric.subject(namespace),
        unit,
        target,
        tolerated_from: target * (1.0 - tolerance),
        tolerated_to: target * (1.0 + tolerance),
        values: Vec::new(),
    }
}

/// Sets the target and the tolerance of a series to those of a reading.
pub(super) fn set_target(series: &mut MetricSeries, reading: &MetricReading) {
    series.target = in_unit(reading.target);
    series.tolerated_from = series.target * reading.lowest_tolerated;
    series.tolerated_to = series.target * reading.highest_tolerated;
}

/// Converts a measured amount to the unit of its series.
pub(super) fn in_unit(measure: Measure) -> f64 {
    match measure {
        Measure::Percent(percent) => f64::from(percent),
        Measure::Milli(amount) | Measure::MilliPerPod(amount) => amount as f64 / 1_000.0,
    }
}

/// The periods in which a scaling policy has an effect on one HPA. A period lasts from the first sync with an effect to
/// the first sync without it.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicySpans {
    open: Vec<PolicySpan>,
    done: Vec<PolicySpan>,
}

impl PolicySpans {
    /// Adds the effect of the policy in the sync at time `at`. `None` means that the HPA has no policy.
    pub(super) fn note(&mut self, at: Duration, effect: Option<&PolicyEffect>) {
        let steps = effect.map_or(&[][..], |effect| &effect.steps);
        let now: Vec<PolicySpan> = steps.iter().map(|step| span(at, step)).collect();
        let continues =
            |open: &PolicySpan, now: &PolicySpan| open.reason == now.reason && open.bound == now.bound;
        let (open, ended) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| now.iter().any(|now| continues(open, now)));
        self.open = open;
        self.close(ended, at);
        for span in now {
            if !self.open.iter().any(|open| continues(open, &span)) {
                self.open.push(span);
            }
        }
    }

    /// Returns the periods by start. A period that is still open gets the end `end`.
    pub(super) fn finish(mut self, end: Duration) -> Vec<PolicySpan> {
        let open = std::mem::take(&mut self.open);
        self.close(open, end);
        self.done.sort_by_key(|span| (span.from, span.reason));
        self.done
    }

    fn close(&mut self, ended: Vec<PolicySpan>, at: Duration) {
        self.done.extend(ended.into_iter().map(|span| PolicySpan { to: at, ..span }));
    }
}

fn span(at: Duration, step: &Step) -> PolicySpan {
    let bound = match step {
        Step::Schedule(schedule) => Some((schedule.from, schedule.to)),
        _ => None,
    };
    PolicySpan { from: at, to: at, reason: step.reason(), what: step.to_string(), bound }
}
