//! A model of an HPA that is a hundred times as fast as the replay with the controller's rules. It only orders
//! settings: what is advised is replayed exactly.

use std::collections::VecDeque;

use super::outcome::Choice;
use super::recording::{Load, index};
use backtest::number::ceil_to_count;
use backtest::replay::Metric;

/// Seconds from one sync to the next.
const SYNC: f64 = 15.0;
const SYNCS_PER_MINUTE: usize = 4;
/// The age of the metric in syncs.
const METRIC_AGE: usize = 3;
/// The tolerance of the controller.
const TOLERANCE: f64 = 0.1;

/// What a run costs and lacks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cost {
    /// The load in pod-seconds.
    pub(crate) load: f64,
    /// The load above the capacity of ready pods, in pod-seconds.
    pub(crate) unserved: f64,
    /// The time of all pods in seconds.
    pub(crate) pod_seconds: f64,
    /// The minutes in which ready pods were used by more than 80 %.
    pub(crate) minutes_above_80: u32,
}

/// Runs the model over the first `minutes` of a load. `floors` has a floor per minute, or is empty.
pub(crate) fn run(load: &Load, choice: Choice, floors: &[i32], minutes: usize) -> Cost {
    let target = f64::from(choice.target) / 100.0 / load.capacity;
    let start = index(f64::midpoint(load.pod_start.0, load.pod_start.1) / SYNC);
    let window = index(f64::from(choice.scale_down_window_seconds) / SYNC);
    let max = f64::from(choice.max_replicas);
    let is_limited = load.unit.metric() == Metric::Cpu;
    let mut cost = Cost::default();
    let mut before = load.series.loads.iter().flatten().next().copied().unwrap_or_default();
    let mut ready = (before / target).ceil().clamp(f64::from(choice.min_replicas), max);
    let mut starting: VecDeque<(usize, f64)> = VecDeque::new();
    let mut used: VecDeque<f64> = VecDeque::new();
    // Recommendations in falling order with their syncs, of which the first is the highest of the window.
    let mut highest: VecDeque<(usize, f64)> = VecDeque::new();
    for (minute, known) in load.series.loads.iter().take(minutes).enumerate() {
        let after = known.unwrap_or(before);
        let floor = floors.get(minute).copied().unwrap_or_default().max(choice.min_replicas);
        let floor = f64::from(floor).min(max);
        let mut syncs_above = 0;
        for part in 0..SYNCS_PER_MINUTE {
            let sync = minute * SYNCS_PER_MINUTE + part;
            while let Some((_, pods)) = starting.front().filter(|(at, _)| *at <= sync).copied() {
                ready += pods;
                starting.pop_front();
            }
            let now = before + (after - before) * (part as f64 + 0.5) / SYNCS_PER_MINUTE as f64;
            used.push_back(if is_limited { now.min(ready) } else { now });
            if used.len() > METRIC_AGE {
                used.pop_front();
            }
            let usage = used.front().copied().unwrap_or_default();
            let pods = ready + starting.iter().map(|(_, pods)| pods).sum::<f64>();
            let ratio = usage / pods.max(1.0) / target;
            let wanted = if (ratio - 1.0).abs() <= TOLERANCE { pods } else { (usage / target).ceil() };
            while highest.back().is_some_and(|(_, other)| *other <= wanted) {
                highest.pop_back();
            }
            highest.push_back((sync, wanted));
            while highest.front().is_some_and(|(at, _)| at + window < sync) {
                highest.pop_front();
            }
            let stable = highest.front().map_or(wanted, |(_, other)| *other);
            let wanted = if wanted < pods { stable.min(pods) } else { wanted };
            let wanted = wanted.min((2.0 * pods).max(pods + 4.0)).clamp(floor, max);
            if wanted > pods {
                starting.push_back((sync + start, wanted - pods));
            }
            let mut surplus = pods - wanted;
            while surplus > 0.0 {
                let Some((_, last)) = starting.back_mut() else {
                    ready -= surplus;
                    break;
                };
                let removed = surplus.min(*last);
                *last -= removed;
                surplus -= removed;
                if *last <= 0.0 {
                    starting.pop_back();
                }
            }
            if known.is_some() {
                cost.load += now * SYNC;
                cost.unserved += (now - ready).max(0.0) * SYNC;
                cost.pod_seconds += wanted * SYNC;
                syncs_above += usize::from(now > 0.8 * ready);
            }
        }
        cost.minutes_above_80 += u32::from(syncs_above > 2);
        before = after;
    }
    cost
}

/// The fewest pods of a fraction of `pods`, at least 2, because one pod alone is not available while it moves.
pub(crate) fn fraction(pods: i32, share: f64) -> i32 {
    ceil_to_count(f64::from(pods) * share).max(2)
}
