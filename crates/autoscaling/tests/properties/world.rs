//! A random HPA with its pods, its history and ascending loads.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::{History, Recommendation, ScaleEvent};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::Answer;
use autoscaling::spec::{
    Behavior, PolicyKind, ResourceTarget, ScalingPolicy, ScalingRules, SelectPolicy, ValueTarget,
};

use crate::LOADS;
use crate::model::{
    ModelProposal, PerPod, PodState, Policy, RecommendationEntry, Requests, RescaleEntry, Select, Target,
    of_all, of_each,
};
use crate::workload::{
    SECOND, Workload, aged, external_metric, external_value, pending, pod_values, pods_metric,
    resource_metric, running, usages,
};

/// The rules of one direction.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The stabilization window in seconds.
    pub(crate) window: i64,
    pub(crate) select: Select,
    pub(crate) policies: Vec<Policy>,
}

/// The kind of the metric, with its target.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// An external value with a target per replica in milli-units.
    Total(i64),
    /// An external value with a target for the whole value in milli-units.
    Value(i64),
    /// One sample per pod.
    PerPod(Target),
}

/// The external value in milli-units, or the state of each pod.
#[derive(Debug)]
pub(crate) enum Load {
    Value(i64),
    Pods(Vec<PodState>),
}

pub(crate) struct World {
    pub(crate) workload: Workload,
    pub(crate) min: i32,
    kind: Kind,
    /// The tolerance in percent.
    tolerance: i128,
    pub(crate) rules: Option<(Rules, Rules)>,
    pub(crate) recommended: Vec<RecommendationEntry>,
    pub(crate) rescaled: Vec<RescaleEntry>,
    pub(crate) history: History,
    pods: Vec<PodState>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("current", &self.workload.current)
            .field("min", &self.min)
            .field("max", &self.workload.spec.max_replicas)
            .field("kind", &self.kind)
            .field("tolerance", &self.tolerance)
            .field("rules", &self.rules)
            .field("recommended", &self.recommended)
            .field("rescaled", &self.rescaled)
            .field("pods", &self.pods)
            .finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (one, other) = (random.count(), random.count());
        let (min, max) = (one.min(other), one.max(other).max(1));
        let current = match random.below(4) {
            0 => random.count(),
            _ => i32::try_from(random.within(min.into(), max.into())).unwrap(),
        };
        let kind = match random.below(4) {
            0 => Kind::PerPod(Target::Average(random.within(1, 2000))),
            1 => {
                let mut requests = Requests::default();
                for request in &mut requests {
                    *request = random.within(1, 2000);
                }
                Kind::PerPod(Target::Percent(random.within(1, 300), requests))
            }
            2 => Kind::Value(random.within(1, 5000)),
            _ => Kind::Total(random.choose(&[1, 7, 1000, 250_000])),
        };
        let metric = match kind {
            Kind::Total(target) => external_metric(ValueTarget::AverageValue(milli(target))),
            Kind::Value(target) => external_metric(ValueTarget::Value(milli(target))),
            Kind::PerPod(Target::Average(target)) => pods_metric(target),
            Kind::PerPod(Target::Percent(target, _)) => {
                resource_metric("cpu", ResourceTarget::Utilization(i32::try_from(target).unwrap()))
            }
        };
        let mut workload = Workload::new(metric, min, max, current);
        if random.once_in(2) {
            workload = workload.scaled_to_zero();
        }
        workload.status_replicas = if random.once_in(2) { current } else { random.count() };
        // The edges of these tolerances are exact in float64, as tests/exhaustive/saturation.rs shows.
        let tolerance = random.choose(&[0, 5, 10, 10, 20, 25, 50]);
        workload.settings.tolerance = f64::from(tolerance) / 100.0;
        workload.settings.downscale_stabilization =
            Duration::from_secs(random.choose(&[0, 60, 300, 300, 3600]));
        let rules = (!random.once_in(3)).then(|| (some_rules(random), some_rules(random)));
        workload.spec.behavior =
            rules.as_ref().map(|(up, down)| Behavior { scale_up: up.scaling(), scale_down: down.scaling() });

