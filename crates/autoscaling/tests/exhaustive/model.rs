//! A second implementation of the rules for a proposal, stabilization, rates and bounds. It is naive, uses integers and
//! fractions, and shares no code with the core.

use std::cmp::Ordering;

/// The age of a recommendation in nanoseconds, and its count.
pub(crate) type RecommendationEntry = (i64, i32);

/// The age of a rescale in nanoseconds, and its signed change.
pub(crate) type RescaleEntry = (i64, i64);

/// A rate policy: a number of pods or a percentage, and the period in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Pods(i32, i32),
    Percent(i32, i32),
}

/// `selectPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Select {
    Max,
    Min,
    Disabled,
}

/// The stabilized count without `behavior`: the highest of the proposal and the recommendations that are not older than
/// the window.
pub(crate) fn highest_of_window(
    proposal: i32,
    recommended: &[RecommendationEntry],
    window_nanos: i64,
) -> i32 {
    let mut highest = proposal;
    for &(age, replicas) in recommended {
        if age <= window_nanos && replicas > highest {
            highest = replicas;
        }
    }
    highest
}

/// The bounds of the stabilized count with `behavior`: the lowest count of the scale-up window, and the highest count
/// of the scale-down window. The proposal belongs to each window. Windows are in seconds.
pub(crate) fn envelope(proposal: i32, recommended: &[RecommendationEntry], up: i64, down: i64) -> (i32, i32) {
    let (mut lowest, mut highest) = (proposal, proposal);
    for &(age, replicas) in recommended {
        if age < up * 1_000_000_000 && replicas < lowest {
            lowest = replicas;
        }
        if age < down * 1_000_000_000 && replicas > highest {
            highest = replicas;
        }
    }
    (lowest, highest)
}

/// The limited count without `behavior`: at most the larger of 4 and twice the current count, within the bounds.
pub(crate) fn default_limit(current: i32, desired: i32, min: i32, max: i32) -> i32 {
    let (current, desired) = (i64::from(current), i64::from(desired));
    let rate = if 2 * current > 4 { 2 * current } else { 4 };
    let upper = if rate < i64::from(max) { rate } else { i64::from(max) };
    let result = if desired > upper { upper } else { desired };
    i32::try_from(if desired < i64::from(min) { i64::from(min) } else { result }).unwrap()
}

/// Returns the exact count that a policy allows from the count at the start of its period. The second number is the
/// deviation of upstream's float64 arithmetic: at most one pod if the exact result is an integer, otherwise 0.
pub(crate) fn allowed(policy: Policy, start: i64, up: bool) -> (i64, i64) {
    match policy {
        Policy::Pods(value, _) if up => (start + i64::from(value), 0),
        Policy::Pods(value, _) => (start - i64::from(value), 0),
        Policy::Percent(value, _) => {
            let hundredfold = start * if up { 100 + i64::from(value) } else { 100 - i64::from(value) };
            let whole = hundredfold % 100 == 0;
            // A scale-up rounds up, and a scale-down rounds towards zero.
            let exact = if up { hundredfold.div_euclid(100) + i64::from(!whole) } else { hundredfold / 100 };
            (exact, i64::from(whole))
        }
    }
}

impl Policy {
    /// The length of the period in nanoseconds.
    pub(crate) fn period_nanos(self) -> i64 {
        let (Self::Pods(_, seconds) | Self::Percent(_, seconds)) = self;
        i64::from(seconds) * 1_000_000_000
    }
}

/// Returns the limit of a direction: the exact count, and the count with the deviations of float64. `start_of` returns
/// the count at the start of a period in nanoseconds.
pub(crate) fn rate_limit(
    current: i64,
    up: bool,
    select: Select,
    policies: &[Policy],
    start_of: impl Fn(i64) -> i64,
) -> (i64, i64) {
    rate_limit_with_unknowns(current, up, select, policies, |period| Some(start_of(period)))
}

