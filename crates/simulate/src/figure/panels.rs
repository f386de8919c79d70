//! The panels of a figure: replicas, metrics, load and queue.

use std::collections::BTreeSet;

use policies::steps::StepReason;

use super::frame::{TimeAxis, ValueAxis};
use super::ink::Ink;
use super::{Area, Line, Panel, Shape, downsample, pieces, steps};
use crate::run::{HpaRun, MetricSeries, Run, Sample};
use terminal::words;

/// The largest `maxReplicas` that is drawn, as a multiple of the peak. A higher line would flatten the curves.
const BOUND_IN_SIGHT: f64 = 1.6;

/// The curves of the floor of a forecast: whether it applies, its ink and its name.
pub(in super::super) const FLOORS: [(bool, Ink, &str); 2] =
    [(true, Ink::Floor, "floor of the forecast"), (false, Ink::Preview, "floor in preview")];

/// The largest capacity that is drawn, as a multiple of the largest load.
const SPARE_IN_SIGHT: f64 = 4.0;

/// The divisor that makes values easy to read, and the resulting unit.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Scale {
    pub(in super::super) by: f64,
    /// The unit of the divided values. Empty for plain numbers.
    pub(in super::super) unit: String,
}

/// Returns the scale for values of a unit up to `most`.
pub(in super::super) fn scale_of(unit: &str, most: f64) -> Scale {
    let (by, unit) = match unit {
        "bytes" if most >= 1_073_741_824.0 => (1_073_741_824.0, "Gi"),
        "bytes" if most >= 1_048_576.0 => (1_048_576.0, "Mi"),
        "bytes" if most >= 1024.0 => (1024.0, "Ki"),
        "cores" if most < 1.0 => (0.001, "millicores"),
        _ => (1.0, unit),
    };
    Scale { by, unit: unit.to_owned() }
}

pub(super) fn build(hpa: &HpaRun, length: f64) -> Vec<Panel> {
    let mut panels = vec![replicas(hpa, length)];
    panels.extend(hpa.metrics.iter().map(|metric| metric_panel(hpa, metric, length)));
    panels.extend(load(hpa, length));
    panels.extend(queue(hpa, length));
    panels
}

fn replicas(hpa: &HpaRun, length: f64) -> Panel {
    let samples = &hpa.samples;
    let peak = samples.iter().map(|sample| sample.wanted.max(sample.running).max(sample.ready)).max();
    let peak = f64::from(peak.unwrap_or(0));
    let max = f64::from(samples.iter().map(|sample| sample.max).max().unwrap_or(0));
    let with_max = max <= peak * BOUND_IN_SIGHT;
    // A proposal may be far above maxReplicas. The axis does not cover such a proposal.
    let proposed = samples.iter().filter_map(|sample| sample.proposal).max().map_or(0.0, f64::from);
    let floors = samples.iter().filter_map(|sample| sample.forecast?.floor);
    let floor = f64::from(floors.max().unwrap_or(0));
    let values =
        ValueAxis::over([peak, proposed.min(peak * 1.25), floor, if with_max { max } else { 0.0 }], true);

    let count = |value: fn(&Sample) -> i32| curve(samples, length, |sample| Some(f64::from(value(sample))));
    let ink = |ink, pieces| Line { ink, pieces };
    let mut lines = vec![ink(Ink::Bound, count(|sample| sample.min))];
    if with_max {
        lines.push(ink(Ink::Bound, count(|sample| sample.max)));
    }
    let mut floor_keys = Vec::new();
    for (applies, of, name) in FLOORS {
        let pieces = curve(samples, length, |sample| sample.floor(applies).map(f64::from));
        if !pieces.is_empty() {
            floor_keys.push((of, Shape::Line, name.to_owned()));
            lines.push(ink(of, pieces));
        }
    }
    lines.push(ink(Ink::Ready, count(|sample| sample.ready)));
    lines.push(ink(Ink::Desired, count(|sample| sample.wanted)));

    let running = samples.iter().map(|sample| (at(sample), Some((0.0, f64::from(sample.running)))));
    let window = samples.iter().map(|sample| (at(sample), held_by_window(sample)));
    let rate = samples.iter().map(|sample| (at(sample), held_by_rate(sample)));
    let withheld =
        samples.iter().map(|sample| (at(sample), sample.withheld.and_then(|it| between(it, sample.wanted))));
    let expected = samples.iter().map(|sample| {
        // The axis does not cover a load far above the counts.
        let ends = |(low, high)| (f64::from(low).min(values.top), f64::from(high).min(values.top));
        (at(sample), sample.forecast.and_then(|forecast| forecast.band).map(ends))
    });
    let (bands, mut policy_keys) = policy_bands(hpa, values.top);
    let areas = bands.into_iter().chain([
        Area { ink: Ink::Expected, pieces: super::bands(expected, length) },
        Area { ink: Ink::Running, pieces: super::bands(running, length) },
        Area { ink: Ink::Window, pieces: super::bands(window, length) },
        Area { ink: Ink::Rate, pieces: super::bands(rate, length) },
        Area { ink: Ink::Withheld, pieces: super::bands(withheld, length) },
    ]);
    let areas: Vec<Area> = areas.collect();
    let mut keys = vec![
        (Ink::Desired, Shape::Line, "desired".to_owned()),
        (Ink::Ready, Shape::Line, "ready".to_owned()),
        (Ink::Running, Shape::Area, "running".to_owned()),
        (Ink::Window, Shape::Area, "held back by a window".to_owned()),
        (Ink::Rate, Shape::Area, "held back by a rate limit".to_owned()),
        (Ink::Withheld, Shape::Area, "withheld by the policy".to_owned()),
        (Ink::Expected, Shape::Area, "expected load in full pods".to_owned()),
        (Ink::Bound, Shape::Line, if with_max { "min and max" } else { "min" }.to_owned()),
    ];
    keys.extend(floor_keys);
    keys.append(&mut policy_keys);
    drop_unused(&mut keys, &areas);
    Panel { title: "Replicas".to_owned(), unit: String::new(), is_main: true, values, areas, lines, keys }
}

