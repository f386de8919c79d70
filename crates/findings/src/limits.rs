//! Findings about bounds, tolerance, behavior and recent rescales.

use autoscaling::event::{FLAPPING, direction_changes};
use autoscaling::explanation::{
    LimitingStep, MetricExplanation, MetricReading, PodGroup, ProposalReason, Span, amount, trimmed,
};
use autoscaling::spec::{PolicyKind, ScalingRules};
use jiff::{SignedDuration, Timestamp};
use policies::bounds::ScheduleStep;
use policies::forecast::ForecastBenefit;
use policies::steps::Step;
use serde_json::Value;

use crate::facts::RecentEvent;
use crate::{Facts, Finding, FindingId};

/// The period of rescales that `flapping` considers.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of counts in the message of `flapping`, which shows the newest counts.
const SHOWN: usize = 8;
/// Maximum number of occurrences that are derived from a repeated event.
const OCCURRENCES: u32 = 240;

/// Finds a scaling policy that withholds pods that the metrics ask for.
pub(crate) fn policy(facts: &Facts<'_>) -> Option<Finding> {
    let (step, effect) = (facts.decided().replaced_by()?, facts.policy?);
    let (recommended, applied) = (effect.recommended?, effect.applied?);
    if applied >= recommended {
        return None;
    }
    let advice = match step {
        Step::Mode(_) => {
            "If this is not intended any more, remove mode from the policy, or set until, so that the mode ends."
        }
        _ => "The guard ends by itself with its cause. If it lasts too long, correct the cause or the guard.",
    };
    let sentence = facts.decided().sentence(facts.at);
    let why = sentence.split_once(": ").map_or(sentence.as_str(), |(_, why)| why);
    let message = format!("the scaling policy applies {applied} instead of {recommended}: {why}");
    Some(Finding::warning(FindingId::PolicyHolds, message, advice))
}

/// Finds a floor of a forecast that would have avoided a shortage, and is only shown.
pub(crate) fn forecast(facts: &Facts<'_>) -> Option<Finding> {
    let forecast = facts.policy?.forecast.as_ref().filter(|forecast| !forecast.applies)?;
    let ForecastBenefit { avoided, short, added_permille } = forecast.benefit?;
    let added = trimmed(added_permille as f64 / 10.0, 1);
    let message = format!(
        "in the last eight days, the floor of the forecast would have avoided {avoided} of {short} pod-minutes of shortage \
         for {added} % more pods, but the mode is Preview"
    );
    let advice = "Set forecast.mode of the scaling policy to Floor, so that the floor applies.";
    (avoided > 0).then(|| Finding::info(FindingId::ForecastPays, message, advice))
}

/// Returns the step of the active schedule that changes a bound of the HPA.
fn schedule<'a>(facts: &Facts<'a>, field: &str) -> Option<&'a ScheduleStep> {
    facts.policy?.steps.iter().find_map(|step| match step {
        Step::Schedule(schedule) if *schedule.field == *field => Some(schedule),
        _ => None,
    })
}

/// Finds a `maxReplicas` below the proposal of the metrics.
pub(crate) fn maximum(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = &facts.explanation;
    let limits = explanation.limits();
    let proposal = explanation.proposal.filter(|proposal| *proposal > explanation.max)?;
    if !limits.contains(&LimitingStep::Maximum) {
        return None;
    }
    let subject = explanation
        .winning_metric()
        .map_or_else(|| "the fallback of a failed metric".to_owned(), |metric| metric.subject().to_string());
    let schedule = schedule(facts, "maxReplicas");
    let by = schedule.map(|step| format!(" by schedule {}", step.schedule)).unwrap_or_default();
    let advice = match schedule {
        Some(ScheduleStep { schedule, from, until, .. }) => {
            let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!(
                "maxReplicas of the HPA is {from}, and schedule {schedule} lowers it{until}: change the schedule."
            )
        }
        None if limits.contains(&LimitingStep::ScaleUpPolicy) => {
            "behavior.scaleUp disables scaling up, so a higher maxReplicas alone changes nothing.".to_owned()
        }
        None => format!(
            "Raise maxReplicas if the cluster and the dependencies of the pods have the capacity; otherwise find out what \
             drives {subject}."
        ),
    };
    Some(Finding::warning(
        FindingId::MaxReplicas,
        format!("{subject} asks for {proposal}, but maxReplicas is {}{by}", explanation.max),
        advice,
    ))
}

