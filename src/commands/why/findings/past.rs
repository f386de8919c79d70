//! Findings about what happened lately.

use std::cmp::Ordering;

use autoscaling::explanation::Span;
use jiff::{SignedDuration, Timestamp};

use super::super::situation::RecentEvent;
use super::{Finding, Situation};

/// From so many changes of direction within an hour on, an HPA flaps.
const FLAPPING: usize = 4;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// So many counts are shown, the newest.
const SHOWN: usize = 8;
/// Of one event that was seen often, so many occurrences are taken in.
const OCCURRENCES: u32 = 240;

/// The count goes up and down all the time.
pub(super) fn flapping(situation: &Situation) -> Option<Finding> {
    let since = situation.at.checked_sub(HOUR).unwrap_or(Timestamp::MIN);
    let mut sizes: Vec<(Timestamp, i32)> = situation
        .recent_events
        .iter()
        .flat_map(occurrences)
        .filter(|(at, _)| *at >= since && *at <= situation.at)
        .collect();
    sizes.sort_unstable();
    sizes.dedup_by_key(|(_, size)| *size);
    let directions: Vec<Ordering> = sizes
        .windows(2)
        .filter_map(|pair| match pair {
            [(_, before), (_, after)] => Some(after.cmp(before)),
            _ => None,
        })
        .collect();
    let changes = directions.windows(2).filter(|pair| matches!(pair, [a, b] if a != b)).count();
    if changes < FLAPPING {
        return None;
    }
    let newest: Vec<String> =
        sizes.iter().rev().take(SHOWN).rev().map(|(_, size)| size.to_string()).collect();
    let window = situation.explanation.stabilization.as_ref().map(|step| step.down_window_seconds);
    let now = window.map(|window| format!(" (now {})", Span::seconds(window))).unwrap_or_default();
    Some(Finding::warning(
        "flapping",
        format!("the count changed its direction {changes} times in the last hour: {}", newest.join(" → ")),
        format!(
            "Lengthen behavior.scaleDown.stabilizationWindowSeconds{now}, or let fewer pods go at a time. concertina simulate \
             shows what a change would do."
        ),
    ))
}

/// When an event was seen and what size it tells. Of one that was seen more often only the first and the last time are
/// known; the others are taken to lie evenly between.
fn occurrences(event: &RecentEvent) -> Vec<(Timestamp, i32)> {
    // What a combined event repeats is not one size.
    let Some((size, false)) = event.new_size() else {
        return Vec::new();
    };
    let count = event.count.clamp(1, OCCURRENCES);
    let span = event.last.duration_since(event.first);
    (0..count)
        .filter_map(|number| {
            let steps = i32::try_from(count.saturating_sub(1).max(1)).ok()?;
            let offset = span.checked_div(steps)?.checked_mul(i32::try_from(number).ok()?)?;
            let at = if number + 1 == count { event.last } else { event.first.checked_add(offset).ok()? };
            Some((at, size))
        })
        .collect()
}