/// Returns the bands of a scaling policy and their legend. The band of a schedule is between the HPA's bound and the
/// bound of the schedule. A forecast has curves instead. The band of any other step has the height of the panel, which ends at `top`.
fn policy_bands(hpa: &HpaRun, top: f64) -> (Vec<Area>, Vec<(Ink, Shape, String)>) {
    let (mut schedules, mut others, mut reasons) = (Vec::new(), Vec::new(), BTreeSet::new());
    for span in &hpa.policies {
        let ends = [span.from.as_secs_f64(), span.to.as_secs_f64()];
        let band = |low: f64, high: f64| ends.map(|at| (at, low, high)).to_vec();
        if let Some((from, to)) = span.bound {
            schedules.push(band(f64::from(from.min(to)), f64::from(from.max(to)).min(top)));
        } else if span.reason != StepReason::ForecastFloor {
            reasons.insert(span.reason);
            others.push(band(0.0, top));
        }
    }
    let mut keys = Vec::new();
    if !schedules.is_empty() {
        keys.push((Ink::Schedule, Shape::Area, "bound of a schedule".to_owned()));
    }
    if !reasons.is_empty() {
        let reasons: Vec<_> = reasons.into_iter().map(StepReason::as_str).collect();
        keys.push((Ink::Policy, Shape::Area, format!("policy: {}", reasons.join(", "))));
    }
    let areas = [(Ink::Policy, others), (Ink::Schedule, schedules)];
    (areas.map(|(ink, pieces)| Area { ink, pieces }).into(), keys)
}

/// Extends the bands of a policy to the top of the panel, after a change of the value axis.
pub(super) fn raise_bands(panel: &mut Panel) {
    let top = panel.values.top;
    for area in panel.areas.iter_mut().filter(|area| area.ink == Ink::Policy) {
        area.pieces.iter_mut().flatten().for_each(|(_, _, high)| *high = top);
    }
}

/// Returns the range between the metrics' proposal and the stabilized count, both limited to maxReplicas.
fn held_by_window(sample: &Sample) -> Option<(f64, f64)> {
    between(sample.proposal?.min(sample.max), sample.stabilized?.min(sample.max))
}

/// Returns the range between the stabilized count and the rate limit, if the desired count is the rate limit.
fn held_by_rate(sample: &Sample) -> Option<(f64, f64)> {
    let allowed = sample.rate_allows.filter(|allowed| *allowed == sample.wanted)?;
    between(allowed, sample.stabilized?)
}

