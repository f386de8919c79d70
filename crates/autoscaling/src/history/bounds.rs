//! How much is remembered of one HPA.
//!
//! The reference keeps whatever no later entry takes the slot of. Up to the bounds so does this; beyond them, first goes
//! what no window or period that the API allows can reach, then what can change no decision, then neighbours are merged
//! to the safe side: a recommendation holds for longer, a rescale counts against its direction for longer and is given
//! back to the other for less long.

use jiff::{SignedDuration, Timestamp};

use super::{Recommendation, ScaleEvent, ago};

/// The longest stabilization window that the API allows.
pub const LONGEST_WINDOW: SignedDuration = SignedDuration::from_secs(3600);

/// The longest period of a rate policy that the API allows.
pub const LONGEST_PERIOD: SignedDuration = SignedDuration::from_secs(1800);

/// Recommendations of one HPA: twice those of the longest window at the usual 15 s between two syncs, and some more.
pub const RECOMMENDATIONS: usize = 512;

/// Scale events of one HPA in one direction: twice those of the longest period if every sync rescales, and some more.
pub const SCALE_EVENTS: usize = 256;

/// Brings recommendations back within their bound. Those older than both the API's longest window and `outdated_before`,
/// the longest window in force, can be reached no more.
pub(super) fn recommendations(entries: &mut Vec<Recommendation>, now: Timestamp, outdated_before: Timestamp) {
    if entries.len() <= RECOMMENDATIONS {
        return;
    }
    let reached = ago(now, LONGEST_WINDOW).min(outdated_before);
    entries.retain(|entry| entry.at >= reached);
    if entries.len() <= RECOMMENDATIONS {
        return;
    }
    entries.sort_by_key(|entry| entry.at);
    // A window looks at the highest or the lowest of its newest entries: whoever has a newer one at least as high and
    // another at least as low is never looked at.
    let mut highest = unsurpassed(entries, |entry, newer| entry > newer);
    let mut lowest = unsurpassed(entries, |entry, newer| entry < newer);
    *entries = united(&highest, &lowest);
    while entries.len() > RECOMMENDATIONS {
        (highest, lowest) = (merged(&highest), merged(&lowest));
        *entries = united(&highest, &lowest);
    }
}

/// The entries that no newer one reaches, oldest first.
fn unsurpassed(entries: &[Recommendation], beyond: impl Fn(i32, i32) -> bool) -> Vec<Recommendation> {
    let mut kept: Vec<Recommendation> = Vec::new();
    for entry in entries.iter().rev() {
        if kept.last().is_none_or(|newer| beyond(entry.replicas, newer.replicas)) {
            kept.push(*entry);
        }
    }
    kept.reverse();
    kept
}

/// Every two neighbours in one: the older one's count, which goes further, for as long as the newer one holds.
fn merged(entries: &[Recommendation]) -> Vec<Recommendation> {
    let pairs = entries.chunks(2);
    pairs
        .filter_map(|pair| Some(Recommendation { at: pair.last()?.at, replicas: pair.first()?.replicas }))
        .collect()
}

/// Both, in order of time, each entry once.
fn united(highest: &[Recommendation], lowest: &[Recommendation]) -> Vec<Recommendation> {
    let mut all = [highest, lowest].concat();
    all.sort_by_key(|entry| (entry.at, entry.replicas));
    all.dedup();
    all
}

/// Brings the scale events of one direction back within their bound.
pub(super) fn scale_events(entries: &mut Vec<ScaleEvent>, now: Timestamp, outdated_before: Timestamp) {
    if entries.len() <= SCALE_EVENTS {
        return;
    }
    let reached = ago(now, LONGEST_PERIOD).min(outdated_before);
    entries.retain(|entry| entry.at >= reached);
    if entries.len() > SCALE_EVENTS {
        entries.sort_by_key(|entry| entry.at);
    }
    while entries.len() > SCALE_EVENTS {
        *entries = entries.chunks(2).filter_map(summed).collect();
    }
}

/// One or two neighbours as one event.
fn summed(pair: &[ScaleEvent]) -> Option<ScaleEvent> {
    let (first, last) = (pair.first()?, pair.last()?);
    if pair.len() == 1 {
        return Some(*last);
    }
    Some(ScaleEvent {
        at: last.at,
        change: first.change.saturating_add(last.change),
        earliest: Some(first.earliest().min(last.earliest())),
    })
}
