//! The JSON of a comparison. The field names are a stable interface. New fields may be added.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::explanation::{Explanation, Subject};
use serde::{Serialize, Serializer};

use super::super::run::{
    Comparison, DecisionPoint, EventMark, HpaRun, MetricSeries, Run, Sample, Scores, TimelineEvent,
};

/// The format version. Increases when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// All values in one line of JSON: each run with its HPAs and their samples, metrics, decisions with all
/// steps, events and scores. Times are seconds since the start, except times in RFC 3339.
pub fn json(comparison: &Comparison) -> String {
    let runs = comparison.runs.iter().map(RunView::from).collect();
    let view = ComparisonView { version: VERSION, runs, notes: &comparison.notes };
    // These types always serialize.
    let mut text = serde_json::to_string(&view).unwrap_or_default();
    text.push('\n');
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComparisonView<'a> {
    version: u32,
    runs: Vec<RunView<'a>>,
    notes: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunView<'a> {
    title: &'a str,
    variant: &'a str,
    seed: u64,
    start: jiff::Timestamp,
    duration_seconds: Seconds,
    period_seconds: Seconds,
    happenings: Vec<HappeningView<'a>>,
    hpas: Vec<HpaView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HappeningView<'a> {
    from_seconds: Seconds,
    to_seconds: Seconds,
    what: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HpaView<'a> {
    namespace: &'a str,
    name: &'a str,
    target: &'a str,
    unit: &'a str,
    scores: ScoresView,
    metrics: Vec<MetricView<'a>>,
    events: Vec<EventView<'a>>,
    decisions: Vec<DecisionView<'a>>,
    samples: Vec<SampleView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScoresView {
    above_target_seconds: Seconds,
    unserved: f64,
    unserved_fraction: f64,
    pod_hours: f64,
    rescales: u32,
    direction_changes: u32,
    longest_reaction_seconds: Seconds,
    peak: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricView<'a> {
    subject: &'a Subject,
    unit: &'a str,
    target: f64,
    tolerated_from: f64,
    tolerated_to: f64,
    values: &'a [Option<f64>],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventView<'a> {
    seconds: Seconds,
    reason: &'a str,
    warning: bool,
    message: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionView<'a> {
    seconds: Seconds,
    sentence: &'a str,
    explanation: &'a Explanation,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleView {
    seconds: Seconds,
    wanted: i32,
    running: i32,
    ready: i32,
    min: i32,
    max: i32,
    demand: f64,
    capacity: f64,
    queued: f64,
    proposal: Option<i32>,
    stabilized: Option<i32>,
    rate_allows: Option<i32>,
}

/// A duration in seconds. A whole number of seconds is an integer.
struct Seconds(Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_nanos() == 0 {
            to.serialize_u64(self.0.as_secs())
        } else {
            to.serialize_f64(self.0.as_secs_f64())
        }
    }
}

impl<'a> From<&'a Run> for RunView<'a> {
    fn from(run: &'a Run) -> Self {
        Self {
            title: &run.title,
            variant: &run.variant,
            seed: run.seed,
            start: run.start,
            duration_seconds: Seconds(run.duration),
            period_seconds: Seconds(run.period),
            happenings: run.happenings.iter().map(HappeningView::from).collect(),
            hpas: run.hpas.iter().map(HpaView::from).collect(),
        }
    }
}

impl<'a> From<&'a TimelineEvent> for HappeningView<'a> {
    fn from(event: &'a TimelineEvent) -> Self {
        Self { from_seconds: Seconds(event.from), to_seconds: Seconds(event.to), what: &event.what }
    }
}

impl<'a> From<&'a HpaRun> for HpaView<'a> {
    fn from(hpa: &'a HpaRun) -> Self {
        Self {
            namespace: &hpa.namespace,
            name: &hpa.name,
            target: &hpa.target,
            unit: &hpa.unit,
            scores: ScoresView::from(&hpa.scores),
            metrics: hpa.metrics.iter().map(MetricView::from).collect(),
            events: hpa.events.iter().map(EventView::from).collect(),
            decisions: hpa.decisions.iter().map(DecisionView::from).collect(),
            samples: hpa.samples.iter().map(SampleView::from).collect(),
        }
    }
}

impl From<&Scores> for ScoresView {
    fn from(scores: &Scores) -> Self {
        Self {
            above_target_seconds: Seconds(scores.above_target),
            unserved: scores.unserved,
            unserved_fraction: scores.unserved_fraction,
            pod_hours: scores.pod_hours,
            rescales: scores.rescales,
            direction_changes: scores.direction_changes,
            longest_reaction_seconds: Seconds(scores.longest_reaction),
            peak: scores.peak,
        }
    }
}

impl<'a> From<&'a MetricSeries> for MetricView<'a> {
    fn from(metric: &'a MetricSeries) -> Self {
        Self {
            subject: &metric.subject,
            unit: metric.unit,
            target: metric.target,
            tolerated_from: metric.tolerated.0,
            tolerated_to: metric.tolerated.1,
            values: &metric.values,
        }
    }
}

impl<'a> From<&'a EventMark> for EventView<'a> {
    fn from(event: &'a EventMark) -> Self {
        Self {
            seconds: Seconds(event.at),
            reason: &event.reason,
            warning: event.warning,
            message: &event.message,
        }
    }
}

impl<'a> From<&'a DecisionPoint> for DecisionView<'a> {
    fn from(point: &'a DecisionPoint) -> Self {
        Self { seconds: Seconds(point.at), sentence: &point.sentence, explanation: &point.explanation }
    }
}

impl From<&Sample> for SampleView {
    fn from(sample: &Sample) -> Self {
        Self {
            seconds: Seconds(sample.at),
            wanted: sample.wanted,
            running: sample.running,
            ready: sample.ready,
            min: sample.min,
            max: sample.max,
            demand: sample.demand,
            capacity: sample.capacity,
            queued: sample.queued,
            proposal: sample.proposal,
            stabilized: sample.stabilized,
            rate_allows: sample.rate_allows,
        }
    }
}