        let recommended: Vec<RecommendationEntry> =
            (0..random.below(12)).map(|_| (age(random), random.count())).collect();
        let rescaled: Vec<RescaleEntry> = (0..random.below(12))
            .map(|_| {
                let change = i64::from(random.count()).max(1);
                (age(random), if random.once_in(2) { change } else { -change })
            })
            .collect();
        let events = |up: bool| {
            let of_direction = rescaled.iter().filter(|(_, change)| (*change > 0) == up);
            of_direction
                .map(|&(age, change)| ScaleEvent::new(aged(age), i32::try_from(change.abs()).unwrap()))
                .collect()
        };
        let recommendations =
            recommended.iter().map(|&(age, replicas)| Recommendation { at: aged(age), replicas }).collect();
        let history = History {
            recommendations,
            scale_ups: events(true),
            scale_downs: events(false),
            ..History::default()
        };
        let mut world = Self {
            workload,
            min,
            kind,
            tolerance: i128::from(tolerance),
            rules,
            recommended,
            rescaled,
            history,
            pods: Vec::new(),
        };
        world.add_pods(random);
        world
    }

    fn add_pods(&mut self, random: &mut Random) {
        let requests = match self.kind {
            Kind::PerPod(Target::Percent(_, requests)) => requests,
            Kind::PerPod(Target::Average(_)) | Kind::Value(_) => Requests::default(),
            Kind::Total(_) => return,
        };
        let pods = 1 + random.below(11);
        // In half of the worlds, no pod is missing or unready.
        let complete = random.once_in(2);
        for _ in 0..pods {
            self.pods.push(match random.below(if complete { 1 } else { 4 }) {
                2 => PodState::Missing,
                3 => PodState::Unready,
                _ => PodState::Ready(0),
            });
        }
        self.workload.pods = self
            .pods
            .iter()
            .zip(requests)
            .enumerate()
            .map(|(index, (state, request))| {
                let name = format!("web-{index:02}");
                Arc::new(match state {
                    PodState::Unready => pending(&name, "cpu", request),
                    PodState::Ready(_) | PodState::Missing => running(&name, "cpu", request),
                })
            })
            .collect();
    }

    /// Random loads, each at least as high as the previous load.
    pub(crate) fn loads(&self, random: &mut Random) -> Vec<Load> {
        let mut loads = Vec::new();
        match self.kind {
            Kind::Total(target) | Kind::Value(target) => {
                // The values are at most three times the load of all replicas at their target, or sometimes extreme.
                let carried = target.saturating_mul(i64::from(self.workload.current.clamp(1, 1 << 20)));
                let mut values: Vec<i64> =
                    (0..LOADS).map(|_| random.within(0, carried.saturating_mul(3))).collect();
                if random.once_in(4) {
                    values[0] =
                        random.choose(&[i64::MAX, i64::MAX - 1, 1 << 53, i64::from(i32::MAX), 1 << 40]);
                }
                values.sort_unstable();
                loads.extend(values.into_iter().map(Load::Value));
            }
            Kind::PerPod(_) => {
                let mut pods = self.pods.clone();
                for _ in 0..LOADS {
                    for pod in &mut pods {
                        if let PodState::Ready(sample) = pod {
                            *sample += random.within(0, 600);
                        }
                    }
                    loads.push(Load::Pods(pods.clone()));
                }
            }
        }
        loads
    }

    /// The expected proposal of the metric. `None` if the metric has no proposal.
    pub(crate) fn asked(&self, load: &Load) -> Option<ModelProposal> {
        let current = self.workload.current;
        match (self.kind, load) {
            (Kind::Total(target), Load::Value(value)) => {
                Some(of_each(*value, target, self.workload.status_replicas, self.tolerance))
            }
            (Kind::Value(target), Load::Value(value)) => {
                // For a single value, samples do not matter, so a missing pod is ready.
                let running = self.pods.iter().filter(|pod| **pod != PodState::Unready).count();
                Some(of_all(*value, target, current, i128::try_from(running).unwrap(), self.tolerance))
            }
            (Kind::PerPod(target), Load::Pods(pods)) => {
                PerPod { pods, unmatched: None, target, current, tolerance: self.tolerance }.ask()
            }
            _ => None,
        }
    }

    pub(crate) fn answer(&self, load: &Load) -> Answer {
        match load {
            Load::Value(value) => external_value(*value),
            Load::Pods(pods) => {
                let sampled = self.workload.pods.iter().zip(pods).filter_map(|(pod, state)| match state {
                    PodState::Ready(sample) => Some((Arc::clone(&pod.name), *sample)),
                    PodState::Missing | PodState::Unready => None,
                });
                match self.kind {
                    Kind::PerPod(Target::Percent(..)) => usages("cpu", sampled),
                    _ => pod_values(sampled),
                }
            }
        }
    }

    /// Whether a higher load never proposes fewer replicas in this world, as tests/exhaustive/monotonicity.rs proves.
    pub(crate) fn rises_with_load(&self) -> bool {
        let ready = self.pods.iter().filter(|pod| matches!(pod, PodState::Ready(_))).count();
        let missing = self.pods.iter().filter(|pod| **pod == PodState::Missing).count();
        match self.kind {
            Kind::Total(_) => true,
            Kind::Value(_) => i32::try_from(ready + missing).unwrap() == self.workload.current,
            Kind::PerPod(_) => missing > 0 || i32::try_from(ready).unwrap() == self.workload.current,
        }
    }

    pub(crate) fn recommended_nothing(&self) -> bool {
        self.recommended.is_empty()
    }

    /// The longer of the two stabilization windows in nanoseconds, or the window of the flag without `behavior`.
    pub(crate) fn longest_window(&self) -> i64 {
        let flag = i64::try_from(self.workload.settings.downscale_stabilization.as_nanos()).unwrap();
        self.rules.as_ref().map_or(flag, |(up, down)| up.window.max(down.window) * SECOND)
    }
}

