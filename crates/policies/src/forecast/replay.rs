//! The replay of a recorded load, so that a new forecast need not wait for its own history.

use std::collections::VecDeque;
use std::time::Duration;

use autoscaling::quantity::Quantity;
use autoscaling::spec::{MetricSource, ResourceTarget, Spec, ValueTarget};
use forecast::{Observation, Settings, State};
use jiff::Timestamp;

use super::whole;
use crate::spec::ForecastSpec;

/// The reason why a recorded load cannot be converted to pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no metric of the HPA has a target of type Utilization or AverageValue, which the query could be compared with"
)]
pub struct NoTarget;

/// What an HPA alone would have done under a recorded load: it asks for the highest count of its scale-down window, one
/// minute late. Limits of its rates and the tolerance do not count.
#[derive(Debug)]
pub struct Replay {
    pub(super) state: State,
    uid: String,
    settings: Settings,
    target: Target,
    bounds: (i32, i32),
    /// The minutes before a minute whose load counts.
    window: i64,
    /// The recent minutes, each with the count for its load.
    recent: VecDeque<(i64, i32)>,
    /// The count of the last minute.
    pub(super) asked: Option<i32>,
}

/// A target per pod.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// The total of the metric that one pod serves at full capacity.
    capacity: f64,
    /// The pods that the HPA asks for, for a load of one pod at full capacity.
    pods: f64,
}

impl Target {
    /// The first target per pod of an HPA.
    fn of(hpa: &Spec, load_per_pod: f64) -> Option<Self> {
        let average = |target: Quantity| {
            let target = Some(target.as_f64()).filter(|target| *target > 0.0)?;
            Some(Self { capacity: target * load_per_pod, pods: load_per_pod })
        };
        hpa.metrics.iter().find_map(|metric| match metric {
            MetricSource::Resource { target, .. } | MetricSource::ContainerResource { target, .. } => {
                match *target {
                    ResourceTarget::Utilization(percent) if percent > 0 => {
                        Some(Self { capacity: 1.0, pods: 100.0 / f64::from(percent) })
                    }
                    ResourceTarget::Utilization(_) => None,
                    ResourceTarget::AverageValue(target) => average(target),
                }
            }
            MetricSource::Pods { average: target, .. }
            | MetricSource::Object { target: ValueTarget::AverageValue(target), .. }
            | MetricSource::External { target: ValueTarget::AverageValue(target), .. } => average(*target),
            MetricSource::Object { .. } | MetricSource::External { .. } | MetricSource::Invalid(_) => None,
        })
    }
}

impl Replay {
    /// Creates a replay without a load. `stabilization`: the window of scale-downs without `behavior`. `start_minutes`:
    /// the time that a pod takes to start.
    ///
    /// # Errors
    /// Returns [`NoTarget`] if all targets of the HPA are of type Value.
    pub(super) fn new(
        uid: &str,
        spec: &ForecastSpec,
        hpa: &Spec,
        stabilization: Duration,
        start_minutes: i64,
    ) -> Result<Self, NoTarget> {
        let behavior = hpa.behavior.as_ref().and_then(|it| it.scale_down.stabilization_window_seconds);
        let window = behavior.map_or_else(|| i64::try_from(stabilization.as_secs()), |it| Ok(it.into()));
        Ok(Self {
            state: State::new(uid),
            uid: uid.to_owned(),
            settings: Settings { start_minutes, ..spec.settings.clone() },
            target: Target::of(hpa, spec.load_per_pod).ok_or(NoTarget)?,
            bounds: (hpa.min_replicas.unwrap_or(1), hpa.max_replicas),
            window: 1 + window.unwrap_or_default().clamp(0, 3600).div_euclid(60),
            recent: VecDeque::new(),
            asked: None,
        })
    }

    /// Learns totals of the metric over all pods, in the unit of the HPA's target: for a target of type Utilization, in
    /// requests of a pod. Each is the total of the minute before its time. Times ascend, and missing minutes are gaps.
    pub fn learn(&mut self, totals: &[(Timestamp, f64)]) {
        let (min, max) = self.bounds;
        for (at, total) in totals {
            let minute = at.as_second().div_euclid(60);
            let load = (total / self.target.capacity).max(0.0);
            let count = whole((load * self.target.pods).ceil()).min(max).max(min);
            while self.recent.front().is_some_and(|(earlier, _)| *earlier < minute - self.window) {
                self.recent.pop_front();
            }
            let highest = self.recent.iter().map(|(_, count)| *count).max();
            let asked = highest.or(self.asked).unwrap_or(count);
            self.asked = Some(asked);
            self.recent.push_back((minute, count));
            let observed = Observation { load: Some(load), saturated: false, asked, max_replicas: max };
            // A refused observation counts as a gap.
            let _ = self.state.learn(&self.uid, *at, &observed, &self.settings);
        }
    }
}
