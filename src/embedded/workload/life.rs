//! The life of a pod on its node, as a state machine over time: nothing here knows of objects or timers.

use std::time::Duration;

use super::model::{Failure, Span, WorkloadModel};
use super::seed::Seed;

/// kubelet's back-off between the restarts of a container that crashes.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// A container that has run so long starts without history after its next crash.
const BACK_OFF_FORGOTTEN: Duration = Duration::from_mins(10);

/// Where a pod is in its life. Times are counted from the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The image is being pulled.
    Pulling {
        /// When it is there.
        until: Duration,
    },
    /// The container runs and is not ready for the first time since its start.
    Starting,
    /// The container runs and is ready.
    Ready,
    /// The container runs, was ready, and is not.
    Unready,
    /// The container has crashed and waits for its restart.
    BackOff {
        /// When it restarts.
        until: Duration,
    },
}

/// One pod's life: where it is, and all that is going to happen to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    stage: Stage,
    /// Since when it is in this stage.
    since: Duration,
    /// When its container has last started.
    started: Duration,
    /// When its container has last crashed.
    crashed: Option<Duration>,
    /// From the container's start until it is ready; none if it never is.
    start_up: Option<Duration>,
    /// When the container crashes, and after what time.
    crashes: Vec<(Span, Duration)>,
    /// When the container is not ready.
    unready: Vec<Span>,
    restarts: u32,
    /// Crashes that the back-off remembers.
    recent_crashes: u32,
}

impl Life {
    /// The life of a pod that is created at `now` and whose image is there at `image_at`.
    pub(super) fn new(model: &WorkloadModel, seed: Seed, now: Duration, image_at: Duration) -> Self {
        let mut life = Self::at_once(now);
        life.start_up = Some(model.start_up.draw(seed.of("start-up")));
        for (number, failure) in (0..).zip(&model.failures) {
            let hits = |fraction: &f64| seed.of("failure").nth(number).share() < *fraction;
            match failure {
                Failure::CrashLoop { during, fraction, runs_for } if hits(fraction) => {
                    life.crashes.push((*during, *runs_for));
                }
                Failure::NeverReady { created, fraction } if created.contains(now) && hits(fraction) => {
                    life.start_up = None;
                }
                Failure::Unready { during, fraction } if hits(fraction) => life.unready.push(*during),
                _ => {}
            }
        }
        life.stage = Stage::Pulling { until: image_at.max(now) };
        life.advance(now);
        life
    }

    /// The life of a pod that is ready at once and stays so.
    pub(super) fn at_once(now: Duration) -> Self {
        Self {
            stage: Stage::Ready,
            since: now,
            started: now,
            crashed: None,
            start_up: Some(Duration::ZERO),
            crashes: Vec::new(),
            unready: Vec::new(),
            restarts: 0,
            recent_crashes: 0,
        }
    }

    /// The same life with the failures of a model, and neither pull nor start-up at its beginning.
    pub(super) fn warm(model: &WorkloadModel, seed: Seed, now: Duration) -> Self {
        let mut life = Self::new(model, seed, now, now);
        (life.stage, life.since) = (Stage::Ready, now);
        life.advance(now);
        life
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// When the container has last started.
    pub(super) fn started(&self) -> Duration {
        self.started
    }

    /// When the container has last crashed, if ever.
    pub(super) fn crashed(&self) -> Option<Duration> {
        self.crashed
    }

    pub(super) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// When the pod leaves its stage, if it ever does.
    pub(super) fn due(&self) -> Option<Duration> {
        self.next().map(|(time, _)| time)
    }

    /// Lives up to `now`; whether that has changed the stage, or restarted the container.
    pub(super) fn advance(&mut self, now: Duration) -> bool {
        let mut changed = false;
        while let Some((time, next)) = self.next().filter(|(time, _)| *time <= now) {
            match (self.stage, next) {
                (_, Stage::BackOff { .. }) => {
                    self.recent_crashes = self.crashes_to_remember(time) + 1;
                    self.crashed = Some(time);
                }
                (Stage::BackOff { .. }, _) => {
                    self.restarts += 1;
                    self.started = time;
                }
                (Stage::Pulling { .. }, _) => self.started = time,
                _ => {}
            }
            (self.stage, self.since) = (next, time);
            changed = true;
        }
        changed
    }

    /// What comes next, and when; never before the present stage began.
    fn next(&self) -> Option<(Duration, Stage)> {
        match self.stage {
            Stage::Pulling { until } | Stage::BackOff { until } => Some((until, Stage::Starting)),
            Stage::Starting | Stage::Unready => earlier(self.next_crash(), self.next_ready()),
            Stage::Ready => earlier(self.next_crash(), self.next_unready()),
        }
    }

    fn next_crash(&self) -> Option<(Duration, Stage)> {
        let at = |(span, runs_for): &(Span, Duration)| {
            let time = self.started.saturating_add(*runs_for).max(span.from).max(self.since);
            span.contains(time).then_some(time)
        };
        let time = self.crashes.iter().filter_map(at).min()?;
        Some((time, Stage::BackOff { until: time.saturating_add(self.back_off(time)) }))
    }

    fn next_ready(&self) -> Option<(Duration, Stage)> {
        let mut time = self.started.saturating_add(self.start_up?).max(self.since);
        while let Some(span) = self.unready.iter().find(|span| span.contains(time)) {
            time = span.until?;
        }
        Some((time, Stage::Ready))
    }

    fn next_unready(&self) -> Option<(Duration, Stage)> {
        let at = |span: &Span| Some(span.from.max(self.since)).filter(|time| span.contains(*time));
        self.unready.iter().filter_map(at).min().map(|time| (time, Stage::Unready))
    }

    fn crashes_to_remember(&self, now: Duration) -> u32 {
        if now.saturating_sub(self.started) >= BACK_OFF_FORGOTTEN { 0 } else { self.recent_crashes }
    }

    /// How long the container waits after a crash at `now`.
    fn back_off(&self, now: Duration) -> Duration {
        match self.crashes_to_remember(now).checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => {
                FIRST_BACK_OFF.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_BACK_OFF)
            }
        }
    }
}