fn milli(value: i64) -> Quantity {
    Quantity::from_milli(value, Format::DecimalSi)
}

/// A random age in nanoseconds: at, around or between the edges of common windows and periods.
fn age(random: &mut Random) -> i64 {
    match random.below(4) {
        0 => random.choose(&[0, 15, 60, 300, 1800, 3600]) * SECOND + random.within(-1, 1),
        1 => random.within(-5, 4000) * SECOND,
        _ => random.within(0, 600 * SECOND),
    }
}

fn some_rules(random: &mut Random) -> Rules {
    let policies = (0..=random.below(3))
        .map(|_| {
            let seconds = i32::try_from(match random.below(3) {
                0 => random.within(1, 1800),
                _ => random.choose(&[15, 60, 1800]),
            })
            .unwrap();
            let value = random.count().max(1);
            if random.once_in(2) {
                Policy::Pods(value, seconds)
            } else {
                Policy::Percent(if random.once_in(2) { value } else { 1 + value % 100 }, seconds)
            }
        })
        .collect();
    Rules {
        window: random.choose(&[0, 0, 60, 300, 3600]),
        select: random.choose(&[Select::Max, Select::Max, Select::Min, Select::Disabled]),
        policies,
    }
}

impl Rules {
    fn scaling(&self) -> ScalingRules {
        ScalingRules {
            stabilization_window_seconds: Some(i32::try_from(self.window).unwrap()),
            select_policy: match self.select {
                Select::Max => SelectPolicy::Max,
                Select::Min => SelectPolicy::Min,
                Select::Disabled => SelectPolicy::Disabled,
            },
            policies: self
                .policies
                .iter()
                .map(|policy| match *policy {
                    Policy::Pods(value, period_seconds) => {
                        ScalingPolicy { kind: PolicyKind::Pods, value, period_seconds }
                    }
                    Policy::Percent(value, period_seconds) => {
                        ScalingPolicy { kind: PolicyKind::Percent, value, period_seconds }
                    }
                })
                .collect(),
            tolerance: None,
        }
    }
}

/// A stream of pseudorandom numbers, by SplitMix64.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of this method is negligible for bounds far below 2^64.
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap()
    }

    /// A number between two bounds, inclusive.
    pub(crate) fn within(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(i128::from(high) - i128::from(low) + 1).unwrap();
        i64::try_from(i128::from(low) + i128::from(self.below(span))).unwrap()
    }

    /// Returns true once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap()]
    }

    /// A replica count: mostly small, sometimes in the thousands or at the limit of 32 bits.
    pub(crate) fn count(&mut self) -> i32 {
        let count = match self.below(8) {
            0 => self.choose(&[0, 1, 1 << 30, (1 << 30) + 1, i64::from(i32::MAX) - 1, i32::MAX.into()]),
            1 => self.within(0, 5000),
            _ => self.within(0, 20),
        };
        i32::try_from(count).unwrap()
    }
}
