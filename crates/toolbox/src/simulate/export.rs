//! Exports for other programs: CSV with a row per sample, and JSON with all values.

mod json;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub use self::json::{json, yaml};
use super::run::{Comparison, HpaRun, Run};

/// The columns of every CSV, in order. One column per metric follows. Its name consists of `metric:`, the metric's name
/// in sentences, and the unit in parentheses, if any.
///
/// - `variant`, `namespace`, `hpa`: the HPA and variant of the sample.
/// - `time`, `seconds`: the time in RFC 3339 (UTC), and the seconds since the start.
/// - `wanted`, `running`, `ready`, `min`, `max`: `spec.replicas`, existing pods, ready pods, the bounds.
/// - `demand`, `capacity`, `queued`: incoming work, capacity of the ready pods, queue length, in the
///   load's unit.
/// - `proposal`, `stabilized`, `rate_allows`: the steps of the last decision. Empty before the first
///   decision, or if the decision skipped the step.
/// - `decision`: the sentence of the last recorded decision since the previous row.
pub const COLUMNS: [&str; 17] = [
    "variant",
    "namespace",
    "hpa",
    "time",
    "seconds",
    // <!-- vale off --> The column name is part of the format.
    "wanted",
    // <!-- vale on -->
    "running",
    "ready",
    "min",
    "max",
    "demand",
    "capacity",
    "queued",
    "proposal",
    "stabilized",
    "rate_allows",
    "decision",
];

/// Writes a header and a row per sample of every HPA and variant. Lines end with `\n`. Fields are quoted only
/// where RFC 4180 requires it.
pub fn csv(comparison: &Comparison) -> String {
    let hpas = || comparison.runs.iter().flat_map(|run| run.hpas.iter().map(move |hpa| (run, hpa)));
    let metrics: BTreeSet<String> = hpas().flat_map(|(_, hpa)| hpa.metrics.iter().map(name_of)).collect();
    let mut csv = COLUMNS.join(",");
    for metric in &metrics {
        csv.push(',');
        csv.push_str(&field(metric));
    }
    csv.push('\n');
    for (run, hpa) in hpas() {
        rows(&mut csv, run, hpa, &metrics);
    }
    csv
}

fn name_of(metric: &super::run::MetricSeries) -> String {
    match metric.unit {
        "" => format!("metric:{}", metric.subject),
        unit => format!("metric:{} ({unit})", metric.subject),
    }
}

fn rows(csv: &mut String, run: &Run, hpa: &HpaRun, metrics: &BTreeSet<String>) {
    let (variant, namespace, name) = (field(&run.variant), field(&hpa.namespace), field(&hpa.name));
    let series: Vec<_> =
        metrics.iter().map(|metric| hpa.metrics.iter().find(|series| name_of(series) == *metric)).collect();
    let mut decisions = hpa.decisions.iter().peekable();
    for (index, sample) in hpa.samples.iter().enumerate() {
        let time =
            jiff::SignedDuration::try_from(sample.at).ok().and_then(|at| run.start.checked_add(at).ok());
        let time = time.map(|time| time.to_string()).unwrap_or_default();
        let mut decision = None;
        while let Some(point) = decisions.next_if(|point| point.at <= sample.at) {
            decision = Some(field(&point.sentence));
        }
        // Writing to a string cannot fail.
        let _ = write!(
            csv,
            "{variant},{namespace},{name},{time},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            sample.at.as_secs_f64(),
            sample.wanted,
            sample.running,
            sample.ready,
            sample.min,
            sample.max,
            sample.demand,
            sample.capacity,
            sample.queued,
            optional(sample.proposal),
            optional(sample.stabilized),
            optional(sample.rate_allows),
            decision.unwrap_or_default(),
        );
        for metric in &series {
            csv.push(',');
            csv.push_str(&optional(metric.and_then(|metric| metric.values.get(index).copied().flatten())));
        }
        csv.push('\n');
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Quotes a field as RFC 4180 requires.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
