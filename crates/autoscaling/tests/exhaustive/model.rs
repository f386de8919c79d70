//! The rules of stabilization, rates and bounds formulated a second time: naively, in whole numbers, from the
//! description of the reference. Nothing here is shared with the core.

/// An earlier recommendation: its age in nanoseconds and its count.
pub(crate) type Recommended = (i64, i32);

/// A rescale: its age in nanoseconds and its signed change.
pub(crate) type Rescaled = (i64, i64);

/// One rate policy: pods or percent, how many, over how many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Pods(i32, i32),
    Percent(i32, i32),
}

/// Which policy of several counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Select {
    Max,
    Min,
    Disabled,
}

/// Without `behavior`: the highest of the proposal and what is not older than the window.
pub(crate) fn highest_of_window(proposal: i32, recommended: &[Recommended], window_nanos: i64) -> i32 {
    let mut highest = proposal;
    for &(age, replicas) in recommended {
        if age <= window_nanos && replicas > highest {
            highest = replicas;
        }
    }
    highest
}

/// With `behavior`: the lowest of the window for growing and the highest of the window for shrinking, the proposal
/// in both. Windows in seconds.
pub(crate) fn envelope(proposal: i32, recommended: &[Recommended], up: i64, down: i64) -> (i32, i32) {
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

/// Without `behavior`: at most twice the count or 4, within the bounds.
pub(crate) fn default_limit(current: i32, desired: i32, min: i32, max: i32) -> i32 {
    let (current, desired) = (i64::from(current), i64::from(desired));
    let rate = if 2 * current > 4 { 2 * current } else { 4 };
    let upper = if rate < i64::from(max) { rate } else { i64::from(max) };
    let result = if desired > upper { upper } else { desired };
    i32::try_from(if desired < i64::from(min) { i64::from(min) } else { result }).unwrap()
}

/// What a policy allows from a count at the start of its period, exactly; and how much further the reference may go
/// because it computes in float64: by one pod, and only where the exact result is whole.
pub(crate) fn allowed(policy: Policy, start: i64, up: bool) -> (i64, i64) {
    match policy {
        Policy::Pods(value, _) if up => (start + i64::from(value), 0),
        Policy::Pods(value, _) => (start - i64::from(value), 0),
        Policy::Percent(value, _) => {
            let hundredfold = start * if up { 100 + i64::from(value) } else { 100 - i64::from(value) };
            let whole = hundredfold % 100 == 0;
            // Up: the smallest count that is not below; down: without the fraction, so towards zero.
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

/// The counts between which the reference's limit of a direction lies: exact, and with float64's one pod more.
/// `start_of` tells the count at the start of a period of so many nanoseconds.
pub(crate) fn rate_limit(
    current: i64,
    up: bool,
    select: Select,
    policies: &[Policy],
    start_of: impl Fn(i64) -> i64,
) -> (i64, i64) {
    rate_limit_in_doubt(current, up, select, policies, |period| Some(start_of(period)))
}

/// The same where it may not be known what happened within a period: such a policy allows nothing.
pub(crate) fn rate_limit_in_doubt(
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

/// The count at the start of a period, from the current one and the rescales strictly younger than the period.
pub(crate) fn start_of(current: i64, rescaled: &[Rescaled], period_nanos: i64) -> i64 {
    let mut start = current;
    for &(age, change) in rescaled {
        if age < period_nanos {
            start -= change;
        }
    }
    start
}
