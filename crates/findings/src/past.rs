//! Findings about recent rescales.

use autoscaling::event::{FLAPPING, direction_changes};
use autoscaling::explanation::Span;
use jiff::{SignedDuration, Timestamp};

use crate::facts::RecentEvent;
use crate::{Facts, Finding, FindingId};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of counts to show. The newest counts are shown.
const SHOWN: usize = 8;
/// Maximum number of occurrences that are derived from a repeated event.
const OCCURRENCES: u32 = 240;

/// Finds a count that changes direction repeatedly.
pub(crate) fn flapping(facts: &Facts<'_>) -> Option<Finding> {
    let since = facts.at.checked_sub(HOUR).unwrap_or(Timestamp::MIN);
    let mut sizes: Vec<(Timestamp, i32)> = facts
        .recent_events
        .iter()
        .flat_map(occurrences)
        .filter(|(at, _)| *at >= since && *at <= facts.at)
        .collect();
    sizes.sort_unstable();
    sizes.dedup_by_key(|(_, size)| *size);
    let changes = direction_changes(sizes.iter().map(|(_, size)| *size));
    if changes < FLAPPING {
        return None;
    }
    let newest: Vec<String> =
        sizes.iter().rev().take(SHOWN).rev().map(|(_, size)| size.to_string()).collect();
    let window = facts.explanation.stabilization.as_ref().map(|step| step.down_window_seconds);
    let now = window.map(|window| format!(" (now {})", Span::seconds(window))).unwrap_or_default();
    Some(Finding::warning(
        FindingId::Flapping,
        format!("the count changed direction {changes} times in the last hour: {}", newest.join(" → ")),
        format!(
            "Increase behavior.scaleDown.stabilizationWindowSeconds{now}, or remove fewer pods at a time. concertina simulate \
             shows the effect of a change."
        ),
    ))
}

/// Returns the occurrences of an event, each with its time and size. A repeated event has only the times of
/// its first and last occurrence. The other occurrences are assumed to lie evenly in between.
pub fn occurrences(event: &RecentEvent) -> Vec<(Timestamp, i32)> {
    // A combined event covers rescales to different sizes.
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
