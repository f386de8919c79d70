//! The last decisions of one HPA, in compact form.

use std::collections::VecDeque;
use std::sync::Arc;

use autoscaling::explanation::{DecisionPath, Explanation, LimitingStep, MetricExplanation};
use autoscaling::{Action, WriteOutcome};
use jiff::Timestamp;

use super::code::{Code, Reader, Writer, fields};
use super::wire::{DecisionEntry, Outcome, RatioRange};
use crate::reconcile::Concluded;

/// The last decisions of one HPA.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Key of the newest entry. A sync with the same key is no change.
    newest: Option<MergeKey>,
    /// The entries, oldest first.
    entries: VecDeque<Entry>,
}

/// One decision, or several consecutive ones that differ only in noise.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The parts that change only with the spec, shared between entries.
    frame: Arc<[u8]>,
    /// The header, then the newest of the merged syncs.
    body: Vec<u8>,
}

/// Times and number of the merged syncs.
#[derive(Debug)]
struct Header {
    last_at: Timestamp,
    first_at: Timestamp,
    syncs: u32,
    /// The range of the ratio of each metric that has one. Empty for a single sync.
    ratios: Vec<RatioSpan>,
}

#[derive(Debug, Clone, Copy)]
struct RatioSpan {
    lowest: f64,
    highest: f64,
}

/// The key for merging: two decisions with equal keys and frames differ only in noise. The frame
/// distinguishes failed metrics from others, and one spec from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergeKey {
    course: DecisionPath,
    from: i32,
    to: Option<i32>,
    winner: Option<usize>,
    limiting: Option<LimitingStep>,
    outcome: Outcome,
}

impl MergeKey {
    fn new(sync: &Concluded<'_>) -> Self {
        let explanation = &sync.conclusion.explanation;
        Self {
            course: explanation.course,
            from: explanation.current,
            to: explanation.desired,
            winner: explanation.winner,
            limiting: explanation.limiting_step(),
            outcome: sync.outcome.into(),
        }
    }

    /// Whether another sync with the same key is merged. A sync with a write is never merged.
    fn is_steady(&self) -> bool {
        self.outcome != Outcome::Done
    }
}

impl Ring {
    /// Adds a concluded sync. `writer` is scratch space. Drops the oldest entry beyond `capacity`.
    pub(super) fn add(&mut self, sync: &Concluded<'_>, capacity: usize, writer: &mut Writer) {
        let merge_key = MergeKey::new(sync);
        let alike = self.newest == Some(merge_key) && merge_key.is_steady();
        if let Some(newest) = self.entries.back_mut().filter(|_| alike)
            && let Some(header) = newest.header_with(sync)
        {
            put(&header, sync, writer);
            if *newest.frame == *writer.frame {
                newest.body.clear();
                newest.body.reserve_exact(writer.body.len());
                newest.body.extend_from_slice(&writer.body);
                return;
            }
        }
        put(&Header::first(sync), sync, writer);
        while self.entries.len() >= capacity.max(1) {
            self.entries.pop_front();
        }
        if let Some(aged) = self.entries.back_mut() {
            aged.body.shrink_to_fit();
        }
        let shared = self.entries.iter().rev().find(|entry| *entry.frame == *writer.frame);
        let frame = shared.map_or_else(|| Arc::from(&*writer.frame), |entry| Arc::clone(&entry.frame));
        // Reserve little: most HPAs have few entries, and space for `capacity` entries would dominate their
        // cost.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len().clamp(1, 4));
        }
        self.entries.push_back(Entry { frame, body: writer.body.clone() });
        self.newest = Some(merge_key);
    }

    /// The newest entry.
    pub(super) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// All entries, newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }
}

