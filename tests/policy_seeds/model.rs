//! The rules of scaling policies as the guide states them, in the simplest form: the counts that an HPA may have next.
//! The model shares no code with the product.

use crate::plan::{Action, Event, Fallback, Metric, Mode, Pending, Plan, Policy, TARGET};

/// The inputs that determine the count of one HPA at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    bounds: (i64, i64),
    mode: Option<Mode>,
    floor: Option<i64>,
    ceiling: Option<i64>,
    fallback: Vec<Fallback>,
    lowest: bool,
    step: (Option<i64>, Option<i64>),
    /// The highest number of pending pods with which the target scales up, and the number of pending pods.
    pending: (Option<Pending>, i64),
    /// Whether metrics that drop to 0 at once hold the count.
    pub(crate) zero: bool,
    pub(crate) period: i64,
    pub(crate) metrics: [Metric; 2],
    /// The time since which each metric has no value.
    pub(crate) failing: [Option<i64>; 2],
    /// For each metric, whether its fallback may apply, and whether it may fail to apply.
    pub(crate) replaced: [(bool, bool); 2],
    /// Whether a drop of all metrics to 0 may hold the count, and whether it may fail to hold the count.
    pub(crate) held: (bool, bool),
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
    pending: i64,
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
            pending: 0,
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
            Event::Zero { hpa } if *hpa == self.hpa => {
                (self.metrics, self.failing) = ([Metric::Value(0); 2], [None; 2]);
            }
            Event::PendingPods { hpa, pods } if *hpa == self.hpa => self.pending = *pods,
            Event::Annotation { hpa, policy } if *hpa == self.hpa => self.annotation.clone_from(policy),
            Event::Label { hpa, is_set } if *hpa == self.hpa => self.is_labelled = *is_set,
            Event::Namespaced(policy) => self.namespaced.clone_from(policy),
            Event::Cluster(policy) => self.cluster.clone_from(policy),
            Event::Death | Event::Unlisted { .. } | Event::Listed | Event::Known => {}
            _ => return false,
        }
        true
    }

    /// The policies that apply. The most specific policy comes first.
    fn policies(&self) -> Vec<Policy> {
        let mut policies = Vec::new();
        for policy in [self.annotation.clone(), self.namespaced.clone().filter(|_| self.is_labelled)] {
            policies.extend(policy.map(|policy| limited(policy, self.cluster.as_ref())));
        }
        policies.extend(self.cluster.clone());
        policies
    }

    /// The next time after `at` at which a mode ends, or a schedule starts or ends.
    pub(crate) fn next_edge(&self, at: i64) -> Option<i64> {
        let policies = self.policies();
        let until = first(&policies, |policy| policy.mode).and_then(|(_, until)| until);
        let schedules = first(&policies, |policy| policy.schedules.clone()).unwrap_or_default();
        let edges = schedules.iter().flat_map(|schedule| [schedule.from, schedule.to]).chain(until);
        edges.filter(|edge| *edge > at).min()
    }

    /// The inputs at a time, without fallbacks and without the effect of `zeroMetrics`.
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
            pending: (first(&policies, |policy| policy.pending), self.pending),
            zero: policies.iter().any(|policy| policy.zero),
            period: first(&policies, |policy| policy.period).unwrap_or(15),
            metrics: self.metrics,
            failing: self.failing,
            replaced: [(false, true); 2],
            held: (false, true),
        }
    }
}

fn first<T>(policies: &[Policy], field: impl Fn(&Policy) -> Option<T>) -> Option<T> {
    policies.iter().find_map(field)
}

/// A policy of a tenant within the limits of the platform.
fn limited(mut policy: Policy, cluster: Option<&Policy>) -> Policy {
    let Some((cluster, (floor, ceiling))) = cluster.and_then(|cluster| Some((cluster, cluster.limits?)))
    else {
        return policy;
    };
    if let (Some(allowed), Some((mode, _))) = (cluster.allowed, policy.mode)
        && !allowed.contains(&mode.name())
    {
        policy.mode = None;
    }
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

    /// Whether zeroMetrics applies, and every metric is 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.zero && self.metrics == [Metric::Value(0); 2]
    }

    /// The fallback of a failing metric.
    pub(crate) fn fallback_of(&self, metric: usize) -> Option<&Fallback> {
        let is_empty = self.metrics[metric] == Metric::Empty;
        let mut same = self.fallback.iter().filter(|fallback| fallback.empty == is_empty);
        let named = same.clone().find(|fallback| fallback.metric == Some(metric));
        named.or_else(|| same.find(|fallback| fallback.metric.is_none()))
    }

    /// The counts that the next sync may set if the count is `current`.
    pub(crate) fn next_counts(&self, current: i64) -> Vec<i64> {
        let mut counts = Vec::new();
        let values = [false, true];
        for one in values {
            for (two, held) in values.into_iter().flat_map(|two| values.map(|held| (two, held))) {
                let is_possible =
                    |(may_be, may_not_be): (bool, bool), is: bool| if is { may_be } else { may_not_be };
                let [first, second] = self.replaced;
                if is_possible(first, one) && is_possible(second, two) && is_possible(self.held, held) {
                    counts.push(self.next_count(current, [one, two], held));
                }
            }
        }
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Whether the algorithm reads the metrics if the target has this count.
    pub(crate) fn are_metrics_read(&self, count: i64) -> bool {
        let (lowest, highest) = self.limits();
        (lowest..=highest).contains(&count)
    }

    /// The bounds, combined with the bounds of the schedules.
    fn limits(&self) -> (i64, i64) {
        let (minimum, maximum) = self.bounds;
        let highest = self.ceiling.map_or(maximum, |ceiling| ceiling.clamp(minimum, maximum));
        (self.floor.map_or(minimum, |floor| floor.clamp(minimum, highest)), highest)
    }

    fn next_count(&self, current: i64, replaced: [bool; 2], held: bool) -> i64 {
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
        let guarded = self.guarded(current, wanted, held);
        let (up, down) = self.step;
        let stepped =
            guarded.min(up.map_or(i64::MAX, |up| current + up)).max(down.map_or(0, |down| current - down));
        let bounded = stepped.clamp(lowest, highest);
        match self.mode {
            Some(Mode::ScaleUpOnly) => bounded.max(current),
            Some(Mode::ScaleDownOnly) => bounded.min(current),
            _ => bounded,
        }
    }

    /// Applies the guards. Pending pods prevent a scale-up, and metrics that dropped to 0 prevent a scale-down. A count
    /// out of bounds is still corrected.
    fn guarded(&self, current: i64, wanted: i64, held: bool) -> i64 {
        let (lowest, highest) = self.limits();
        let waits = matches!(self.pending, (Some(maximum), pods) if pods > maximum.pods(current));
        if waits && wanted > current {
            current.max(lowest)
        } else if held && wanted < current {
            current.min(highest)
        } else {
            wanted
        }
    }

    /// The combined proposal of the metrics, or the current count without a proposal.
    fn combined(&self, current: i64, replaced: [bool; 2]) -> i64 {
        let (mut proposals, mut has_failed) = (Vec::new(), false);
        for (metric, replaced) in replaced.into_iter().enumerate() {
            match (self.metrics[metric], self.fallback_of(metric)) {
                (Metric::Value(value), _) => {
                    // Within a tolerance of a tenth of the target, the current count is kept.
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