/// Returns the limit of a direction like [`rate_limit`]. A policy allows no change if `start_of` returns `None`.
pub(crate) fn rate_limit_with_unknowns(
    current: i64,
    up: bool,
    select: Select,
    policies: &[Policy],
    start_of: impl Fn(i64) -> Option<i64>,
) -> (i64, i64) {
    if select == Select::Disabled {
        return (current, current);
    }
    let largest = (select == Select::Max) == up;
    let mut limits: Option<(i64, i64)> = None;
    for &policy in policies {
        let (exact, loose) = match start_of(policy.period_nanos()) {
            None => (current, current),
            Some(start) => {
                let (exact, slack) = allowed(policy, start, up);
                (exact, if up { exact + slack } else { exact - slack })
            }
        };
        limits = Some(match limits {
            None => (exact, loose),
            Some((e, l)) if largest => (e.max(exact), l.max(loose)),
            Some((e, l)) => (e.min(exact), l.min(loose)),
        });
    }
    let (exact, loose) = limits.unwrap();
    if up { (exact.max(current), loose.max(current)) } else { (exact.min(current), loose.min(current)) }
}

/// The count at the start of a period, without the rescales that are younger than the period.
pub(crate) fn start_of(current: i64, rescaled: &[RescaleEntry], period_nanos: i64) -> i64 {
    let mut start = current;
    for &(age, change) in rescaled {
        if age < period_nanos {
            start -= change;
        }
    }
    start
}

/// The state of a pod for a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Ready, with a sample in milli-units.
    Ready(i64),
    /// Running, without a sample.
    Missing,
    /// Pending.
    Unready,
}

/// A ratio as a fraction with a positive divisor.
#[derive(Debug, Clone, Copy)]
struct Ratio(i128, i128);

impl Ratio {
    fn side_of_one(self) -> Ordering {
        self.0.cmp(&self.1)
    }

    /// The position relative to `tolerance`, which is in percent.
    fn band(self, tolerance: i128) -> Band {
        if self.0 * 100 < self.1 * (100 - tolerance) {
            Band::Below
        } else if self.0 * 100 > self.1 * (100 + tolerance) {
            Band::Above
        } else {
            Band::Within
        }
    }

    /// The ratio times `count`, rounded up, and whether the product is an integer.
    fn times(self, count: i128) -> (i128, bool) {
        let product = self.0 * count;
        let whole = product.rem_euclid(self.1) == 0;
        (product.div_euclid(self.1) + i128::from(!whole), whole)
    }
}

/// The position of a ratio relative to the tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Band {
    Below,
    Within,
    Above,
}

/// The proposal of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelProposal {
    /// The exact count.
    pub(crate) count: i128,
    /// Whether upstream's float64 arithmetic may propose one more replica, because the exact result is an integer.
    pub(crate) or_one_more: bool,
    /// The position of the first ratio, without assumed values.
    pub(crate) band: Band,
    /// Whether tolerance or another rule replaces the computed count.
    pub(crate) stays: bool,
}

/// The requests of the pods, by their index.
pub(crate) type Requests = [i64; 12];

/// The target of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// An average per pod in milli-units.
    Average(i64),
    /// A percentage of the pods' requests, and the requests.
    Percent(i64, Requests),
}

/// The inputs of a metric with one sample per pod.
#[derive(Debug)]
pub(crate) struct PerPod<'a> {
    pub(crate) pods: &'a [PodState],
    /// The sample of a pod that the selector does not match.
    pub(crate) unmatched: Option<i64>,
    pub(crate) target: Target,
    pub(crate) current: i32,
    /// The tolerance in percent, for both directions.
    pub(crate) tolerance: i128,
}

