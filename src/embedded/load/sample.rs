//! Samples: amounts averaged over a window, shown some time after they were taken.

use std::collections::VecDeque;
use std::time::Duration;

/// A counter as it was at the last scrapes, as far back as the window reaches.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trace {
    points: VecDeque<(Duration, f64)>,
}

/// A mean per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// Over what time.
    pub(super) window: Duration,
}

impl Trace {
    /// A counter that begins at 0 now.
    pub(super) fn beginning(now: Duration) -> Self {
        Self { points: VecDeque::from([(now, 0.0)]) }
    }

    /// Takes the counter's value, and answers its growth over the window, or over the time since it began. None if no
    /// time has passed.
    pub(super) fn take(&mut self, now: Duration, value: f64, window: Duration) -> Option<Rate> {
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

/// Samples that show some time after they were taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Delayed<T>(VecDeque<(Duration, T)>);

impl<T> Default for Delayed<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Delayed<T> {
    /// Adds the newest sample, to be shown `delay` from now on.
    pub(super) fn push(&mut self, now: Duration, delay: Duration, sample: T) {
        while self.0.get(1).is_some_and(|(from, _)| *from <= now) {
            self.0.pop_front();
        }
        self.0.push_back((now.saturating_add(delay), sample));
    }

    /// The newest sample that shows.
    pub(super) fn shown(&self, now: Duration) -> Option<&T> {
        self.0.iter().rev().find(|(from, _)| *from <= now).map(|(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Delayed, Trace};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_rate_is_over_the_window_or_over_the_time_since_the_beginning() {
        let mut trace = Trace::beginning(secs(5));
        let mut take =
            |at, value| trace.take(secs(at), value, secs(60)).map(|rate| (rate.per_second, rate.window));
        assert_eq!(take(5, 0.0), None);
        assert_eq!(take(15, 10.0), Some((1.0, secs(10))));
        assert_eq!(take(45, 100.0), Some((2.5, secs(40))));
        assert_eq!(take(75, 100.0), Some((1.5, secs(60))));
        assert_eq!(take(105, 220.0), Some((2.0, secs(60))));
    }

    #[test]
    fn a_sample_shows_after_its_delay_and_until_the_next_one_does() {
        let mut samples = Delayed::default();
        assert_eq!(samples.shown(secs(0)), None);
        for at in [0, 10, 20, 30] {
            samples.push(secs(at), secs(25), at);
        }
        let shown = [24, 25, 34, 35, 54, 55].map(|at| samples.shown(secs(at)).copied());
        assert_eq!(shown, [None, Some(0), Some(0), Some(10), Some(20), Some(30)]);
        samples.push(secs(60), secs(0), 60);
        assert_eq!(samples.shown(secs(60)), Some(&60));
        assert!(samples.0.len() <= 3);
    }
}
