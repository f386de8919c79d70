//! The life cycle of a pod on its node, as a state machine over time without objects or timers.

use std::time::Duration;

use super::model::{Failure, Seed, Span, WorkloadModel};

/// The kubelet's first back-off between restarts of a crashing container.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
/// The maximum back-off between restarts.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// The run time of a container after which a crash restarts the back-off from zero.
const BACK_OFF_RESET: Duration = Duration::from_mins(10);

/// The stage of a pod. Times are relative to the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The pod waits for a node, or until its node has pulled the image.
    Pulling {
        /// The end of the wait.
        until: Duration,
    },
    /// The container runs and has not been ready since its start.
    Starting,
    /// The container runs and is ready.
    Ready,
    /// The container runs and is no longer ready.
    Unready,
    /// The container has crashed and waits for its restart.
    BackOff {
        /// The time of the restart.
        until: Duration,
    },
}

/// The life cycle of one pod: its stage and its future failures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodLifecycle {
    pub(super) stage: Stage,
    /// The start of the current stage.
    since: Duration,
    /// The last start of the container.
    pub(super) started: Duration,
    /// The last crash of the container.
    pub(super) crashed: Option<Duration>,
    /// Whether the scheduler cannot place the pod before the end of [`Stage::Pulling`].
    is_unschedulable: bool,
    /// The time from the container's start until it is ready. `None` if it never becomes ready.
    start_up: Option<Duration>,
    /// The periods of crashes, each with the container's run time until the crash.
    crashes: Vec<(Span, Duration)>,
    /// The periods in which the readiness probe fails.
    unready: Vec<Span>,
    pub(super) restarts: u32,
    /// The number of crashes that count for the back-off.
    recent_crashes: u32,
}

impl PodLifecycle {
    /// Creates the life cycle of a pod that is created at `now` and whose image is available at `image_at`.
    pub(super) fn new(model: &WorkloadModel, seed: Seed, now: Duration, image_at: Duration) -> Self {
        let mut lifecycle = Self::always_ready(now);
        lifecycle.start_up = Some(model.start_up.draw(seed.for_name("start-up")));
        for (number, failure) in (0..).zip(&model.failures) {
            let affects = |fraction: &f64| seed.for_name("failure").nth(number).share() < *fraction;
            match failure {
                Failure::CrashLoop { during, fraction, runs_for } if affects(fraction) => {
                    lifecycle.crashes.push((*during, *runs_for));
                }
                Failure::NeverReady { created, fraction } if created.contains(now) && affects(fraction) => {
                    lifecycle.start_up = None;
                }
                Failure::Unschedulable { created, .. } => {
                    lifecycle.is_unschedulable |= created.contains(now);
                }
                Failure::Unready { during, fraction } if affects(fraction) => lifecycle.unready.push(*during),
                _ => {}
            }
        }
        lifecycle.stage = Stage::Pulling { until: image_at.max(now) };
        lifecycle.advance(now);
        lifecycle
    }

    /// Creates the life cycle of a pod that is ready immediately and stays ready.
    pub(super) fn always_ready(now: Duration) -> Self {
        Self {
            stage: Stage::Ready,
            since: now,
            started: now,
            crashed: None,
            is_unschedulable: false,
            start_up: Some(Duration::ZERO),
            crashes: Vec::new(),
            unready: Vec::new(),
            restarts: 0,
            recent_crashes: 0,
        }
    }

    /// Creates a life cycle with the failures of a model, but without the first image pull and startup.
    pub(super) fn warm(model: &WorkloadModel, seed: Seed, now: Duration) -> Self {
        let mut lifecycle = Self::new(model, seed, now, now);
        (lifecycle.stage, lifecycle.since) = (Stage::Ready, now);
        lifecycle.advance(now);
        lifecycle
    }

    /// Returns whether the pod waits for a node.
    pub(super) fn waits_for_node(&self) -> bool {
        self.is_unschedulable && matches!(self.stage, Stage::Pulling { .. })
    }

    /// Returns the end of the current stage, if any.
    pub(super) fn due(&self) -> Option<Duration> {
        self.next().map(|(time, _)| time)
    }

