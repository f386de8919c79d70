//! The metrics that an entry contains: all of them, unless they take too many bytes.

use std::collections::BTreeMap;

use autoscaling::explanation::{Explanation, MetricExplanation, MetricReading, Subject, UnlistedMetrics};

use super::steps::{MetricBody, MetricFrame, split_metric};
use super::text::MAX_TEXT;

/// Maximum bytes of the metrics in an entry. Three metrics fit, whatever they contain.
const MAX_METRIC_BYTES: usize = 48 << 10;

/// Bytes of the numbers of a metric.
const NUMBERS: usize = 100;

/// Bytes of the numbers of a listed pod.
const POD_NUMBERS: usize = 24;

/// The metrics of an entry, and the numbers of all others.
pub(super) struct Selection<'a> {
    /// The index of each metric in the explanation, and its two parts, in the order of the spec.
    pub(super) kept: Vec<(usize, MetricFrame<'a>, MetricBody<'a>)>,
    pub(super) unlisted: Option<UnlistedMetrics>,
}

/// Selects the metrics that the sentence of the decision quotes, and then the first others that fit.
pub(super) fn select(explanation: &Explanation) -> Selection<'_> {
    let metrics = &explanation.metrics;
    let mut kept = BTreeMap::new();
    let mut bytes = 0;
    for index in quoted(explanation).into_iter().flatten().chain(0..metrics.len()) {
        let Some(metric) = metrics.get(index).filter(|_| !kept.contains_key(&index)) else { continue };
        let (frame, body) = split_metric(metric);
        bytes += size(metric, &body);
        if bytes > MAX_METRIC_BYTES {
            break;
        }
        kept.insert(index, (frame, body));
    }
    let mut unlisted = explanation.unlisted.unwrap_or_default();
    if kept.len() < metrics.len() {
        for (index, metric) in metrics.iter().enumerate() {
            match metric {
                _ if kept.contains_key(&index) => {}
                MetricExplanation::Valid(_) => unlisted.valid = unlisted.valid.saturating_add(1),
                MetricExplanation::Failed(_) => unlisted.failed = unlisted.failed.saturating_add(1),
            }
        }
    }
    Selection {
        kept: kept.into_iter().map(|(index, (frame, body))| (index, frame, body)).collect(),
        unlisted: (unlisted != UnlistedMetrics::default()).then_some(unlisted),
    }
}

/// The winner, the first failure and the best proposal.
fn quoted(explanation: &Explanation) -> [Option<usize>; 3] {
    let metrics = &explanation.metrics;
    let readings =
        metrics.iter().enumerate().filter_map(|(index, metric)| Some((index, metric.reading()?.proposal)));
    [
        explanation.winner,
        metrics.iter().position(|metric| metric.reading().is_none()),
        readings.max_by_key(|(_, proposal)| *proposal).map(|(index, _)| index),
    ]
}

/// The maximum size of a metric in both parts.
fn size(metric: &MetricExplanation, body: &MetricBody<'_>) -> usize {
    let text = |text: &str| text.len().min(MAX_TEXT);
    let Subject { kind, name, container, object } = metric.subject();
    let optional = [container, object].into_iter().flatten();
    let subject = text(kind) + text(name) + optional.map(|each| text(each)).sum::<usize>();
    let rest = match (metric, body) {
        (MetricExplanation::Valid(MetricReading { name, .. }), MetricBody::Valid(reading)) => {
            let pods = reading.pods.iter().map(|pod| pod.name.len() + POD_NUMBERS);
            text(name) + pods.sum::<usize>()
        }
        (MetricExplanation::Failed(failed), _) => text(&failed.reason) + text(&failed.error),
        (MetricExplanation::Valid(_), MetricBody::Failed(..)) => 0,
    };
    NUMBERS + subject + rest
}
