//! The limits of an HPA, read from the stored object, and an independent computation of the limits of rate policies.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use serde_json::Value;

/// The limits of an HPA.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    pub(crate) min: i64,
    pub(crate) max: i64,
    /// Scale-up and scale-down rules, or `None` without `behavior`.
    pub(crate) behavior: Option<[RateRules; 2]>,
    /// Number of distinct queries for its metrics.
    pub(crate) queries: usize,
    /// Number of metrics. Each may be the subject of an event.
    pub(crate) metrics: usize,
    /// Whether the target reference can be resolved.
    pub(crate) has_target: bool,
}

/// The rate policies of one direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateRules {
    policies: Vec<Policy>,
    select: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Policy {
    percent: bool,
    value: f64,
    period: Duration,
}

/// A rescale that the cluster applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rescale {
    pub(crate) at: Duration,
    pub(crate) change: i64,
    /// Whether the controller may have dropped the rescale from its history.
    pub(crate) may_be_forgotten: bool,
}

/// Maximum delay between a rescale and its entry in the history.
const RECORD_DELAY: Duration = Duration::from_secs(3);

impl Rules {
    pub(crate) fn from_object(object: &Value) -> Self {
        let spec = &object["spec"];
        let metrics = spec["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let queries: BTreeSet<String> = metrics
            .iter()
            .map(|metric| match metric["type"].as_str().unwrap_or_default() {
                "Resource" | "ContainerResource" => "resource".to_owned(),
                _ => metric.to_string(),
            })
            .collect();
        let behavior = spec["behavior"].as_object().map(|behavior| {
            ["scaleUp", "scaleDown"]
                .map(|direction| RateRules::from_rules(behavior.get(direction).unwrap_or(&Value::Null)))
        });
        Self {
            min: spec["minReplicas"].as_i64().unwrap_or(1),
            max: spec["maxReplicas"].as_i64().unwrap_or(0),
            behavior,
            queries: queries.len(),
            metrics: metrics.len(),
            has_target: spec["scaleTargetRef"]["apiVersion"] == "apps/v1",
        }
    }

    /// Time that the queries may take. Each query needs a token, and few are in flight at once.
    pub(crate) fn own_delay(&self) -> Duration {
        Duration::from_millis(100) * u32::try_from(self.queries).unwrap()
    }

    /// Whether a count lies within the bounds and is not negative.
    pub(crate) fn admits(&self, replicas: i64) -> bool {
        (self.min.min(self.max).max(0)..=self.min.max(self.max)).contains(&replicas)
    }

    /// Whether a rescale only restores a bound, which no policy limits.
    pub(crate) fn restores(&self, from: i64, to: i64) -> bool {
        (from > self.max && to == self.max) || (from < self.min && to == self.min)
    }

    /// The longest policy period of a direction.
    fn longest(&self, up: bool) -> Duration {
        let paces = self.behavior.as_ref().map(|behavior| &behavior[usize::from(!up)]);
        let policies = paces.into_iter().flat_map(|pace| &pace.policies);
        policies.map(|policy| policy.period).max().unwrap_or_default()
    }

    /// The furthest count that the policies allow from `from` in the direction of `to`, after `rescales`.
    /// `when` spans the decision and the write.
    pub(crate) fn limit(&self, from: i64, to: i64, rescales: &[Rescale], when: Range<Duration>) -> i64 {
        let up = to > from;
        let Some(behavior) = &self.behavior else {
            // Without `behavior` a count at most doubles, and scale-down is unlimited.
            return if up { (from * 2).max(4) } else { i64::MIN };
        };
        let pace = &behavior[usize::from(!up)];
        if pace.select == "Disabled" {
            return from;
        }
        let allowed = pace.policies.iter().map(|policy| policy.limit(up, from, rescales, &when));
        let largest = up == (pace.select != "Min");
        let limit = if largest { allowed.max() } else { allowed.min() }.unwrap_or(from);
        if up { limit.max(from) } else { limit.min(from) }
    }

    /// Marks older rescales of the direction that the history may drop when it records a new rescale, because no policy
    /// period reaches back to them. A longer period that is set later does not restore them.
    pub(crate) fn forget(&self, rescales: &mut [Rescale], up: bool, now: Duration) {
        let longest = self.longest(up);
        for rescale in rescales.iter_mut().filter(|rescale| (rescale.change > 0) == up) {
            rescale.may_be_forgotten |= rescale.at + longest <= now + RECORD_DELAY;
        }
    }
}

impl RateRules {
    fn from_rules(rules: &Value) -> Self {
        let policies = rules["policies"].as_array().into_iter().flatten().map(|policy| Policy {
            percent: policy["type"] == "Percent",
            value: policy["value"].as_f64().unwrap_or(0.0),
            period: Duration::from_secs(policy["periodSeconds"].as_u64().unwrap_or(0)),
        });
        Self {
            policies: policies.collect(),
            select: rules["selectPolicy"].as_str().unwrap_or("Max").to_owned(),
        }
    }
}

impl Policy {
    /// The limit by the policy's definition, counted from the replicas at the start of its period. If it is uncertain
    /// whether a rescale still counted at the decision, the more permissive reading applies. Neither the larger nor the
    /// smaller start is always more permissive: 200 % down from a negative start is an increase.
    fn limit(&self, up: bool, from: i64, rescales: &[Rescale], when: &Range<Duration>) -> i64 {
        let counts = |rescale: &&Rescale, is_sure: bool| {
            let ends = rescale.at + self.period;
            if is_sure {
                ends > when.end && !rescale.may_be_forgotten
            } else {
                ends + RECORD_DELAY > when.start
            }
        };
        let changes = |up: bool, is_sure: bool| -> i64 {
            let counted = rescales.iter().filter(|rescale| counts(rescale, is_sure));
            counted.filter(|rescale| (rescale.change > 0) == up).map(|rescale| rescale.change).sum()
        };
        // The maximum and the minimum of the replicas that the period may have started with.
        let most = from - changes(true, true) - changes(false, false);
        let fewest = from - changes(true, false) - changes(false, true);
        let ends = [most, fewest].map(|start| self.limit_from(up, start));
        if up { ends[0].max(ends[1]) } else { ends[0].min(ends[1]) }
    }

