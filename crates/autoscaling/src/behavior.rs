//! Limits the stabilized count of one sync by rates and bounds (rules: docs/concepts/how-hpa-decides.md).

use jiff::{SignedDuration, Timestamp};

use crate::explanation::{LimitStep, PolicyUse};
use crate::history::{Direction, History, ScaleEvent, after, ago};
use crate::number::{ceil_to_count, saturate_to_i32, truncate_to_count};
use crate::spec::{Behavior, PolicyKind, ScalingRules, SelectPolicy};
use crate::status::Limit;

/// The bounds of an HPA and its current count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) current: i32,
    pub(crate) min: i32,
    pub(crate) max: i32,
}

impl LimitStep {
    pub(crate) fn new(before: i32, after: i32, limit: Limit) -> Self {
        Self { before, after, limit, direction: None, select: None, policies: Vec::new(), rate_allows: None }
    }
}

/// Limits a count without `behavior`: to at most the larger of 4 and twice the current count, then to the bounds.
pub(crate) fn without_behavior(bounds: Bounds, desired: i32) -> LimitStep {
    let rate = saturate_to_i32((2 * i128::from(bounds.current)).max(4));
    let (upper, limit) =
        if bounds.max > rate { (rate, Limit::ScaleUpRate) } else { (bounds.max, Limit::Maximum) };
    let (after, limit) = if desired < bounds.min {
        (bounds.min, Limit::Minimum)
    } else if desired > upper {
        (upper, limit)
    } else {
        (desired, Limit::WithinRange)
    };
    LimitStep { rate_allows: Some(rate), ..LimitStep::new(desired, after, limit) }
}

/// Limits a count by the policies of its direction, then by the bound of this direction. A count that equals the
/// current count is not limited.
pub(crate) fn with_behavior(
    bounds: Bounds,
    desired: i32,
    behavior: &Behavior,
    history: &History,
    now: Timestamp,
) -> LimitStep {
    let mut step = LimitStep::new(desired, desired, Limit::WithinRange);
    if desired > bounds.current {
        let rate = Rate { up: true, rules: &behavior.scale_up, current: bounds.current, history, now };
        (step.direction, step.select) = (Some(Direction::Up), Some(rate.rules.select_policy));
        let allowed = rate.allows(&mut step.policies).max(bounds.current);
        step.rate_allows = Some(allowed);
        let (upper, limit) =
            if bounds.max > allowed { (allowed, Limit::ScaleUpRate) } else { (bounds.max, Limit::Maximum) };
        if desired > upper {
            (step.after, step.limit) = (upper, limit);
        }
    } else if desired < bounds.current {
        let rate = Rate { up: false, rules: &behavior.scale_down, current: bounds.current, history, now };
        (step.direction, step.select) = (Some(Direction::Down), Some(rate.rules.select_policy));
        let allowed = rate.allows(&mut step.policies).min(bounds.current);
        step.rate_allows = Some(allowed);
        let (lower, limit) =
            if bounds.min < allowed { (allowed, Limit::ScaleDownRate) } else { (bounds.min, Limit::Minimum) };
        if desired < lower {
            (step.after, step.limit) = (lower, limit);
        }
    }
    step
}

/// The rate policies of one direction.
#[derive(Debug, Clone, Copy)]
struct Rate<'a> {
    up: bool,
    rules: &'a ScalingRules,
    current: i32,
    history: &'a History,
    now: Timestamp,
}

