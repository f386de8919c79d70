//! Samples: amounts averaged over a window and served after a delay.

use std::collections::VecDeque;
use std::time::Duration;

/// The values of a counter at the last scrapes, as far back as the window requires.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trace {
    points: VecDeque<(Duration, f64)>,
}

/// A mean rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// The averaging time.
    pub(super) window: Duration,
}

impl Trace {
    /// Creates a trace of a counter that is 0 at `now`.
    pub(super) fn starting_at(now: Duration) -> Self {
        Self { points: VecDeque::from([(now, 0.0)]) }
    }

    /// Records the counter's value. Returns the rate over the window, or since the counter's start if the start is
    /// later. Returns `None` for the first value, and if no time has passed.
    pub(super) fn record(&mut self, now: Duration, value: f64, window: Duration) -> Option<Rate> {
        let start = now.saturating_sub(window);
        while self.points.get(1).is_some_and(|(at, _)| *at <= start) {
            self.points.pop_front();
        }
        let rate = self.points.front().and_then(|(at, before)| {
            let window = now.saturating_sub(*at);
            let per_second = (value - before) / window.as_secs_f64();
            (!window.is_zero()).then_some(Rate { per_second, window })
        });
        self.points.push_back((now, value));
        rate
    }
}

/// Samples that are served after a delay.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DelayedSamples<T>(VecDeque<(Duration, T)>);

impl<T> Default for DelayedSamples<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> DelayedSamples<T> {
    /// Adds the newest sample, which becomes visible after `delay`. Later reads are for `served` or a later
    /// time, so older samples are dropped.
    pub(super) fn push(&mut self, now: Duration, delay: Duration, served: Duration, sample: T) {
        while self.0.get(1).is_some_and(|(from, _)| *from <= served) {
            self.0.pop_front();
        }
        self.0.push_back((now.saturating_add(delay), sample));
    }

    /// Returns the newest visible sample.
    pub(super) fn visible(&self, now: Duration) -> Option<&T> {
        self.0.iter().rev().find(|(from, _)| *from <= now).map(|(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DelayedSamples, Trace};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rate_covers_the_window_or_the_time_since_the_start() {
        let mut trace = Trace::starting_at(secs(5));
        let mut record =
            |at, value| trace.record(secs(at), value, secs(60)).map(|rate| (rate.per_second, rate.window));
        assert_eq!(record(5, 0.0), None);
        assert_eq!(record(15, 10.0), Some((1.0, secs(10))));
        assert_eq!(record(45, 100.0), Some((2.5, secs(40))));
        assert_eq!(record(75, 100.0), Some((1.5, secs(60))));
        assert_eq!(record(105, 220.0), Some((2.0, secs(60))));
    }

    #[test]
    fn sample_is_visible_from_its_delay_until_the_next_sample() {
        let mut samples = DelayedSamples::default();
        assert_eq!(samples.visible(secs(0)), None);
        for at in [0, 10, 20, 30] {
            samples.push(secs(at), secs(25), secs(at), at);
        }
        let visible = [24, 25, 34, 35, 54, 55].map(|at| samples.visible(secs(at)).copied());
        assert_eq!(visible, [None, Some(0), Some(0), Some(10), Some(20), Some(30)]);
        samples.push(secs(60), secs(0), secs(60), 60);
        assert_eq!(samples.visible(secs(60)), Some(&60));
        assert!(samples.0.len() <= 3);
    }
}
