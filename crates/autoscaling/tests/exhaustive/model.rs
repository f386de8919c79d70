//! A second, naive implementation of stabilization, rates and bounds. It uses integers, follows the
//! description of upstream, and shares no code with the core.

/// An earlier recommendation: its age in nanoseconds and its count.
pub(crate) type RecommendationEntry = (i64, i32);

/// A rescale: its age in nanoseconds and its signed change.
pub(crate) type RescaleEntry = (i64, i64);

/// One rate policy: its number of pods or percentage, and its period in seconds.
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

/// The stabilized count without `behavior`: the highest of the proposal and the recommendations not older
/// than the window.
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

/// The bounds of the stabilized count with `behavior`: the lowest count of the scale-up window and the
/// highest count of the scale-down window, both including the proposal. Windows are in seconds.
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

/// The limit without `behavior`: at most the larger of 4 and twice the current count, within the bounds.
pub(crate) fn default_limit(current: i32, desired: i32, min: i32, max: i32) -> i32 {
    let (current, desired) = (i64::from(current), i64::from(desired));
    let rate = if 2 * current > 4 { 2 * current } else { 4 };
    let upper = if rate < i64::from(max) { rate } else { i64::from(max) };
    let result = if desired > upper { upper } else { desired };
    i32::try_from(if desired < i64::from(min) { i64::from(min) } else { result }).unwrap()
}

/// The exact count that a policy allows from the count at the start of its period, and the additional pods
/// that upstream's float64 arithmetic may allow. The difference is at most one pod, and occurs only if the
/// exact result is an integer.
pub(crate) fn allowed(policy: Policy, start: i64, up: bool) -> (i64, i64) {
    match policy {
        Policy::Pods(value, _) if up => (start + i64::from(value), 0),
        Policy::Pods(value, _) => (start - i64::from(value), 0),
        Policy::Percent(value, _) => {
            let hundredfold = start * if up { 100 + i64::from(value) } else { 100 - i64::from(value) };
            let whole = hundredfold % 100 == 0;
            // A scale-up rounds up. A scale-down truncates, which is towards zero.
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

/// Upstream's limits of a direction: the exact limit, and the limit with the additional pod of float64.
/// `start_of` returns the count at the start of a period, which is in nanoseconds.
pub(crate) fn rate_limit(
    current: i64,
    up: bool,
    select: Select,
    policies: &[Policy],
    start_of: impl Fn(i64) -> i64,
) -> (i64, i64) {
    rate_limit_with_unknowns(current, up, select, policies, |period| Some(start_of(period)))
}

/// Like [`rate_limit`], but the changes within a period may be unknown (`None`). A policy with such a period
/// allows nothing.
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

/// The count at the start of a period, from the current count and the rescales strictly within the period.
pub(crate) fn start_of(current: i64, rescaled: &[RescaleEntry], period_nanos: i64) -> i64 {
    let mut start = current;
    for &(age, change) in rescaled {
        if age < period_nanos {
            start -= change;
        }
    }
    start
}
