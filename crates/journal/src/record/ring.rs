//! The last decisions of one HPA, in compact form.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use autoscaling::explanation::{
    DecisionPath, Explanation, LimitingStep, MetricExplanation, MetricReading, Subject, UnlistedMetrics,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::steps::{Ago, Body, Frame, MetricBody, Selection, Split, join, split, split_metric};
use super::wire::{DecisionEntry, DecisionResult, Outcome, PolicyEntry, RatioRange};
use super::{MAX_TEXT, append, take};
use engine::reconcile::ConcludedSync;
use policies::sentence::Decided;
use policies::steps::StepReason;

/// Maximum bytes of the entries of one HPA. An entry takes at most 64 KiB.
const MAX_BYTES: usize = 512 << 10;

/// Maximum bytes of the metrics in an entry. Three metrics of any content fit.
const MAX_METRIC_BYTES: usize = 48 << 10;

/// Maximum bytes of the numbers of a metric.
const NUMBERS: usize = 100;

/// Maximum bytes of the numbers of a listed pod.
const POD_NUMBERS: usize = 24;

/// The last decisions of one HPA.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Key of the newest entry. A sync with another key is a change.
    newest: Option<MergeKey>,
    /// The entries, oldest first.
    entries: VecDeque<Entry>,
}

/// One decision, or several consecutive decisions that differ only in noise.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The parts that usually change only with the spec, shared between entries.
    frame: Arc<[u8]>,
    /// The header, then the newest of the merged syncs.
    body: Vec<u8>,
}

/// An entry under construction. The buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    frame: Vec<u8>,
    body: Vec<u8>,
}

/// Times and number of the merged syncs.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    last_at: Timestamp,
    first: Ago,
    syncs: u32,
    /// The range of the ratio of each metric with a ratio. Empty for a single sync.
    ratios: Vec<RatioSpan>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RatioSpan {
    lowest: f64,
    highest: f64,
}

/// The key for merging: two decisions with equal keys and frames differ only in noise. The frame distinguishes failed
/// metrics from others, and one spec from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergeKey {
    path: DecisionPath,
    from: i32,
    to: Option<i32>,
    winner: Option<usize>,
    limiting: Option<LimitingStep>,
    outcome: Outcome,
    /// The applied count, the reasons of the policy's steps as bits, and whether a floor that is only shown would raise
    /// the count.
    policy: Option<(Option<i32>, u32, bool)>,
}

impl MergeKey {
    fn new(sync: &ConcludedSync<'_>) -> Self {
        let explanation = &sync.conclusion.explanation;
        Self {
            path: explanation.path,
            from: explanation.current,
            to: explanation.desired,
            winner: explanation.winner,
            limiting: explanation.limiting_step(),
            outcome: sync.outcome.into(),
            policy: sync.policy.map(|effect| {
                let bits = effect.steps.iter().fold(0, |bits, step| bits | bit(step.reason()));
                let forecast = effect.forecast.as_ref();
                (effect.applied, bits, forecast.is_some_and(|it| it.would_raise(effect.applied)))
            }),
        }
    }

    /// Returns whether another sync with the same key is merged. A sync with a successful write is never merged.
    fn is_steady(&self) -> bool {
        self.outcome != Outcome::Done
    }
}

impl Ring {
    /// Adds a concluded sync. Drops the oldest entries beyond `capacity` or [`MAX_BYTES`].
    pub(super) fn add(&mut self, sync: &ConcludedSync<'_>, capacity: usize, scratch: &mut Scratch) {
        let merge_key = MergeKey::new(sync);
        let alike = self.newest == Some(merge_key) && merge_key.is_steady();
        let Split { frame, body, metrics } = split(sync, select(&sync.conclusion.explanation));
        scratch.frame = encoded(&frame, &mut scratch.frame);
        if let Some(newest) = self.entries.back_mut().filter(|_| alike)
            && *newest.frame == *scratch.frame
            && let Some(header) = newest.header_with(sync, &metrics)
        {
            scratch.body = encoded(&(&header, &body), &mut scratch.body);
            newest.body.clear();
            newest.body.reserve_exact(scratch.body.len());
            newest.body.extend_from_slice(&scratch.body);
            self.drop_oldest(0);
            return;
        }
        scratch.body = encoded(&(&Header::first(sync), &body), &mut scratch.body);
        while self.entries.len() >= capacity.max(1) {
            self.entries.pop_front();
        }
        self.drop_oldest(scratch.frame.len() + scratch.body.len());
        if let Some(aged) = self.entries.back_mut() {
            aged.body.shrink_to_fit();
        }
        let shared = self.entries.iter().rev().find(|entry| *entry.frame == *scratch.frame);
        let frame = shared.map_or_else(|| Arc::from(&*scratch.frame), |entry| Arc::clone(&entry.frame));
        // Most HPAs have few entries, so space for `capacity` entries would take more memory than the entries.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len().clamp(1, 4));
        }
        self.entries.push_back(Entry { frame, body: scratch.body.clone() });
        self.newest = Some(merge_key);
    }

    /// Drops the oldest entries until `more` bytes fit.
    fn drop_oldest(&mut self, more: usize) {
        while self.bytes().saturating_add(more) > MAX_BYTES && self.entries.pop_front().is_some() {}
    }

    /// Returns the size of all entries, in bytes. A frame that consecutive entries share counts once.
    pub(super) fn bytes(&self) -> usize {
        let mut previous: Option<&Arc<[u8]>> = None;
        let sizes = self.entries.iter().map(|entry| {
            let is_shared = previous.is_some_and(|frame| Arc::ptr_eq(frame, &entry.frame));
            previous = Some(&entry.frame);
            entry.body.len() + if is_shared { 0 } else { entry.frame.len() }
        });
        sizes.sum()
    }

    pub(super) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// Returns all entries, newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }
}