/// Finds bounds of the HPA that allow a single count.
pub(crate) fn fixed(facts: &Facts<'_>) -> Option<Finding> {
    let spec = facts.hpa?.spec;
    let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
    (min >= max).then(|| {
        Finding::info(
            FindingId::FixedSize,
            format!("minReplicas {min} and maxReplicas {max} leave nothing to scale"),
            "Set maxReplicas above minReplicas, or delete the HPA if a fixed size is intended.",
        )
    })
}

/// Finds a tolerance that prevents a change of the count.
pub(crate) fn tolerance(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = &facts.explanation;
    let reading = explanation.winning_metric().and_then(MetricExplanation::reading)?;
    // `burst` has no tolerance.
    if facts.policy.is_some_and(|policy| policy.steps.iter().any(|step| matches!(step, Step::Burst(_)))) {
        return None;
    }
    let without = without_tolerance(reading, explanation.current)?;
    let bounded = without.clamp(f64::from(explanation.min), f64::from(explanation.max));
    let current = f64::from(explanation.current);
    let hidden = (reading.ratio > 1.0 && bounded > current) || (reading.ratio < 1.0 && bounded < current);
    if explanation.desired != Some(explanation.current) || !hidden {
        return None;
    }
    let (subject, current) = (&reading.subject, explanation.current);
    let (field, tolerance) = if bounded > f64::from(current) {
        ("scaleUp", reading.highest_tolerated - 1.0)
    } else {
        ("scaleDown", 1.0 - reading.lowest_tolerated)
    };
    let percent = trimmed(tolerance * 100.0, 2);
    Some(Finding::info(
        FindingId::Tolerance,
        format!(
            "{subject} is at {}, which is within {percent} % of its target of {}; without tolerance the count would be {} \
             instead of {current}",
            amount(reading.value, subject),
            amount(reading.target, subject),
            trimmed(bounded, 0),
        ),
        format!(
            "The tolerance prevents scaling on small changes. If this change matters, set behavior.{field}.tolerance below {}.",
            trimmed(tolerance, 4)
        ),
    ))
}

/// Returns the count that a metric within tolerance would propose without the tolerance. `None` for other metrics.
fn without_tolerance(reading: &MetricReading, current: i32) -> Option<f64> {
    let pods = |number: usize| i32::try_from(number).map(f64::from).ok();
    match (reading.why, reading.corrected, reading.total) {
        (ProposalReason::WithinTolerance, _, Some(_)) => {
            Some((reading.ratio * f64::from(reading.proposal)).ceil())
        }
        (ProposalReason::WithinTolerance, ..) if reading.pods.is_empty() && reading.unlisted.is_empty() => {
            Some((reading.ratio * f64::from(current)).ceil())
        }
        (ProposalReason::WithinTolerance, ..) => {
            Some((reading.ratio * pods(reading.count(|group| group == PodGroup::Ready))?).ceil())
        }
        (ProposalReason::CorrectedWithinTolerance, Some(corrected), _) => {
            Some((corrected.ratio * corrected.values as f64).ceil())
        }
        _ => None,
    }
}