/// The earlier of two; the first if they come at once.
fn earlier(one: Option<(Duration, Stage)>, other: Option<(Duration, Stage)>) -> Option<(Duration, Stage)> {
    [one, other].into_iter().flatten().min_by_key(|(time, _)| *time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Life, Stage};
    use crate::embedded::workload::seed::Seed;
    use crate::embedded::workload::{Failure, Span, WorkloadModel};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What a pod goes through that is created at 0, with whole seconds.
    fn story(failures: Vec<Failure>, pull: u64, until: u64) -> Vec<(u64, &'static str)> {
        let model = WorkloadModel { start_up: secs(3).into(), failures, ..WorkloadModel::default() };
        let mut life = Life::new(&model, Seed::new(1), secs(0), secs(pull));
        let mut story = vec![(0, name(life.stage()))];
        while let Some(due) = life.due().filter(|due| *due <= secs(until)) {
            life.advance(due);
            story.push((due.as_secs(), name(life.stage())));
        }
        story
    }

    fn name(stage: Stage) -> &'static str {
        match stage {
            Stage::Pulling { .. } => "pulling",
            Stage::Starting => "starting",
            Stage::Ready => "ready",
            Stage::Unready => "unready",
            Stage::BackOff { .. } => "back-off",
        }
    }

    fn crash_loop(from: u64, length: u64, runs_for: u64) -> Failure {
        Failure::CrashLoop {
            during: Span::new(secs(from), secs(length)),
            fraction: 1.0,
            runs_for: secs(runs_for),
        }
    }

    #[test]
    fn a_pod_pulls_its_image_starts_and_is_ready() {
        assert_eq!(story(vec![], 5, 1_000), [(0, "pulling"), (5, "starting"), (8, "ready")]);
        assert_eq!(story(vec![], 0, 1_000), [(0, "starting"), (3, "ready")]);
    }

    #[test]
    fn a_container_that_crashes_waits_longer_each_time_up_to_five_minutes() {
        let story = story(vec![crash_loop(100, 3_600, 1)], 0, 1_500);
        let waits: Vec<_> = story
            .windows(2)
            .filter(|pair| pair[0].1 == "back-off")
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        assert_eq!(story[..3], [(0, "starting"), (3, "ready"), (100, "starting")]);
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn the_first_restart_behind_the_end_of_a_crash_loop_lasts() {
        let story = story(vec![crash_loop(10, 50, 1)], 0, 10_000);
        // Crashes at 10, 11 and 22; the restart at 42 crashes at 43, the one at 83 does not.
        assert_eq!(story[story.len() - 2..], [(83, "starting"), (86, "ready")]);
    }

    #[test]
    fn a_container_that_runs_longer_than_it_starts_is_ready_in_between() {
        let story = story(vec![crash_loop(0, 60, 5)], 0, 30);
        assert_eq!(
            story,
            [
                (0, "starting"),
                (3, "ready"),
                (5, "starting"),
                (8, "ready"),
                (10, "back-off"),
                (20, "starting"),
                (23, "ready"),
                (25, "back-off")
            ]
        );
    }

    #[test]
    fn failing_probes_take_readiness_away_and_give_it_back() {
        let unready = Failure::Unready { during: Span::new(secs(10), secs(5)), fraction: 1.0 };
        assert_eq!(
            story(vec![unready], 0, 60),
            [(0, "starting"), (3, "ready"), (10, "unready"), (15, "ready")]
        );
        let early = Failure::Unready { during: Span::new(secs(2), secs(5)), fraction: 1.0 };
        assert_eq!(story(vec![early], 0, 60), [(0, "starting"), (7, "ready")]);
        let endless = Failure::Unready { during: Span::since(secs(0)), fraction: 1.0 };
        assert_eq!(story(vec![endless], 0, 60), [(0, "starting")]);
    }

    #[test]
    fn a_pod_that_is_never_ready_runs_on() {
        let never = Failure::NeverReady { created: Span::since(secs(0)), fraction: 1.0 };
        assert_eq!(story(vec![never], 2, 10_000), [(0, "pulling"), (2, "starting")]);
        let later = Failure::NeverReady { created: Span::since(secs(1)), fraction: 1.0 };
        assert_eq!(story(vec![later], 0, 10_000).len(), 2);
    }

    #[test]
    fn a_fraction_hits_that_share_of_the_pods() {
        let failures = vec![Failure::NeverReady { created: Span::since(secs(0)), fraction: 0.3 }];
        let model = WorkloadModel { failures, ..WorkloadModel::default() };
        let seed = Seed::new(1);
        let life = |number| Life::new(&model, seed.nth(number), secs(0), secs(0));
        let hit = (0..1_000).filter(|number| life(*number).due().is_none()).count();
        assert!((250..350).contains(&hit), "{hit}");
    }

    #[test]
    fn time_that_was_slept_through_is_caught_up_with() {
        let model = WorkloadModel { failures: vec![crash_loop(10, 50, 1)], ..WorkloadModel::default() };
        let mut slept = Life::new(&model, Seed::new(1), secs(0), secs(0));
        let mut awake = slept.clone();
        for second in 0..100 {
            awake.advance(secs(second));
        }
        slept.advance(secs(99));
        assert_eq!((slept.stage(), slept.restarts()), (Stage::Ready, 4));
        assert_eq!(slept, awake);
    }
}