impl Rate<'_> {
    /// Returns the count that the selected policy allows. Appends the allowance of each policy to `uses`.
    fn allows(self, uses: &mut Vec<PolicyUse>) -> i32 {
        if self.rules.select_policy == SelectPolicy::Disabled {
            return self.current;
        }
        // The largest change means the highest count for a scale-up, and the lowest count for a scale-down.
        let largest = self.up == (self.rules.select_policy == SelectPolicy::Max);
        let mut result = if largest { i32::MIN } else { i32::MAX };
        let mut allows = 0;
        for policy in &self.rules.policies {
            let cutoff = ago(self.now, SignedDuration::from_secs(policy.period_seconds.into()));
            let added = changes_since(&self.history.scale_ups, cutoff, self.up);
            let removed = changes_since(&self.history.scale_downs, cutoff, !self.up);
            let start = saturate_to_i32(i128::from(self.current) - added + removed);
            let factor = f64::from(policy.value) / 100.0;
            let unknown = self
                .history
                .unknown(if self.up { Direction::Up } else { Direction::Down })
                .filter(|at| *at > cutoff);
            allows = match (policy.kind, self.up) {
                (PolicyKind::Pods | PolicyKind::Percent, _) if unknown.is_some() => self.current,
                (PolicyKind::Pods, true) => start.saturating_add(policy.value),
                (PolicyKind::Pods, false) => start.saturating_sub(policy.value),
                (PolicyKind::Percent, true) => ceil_to_count(f64::from(start) * (1.0 + factor)),
                (PolicyKind::Percent, false) => truncate_to_count(f64::from(start) * (1.0 - factor)),
                (PolicyKind::Unknown, _) => allows,
            };
            uses.push(PolicyUse {
                kind: policy.kind,
                value: policy.value,
                added: saturate_to_i32(added),
                removed: saturate_to_i32(removed),
                period_seconds: policy.period_seconds,
                start,
                allows,
                frees_at: unknown
                    .or_else(|| self.oldest(cutoff))
                    .map(|at| after(at, SignedDuration::from_secs(policy.period_seconds.into()))),
                unknown_rescale: unknown,
            });
            result = if largest { result.max(allows) } else { result.min(allows) };
        }
        result
    }

    /// Time of the oldest event after `cutoff` in the direction of the policies.
    fn oldest(self, cutoff: Timestamp) -> Option<Timestamp> {
        let events = if self.up { &self.history.scale_ups } else { &self.history.scale_downs };
        events.iter().map(|event| event.at).filter(|at| *at > cutoff).min()
    }
}

