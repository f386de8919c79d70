//! What an HPA allows, read from the object as it is stored, and the rate policies by their definition.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

/// What an HPA allows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    pub(crate) min: i64,
    pub(crate) max: i64,
    /// Up and down; none without `behavior`.
    pub(crate) behavior: Option<[Pace; 2]>,
    /// How many different questions its metrics are.
    pub(crate) queries: usize,
    /// How many metrics it has, each of which may be told of in an event.
    pub(crate) metrics: usize,
    /// Whether its target can be looked for at all.
    pub(crate) has_target: bool,
}

/// How fast one direction may go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pace {
    policies: Vec<Policy>,
    select: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Policy {
    percent: bool,
    value: f64,
    period: Duration,
}

/// A rescale that the cluster has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rescale {
    pub(crate) at: Duration,
    pub(crate) change: i64,
    /// It came before what the policies of the next one reached back to.
    pub(crate) may_be_forgotten: bool,
}

/// What a rescale may have been remembered late by.
const LATE: Duration = Duration::from_secs(3);

impl Rules {
    pub(crate) fn of(object: &Value) -> Self {
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
                .map(|direction| Pace::of(behavior.get(direction).unwrap_or(&Value::Null)))
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

    /// Whether a count lies within the bounds, never negative.
    pub(crate) fn admits(&self, replicas: i64) -> bool {
        (self.min.min(self.max).max(0)..=self.min.max(self.max)).contains(&replicas)
    }

    /// Whether a rescale only restores a bound, which no policy slows down.
    pub(crate) fn restores(&self, from: i64, to: i64) -> bool {
        (from > self.max && to == self.max) || (from < self.min && to == self.min)
    }

    /// The longest period of a policy in a direction.
    fn longest(&self, up: bool) -> Duration {
        let paces = self.behavior.as_ref().map(|behavior| &behavior[usize::from(!up)]);
        let policies = paces.into_iter().flat_map(|pace| &pace.policies);
        policies.map(|policy| policy.period).max().unwrap_or_default()
    }

    /// How far a count may go from `from` at `now`, after these rescales, in the direction of `to`.
    pub(crate) fn limit(&self, from: i64, to: i64, rescales: &[Rescale], now: Duration) -> i64 {
        let up = to > from;
        let Some(behavior) = &self.behavior else {
            // Without `behavior` a count doubles at most, and goes down freely.
            return if up { (from * 2).max(4) } else { i64::MIN };
        };
        let pace = &behavior[usize::from(!up)];
        if pace.select == "Disabled" {
            return from;
        }
        let allowed = pace.policies.iter().map(|policy| policy.limit(up, from, rescales, now));
        let largest = up == (pace.select != "Min");
        let limit = if largest { allowed.max() } else { allowed.min() }.unwrap_or(from);
        if up { limit.max(from) } else { limit.min(from) }
    }

    /// With a rescale, those of the same direction that no policy reaches back to may be forgotten: policies that are
    /// longer later do not find them again.
    pub(crate) fn forget(&self, rescales: &mut [Rescale], up: bool, now: Duration) {
        let longest = self.longest(up);
        for rescale in rescales.iter_mut().filter(|rescale| (rescale.change > 0) == up) {
            rescale.may_be_forgotten |= rescale.at + longest <= now;
        }
    }
}

impl Pace {
    fn of(rules: &Value) -> Self {
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
    /// By the policy's definition: counted from the replicas at the beginning of its period. Where it is not certain whether
    /// a rescale still counted when the decision was made, it counts as is kinder.
    fn limit(&self, up: bool, from: i64, rescales: &[Rescale], now: Duration) -> i64 {
        let within = |slack: Duration| move |rescale: &&Rescale| rescale.at + self.period + slack > now;
        let changes = |up: bool, slack| -> i64 {
            let known = rescales
                .iter()
                .filter(within(slack))
                .filter(|rescale| slack == LATE || !rescale.may_be_forgotten);
            known.filter(|rescale| (rescale.change > 0) == up).map(|rescale| rescale.change).sum()
        };
        let slack = |same: bool| if same { Duration::ZERO } else { LATE };
        let start = from - changes(true, slack(up)) - changes(false, slack(!up));
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
        Rules::of(&json!({"spec": {
            "minReplicas": 2, "maxReplicas": 20, "behavior": {"scaleUp": direction, "scaleDown": direction},
        }}))
    }

    fn rescale(second: u64, change: i64) -> Rescale {
        Rescale { at: Duration::from_secs(second), change, may_be_forgotten: false }
    }

    #[test]
    fn a_policy_counts_from_the_replicas_at_the_beginning_of_its_period() {
        let rules = rules(&json!([{"type": "Pods", "value": 4, "periodSeconds": 60}]));
        let at = Duration::from_secs(100);
        assert_eq!(rules.limit(8, 20, &[], at), 12);
        assert_eq!(rules.limit(8, 20, &[rescale(50, 3)], at), 9);
        assert_eq!(rules.limit(8, 20, &[rescale(40, 3)], at), 12);
        assert_eq!(rules.limit(8, 2, &[rescale(50, -3)], at), 7);
        // Where it went both ways within a moment, the kinder reading counts.
        assert_eq!(rules.limit(8, 20, &[rescale(38, -3)], at), 15);
    }

    #[test]
    fn without_behavior_a_count_doubles_at_most() {
        let rules = Rules::of(&json!({"spec": {"maxReplicas": 20}}));
        assert_eq!(
            (rules.limit(5, 20, &[], Duration::ZERO), rules.limit(1, 20, &[], Duration::ZERO)),
            (10, 4)
        );
        assert!(rules.admits(1) && !rules.admits(0) && !rules.admits(21) && rules.restores(30, 20));
    }
}
