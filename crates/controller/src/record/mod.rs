//! The record of decisions: the last decisions of each HPA, in a compact form, served as JSON.
//!
//! The record observes the same concluded syncs as metrics and log. Consecutive decisions that differ only in noise
//! (other ratios, but the same path and result for the same reason) share one entry. Every change is a new entry. A
//! full record drops its oldest entry. An entry takes at most 64 KiB, and the entries of an HPA take at most 512 KiB.
//! Metrics beyond these limits are only counted. An entry contains all metrics, unless they take too many bytes.

mod pages;
mod ring;
mod steps;
#[cfg(test)]
mod tests;
mod text;
pub mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use autoscaling::explanation::{Explanation, MetricExplanation, MetricReading, Subject, UnlistedMetrics};
use parking_lot::Mutex;
use steps::{MetricBody, MetricFrame, split_metric};
use text::MAX_TEXT;

pub use self::pages::{Answer, Comparisons, Decisions, DecisionsRequest, Page};
use self::ring::{Entry, Ring, Scratch};
use self::wire::DecisionEntry;
use crate::reconcile::{ConcludedSync, Observer};
use crate::store::Key;

/// The last decisions of each HPA, by UID. An HPA that is recreated under its name starts with an empty
/// record.
#[derive(Debug)]
pub struct Record {
    /// Maximum entries per HPA, at least one.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Boxed, because the map has many unused slots.
    by_uid: HashMap<Arc<str>, Box<Ring>>,
    scratch: Scratch,
}

impl Record {
    /// Creates an empty record with at most `capacity` entries per HPA, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// The decisions of an HPA, newest first.
    pub fn decisions(&self, uid: &str) -> Vec<DecisionEntry> {
        // Decode outside the lock, because syncs wait for it.
        let entries: Vec<Entry> = self
            .state
            .lock()
            .by_uid
            .get(uid)
            .map(|ring| ring.newest_first().cloned().collect())
            .unwrap_or_default();
        entries.iter().filter_map(Entry::decision).collect()
    }

    /// The last decision of an HPA.
    pub fn last(&self, uid: &str) -> Option<DecisionEntry> {
        let entry = self.state.lock().by_uid.get(uid).and_then(|ring| ring.last()).cloned();
        entry.as_ref().and_then(Entry::decision)
    }

    /// The size of the decisions of an HPA, in bytes.
    pub fn bytes(&self, uid: &str) -> usize {
        self.state.lock().by_uid.get(uid).map_or(0, |ring| ring.bytes())
    }

    /// Number of HPAs with decisions.
    pub fn len(&self) -> usize {
        self.state.lock().by_uid.len()
    }

    /// Whether there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Observer for Record {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let mut state = self.state.lock();
        let State { by_uid, scratch } = &mut *state;
        if let Some(ring) = by_uid.get_mut(&sync.hpa.uid) {
            ring.add(sync, self.capacity, scratch);
            return;
        }
        by_uid.entry(Arc::clone(&sync.hpa.uid)).or_default().add(sync, self.capacity, scratch);
    }

    fn forgotten(&self, _: &Key, uid: &str) {
        let mut state = self.state.lock();
        state.by_uid.remove(uid);
        // Free the memory after a cluster-wide cleanup.
        if state.by_uid.len() < state.by_uid.capacity() / 4 {
            state.by_uid.shrink_to_fit();
        }
    }
}

/// Maximum bytes of the metrics in an entry. Three metrics of any content fit.
const MAX_METRIC_BYTES: usize = 48 << 10;

/// Bytes of the numbers of a metric.
const NUMBERS: usize = 100;

/// Bytes of the numbers of a listed pod.
const POD_NUMBERS: usize = 24;

/// The metrics of an entry, and the number of omitted metrics.
struct Selection<'a> {
    /// The index of each metric in the explanation, and its two parts, in the order of the spec.
    kept: Vec<(usize, MetricFrame<'a>, MetricBody<'a>)>,
    unlisted: Option<UnlistedMetrics>,
}

/// Selects the metrics that the sentence of the decision quotes, and then the first others that fit.
fn select(explanation: &Explanation) -> Selection<'_> {
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
