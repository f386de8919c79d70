//! The events of a sync, as in `pkg/controller/podautoscaler/horizontal.go` of Kubernetes, and the rescales in recorded
//! events.

use std::cmp::Ordering;

use crate::history::Direction;

/// An event to send about an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIntent {
    /// `type`.
    pub kind: EventKind,
    /// Machine-readable reason in CamelCase: `SuccessfulRescale`, `FailedGetScale`.
    pub reason: &'static str,
    /// Human-readable sentence.
    pub message: String,
}

impl EventIntent {
    pub(crate) fn warning(reason: &'static str, message: String) -> Self {
        Self { kind: EventKind::Warning, reason, message }
    }
}

/// The `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

impl EventKind {
    /// The value in the Event object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The ends of the messages of upstream's `SuccessfulRescale` events.
pub(crate) const ABOVE_MAX: &str = "Current number of replicas above Spec.MaxReplicas";
pub(crate) const BELOW_MIN: &str = "Current number of replicas below Spec.MinReplicas";
pub(crate) const BELOW_TARGET: &str = "All metrics below target";
/// The end of the message, after the name of a metric.
pub(crate) const ABOVE_TARGET: &str = " above target";

/// The reason of a rescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescaleReason {
    /// A metric is above its target.
    AboveTarget,
    /// All metrics are below their targets.
    BelowTarget,
    /// The count was above `maxReplicas`.
    AboveMax,
    /// The count was below `minReplicas`.
    BelowMin,
}

impl RescaleReason {
    /// Parses the reason from the message of a `SuccessfulRescale` event of any HPA controller. `None` for other
    /// messages.
    pub fn from_message(message: &str) -> Option<Self> {
        let reasons = [
            (ABOVE_MAX, Self::AboveMax),
            (BELOW_MIN, Self::BelowMin),
            (BELOW_TARGET, Self::BelowTarget),
            (ABOVE_TARGET, Self::AboveTarget),
        ];
        reasons.into_iter().find(|(text, _)| message.ends_with(text)).map(|(_, reason)| reason)
    }

    /// The direction of the rescale.
    pub fn direction(self) -> Direction {
        match self {
            Self::AboveTarget | Self::BelowMin => Direction::Up,
            Self::BelowTarget | Self::AboveMax => Direction::Down,
        }
    }

    /// Whether a bound caused the rescale, regardless of the metrics.
    pub fn is_bound(self) -> bool {
        matches!(self, Self::AboveMax | Self::BelowMin)
    }
}

/// An HPA with at least this number of direction changes within an hour is flapping.
pub const FLAPPING: usize = 4;

/// Counts the changes of direction in a sequence of replica counts. Repeated counts are ignored.
pub fn direction_changes(counts: impl IntoIterator<Item = i32>) -> usize {
    let (mut last, mut direction, mut changes) = (None, Ordering::Equal, 0);
    for count in counts {
        let next = last.map_or(Ordering::Equal, |last| count.cmp(&last));
        last = Some(count);
        if next == Ordering::Equal {
            continue;
        }
        if direction != Ordering::Equal && next != direction {
            changes += 1;
        }
        direction = next;
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_rescale_event_has_a_reason() {
        for (message, reason) in [
            (
                "New size: 8; reason: cpu resource utilization (percentage of request) above target",
                Some(RescaleReason::AboveTarget),
            ),
            ("New size: 3; reason: All metrics below target", Some(RescaleReason::BelowTarget)),
            (
                "New size: 9; reason: Current number of replicas above Spec.MaxReplicas",
                Some(RescaleReason::AboveMax),
            ),
            (
                "New size: 2; reason: Current number of replicas below Spec.MinReplicas",
                Some(RescaleReason::BelowMin),
            ),
            ("New size: 2; reason: ", None),
        ] {
            assert_eq!(RescaleReason::from_message(message), reason, "{message}");
        }
    }

    #[test]
    fn direction_changes_ignore_repeated_counts() {
        for (counts, changes) in [
            (&[][..], 0),
            (&[3], 0),
            (&[2, 4, 6], 0),
            (&[2, 4, 4, 3], 1),
            (&[2, 2, 4, 4, 2, 2, 4], 2),
            (&[1, 3, 1, 3, 1, 3], 4),
        ] {
            assert_eq!(direction_changes(counts.iter().copied()), changes, "{counts:?}");
        }
    }
}