impl Entry {
    /// The entry as the decisions API serves it.
    pub(super) fn decision(&self) -> Option<DecisionEntry> {
        let (header, kept) = self.read()?;
        let Header { last_at, first_at, syncs, ratios } = header;
        let StoredSync { generation, action, outcome, error, events, explanation } = kept;
        let readings = explanation.metrics.iter().filter_map(MetricExplanation::reading);
        let moved =
            readings.zip(ratios).filter(|(_, moved)| moved.lowest.is_finite() && moved.highest.is_finite());
        let ratios = moved.map(|(reading, moved)| RatioRange {
            metric: reading.subject.to_string(),
            lowest: moved.lowest,
            highest: moved.highest,
        });
        Some(DecisionEntry {
            first_at,
            last_at,
            syncs,
            generation,
            sentence: explanation.sentence(last_at),
            action: action.into(),
            limiting_step: explanation.limiting_step().map(|step| step.as_str().to_owned()),
            winner: explanation.winning_metric().map(|metric| metric.subject().to_string()),
            from: (explanation.course != DecisionPath::NoScale).then_some(explanation.current),
            to: explanation.desired,
            outcome,
            error: error.map(|text| text.to_string()),
            events: events.iter().map(ToString::to_string).collect(),
            ratios: ratios.collect(),
            explanation,
        })
    }

    fn read(&self) -> Option<(Header, StoredSync)> {
        let mut from = Reader::new(&self.frame, &self.body);
        Some((Header::take(&mut from)?, StoredSync::take(&mut from)?))
    }

    /// Returns the header after another sync with the same key.
    fn header_with(&self, sync: &Concluded<'_>) -> Option<Header> {
        let mut header = Header::take(&mut Reader::new(&self.frame, &self.body))?;
        if header.syncs == 1 {
            header.ratios = ratios(&self.read()?.1.explanation).map(RatioSpan::from).collect();
        }
        for (moved, ratio) in header.ratios.iter_mut().zip(ratios(&sync.conclusion.explanation)) {
            moved.lowest = moved.lowest.min(ratio);
            moved.highest = moved.highest.max(ratio);
        }
        header.last_at = sync.at;
        header.syncs = header.syncs.saturating_add(1);
        Some(header)
    }
}

impl Header {
    /// Creates the header of a sync that is a change.
    fn first(sync: &Concluded<'_>) -> Self {
        Self { last_at: sync.at, first_at: sync.at, syncs: 1, ratios: Vec::new() }
    }
}

/// Times are written as distances from the last sync.
impl Code for Header {
    fn put(&self, to: &mut Writer) {
        let Self { last_at, first_at, syncs, ratios } = self;
        to.base(*last_at);
        first_at.put(to);
        syncs.put(to);
        ratios.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            last_at: from.base()?,
            first_at: Code::take(from)?,
            syncs: Code::take(from)?,
            ratios: Code::take(from)?,
        })
    }
}

fields!(RatioSpan: body lowest, body highest);

impl From<f64> for RatioSpan {
    fn from(ratio: f64) -> Self {
        Self { lowest: ratio, highest: ratio }
    }
}

/// The ratio of each metric that has one.
fn ratios(explanation: &Explanation) -> impl Iterator<Item = f64> {
    explanation.metrics.iter().filter_map(MetricExplanation::reading).map(|reading| reading.ratio)
}

/// The stored part of a sync, in its decoded form.
#[derive(Debug)]
struct StoredSync {
    generation: Option<i64>,
    action: Action,
    outcome: Outcome,
    error: Option<Arc<str>>,
    events: Vec<Arc<str>>,
    explanation: Explanation,
}

fields!(StoredSync:
    frame generation, body action, body outcome, body error, body events, body explanation,
);

/// Writes a header and the content of [`StoredSync`], without building one.
fn put(header: &Header, sync: &Concluded<'_>, to: &mut Writer) {
    let conclusion = sync.conclusion;
    to.clear();
    header.put(to);
    to.frame(|to| sync.hpa.generation.put(to));
    conclusion.action.put(to);
    Outcome::from(sync.outcome).put(to);
    match sync.outcome {
        WriteOutcome::Failed(text) | WriteOutcome::Unknown(text) => {
            true.put(to);
            to.text(text);
        }
        _ => false.put(to),
    }
    let events = || conclusion.events.iter().chain(&conclusion.last_event);
    events().count().put(to);
    for event in events() {
        to.text(event.reason);
    }
    conclusion.explanation.put(to);
}