/// The number of pods in the events after the cutoff. `own` is true for events in the direction of the policy. Such an
/// event counts at its latest possible time, and an event of the other direction at its earliest possible time.
fn changes_since(events: &[ScaleEvent], cutoff: Timestamp, own: bool) -> i128 {
    let time = |event: &ScaleEvent| if own { event.at } else { event.earliest() };
    events.iter().filter(|event| time(event) > cutoff).map(|event| i128::from(event.change)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ScalingPolicy;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn rules(select_policy: SelectPolicy, policies: &[(PolicyKind, i32, i32)]) -> ScalingRules {
        ScalingRules {
            select_policy,
            policies: policies
                .iter()
                .map(|&(kind, value, period_seconds)| ScalingPolicy { kind, value, period_seconds })
                .collect(),
            ..ScalingRules::default()
        }
    }

    fn bounds(current: i32) -> Bounds {
        Bounds { current, min: 1, max: 100 }
    }

    #[test]
    fn count_at_most_doubles_without_behavior() {
        let step = without_behavior(bounds(10), 50);
        assert_eq!((step.after, step.limit), (20, Limit::ScaleUpRate));
        assert_eq!(without_behavior(bounds(1), 50).after, 4);
        assert_eq!(without_behavior(Bounds { current: 50, min: 1, max: 100 }, 200).limit, Limit::Maximum);
        assert_eq!(
            without_behavior(Bounds { current: i32::MAX, min: 1, max: i32::MAX }, i32::MAX).after,
            i32::MAX
        );
    }

    #[test]
    fn ten_percent_more_than_a_hundred_is_a_hundred_and_eleven() {
        // As in upstream, 100 × 1.1 is 110.00000000000001 in float64.
        let behavior = Behavior {
            scale_up: rules(SelectPolicy::Max, &[(PolicyKind::Percent, 10, 60)]),
            ..Behavior::default()
        };
        assert_eq!(
            with_behavior(Bounds { max: 500, ..bounds(100) }, 200, &behavior, &History::default(), at(100))
                .after,
            111
        );
    }

    #[test]
    fn pods_added_in_the_period_count_against_the_policy() {
        let behavior = Behavior {
            scale_up: rules(SelectPolicy::Max, &[(PolicyKind::Pods, 4, 60)]),
            ..Behavior::default()
        };
        let history = History { scale_ups: vec![ScaleEvent::new(at(50), 3)], ..History::default() };
        let step = with_behavior(bounds(8), 50, &behavior, &history, at(100));
        assert_eq!(step.after, 9);
        assert_eq!(step.policies[0].frees_at, Some(at(110)));
        assert_eq!(with_behavior(bounds(8), 50, &behavior, &history, at(110)).after, 12);
    }

    #[test]
    fn count_does_not_move_in_a_disabled_direction() {
        let behavior = Behavior { scale_down: rules(SelectPolicy::Disabled, &[]), ..Behavior::default() };
        let step = with_behavior(bounds(8), 2, &behavior, &History::default(), at(100));
        assert_eq!((step.after, step.limit), (8, Limit::ScaleDownRate));
    }

    /// The highest and the lowest count that `policies`, set in both directions, allow for 8 replicas at second 100.
    /// The history has a rescale of unknown size at second 50.
    fn after_unknown(select_policy: SelectPolicy, policies: &[(PolicyKind, i32, i32)]) -> (i32, i32) {
        let rules = || rules(select_policy, policies);
        let behavior = Behavior { scale_up: rules(), scale_down: rules() };
        let history = History { unknown_up: Some(at(50)), unknown_down: Some(at(50)), ..History::default() };
        let after = |desired| with_behavior(bounds(8), desired, &behavior, &history, at(100)).after;
        (after(50), after(1))
    }

    #[test]
    fn policy_allows_nothing_after_a_rescale_of_unknown_size() {
        for kind in [PolicyKind::Pods, PolicyKind::Percent] {
            for select in [SelectPolicy::Max, SelectPolicy::Min] {
                assert_eq!(after_unknown(select, &[(kind, 50, 51)]), (8, 8), "{kind:?} {select:?}");
            }
        }
        assert_eq!(after_unknown(SelectPolicy::Max, &[(PolicyKind::Pods, 3, 50)]), (11, 5));
        assert_eq!(after_unknown(SelectPolicy::Max, &[(PolicyKind::Percent, 50, 50)]), (12, 4));
        assert_eq!(after_unknown(SelectPolicy::Disabled, &[(PolicyKind::Pods, 3, 50)]), (8, 8));
    }

    #[test]
    fn policies_with_a_period_after_the_unknown_rescale_are_unaffected() {
        let policies = [(PolicyKind::Percent, 100, 600), (PolicyKind::Pods, 2, 15)];
        assert_eq!(after_unknown(SelectPolicy::Max, &policies), (10, 6));
        assert_eq!(after_unknown(SelectPolicy::Min, &policies), (8, 8));
    }

    #[test]
    fn rescale_of_unknown_size_shows_when_it_leaves_the_period() {
        let rules = || rules(SelectPolicy::Max, &[(PolicyKind::Pods, 4, 60)]);
        let behavior = Behavior { scale_up: rules(), scale_down: rules() };
        let history = History {
            scale_ups: vec![ScaleEvent::new(at(45), 1)],
            unknown_up: Some(at(50)),
            ..History::default()
        };
        let step = with_behavior(bounds(8), 50, &behavior, &history, at(100));
        assert_eq!((step.after, step.limit, step.rate_allows), (8, Limit::ScaleUpRate, Some(8)));
        let policy = step.policies[0];
        assert_eq!((policy.unknown_rescale, policy.frees_at), (Some(at(50)), Some(at(110))));
        let later = with_behavior(bounds(8), 50, &behavior, &history, at(110));
        assert_eq!((later.after, later.policies[0].unknown_rescale), (12, None));
        // `unknown_down` is not set, so scale-downs are not affected.
        assert_eq!(with_behavior(bounds(8), 1, &behavior, &history, at(100)).after, 3);
    }

    #[test]
    fn rescale_with_uncertain_time_counts_longest_in_its_direction() {
        let rules = || rules(SelectPolicy::Max, &[(PolicyKind::Pods, 4, 60)]);
        let behavior = Behavior { scale_up: rules(), scale_down: rules() };
        let event = ScaleEvent { at: at(50), change: 3, earliest: Some(at(40)) };
        let history = History { scale_ups: vec![event], ..History::default() };
        let after =
            |desired, second| with_behavior(bounds(20), desired, &behavior, &history, at(second)).after;
        assert_eq!((after(50, 109), after(50, 110)), (21, 24));
        assert_eq!((after(1, 99), after(1, 100)), (13, 16));
    }
}
