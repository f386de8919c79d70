//! `burst`: the proposal of a metric from a stable and a panic window of its load. The crate [`burst`] contains the
//! rules, which are those of Knative's Autoscaler. This module chooses the metric, and converts its reading to a load.

use std::fmt;
use std::sync::Arc;

use autoscaling::explanation::{Measure, MetricReading};
use autoscaling::{Evaluation, MetricOutcome};
use burst::{Autoscaler, Clamp, Limit, Mode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::history::{MetricState, Outcome};
use crate::spec::BurstSpec;

/// The number of milli-units in a unit.
const MILLI: f64 = 1000.0;

/// The windows of one HPA, which the caller keeps in memory between syncs. As in Knative, an HPA with several ready
/// pods starts in panic mode after a restart.
#[derive(Debug, Clone)]
pub struct BurstState {
    /// [`MetricState::key`].
    metric: Arc<str>,
    autoscaler: Autoscaler,
    /// The second of the last sample, and its load.
    last: Option<(i64, f64)>,
}

/// The effect of `burst` on the proposal of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BurstStep {
    /// The short name of the metric.
    pub metric: Arc<str>,
    /// The target per pod, in milli-units.
    pub target_milli: i64,
    /// The number of ready pods.
    pub ready: i32,
    /// The stable window.
    pub stable: BurstWindow,
    /// The panic window.
    pub panic: BurstWindow,
    /// Stable or panic mode, with times in seconds since the Unix epoch.
    pub mode: Mode,
    /// The rule that determined the proposal.
    pub limit: Limit,
    /// The proposal of the reference.
    pub reference: i32,
    /// The proposal of `burst`.
    pub replicas: i32,
}

/// The state of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BurstWindow {
    /// The average over time of the load of all pods, in milli-units.
    pub average_milli: i64,
    /// The number of seconds that the average covers.
    pub seconds: u32,
    /// The proposal of the window.
    pub replicas: i32,
}

impl BurstStep {
    /// Whether the mode is the panic mode.
    pub fn is_panic(&self) -> bool {
        matches!(self.mode, Mode::Panic { .. })
    }

    /// Prints [`Self::limit`].
    pub fn limit_text(&self) -> &'static str {
        match self.limit {
            Limit::Stable(Clamp::None) => "the stable window",
            Limit::Panic(Clamp::None) => "the panic window",
            Limit::Stable(Clamp::ScaleUpRate) | Limit::Panic(Clamp::ScaleUpRate) => "the largest step up",
            Limit::Stable(Clamp::ScaleDownRate) | Limit::Panic(Clamp::ScaleDownRate) => {
                "the largest step down"
            }
            Limit::Stable(Clamp::ActivationScale) | Limit::Panic(Clamp::ActivationScale) => {
                "activationReplicas"
            }
            Limit::PanicHighest => "the highest count of the panic mode",
            Limit::ScaleDownDelay => "scaleDownDelaySeconds",
        }
    }
}

/// Prints the effect without numbers that change in each sync, because the text is part of a condition.
impl fmt::Display for BurstStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = &self.metric;
        match self.mode {
            Mode::Stable => write!(f, "{metric} is averaged over the stable window"),
            Mode::Panic { since, .. } => {
                let since = Timestamp::from_second(since).unwrap_or_default();
                write!(f, "{metric} is in panic mode since {since}, so its proposal does not fall")
            }
        }
    }
}

