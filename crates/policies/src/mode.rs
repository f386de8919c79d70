//! Modes: the changes of the count that are allowed. The mode of a policy applies after its guards.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::resolve::ActiveMode;
use crate::spec::Mode;

/// The effect of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeStep {
    /// The mode. `None` if it is invalid, so the count is held.
    pub mode: Option<Mode>,
    /// The end of the mode. `None` if it never ends.
    pub until: Option<Timestamp>,
    /// The current count.
    pub current: i32,
    /// The count without the mode. `None` if no count could be computed.
    pub recommended: Option<i32>,
    /// The count with the mode. `None` if no count is applied.
    pub applied: Option<i32>,
}

impl fmt::Display for ModeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, until, current, recommended, applied } = self;
        match mode {
            None => write!(f, "the mode is invalid, so the count stays at {current}")?,
            Some(Mode::Auto) => f.write_str("automatic")?,
            Some(Mode::Paused) => write!(f, "paused at {current}")?,
            Some(Mode::ScaleUpOnly) => f.write_str("only scale-ups are allowed")?,
            Some(Mode::ScaleDownOnly) => f.write_str("only scale-downs are allowed")?,
            Some(Mode::Pinned) => write!(f, "pinned at {}", applied.unwrap_or(*current))?,
            Some(Mode::DryRun) => write!(f, "dry run, the count stays at {current}")?,
        }
        if let Some(until) = until {
            write!(f, " until {until}")?;
        }
        match recommended.filter(|count| Some(*count) != *applied) {
            Some(count) => write!(f, ", the recommendation is {count}"),
            None => Ok(()),
        }
    }
}

/// Applies a mode. `recommended` is the count that the guards allow, or `None` if no count could be computed. Returns the
/// count to apply, and the effect of a mode other than Auto. Without a recommendation, only the mode Pinned applies a
/// count.
pub fn apply(mode: &ActiveMode, current: i32, recommended: Option<i32>) -> (Option<i32>, Option<ModeStep>) {
    let applied = match mode.mode {
        Some(Mode::Auto) => return (recommended, None),
        Some(Mode::Pinned) => Some(mode.replicas),
        Some(Mode::ScaleUpOnly) => recommended.map(|count| count.max(current)),
        Some(Mode::ScaleDownOnly) => recommended.map(|count| count.min(current)),
        None | Some(Mode::Paused | Mode::DryRun) => recommended.map(|_| current),
    };
    let step = ModeStep { mode: mode.mode, until: mode.until, current, recommended, applied };
    (applied, Some(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_withholds_what_it_does_not_allow() {
        let until = "2026-12-01T08:00:00Z".parse().unwrap();
        let text = |mode, recommended| {
            let mode = ActiveMode { mode, replicas: 5, until: Some(until) };
            let (applied, step) = apply(&mode, 4, recommended);
            (applied, step.map(|step| step.to_string()).unwrap_or_default())
        };
        for (mode, recommended, applied, expected) in [
            (Some(Mode::Auto), Some(9), Some(9), ""),
            (Some(Mode::Auto), None, None, ""),
            (
                Some(Mode::Paused),
                Some(9),
                Some(4),
                "paused at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (Some(Mode::Paused), Some(4), Some(4), "paused at 4 until 2026-12-01T08:00:00Z"),
            (Some(Mode::Paused), None, None, "paused at 4 until 2026-12-01T08:00:00Z"),
            (
                Some(Mode::ScaleUpOnly),
                Some(2),
                Some(4),
                "only scale-ups are allowed until 2026-12-01T08:00:00Z, the recommendation is 2",
            ),
            (
                Some(Mode::ScaleUpOnly),
                Some(9),
                Some(9),
                "only scale-ups are allowed until 2026-12-01T08:00:00Z",
            ),
            (
                Some(Mode::ScaleDownOnly),
                Some(9),
                Some(4),
                "only scale-downs are allowed until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (
                Some(Mode::ScaleDownOnly),
                Some(2),
                Some(2),
                "only scale-downs are allowed until 2026-12-01T08:00:00Z",
            ),
            (
                Some(Mode::Pinned),
                Some(9),
                Some(5),
                "pinned at 5 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (Some(Mode::Pinned), None, Some(5), "pinned at 5 until 2026-12-01T08:00:00Z"),
            (
                Some(Mode::DryRun),
                Some(9),
                Some(4),
                "dry run, the count stays at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (
                None,
                Some(9),
                Some(4),
                "the mode is invalid, so the count stays at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
        ] {
            assert_eq!(text(mode, recommended), (applied, expected.to_owned()), "{mode:?} {recommended:?}");
        }
    }
}
