//! The load of each HPA over time: one unit, and one more with each step.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::election::now;

pub(crate) const HPAS: usize = 60;
pub(crate) const STEPS: usize = 10;
/// The time between two steps of an HPA, which is longer than the slowest way takes.
pub(crate) const STEP: SignedDuration = SignedDuration::from_secs(60);
/// The time from the first step of the first HPA to the last step of the last one.
pub(crate) const LAST: Duration = Duration::from_mins(11);

/// The loads of all HPAs. The ways share it, so that their steps are the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    start: Timestamp,
}

/// The name of an HPA, its target and its pod.
pub(crate) fn name(index: usize) -> String {
    format!("hpa-{index:02}")
}

impl Load {
    /// The first step comes after this time.
    pub(crate) fn starting_in(time: Duration) -> Self {
        Self { start: now() + time }
    }

    /// The time of a step of an HPA. The steps of the HPAs are spread over the time between two steps.
    pub(crate) fn time_of(self, index: usize, step: usize) -> Timestamp {
        let seconds = i64::try_from(index + 60 * step).unwrap_or(i64::MAX);
        // Parts of a second, so that steps are at no fixed place within the second of a scrape.
        let millis = i64::try_from((index * 370 + step * 210) % 1000).unwrap_or_default();
        self.start + SignedDuration::from_secs(seconds) + SignedDuration::from_millis(millis)
    }

    /// The load of an HPA at a time, in units.
    pub(crate) fn units(self, index: usize, at: Timestamp) -> i64 {
        let steps = (0..STEPS).filter(|&step| self.time_of(index, step) <= at).count();
        1 + i64::try_from(steps).unwrap_or(i64::MAX)
    }
}