    /// Advances to `now`. Returns whether the stage changed or the container restarted.
    pub(super) fn advance(&mut self, now: Duration) -> bool {
        let mut changed = false;
        while let Some((time, next)) = self.next().filter(|(time, _)| *time <= now) {
            match (self.stage, next) {
                (_, Stage::BackOff { .. }) => {
                    self.recent_crashes = self.counted_crashes(time) + 1;
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

    /// Returns the next stage and its start, which is not before the start of the current stage.
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

    fn counted_crashes(&self, now: Duration) -> u32 {
        if now.saturating_sub(self.started) >= BACK_OFF_RESET { 0 } else { self.recent_crashes }
    }

    /// Returns the wait after a crash at `now`.
    fn back_off(&self, now: Duration) -> Duration {
        match self.counted_crashes(now).checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => {
                FIRST_BACK_OFF.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_BACK_OFF)
            }
        }
    }
}

/// Returns the earlier of two stages, or `one` if both start at the same time.
fn earlier(one: Option<(Duration, Stage)>, other: Option<(Duration, Stage)>) -> Option<(Duration, Stage)> {
    [one, other].into_iter().flatten().min_by_key(|(time, _)| *time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PodLifecycle, Stage};
    use crate::workload::model::Seed;
    use crate::workload::{Failure, Span, WorkloadModel};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns the stages of a pod created at 0, with their start in seconds.
    fn stages(failures: Vec<Failure>, pull: u64, until: u64) -> Vec<(u64, &'static str)> {
        let model = WorkloadModel { start_up: secs(3).into(), failures, ..WorkloadModel::default() };
        let mut lifecycle = PodLifecycle::new(&model, Seed::new(1), secs(0), secs(pull));
        let mut story = vec![(0, name(lifecycle.stage))];
        while let Some(due) = lifecycle.due().filter(|due| *due <= secs(until)) {
            lifecycle.advance(due);
            story.push((due.as_secs(), name(lifecycle.stage)));
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
    fn pod_pulls_its_image_starts_and_becomes_ready() {
        assert_eq!(stages(vec![], 5, 1_000), [(0, "pulling"), (5, "starting"), (8, "ready")]);
        assert_eq!(stages(vec![], 0, 1_000), [(0, "starting"), (3, "ready")]);
    }

    #[test]
    fn back_off_doubles_up_to_five_minutes() {
        let story = stages(vec![crash_loop(100, 3_600, 1)], 0, 1_500);
        let waits: Vec<_> = story
            .windows(2)
            .filter(|pair| pair[0].1 == "back-off")
            .map(|pair| pair[1].0 - pair[0].0)
            .collect();
        assert_eq!(story[..3], [(0, "starting"), (3, "ready"), (100, "starting")]);
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn first_restart_after_a_crash_loop_succeeds() {
        let story = stages(vec![crash_loop(10, 50, 1)], 0, 10_000);
        // The container crashes at 10, 11, 22 and 43 s. After its restart at 83 s, it does not crash.
        assert_eq!(story[story.len() - 2..], [(83, "starting"), (86, "ready")]);
    }

    #[test]
    fn container_is_ready_between_crashes_if_it_runs_long_enough() {
        let story = stages(vec![crash_loop(0, 60, 5)], 0, 30);
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
    fn failing_probes_remove_readiness_until_they_succeed() {
        let unready = Failure::Unready { during: Span::new(secs(10), secs(5)), fraction: 1.0 };
        assert_eq!(
            stages(vec![unready], 0, 60),
            [(0, "starting"), (3, "ready"), (10, "unready"), (15, "ready")]
        );
        let early = Failure::Unready { during: Span::new(secs(2), secs(5)), fraction: 1.0 };
        assert_eq!(stages(vec![early], 0, 60), [(0, "starting"), (7, "ready")]);
        let endless = Failure::Unready { during: Span::since(secs(0)), fraction: 1.0 };
        assert_eq!(stages(vec![endless], 0, 60), [(0, "starting")]);
    }

    #[test]
    fn never_ready_pod_keeps_running() {
        let never = Failure::NeverReady { created: Span::since(secs(0)), fraction: 1.0 };
        assert_eq!(stages(vec![never], 2, 10_000), [(0, "pulling"), (2, "starting")]);
        let later = Failure::NeverReady { created: Span::since(secs(1)), fraction: 1.0 };
        assert_eq!(stages(vec![later], 0, 10_000).len(), 2);
    }

    #[test]
    fn failure_affects_its_fraction_of_the_pods() {
        let failures = vec![Failure::NeverReady { created: Span::since(secs(0)), fraction: 0.3 }];
        let model = WorkloadModel { failures, ..WorkloadModel::default() };
        let seed = Seed::new(1);
        let lifecycle = |number| PodLifecycle::new(&model, seed.nth(number), secs(0), secs(0));
        let affected = (0..1_000).filter(|number| lifecycle(*number).due().is_none()).count();
        assert!((250..350).contains(&affected), "{affected}");
    }

    #[test]
    fn single_advance_equals_many_small_ones() {
        let model = WorkloadModel { failures: vec![crash_loop(10, 50, 1)], ..WorkloadModel::default() };
        let mut single = PodLifecycle::new(&model, Seed::new(1), secs(0), secs(0));
        let mut stepped = single.clone();
        for second in 0..100 {
            stepped.advance(secs(second));
        }
        single.advance(secs(99));
        assert_eq!((single.stage, single.restarts), (Stage::Ready, 4));
        assert_eq!(single, stepped);
    }
}
