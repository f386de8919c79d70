//! Stabilizes a proposal by the recommendations within a window (rules: docs/concepts/how-hpa-decides.md).

use std::cmp::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::explanation::{StabilizationStep, WindowEntry};
use crate::history::{Recommendation, after, ago};

#[derive(Debug)]
pub(crate) struct Stabilized {
    pub(crate) step: StabilizationStep,
    /// Recommendations before this time are outdated.
    pub(crate) outdated_before: Timestamp,
}

/// Stabilizes without `behavior`. The result is the highest count among the proposal and the recommendations that are
/// not older than the window. An older recommendation is outdated.
pub(crate) fn without_behavior(
    recommendations: &[Recommendation],
    proposal: i32,
    window: Duration,
    now: Timestamp,
) -> Stabilized {
    let cutoff = ago(now, SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX));
    let down_window_seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
    let in_window: Vec<WindowEntry> = recommendations
        .iter()
        .filter(|r| r.at >= cutoff)
        .map(|r| WindowEntry {
            at: r.at,
            replicas: r.replicas,
            expires_up: None,
            expires_down: Some(after(r.at, SignedDuration::from_secs(down_window_seconds))),
        })
        .collect();
    let highest = in_window.iter().map(|held| held.replicas).max().unwrap_or(proposal);
    Stabilized {
        step: StabilizationStep::new(proposal, highest.max(proposal), None, down_window_seconds, in_window),
        outdated_before: cutoff,
    }
}

/// Stabilizes with `behavior`. Raises the current count to the lowest count of the scale-up window, then lowers it to
/// the highest count of the scale-down window. The proposal belongs to each window. Windows are in seconds.
///
/// A recommendation must be younger than a window to belong to it. A recommendation older than both windows is
/// outdated.
pub(crate) fn with_behavior(
    recommendations: &[Recommendation],
    current: i32,
    proposal: i32,
    up_window: i64,
    down_window: i64,
    now: Timestamp,
) -> Stabilized {
    let up_cutoff = ago(now, SignedDuration::from_secs(up_window));
    let down_cutoff = ago(now, SignedDuration::from_secs(down_window));
    let (mut lowest, mut highest) = (proposal, proposal);
    let mut in_window = Vec::new();
    for &Recommendation { at, replicas } in recommendations {
        let held = WindowEntry {
            at,
            replicas,
            expires_up: (at > up_cutoff).then(|| after(at, SignedDuration::from_secs(up_window))),
            expires_down: (at > down_cutoff).then(|| after(at, SignedDuration::from_secs(down_window))),
        };
        if held.expires_up.is_some() {
            lowest = lowest.min(replicas);
        }
        if held.expires_down.is_some() {
            highest = highest.max(replicas);
        }
        if held.expires_up.is_some() || held.expires_down.is_some() {
            in_window.push(held);
        }
    }
    let stabilized = current.max(lowest).min(highest);
    Stabilized {
        step: StabilizationStep::new(proposal, stabilized, Some(up_window), down_window, in_window),
        outdated_before: up_cutoff.min(down_cutoff),
    }
}

impl StabilizationStep {
    /// Creates the step from the proposal `before` to the count `after`. `recommendations` contains the entries within
    /// a window, in any order.
    fn new(
        before: i32,
        after: i32,
        up_window_seconds: Option<i64>,
        down_window_seconds: i64,
        mut recommendations: Vec<WindowEntry>,
    ) -> Self {
        recommendations.sort_unstable_by_key(|held| (held.at, held.replicas));
        // A count above the proposal is due to recommendations of the scale-down window that are at least as high as
        // the count. A count below the proposal is due to recommendations of the scale-up window that are at most as
        // high. The newest of these recommendations expires last.
        let holds = |held: &&WindowEntry| match after.cmp(&before) {
            Ordering::Greater => held.expires_down.is_some() && held.replicas >= after,
            Ordering::Less => held.expires_up.is_some() && held.replicas <= after,
            Ordering::Equal => false,
        };
        let held_by = recommendations
            .iter()
            .rfind(holds)
            .map(|held| Recommendation { at: held.at, replicas: held.replicas });
        Self { before, after, up_window_seconds, down_window_seconds, held_by, recommendations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn recommended(entries: &[(i64, i32)]) -> Vec<Recommendation> {
        entries.iter().map(|&(second, replicas)| Recommendation { at: at(second), replicas }).collect()
    }

    #[test]
    fn highest_in_the_window_wins_without_behavior_and_its_edge_counts() {
        let history = recommended(&[(0, 9), (100, 7), (399, 3)]);
        let window = Duration::from_mins(5);
        assert_eq!(without_behavior(&history, 2, window, at(300)).step.after, 9);
        let later = without_behavior(&history, 2, window, at(301));
        assert_eq!(later.step.after, 7);
        assert_eq!(later.outdated_before, at(1));
        assert_eq!(without_behavior(&history, 8, window, at(301)).step.held_by, None);
    }

    #[test]
    fn edge_of_a_window_does_not_count_with_behavior() {
        let history = recommended(&[(0, 9), (1, 8)]);
        assert_eq!(with_behavior(&history, 9, 2, 0, 300, at(300)).step.after, 8);
        assert_eq!(with_behavior(&history, 9, 2, 0, 300, at(301)).step.after, 2);
    }

    #[test]
    fn scale_up_waits_for_the_lowest_of_its_window() {
        let history = recommended(&[(0, 3), (50, 6)]);
        let stabilized = with_behavior(&history, 3, 10, 60, 0, at(60));
        assert_eq!(stabilized.step.after, 6);
        assert_eq!(stabilized.step.held_by, Some(Recommendation { at: at(50), replicas: 6 }));
    }
}