impl PerPod<'_> {
    /// The proposal; `None` if no pod has a usable sample.
    pub(crate) fn ask(&self) -> Option<ModelProposal> {
        let ready = self.count(|pod| matches!(pod, PodState::Ready(_)));
        let missing = self.count(|pod| *pod == PodState::Missing);
        let unready = self.count(|pod| *pod == PodState::Unready);
        let first = self.ratio(|pod, _| match pod {
            PodState::Ready(sample) => Some(sample.into()),
            PodState::Missing | PodState::Unready => None,
        })?;
        let current = i128::from(self.current);
        let band = first.band(self.tolerance);
        let stay = ModelProposal { count: current, or_one_more: false, band, stays: true };
        let side = first.side_of_one();
        let fills_unready = unready > 0 && side == Ordering::Greater;
        if missing == 0 && !fills_unready {
            if band == Band::Within {
                return Some(stay);
            }
            let (count, or_one_more) = first.times(ready);
            return Some(ModelProposal { count, or_one_more, band, stays: false });
        }
        let fills_missing = missing > 0 && side != Ordering::Equal;
        let again = self.ratio(|pod, target| match pod {
            PodState::Ready(sample) => Some(sample.into()),
            PodState::Missing if !fills_missing => None,
            PodState::Missing if side == Ordering::Less => Some(target),
            PodState::Unready if !fills_unready => None,
            PodState::Missing | PodState::Unready => Some(0),
        })?;
        let values = ready
            + i128::from(self.unmatched.is_some())
            + if fills_missing { missing } else { 0 }
            + if fills_unready { unready } else { 0 };
        let side_again = again.side_of_one();
        if again.band(self.tolerance) == Band::Within || side == side_again.reverse() {
            return Some(stay);
        }
        let (count, or_one_more) = again.times(values);
        let against = match side_again {
            Ordering::Less => count > current,
            Ordering::Greater => count < current,
            Ordering::Equal => false,
        };
        Some(if against { stay } else { ModelProposal { count, or_one_more, band, stays: false } })
    }

    fn count(&self, which: impl Fn(&PodState) -> bool) -> i128 {
        i128::try_from(self.pods.iter().filter(|pod| which(pod)).count()).unwrap()
    }

    /// The ratio of usage to target, over the pods for which `usage` returns a value. `usage` receives the state of a
    /// pod and its usage at the target. `None` without a value.
    fn ratio(&self, usage: impl Fn(PodState, i128) -> Option<i128>) -> Option<Ratio> {
        let (mut used, mut values, mut requested) = (0, 0, 0);
        for (index, &pod) in self.pods.iter().enumerate() {
            let (at_target, request) = match self.target {
                Target::Average(target) => (i128::from(target), 0),
                Target::Percent(target, requests) => {
                    let request = i128::from(requests[index]);
                    (request * i128::from(target.max(100)) / 100, request)
                }
            };
            if let Some(value) = usage(pod, at_target) {
                used += value;
                values += 1;
                requested += request;
            }
        }
        match self.target {
            Target::Average(target) => {
                used += i128::from(self.unmatched.unwrap_or(0));
                values += i128::from(self.unmatched.is_some());
                (values > 0).then(|| Ratio(used / values, target.into()))
            }
            // The sample of an unmatched pod is not used, because its request is unknown.
            Target::Percent(target, _) => {
                (requested > 0).then(|| Ratio(used * 100 / requested, target.into()))
            }
        }
    }
}

/// The proposal of a single value with a target for the value. `ready` is the number of ready pods.
pub(crate) fn of_all(value: i64, target: i64, current: i32, ready: i128, tolerance: i128) -> ModelProposal {
    let ratio = Ratio(value.into(), target.into());
    let band = ratio.band(tolerance);
    if current == 0 {
        let (count, or_one_more) = ratio.times(1);
        return ModelProposal { count, or_one_more, band, stays: false };
    }
    if band == Band::Within {
        return ModelProposal { count: current.into(), or_one_more: false, band, stays: true };
    }
    let (count, or_one_more) = ratio.times(ready);
    ModelProposal { count, or_one_more, band, stays: false }
}

/// The proposal of a single value with a target per replica.
pub(crate) fn of_each(total: i64, target: i64, status_replicas: i32, tolerance: i128) -> ModelProposal {
    let of_one = Ratio(total.into(), target.into());
    let (count, or_one_more) = of_one.times(1);
    if status_replicas == 0 {
        return ModelProposal { count, or_one_more, band: Band::Above, stays: false };
    }
    let band = Ratio(total.into(), i128::from(target) * i128::from(status_replicas)).band(tolerance);
    if band == Band::Within {
        return ModelProposal { count: status_replicas.into(), or_one_more: false, band, stays: true };
    }
    ModelProposal { count, or_one_more, band, stays: false }
}