    /// The limit for a count of `start` at the start of the period.
    fn limit_from(&self, up: bool, start: i64) -> i64 {
        match (self.percent, up) {
            (false, true) => start + self.value as i64,
            (false, false) => start - self.value as i64,
            (true, true) => (start as f64 * (1.0 + self.value / 100.0)).ceil() as i64,
            (true, false) => (start as f64 * (1.0 - self.value / 100.0)) as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(policies: &Value) -> Rules {
        let direction = json!({"policies": policies, "selectPolicy": "Max"});
        Rules::from_object(&json!({"spec": {
            "minReplicas": 2, "maxReplicas": 20, "behavior": {"scaleUp": direction, "scaleDown": direction},
        }}))
    }

    fn rescale(second: u64, change: i64) -> Rescale {
        Rescale { at: Duration::from_secs(second), change, may_be_forgotten: false }
    }

    #[test]
    fn policy_counts_from_the_replicas_at_the_start_of_its_period() {
        let rules = rules(&json!([{"type": "Pods", "value": 4, "periodSeconds": 60}]));
        let at = Duration::from_secs(100);
        assert_eq!(rules.limit(8, 20, &[], at..at), 12);
        assert_eq!(rules.limit(8, 20, &[rescale(50, 3)], at..at), 9);
        assert_eq!(rules.limit(8, 20, &[rescale(40, 3)], at..at), 12);
        assert_eq!(rules.limit(8, 2, &[rescale(50, -3)], at..at), 7);
        // For a rescale near the end of the period, the more permissive reading applies.
        assert_eq!(rules.limit(8, 20, &[rescale(38, -3)], at..at), 15);
    }

    #[test]
    fn dropped_rescale_counts_only_if_it_permits_more() {
        let rules = rules(&json!([{"type": "Percent", "value": 200, "periodSeconds": 60}]));
        let at = Duration::from_secs(100);
        let forgotten = Rescale { may_be_forgotten: true, ..rescale(50, 6) };
        // With a start of 3 − 6 pods, the limit is 3. With a start of 3, the limit is −3.
        assert_eq!(
            (rules.limit(3, 2, &[rescale(50, 6)], at..at), rules.limit(3, 2, &[forgotten], at..at)),
            (3, -3)
        );
    }

    #[test]
    fn rescale_may_be_dropped_until_the_next_one_is_recorded() {
        let rules = rules(&json!([{"type": "Pods", "value": 4, "periodSeconds": 15}]));
        let is_forgotten_at = |second| {
            let mut rescales = [rescale(50, 3), rescale(50, -1)];
            rules.forget(&mut rescales, true, Duration::from_secs(second));
            rescales.map(|rescale| rescale.may_be_forgotten)
        };
        assert_eq!(is_forgotten_at(61), [false, false]);
        assert_eq!(is_forgotten_at(64), [true, false]);
    }

    #[test]
    fn count_at_most_doubles_without_behavior() {
        let rules = Rules::from_object(&json!({"spec": {"maxReplicas": 20}}));
        assert_eq!(
            (
                rules.limit(5, 20, &[], Duration::ZERO..Duration::ZERO),
                rules.limit(1, 20, &[], Duration::ZERO..Duration::ZERO)
            ),
            (10, 4)
        );
        assert!(rules.admits(1) && !rules.admits(0) && !rules.admits(21) && rules.restores(30, 20));
    }
}