fn between(one: i32, other: i32) -> Option<(f64, f64)> {
    (one != other).then(|| (f64::from(one.min(other)), f64::from(one.max(other))))
}

fn metric_panel(hpa: &HpaRun, metric: &MetricSeries, length: f64) -> Panel {
    let values_read = metric.values.iter().copied().flatten();
    let most = values_read.clone().fold(metric.target, f64::max);
    let Scale { by, unit } = scale_of(metric.unit, most);
    let (target, (low, high)) = (metric.target / by, (metric.tolerated_from / by, metric.tolerated_to / by));
    let values = ValueAxis::over(values_read.map(|value| value / by).chain([target * 1.2, high]), false);
    let points = || {
        let values =
            metric.values.iter().map(|value| value.map(|value| value / by).filter(|it| it.is_finite()));
        hpa.samples.iter().map(at).zip(values)
    };
    let curve = Curve::new(points(), length);
    let above = curve.range.iter().flat_map(|piece| above(piece, high)).collect();
    let first_value = points().find(|(_, value)| value.is_some()).map_or(0.0, |(at, _)| at);
    let missing = points().map(|(at, value)| {
        (at, (value.is_none() && at >= first_value).then_some((values.bottom, values.top)))
    });
    let areas = vec![
        Area { ink: Ink::Missing, pieces: super::bands(missing, length) },
        Area { ink: Ink::Tolerated, pieces: vec![vec![(0.0, low, high), (length, low, high)]] },
        Area { ink: Ink::Spread, pieces: curve.spread() },
        Area { ink: Ink::Above, pieces: above },
    ];
    let mut keys = vec![
        (Ink::Value, Shape::Line, "value".to_owned()),
        (Ink::Spread, Shape::Area, "range of values".to_owned()),
        (Ink::Target, Shape::Line, format!("target {}", with_unit(target, &unit))),
        (Ink::Tolerated, Shape::Area, "tolerated".to_owned()),
        (Ink::Above, Shape::Area, "above tolerance".to_owned()),
        (Ink::Missing, Shape::Area, "no value".to_owned()),
    ];
    drop_unused(&mut keys, &areas);
    let lines = vec![
        Line { ink: Ink::Target, pieces: vec![vec![(0.0, target), (length, target)]] },
        Line { ink: Ink::Value, pieces: curve.lines },
    ];
    Panel { title: metric.subject.to_string(), unit, is_main: false, values, areas, lines, keys }
}

/// Drops the keys of areas without content.
fn drop_unused(keys: &mut Vec<(Ink, Shape, String)>, areas: &[Area]) {
    keys.retain(|(ink, shape, _)| {
        *shape == Shape::Line || areas.iter().any(|area| area.ink == *ink && !area.pieces.is_empty())
    });
}

/// Returns the parts of a curve's range above `high`, cut at `high`.
fn above(range: &[(f64, f64, f64)], high: f64) -> Vec<Vec<(f64, f64, f64)>> {
    let mut points = Vec::with_capacity(range.len());
    for (&(at, _, value), next) in range.iter().zip(range.iter().skip(1).map(Some).chain([None])) {
        points.push((at, value));
        if let Some(&(after, _, next)) = next
            && (value - high) * (next - high) < 0.0
        {
            points.push((at + (after - at) * (high - value) / (next - value), high));
        }
    }
    let runs =
        points.split(|(_, value)| *value < high).filter(|run| run.iter().any(|(_, value)| *value > high));
    runs.map(|run| run.iter().map(|(at, value)| (*at, high, *value)).collect()).collect()
}

/// A curve in pieces, and the range of the values of each piece.
struct Curve {
    lines: Vec<Vec<(f64, f64)>>,
    range: Vec<Vec<(f64, f64, f64)>>,
    is_reduced: bool,
}

impl Curve {
    fn new(values: impl IntoIterator<Item = (f64, Option<f64>)>, length: f64) -> Self {
        let pieces = pieces(values);
        let curves: Vec<_> = pieces.iter().map(|piece| downsample(piece, length)).collect();
        let is_reduced = curves.iter().any(|curve| curve.is_reduced);
        let (lines, range) = curves.into_iter().map(|curve| (curve.line, curve.range)).unzip();
        Self { lines, range, is_reduced }
    }

