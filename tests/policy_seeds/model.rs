//! The rules of scaling policies as the guide states them, in the simplest form: which count an HPA may have next. It
//! shares no code with the product.

use crate::plan::{Action, Event, Fallback, Metric, Mode, Plan, Policy, TARGET};

/// All that the count of one HPA depends on, at a time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    bounds: (i64, i64),
    mode: Option<Mode>,
    floor: Option<i64>,
    ceiling: Option<i64>,
    fallback: Vec<Fallback>,
    lowest: bool,
    step: (Option<i64>, Option<i64>),
    pub(crate) period: i64,
    pub(crate) metrics: [Metric; 2],
    /// The time since which each metric has no value.
    pub(crate) failing: [Option<i64>; 2],
    /// Whether each metric may be, and may not be, replaced by its fallback.
    pub(crate) replaced: [(bool, bool); 2],
}

/// The state of one HPA that events change.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    hpa: usize,
    bounds: (i64, i64),
    metrics: [Metric; 2],
    failing: [Option<i64>; 2],
    annotation: Option<Policy>,
    namespaced: Option<Policy>,
    cluster: Option<Policy>,
    is_labelled: bool,
}

impl Subject {
    pub(crate) fn new(plan: &Plan, hpa: usize) -> Self {
        Self {
            hpa,
            bounds: plan.bounds[hpa],
            metrics: [Metric::Value(0); 2],
            failing: [None; 2],
            annotation: None,
            namespaced: None,
            cluster: None,
            is_labelled: false,
        }
    }

    /// Applies an event. Returns whether it concerns this HPA.
    pub(crate) fn apply(&mut self, at: i64, event: &Event) -> bool {
        match event {
            Event::Metric { hpa, metric, state } if *hpa == self.hpa => {
                self.metrics[*metric] = *state;
                let fails = !matches!(state, Metric::Value(_));
                let since = self.failing[*metric];
                self.failing[*metric] = fails.then(|| since.unwrap_or(at));
            }
            Event::Annotation { hpa, policy } if *hpa == self.hpa => self.annotation.clone_from(policy),
            Event::Label { hpa, is_set } if *hpa == self.hpa => self.is_labelled = *is_set,
            Event::Namespaced(policy) => self.namespaced.clone_from(policy),
            Event::Cluster(policy) => self.cluster.clone_from(policy),
            Event::Death => {}
            _ => return false,
        }
        true
    }

    /// The policies that apply, the most specific one first.
    fn policies(&self) -> Vec<Policy> {
        let limits = self.cluster.as_ref().and_then(|cluster| cluster.limits);
        let mut policies = Vec::new();
        for policy in [self.annotation.clone(), self.namespaced.clone().filter(|_| self.is_labelled)] {
            policies.extend(policy.map(|policy| limited(policy, limits)));
        }
        policies.extend(self.cluster.clone());
        policies
    }

    /// The next time after `at` at which a mode or a schedule starts or ends.
    pub(crate) fn next_edge(&self, at: i64) -> Option<i64> {
        let policies = self.policies();
        let until = first(&policies, |policy| policy.mode).and_then(|(_, until)| until);
        let schedules = first(&policies, |policy| policy.schedules.clone()).unwrap_or_default();
        let edges = schedules.iter().flat_map(|schedule| [schedule.from, schedule.to]).chain(until);
        edges.filter(|edge| *edge > at).min()
    }

    /// What the count depends on at a time.
    pub(crate) fn inputs(&self, at: i64) -> Inputs {
        let policies = self.policies();
        let mode = first(&policies, |policy| policy.mode);
        let schedules = first(&policies, |policy| policy.schedules.clone()).unwrap_or_default();
        let active = || schedules.iter().filter(|schedule| schedule.from <= at && at < schedule.to);
        Inputs {
            bounds: self.bounds,
            mode: mode.filter(|(_, until)| until.is_none_or(|until| at < until)).map(|(mode, _)| mode),
            floor: active().filter_map(|schedule| schedule.floor).max(),
            ceiling: active().filter_map(|schedule| schedule.ceiling).min(),
            fallback: first(&policies, |policy| policy.fallback.clone()).unwrap_or_default(),
            lowest: first(&policies, |policy| policy.lowest).unwrap_or(false),
            step: first(&policies, |policy| policy.step).unwrap_or((None, None)),
            period: first(&policies, |policy| policy.period).unwrap_or(15),
            metrics: self.metrics,
            failing: self.failing,
            replaced: [(false, true); 2],
        }
    }
}

fn first<T>(policies: &[Policy], field: impl Fn(&Policy) -> Option<T>) -> Option<T> {
    policies.iter().find_map(field)
}

