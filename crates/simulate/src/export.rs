//! Exports for other programs: CSV with one row per sample, and JSON or YAML with all values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::run::{Comparison, HpaRun, MetricSeries, Run};

/// The columns of every CSV export, in order. One column per metric follows. The name of such a column consists of
/// `metric:`, the metric's short name, and the unit in parentheses, if any.
///
/// - `variant`, `namespace`, `hpa`: the HPA and the variant of the sample.
/// - `time`, `seconds`: the time of a sync in RFC 3339 (UTC), and the seconds since the start.
/// - `wanted`, `running`, `ready`, `min`, `max`: `spec.replicas`, existing pods that are not terminating, ready pods,
///   and the bounds.
/// - `demand`, `capacity`, `queued`: the incoming work and the capacity of the ready pods, in the unit of the load, and
///   the number of queued items.
/// - `proposal`, `stabilized`, `rate_allows`: the counts of the decision. Empty if the decision skipped the step.
/// - `decision`: the sentence of the last recorded decision since the previous row. Empty without such a decision.
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

/// Formats a comparison as CSV: a header, and one row per sample of every HPA and variant. Lines end with `\n`. Fields
/// are quoted only where RFC 4180 requires quotes.
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

fn name_of(metric: &MetricSeries) -> String {
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
        let time = run.start.checked_add(sample.at).map(|time| time.to_string()).unwrap_or_default();
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

/// The version of the JSON format.
const VERSION: u32 = 1;

/// The JSON or YAML document of a comparison.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Simulation"))]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    /// Increases when a field is removed or changes its meaning.
    version: u32,
    /// The variants of the scenario, followed by the runs of other scenarios. The first run is the baseline.
    runs: &'a [Run],
    /// Notes for the reader, such as assumed values or omitted decisions, by topic.
    notes: &'a BTreeMap<String, String>,
}

impl<'a> Document<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let Comparison { runs, notes } = comparison;
        Self { api_version: "concertina/v1", kind: "Simulation", version: VERSION, runs, notes }
    }
}

/// Formats all values of a comparison as one line of JSON, whose schema is `docs/schemas/simulation.json`. Each run
/// contains its HPAs with their samples, metrics, decisions, events and scores. Times are seconds since the start of the
/// run, or timestamps in RFC 3339.
pub fn json(comparison: &Comparison) -> String {
    // The document always serializes.
    let mut text = serde_json::to_string(&Document::new(comparison)).unwrap_or_default();
    text.push('\n');
    text
}

/// Formats the values of [`json`] as one YAML document.
pub fn yaml(comparison: &Comparison) -> String {
    // The document always serializes.
    let text = serde_saphyr::to_string(&Document::new(comparison)).unwrap_or_default();
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::{Document, field};

    #[test]
    fn document_has_a_published_schema() {
        crate::schemas::check::<Document<'static>>("simulation");
    }

    #[test]
    fn csv_quotes_fields_with_special_characters() {
        assert_eq!(
            ["plain", "a,b", "say \"hi\"", "two\nlines"].map(field),
            ["plain", "\"a,b\"", "\"say \"\"hi\"\"\"", "\"two\nlines\""]
        );
    }
}
