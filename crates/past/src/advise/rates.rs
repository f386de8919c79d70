//! The rate policies of `behavior`, and those that advice may replace by the defaults of the API server.

use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, ScalingRules, SelectPolicy};
use serde::Serialize;
use serde_json::{Value, json};

use super::outcome::Choice;

/// The rate policies of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdvisedRates"))]
pub enum Rates {
    /// Those of the HPA.
    #[default]
    Kept,
    /// The defaults of the API server. For scale-ups, this includes the window.
    Default,
}

impl Rates {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    pub(crate) fn are_kept(&self) -> bool {
        *self == Self::Kept
    }
}

impl Choice {
    pub(crate) fn keeps_rates(&self) -> bool {
        self.scale_up_rates.are_kept() && self.scale_down_rates.are_kept()
    }

    /// The settings with the rates of others.
    pub(crate) fn with_rates_of(self, other: Self) -> Self {
        let Self { scale_up_rates, scale_down_rates, .. } = other;
        Self { scale_up_rates, scale_down_rates, ..self }
    }
}

fn policy(kind: PolicyKind, value: i32) -> ScalingPolicy {
    ScalingPolicy { kind, value, period_seconds: 15 }
}

fn default_up() -> Box<[ScalingPolicy]> {
    Box::new([policy(PolicyKind::Pods, 4), policy(PolicyKind::Percent, 100)])
}

fn default_down() -> Box<[ScalingPolicy]> {
    Box::new([policy(PolicyKind::Percent, 100)])
}

/// The rates to try: the default ones where the HPA has others. Those of scale-ups are only tried for an HPA that is
/// short. A direction that is disabled stays so, because that is no rate.
pub(crate) fn tried(behavior: Option<&Behavior>, is_short: bool) -> Vec<(Rates, Rates)> {
    let differs = |rules: &ScalingRules, default: &[ScalingPolicy]| {
        let has_others = !rules.policies.is_empty() && *rules.policies != *default;
        match rules.select_policy {
            SelectPolicy::Disabled => false,
            SelectPolicy::Min => has_others || default.len() > 1,
            SelectPolicy::Max => has_others,
        }
    };
    let Some(Behavior { scale_up, scale_down }) = behavior else { return Vec::new() };
    let waits = scale_up.stabilization_window_seconds.unwrap_or_default() > 0
        && scale_up.select_policy != SelectPolicy::Disabled;
    let up = is_short && (waits || differs(scale_up, &default_up()));
    let down = differs(scale_down, &default_down());
    let changed = [
        (up, (Rates::Default, Rates::Kept)),
        (down, (Rates::Kept, Rates::Default)),
        (up && down, (Rates::Default, Rates::Default)),
    ];
    changed.into_iter().filter(|(is_tried, _)| *is_tried).map(|(_, rates)| rates).collect()
}

/// Adds the policies that the API server adds to `behavior`, and replaces the rates that a choice replaces.
pub(crate) fn complete(mut behavior: Behavior, choice: Choice) -> Behavior {
    let Behavior { scale_up, scale_down } = &mut behavior;
    if !choice.scale_up_rates.are_kept() {
        *scale_up = ScalingRules { tolerance: scale_up.tolerance, ..ScalingRules::default() };
    }
    if !choice.scale_down_rates.are_kept() {
        scale_down.policies = Box::default();
        scale_down.select_policy = SelectPolicy::Max;
    }
    if scale_up.policies.is_empty() {
        scale_up.policies = default_up();
    }
    if scale_down.policies.is_empty() {
        scale_down.policies = default_down();
    }
    behavior
}

/// The default rates of `behavior.scaleUp` in a manifest.
pub(crate) fn scale_up_in_patch() -> Value {
    json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies(&default_up())})
}

/// The default policies of `behavior.scaleDown` in a manifest.
pub(crate) fn scale_down_policies_in_patch() -> Value {
    policies(&default_down())
}

fn policies(policies: &[ScalingPolicy]) -> Value {
    let each = |policy: &ScalingPolicy| {
        let kind = if policy.kind == PolicyKind::Pods { "Pods" } else { "Percent" };
        json!({"type": kind, "value": policy.value, "periodSeconds": policy.period_seconds})
    };
    policies.iter().map(each).collect()
}