/// Replaces the proposal of the first metric that has a value and a target per pod. `earlier` contains the windows
/// after the previous sync, and `ready` is the number of ready pods. Returns the windows after this sync, and the
/// effect. Failed metrics do not change.
pub(crate) fn apply(
    spec: &BurstSpec,
    evaluation: &Evaluation<'_>,
    states: &mut [MetricState],
    earlier: Option<&BurstState>,
    ready: i32,
    now: Timestamp,
) -> (Option<BurstState>, Option<BurstStep>) {
    let kept = earlier.cloned();
    let readings = (0..evaluation.metrics()).zip(states);
    for (index, state) in readings {
        let Some(MetricOutcome::Valid(reading)) = evaluation.outcome(index) else { continue };
        let (Measure::MilliPerPod(target), Some(load)) = (reading.target, load(reading, ready)) else {
            continue;
        };
        let settings = spec.settings(target as f64 / MILLI);
        let second = now.as_second();
        // After the clock is set back, the windows would not change before the time of the last sample, so new windows
        // are created.
        let known = kept.filter(|kept| {
            kept.metric == state.key
                && *kept.autoscaler.settings() == settings
                && kept.last.is_none_or(|(last, _)| last <= second)
        });
        let mut next = match known {
            Some(known) => known,
            None => match Autoscaler::new(settings, ready, second) {
                Ok(autoscaler) => BurstState { metric: Arc::clone(&state.key), autoscaler, last: None },
                // For a target that is not positive, no count can be computed.
                Err(_) => return (None, None),
            },
        };
        next.record(second, load, spec.window_seconds);
        let decided = next.autoscaler.decide(second, ready);
        let step = decided.map(|decided| {
            let window = |proposal: burst::Proposal| BurstWindow {
                average_milli: milli(proposal.average),
                seconds: proposal.seconds,
                replicas: proposal.replicas,
            };
            let step = BurstStep {
                metric: Arc::clone(&state.subject),
                target_milli: target,
                ready: decided.ready,
                stable: window(decided.stable),
                panic: window(decided.panic),
                mode: decided.mode,
                limit: decided.limit,
                reference: reading.proposal,
                replicas: decided.replicas,
            };
            state.replace(decided.replicas);
            step
        });
        return (Some(next), step);
    }
    (kept, None)
}

impl BurstState {
    /// Records the load of a second, unless the second already has a load. If the previous sync is within the panic
    /// window, the seconds in between get the load of that sync. A late sync therefore causes no seconds without load.
    fn record(&mut self, second: i64, load: f64, window: u32) {
        if let Some((last, earlier)) = self.last {
            if second <= last {
                return;
            }
            if second.saturating_sub(last) <= i64::from(window) {
                for skipped in last.saturating_add(1)..second {
                    self.add(skipped, earlier);
                }
            }
        }
        self.add(second, load);
        self.last = Some((second, load));
    }

    fn add(&mut self, second: i64, load: f64) {
        // An error is impossible: the load is computed from integers, so it is finite.
        let _ = self.autoscaler.record(second, load);
    }
}

/// The load of all pods: the undivided value, or the average per pod times the number of ready pods.
fn load(reading: &MetricReading, ready: i32) -> Option<f64> {
    match (reading.total, reading.value) {
        (Some(total), _) => Some(total as f64 / MILLI),
        (None, Measure::MilliPerPod(average)) => Some(average as f64 / MILLI * f64::from(ready)),
        (None, _) => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and averages are finite")]
fn milli(value: f64) -> i64 {
    (value * MILLI).round() as i64
}

impl MetricState {
    fn replace(&mut self, to: i32) {
        if let Outcome::Proposal { replicas, .. } = &mut self.outcome {
            *replicas = to;
            self.is_replaced = true;
            self.keeps_status_replicas = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_the_total_or_the_average_of_the_ready_pods() {
        let reading = |total: Option<i64>, value: Measure| MetricReading {
            total,
            ..serde_json::from_value(serde_json::json!({
                "subject": {"type": "Pods", "name": "requests"}, "name": "pods metric requests",
                "target": {"milliPerPod": 10_000}, "value": value, "ratio": 1.0, "lowestTolerated": 0.9,
                "highestTolerated": 1.1, "corrected": null, "why": "withinTolerance", "proposal": 3,
            }))
            .unwrap()
        };
        let average = Measure::MilliPerPod(12_500);
        assert_eq!(load(&reading(Some(40_000), average), 3), Some(40.0));
        assert_eq!(load(&reading(None, average), 4), Some(50.0));
        assert_eq!(load(&reading(None, average), 0), Some(0.0));
        assert_eq!(load(&reading(None, Measure::Percent(50)), 4), None);
    }
}