/// Finds invalid fields of the behavior, and a tolerance that a disabled feature gate ignores.
pub(crate) fn behavior(facts: &Facts<'_>) -> Vec<Finding> {
    let Some((hpa, behavior)) = facts.hpa.and_then(|hpa| Some((hpa, hpa.spec.behavior.as_ref()?))) else {
        return Vec::new();
    };
    // The typed spec omits an invalid `selectPolicy`, so this field is read from the raw spec.
    let raw: Value = serde_json::from_str(hpa.raw).unwrap_or_default();
    let mut found = Vec::new();
    for (field, rules) in [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)] {
        found.extend(unknown_words(field, rules, &raw));
    }
    let has_tolerance = behavior.scale_up.tolerance.is_some() || behavior.scale_down.tolerance.is_some();
    if has_tolerance && !facts.settings.configurable_tolerance {
        found.push(Finding::warning(
            FindingId::ToleranceIgnored,
            "behavior sets a tolerance, but the gate HPAConfigurableTolerance is off, so it is ignored",
            "Enable the gate, or set --horizontal-pod-autoscaler-tolerance for the whole controller.",
        ));
    }
    found
}

fn unknown_words(field: &str, rules: &ScalingRules, raw: &Value) -> Option<Finding> {
    let written = raw.get("behavior").and_then(|behavior| behavior.get(field))?;
    let select = written.get("selectPolicy").and_then(Value::as_str);
    if let Some(select) = select.filter(|select| !matches!(*select, "Max" | "Min" | "Disabled" | "")) {
        return Some(Finding::warning(
            FindingId::UnknownBehavior,
            format!("behavior.{field}.selectPolicy is {select:?}, which is invalid; it counts as Max"),
            "Set it to Max, Min or Disabled.",
        ));
    }
    rules.policies.iter().any(|policy| policy.kind == PolicyKind::Unknown).then(|| {
        Finding::warning(
            FindingId::UnknownBehavior,
            format!(
                "a policy of behavior.{field} has an invalid type; it allows the same change as the previous policy"
            ),
            "Set it to Pods or Percent.",
        )
    })
}

/// Finds a count that changed direction at least [`FLAPPING`] times in the last hour.
pub(crate) fn flapping(facts: &Facts<'_>) -> Option<Finding> {
    let since = facts.at.checked_sub(HOUR).unwrap_or(Timestamp::MIN);
    let mut sizes: Vec<(Timestamp, i32)> = facts
        .recent_events
        .iter()
        .flat_map(occurrences)
        .filter(|(at, _)| *at >= since && *at <= facts.at)
        .collect();
    sizes.sort_unstable();
    sizes.dedup_by_key(|(_, size)| *size);
    let changes = direction_changes(sizes.iter().map(|(_, size)| *size));
    if changes < FLAPPING {
        return None;
    }
    let newest: Vec<String> =
        sizes.iter().rev().take(SHOWN).rev().map(|(_, size)| size.to_string()).collect();
    let window = facts.explanation.stabilization.as_ref().map(|step| step.down_window_seconds);
    let now = window.map(|window| format!(" (now {})", Span::seconds(window))).unwrap_or_default();
    Some(Finding::warning(
        FindingId::Flapping,
        format!("the count changed direction {changes} times in the last hour: {}", newest.join(" → ")),
        format!(
            "Increase behavior.scaleDown.stabilizationWindowSeconds{now}, or remove fewer pods at a time. concertina simulate \
             shows the effect of a change."
        ),
    ))
}

/// Returns the time and the size of each occurrence of an event about a single rescale. Empty for other events. A
/// repeated event contains only the times of its first and last occurrence, so the times between are interpolated
/// evenly.
pub fn occurrences(event: &RecentEvent) -> Vec<(Timestamp, i32)> {
    // A combined event covers rescales to different sizes.
    let Some((size, false)) = event.new_size() else {
        return Vec::new();
    };
    let count = event.count.clamp(1, OCCURRENCES);
    let span = event.last.duration_since(event.first);
    (0..count)
        .filter_map(|number| {
            let steps = i32::try_from(count.saturating_sub(1).max(1)).ok()?;
            let offset = span.checked_div(steps)?.checked_mul(i32::try_from(number).ok()?)?;
            let at = if number + 1 == count { event.last } else { event.first.checked_add(offset).ok()? };
            Some((at, size))
        })
        .collect()
}