impl Entry {
    /// Returns the entry as the decisions API serves it.
    pub(super) fn decision(&self) -> Option<DecisionEntry> {
        let (header, frame, body) = self.read()?;
        let Header { last_at, first, syncs, ratios } = header;
        let Body { action, outcome, error, events, policy, sources, steps } = body;
        let generation = frame.generation;
        let explanation = join(frame, steps, last_at);
        let readings = explanation.metrics.iter().filter_map(MetricExplanation::reading);
        let moved =
            readings.zip(ratios).filter(|(_, moved)| moved.lowest.is_finite() && moved.highest.is_finite());
        let ratios = moved.map(|(reading, moved)| RatioRange {
            metric: reading.subject.to_string(),
            lowest: moved.lowest,
            highest: moved.highest,
        });
        let decided = Decided::new(&explanation, policy.as_ref());
        Some(DecisionEntry {
            first_at: first.time(last_at),
            last_at,
            syncs,
            generation,
            result: DecisionResult {
                sentence: decided.sentence(last_at),
                action,
                limiting_step: explanation.limiting_step().map(|step| step.as_str().to_owned()),
                winner: explanation.winning_metric().map(|metric| metric.subject().to_string()),
                from: (explanation.path != DecisionPath::NoScale).then_some(explanation.current),
                to: decided.count(),
                outcome,
            },
            error: error.map(Into::into),
            events: events.into_iter().map(Into::into).collect(),
            ratios: ratios.collect(),
            policy: policy.map(PolicyEntry::from),
            sources,
            explanation,
        })
    }

    fn read(&self) -> Option<(Header, Frame<'_>, Body<'_>)> {
        let (frame, _) = take(&self.frame).ok()?;
        let ((header, body), _) = take(&self.body).ok()?;
        Some((header, frame, body))
    }

    /// Returns the header after another sync with the same key and the same frame. `metrics`: the indices of the
    /// metrics in the frame.
    fn header_with(&self, sync: &ConcludedSync<'_>, metrics: &[usize]) -> Option<Header> {
        let (mut header, _) = take::<Header>(&self.body).ok()?;
        if header.syncs == 1 {
            let (_, frame, body) = self.read()?;
            let explanation = join(frame, body.steps, header.last_at);
            header.ratios = ratios(&explanation.metrics).map(RatioSpan::from).collect();
        }
        let explanation = &sync.conclusion.explanation;
        let kept = metrics.iter().filter_map(|index| explanation.metrics.get(*index));
        for (moved, ratio) in header.ratios.iter_mut().zip(ratios(kept)) {
            moved.lowest = moved.lowest.min(ratio);
            moved.highest = moved.highest.max(ratio);
        }
        header.first = Ago::new(header.first.time(header.last_at), sync.at);
        header.last_at = sync.at;
        header.syncs = header.syncs.saturating_add(1);
        Some(header)
    }
}

impl Header {
    /// Creates the header of a sync that is a change.
    fn first(sync: &ConcludedSync<'_>) -> Self {
        Self { last_at: sync.at, first: Ago::new(sync.at, sync.at), syncs: 1, ratios: Vec::new() }
    }
}

/// Selects the metrics that the sentence of the decision quotes, and then the first other metrics that fit.
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

/// Returns the indices of the winner, the first failed metric, and the metric with the highest proposal.
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

/// Returns the maximum size of a metric in an entry, in bytes.
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

/// Returns the bit of a reason in a set.
fn bit(reason: StepReason) -> u32 {
    let index = StepReason::ALL.iter().position(|other| *other == reason).unwrap_or_default();
    1 << index
}

/// Encodes a value into a buffer that is reused.
fn encoded(value: &impl Serialize, buffer: &mut Vec<u8>) -> Vec<u8> {
    buffer.clear();
    append(value, std::mem::take(buffer))
}

impl From<f64> for RatioSpan {
    fn from(ratio: f64) -> Self {
        Self { lowest: ratio, highest: ratio }
    }
}

/// Returns the ratio of each metric with a ratio.
fn ratios<'a>(metrics: impl IntoIterator<Item = &'a MetricExplanation>) -> impl Iterator<Item = f64> {
    metrics.into_iter().filter_map(MetricExplanation::reading).map(|reading| reading.ratio)
}
