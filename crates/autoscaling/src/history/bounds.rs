//! Bounds the history of one HPA.
//!
//! Upstream keeps each entry until a later entry replaces it. This module does the same while the history is
//! within its bounds. Beyond the bounds, the module first drops entries that are older than any window or
//! period that the API allows. Then it drops entries that cannot change any decision. If too many entries
//! remain, the module merges neighbors conservatively. A merged recommendation holds for longer. A merged
//! rescale counts against its direction for longer, and in favor of the other direction for a shorter time.

use jiff::{SignedDuration, Timestamp};

use super::{Recommendation, ScaleEvent, ago};

/// The longest stabilization window that the API allows.
pub const LONGEST_WINDOW: SignedDuration = SignedDuration::from_secs(3600);

/// The longest period of a rate policy that the API allows.
pub const LONGEST_PERIOD: SignedDuration = SignedDuration::from_secs(1800);

/// Maximum recommendations per HPA: more than twice the number in the longest window at 15 s between syncs.
pub const RECOMMENDATIONS: usize = 512;

/// Maximum scale events per HPA and direction: more than twice the number in the longest period if a sync rescales
/// every 15 s.
pub const SCALE_EVENTS: usize = 256;

/// Shrinks recommendations to their bound. Entries older than both the API's longest window and `outdated_before`, the
/// start of the longest effective window, are out of reach.
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
    // A window uses only the highest or the lowest of its newest entries. An entry is never used if some newer entry is
    // at least as high, and some newer entry is at least as low.
    let mut highest = unsurpassed(entries, |entry, newer| entry > newer);
    let mut lowest = unsurpassed(entries, |entry, newer| entry < newer);
    *entries = united(&highest, &lowest);
    while entries.len() > RECOMMENDATIONS {
        (highest, lowest) = (merged(&highest), merged(&lowest));
        *entries = united(&highest, &lowest);
    }
}

/// The entries that no newer entry equals or exceeds in one direction, oldest first.
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

/// Merges each pair of neighbors. The result has the count of the older entry, which is the more extreme one, and the
/// time of the newer entry.
fn merged(entries: &[Recommendation]) -> Vec<Recommendation> {
    let pairs = entries.chunks(2);
    pairs
        .filter_map(|pair| Some(Recommendation { at: pair.last()?.at, replicas: pair.first()?.replicas }))
        .collect()
}

/// The union in order of time, each entry once.
fn united(highest: &[Recommendation], lowest: &[Recommendation]) -> Vec<Recommendation> {
    let mut all = [highest, lowest].concat();
    all.sort_by_key(|entry| (entry.at, entry.replicas));
    all.dedup();
    all
}

/// Shrinks the scale events of one direction to their bound.
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

/// Merges one or two neighbors into one event.
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