/// A policy of a tenant within the limits of the platform.
fn limited(mut policy: Policy, limits: Option<(i64, i64)>) -> Policy {
    let Some((floor, ceiling)) = limits else { return policy };
    for schedule in policy.schedules.iter_mut().flatten() {
        schedule.floor = schedule.floor.map(|value| value.min(floor).min(ceiling));
        schedule.ceiling = schedule.ceiling.map(|value| value.min(ceiling));
    }
    for fallback in policy.fallback.iter_mut().flatten() {
        match &mut fallback.action {
            Action::Replicas(count) | Action::AtLeast(count) | Action::AtMost(count) => {
                *count = (*count).min(ceiling);
            }
            Action::Hold | Action::Ignore => {}
        }
    }
    if let Some((Mode::Pinned(count), _)) = &mut policy.mode {
        *count = (*count).min(ceiling);
    }
    policy
}

impl Inputs {
    pub(crate) fn has_fallbacks(&self) -> bool {
        !self.fallback.is_empty()
    }

    /// The fallback of a failing metric.
    pub(crate) fn fallback_of(&self, metric: usize) -> Option<&Fallback> {
        let is_empty = self.metrics[metric] == Metric::Empty;
        let mut same = self.fallback.iter().filter(|fallback| fallback.empty == is_empty);
        let named = same.clone().find(|fallback| fallback.metric == Some(metric));
        named.or_else(|| same.find(|fallback| fallback.metric.is_none()))
    }

    /// The counts that the next sync may set, from the current one.
    pub(crate) fn next_counts(&self, current: i64) -> Vec<i64> {
        let mut counts = Vec::new();
        for one in [false, true] {
            for two in [false, true] {
                let is_possible = |metric: usize, is: bool| {
                    if is { self.replaced[metric].0 } else { self.replaced[metric].1 }
                };
                if is_possible(0, one) && is_possible(1, two) {
                    counts.push(self.next_count(current, [one, two]));
                }
            }
        }
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Whether the algorithm reads the metrics with this count.
    pub(crate) fn are_metrics_read(&self, count: i64) -> bool {
        let (lowest, highest) = self.limits();
        (lowest..=highest).contains(&count)
    }

    /// The bounds with those of the schedules.
    fn limits(&self) -> (i64, i64) {
        let (minimum, maximum) = self.bounds;
        let highest = self.ceiling.map_or(maximum, |ceiling| ceiling.clamp(minimum, maximum));
        (self.floor.map_or(minimum, |floor| floor.clamp(minimum, highest)), highest)
    }

    fn next_count(&self, current: i64, replaced: [bool; 2]) -> i64 {
        match self.mode {
            Some(Mode::Pinned(count)) => return count,
            Some(Mode::Paused | Mode::DryRun) => return current,
            _ => {}
        }
        let (lowest, highest) = self.limits();
        let wanted = if current > highest {
            highest
        } else if current < lowest {
            lowest
        } else {
            self.combined(current, replaced).clamp(lowest, highest)
        };
        let (up, down) = self.step;
        let stepped =
            wanted.min(up.map_or(i64::MAX, |up| current + up)).max(down.map_or(0, |down| current - down));
        let bounded = stepped.clamp(lowest, highest);
        match self.mode {
            Some(Mode::ScaleUpOnly) => bounded.max(current),
            Some(Mode::ScaleDownOnly) => bounded.min(current),
            _ => bounded,
        }
    }

    /// The combined proposal of the metrics. It is the current count if there is none.
    fn combined(&self, current: i64, replaced: [bool; 2]) -> i64 {
        let (mut proposals, mut has_failed) = (Vec::new(), false);
        for (metric, replaced) in replaced.into_iter().enumerate() {
            match (self.metrics[metric], self.fallback_of(metric)) {
                (Metric::Value(value), _) => {
                    // Within a tolerance of a tenth of the target the count is right.
                    let is_right = (value - TARGET * current).abs() * 10 <= TARGET * current;
                    proposals.push(if is_right { current } else { (value + TARGET - 1) / TARGET });
                }
                (_, Some(fallback)) if replaced => match fallback.action {
                    Action::Hold => proposals.push(current),
                    Action::Ignore => {}
                    Action::Replicas(count) => proposals.push(count),
                    Action::AtLeast(count) => proposals.push(count.max(current)),
                    Action::AtMost(count) => proposals.push(count.min(current)),
                },
                _ => has_failed = true,
            }
        }
        let chosen = if self.lowest { proposals.iter().min() } else { proposals.iter().max() };
        match chosen {
            None => current,
            Some(_) if has_failed && self.lowest => current,
            Some(chosen) if has_failed => (*chosen).max(current),
            Some(chosen) => *chosen,
        }
    }
}