    /// Returns the range as an area. Empty if no piece is downsampled.
    fn spread(&self) -> Vec<Vec<(f64, f64, f64)>> {
        if self.is_reduced { self.range.clone() } else { Vec::new() }
    }
}

/// Returns the panel of the incoming work and the capacity. `None` without incoming work.
fn load(hpa: &HpaRun, length: f64) -> Option<Panel> {
    let samples = &hpa.samples;
    let most = samples.iter().map(|sample| sample.demand).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    // The exact capacity is irrelevant if it is many times the demand.
    let capacity =
        samples.iter().map(|sample| sample.capacity).fold(0.0, f64::max).min(most * SPARE_IN_SIGHT);
    let values = ValueAxis::over([most, capacity], false);
    let demand = Curve::new(samples.iter().map(|sample| (at(sample), Some(sample.demand))), length);
    let short = super::bands(
        samples.iter().map(|sample| {
            let is_short = sample.demand > sample.capacity;
            (at(sample), is_short.then_some((sample.capacity, sample.demand)))
        }),
        length,
    );
    let mut keys = vec![
        (Ink::Demand, Shape::Line, "demand".to_owned()),
        (Ink::Capacity, Shape::Line, "capacity of ready pods".to_owned()),
    ];
    if !short.is_empty() {
        keys.push((Ink::Short, Shape::Area, "beyond capacity".to_owned()));
    }
    let lines = vec![
        Line {
            ink: Ink::Capacity,
            pieces: curve(samples, length, |sample| {
                Some(sample.capacity).filter(|capacity| *capacity <= values.top)
            }),
        },
        Line { ink: Ink::Demand, pieces: demand.lines.clone() },
    ];
    let areas = vec![
        Area { ink: Ink::DemandSpread, pieces: demand.spread() },
        Area { ink: Ink::Short, pieces: short },
    ];
    Some(Panel {
        title: "Load".to_owned(),
        unit: hpa.unit.clone(),
        is_main: false,
        values,
        areas,
        lines,
        keys,
    })
}

/// Returns the panel of the queue length. `None` if the queue is always empty.
fn queue(hpa: &HpaRun, length: f64) -> Option<Panel> {
    let samples = &hpa.samples;
    let most = samples.iter().map(|sample| sample.queued).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let curve = Curve::new(samples.iter().map(|sample| (at(sample), Some(sample.queued))), length);
    let keys = vec![(Ink::Queue, Shape::Line, "queue length".to_owned())];
    Some(Panel {
        title: "Queue".to_owned(),
        unit: String::new(),
        is_main: false,
        values: ValueAxis::over([most], false),
        areas: Vec::new(),
        lines: vec![Line { ink: Ink::Queue, pieces: curve.lines }],
        keys,
    })
}

/// Returns the panel of the desired replicas of all variants.
pub(super) fn overlay(runs: &[(&Run, &HpaRun)], time: &TimeAxis) -> Panel {
    let mut lines = Vec::new();
    let mut keys = Vec::new();
    let mut peak = 0.0_f64;
    for (index, (run, hpa)) in runs.iter().enumerate() {
        let ink = Ink::variant(index);
        let end = run.duration.as_secs_f64().min(time.length());
        lines.push(Line { ink, pieces: curve(&hpa.samples, end, |sample| Some(f64::from(sample.wanted))) });
        keys.push((ink, Shape::Line, run.variant.clone()));
        peak = hpa.samples.iter().map(|sample| f64::from(sample.wanted)).fold(peak, f64::max);
    }
    // The baseline is drawn on top.
    lines.reverse();
    let values = ValueAxis::over([peak], true);
    Panel {
        title: "Desired replicas".to_owned(),
        unit: String::new(),
        is_main: true,
        values,
        areas: Vec::new(),
        lines,
        keys,
    }
}

fn at(sample: &Sample) -> f64 {
    sample.at.as_secs_f64()
}

fn curve(samples: &[Sample], end: f64, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    steps(samples.iter().map(|sample| (at(sample), value(sample))), end)
}

/// Formats a value with its unit: `80 %`, `12 Mi`, `100`.
fn with_unit(value: f64, unit: &str) -> String {
    let number = words::number(value);
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}
