//! ScaledObjects of KEDA 2.21 (`keda.sh/v1alpha1`).
//!
//! After an import, KEDA still writes the HPA and serves its metrics. A policy replaces the features for which KEDA
//! deletes the HPA, changes its behavior, or replaces values of metrics.

use super::manifest::{Fallback, Remark, ScalingPolicy, Schedule};
use super::{Field, Source};
use crate::spec::{Cause, Mode, Strategy};

/// The annotations that pause scaling.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
const PAUSED: &str = "autoscaling.keda.sh/paused";
const PAUSED_SCALE_IN: &str = "autoscaling.keda.sh/paused-scale-in";
const PAUSED_SCALE_OUT: &str = "autoscaling.keda.sh/paused-scale-out";
/// The annotation that activates a target at zero replicas.
const FORCE_ACTIVATION: &str = "autoscaling.keda.sh/force-activation";
/// The default sync period of HPAs. For KEDA, each failed request of the HPA controller for a metric is a failure.
const SYNC_PERIOD_SECONDS: i64 = 15;
/// Maximum of `failureDurationSeconds`.
const MAX_SECONDS: i64 = 86_400;

/// Converts a ScaledObject. Returns `None` if none of its fields has a counterpart.
pub(super) fn convert(source: &mut Source<'_>) -> Option<ScalingPolicy> {
    // KEDA sets these labels on the HPA, unless the ScaledObject sets them.
    let labels = source.root.at("metadata").at("labels");
    let label = |name: &str, default: &str| {
        let value = labels.at(name).value().and_then(serde_json::Value::as_str).unwrap_or(default);
        (name.to_owned(), value.to_owned())
    };
    let selected = [
        label("app.kubernetes.io/managed-by", "keda-operator"),
        label("app.kubernetes.io/part-of", source.name),
    ];
    let mut policy = ScalingPolicy::new(source, "keda", selected.into());
    pause(source, &mut policy);
    let spec = source.root.at("spec");
    triggers(source, &spec, &mut policy);
    fallback(source, &spec, &mut policy);
    for (name, field) in spec.fields() {
        let remark = match name {
            // KEDA writes these fields to the HPA, or they were converted above.
            "scaleTargetRef" | "minReplicaCount" | "maxReplicaCount" | "advanced" | "triggers"
            | "fallback" => continue,
            "pollingInterval" => Remark::Kept(
                "KEDA checks at this interval whether to activate the target; syncPeriodSeconds of a policy sets the period of the HPA",
            ),
            "cooldownPeriod" | "initialCooldownPeriod" | "idleReplicaCount" => {
                Remark::Kept("KEDA keeps scaling to and from 0 or idleReplicaCount")
            }
            _ => Remark::NoCounterpart("ScaledObjects of KEDA 2.21 have no such field"),
        };
        source.note(&field, remark);
    }
    policy.if_useful()
}

/// Converts the annotations. As in KEDA, `paused-replicas` takes precedence over `paused`, and `paused` takes
/// precedence over `paused-scale-in` and `paused-scale-out`.
fn pause(source: &mut Source<'_>, policy: &mut ScalingPolicy) {
    let annotations = source.root.at("metadata").at("annotations");
    let replicas = annotations.at(PAUSED_REPLICAS);
    let set: Vec<Field<'_>> = [PAUSED, PAUSED_SCALE_IN, PAUSED_SCALE_OUT]
        .into_iter()
        .map(|name| annotations.at(name))
        .filter(is_true)
        .collect();
    let has = |name: &str| set.iter().any(|field| field.path().contains(&format!("[{name}]")));
    let mode = if replicas.is_set() {
        let count = source.count(&replicas, 0, "a count of pods");
        count.map(|count| (Mode::Pinned, Some(count)))
    } else if has(PAUSED) || (has(PAUSED_SCALE_IN) && has(PAUSED_SCALE_OUT)) {
        Some((Mode::Paused, None))
    } else if has(PAUSED_SCALE_IN) {
        Some((Mode::ScaleUpOnly, None))
    } else {
        has(PAUSED_SCALE_OUT).then_some((Mode::ScaleDownOnly, None))
    };
    if let Some((mode, replicas)) = mode {
        policy.set_mode(mode, replicas);
    }
    for field in Some(replicas).filter(Field::is_set).iter().chain(&set) {
        let deletes = field.path().contains(&format!("[{PAUSED}]")) || field.path().contains(PAUSED_REPLICAS);
        let effect =
            if deletes { "deletes the HPA" } else { "disables the direction in the behavior of the HPA" };
        let step = format!("remove the annotation after the policy applies: while it is set, KEDA {effect}");
        source.note(field, Remark::Next(step));
    }
    let forced = annotations.at(FORCE_ACTIVATION);
    if is_true(&forced) {
        source.note(&forced, Remark::Kept("KEDA keeps scaling to and from 0 or idleReplicaCount"));
    }
}

/// Whether KEDA reads an annotation as true: the annotation is set, and `strconv.ParseBool` does not parse it as false.
fn is_true(field: &Field<'_>) -> bool {
    let Some(value) = field.value() else { return false };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    !matches!(text.as_str(), "0" | "f" | "F" | "false" | "FALSE" | "False")
}

/// Converts cron triggers to floors. The metric of such a trigger proposes `desiredReplicas`, and the highest proposal
/// of all metrics is chosen.
fn triggers(source: &mut Source<'_>, spec: &Field<'_>, policy: &mut ScalingPolicy) {
    let triggers = spec.at("triggers");
    let formula = spec.at("advanced").at("scalingModifiers").at("formula");
    let has_formula =
        formula.value().and_then(serde_json::Value::as_str).is_some_and(|text| !text.is_empty());
    let is_cron = |trigger: &Field<'_>| trigger.at("type").value().is_some_and(|kind| kind == "cron");
    let all = triggers.items();
    let others = all.iter().filter(|trigger| !is_cron(trigger)).count();
    let scales_to_zero =
        spec.at("minReplicaCount").value().and_then(serde_json::Value::as_i64).unwrap_or(0) == 0;
    if others > 0 {
        source.note(
            &triggers,
            Remark::Kept("triggers other than cron stay metrics of the HPA that KEDA writes"),
        );
    }
    for (index, trigger) in all.iter().enumerate().filter(|(_, trigger)| is_cron(trigger)) {
        if has_formula {
            let reason = "the formula of scalingModifiers uses the value of the trigger, so the value cannot become a floor";
            source.note(trigger, Remark::NoCounterpart(reason));
            continue;
        }
        let metadata = trigger.at("metadata");
        let mut text = |name: &str| source.required_text(&metadata.at(name)).map(str::to_owned);
        let (time_zone, start, end) = (text("timezone"), text("start"), text("end"));
        let desired = metadata.at("desiredReplicas");
        if !desired.is_set() {
            source.note(&desired, Remark::Missing);
        }
        let replicas = source.count(&desired, 1, "a count of at least 1");
        let (Some(time_zone), Some(start), Some(end), Some(replicas)) = (time_zone, start, end, replicas)
        else {
            continue;
        };
        let name = source.text(&trigger.at("name")).map_or_else(|| format!("cron-{index}"), str::to_owned);
        let schedule = Schedule { name, time_zone, start, end, min_replicas: replicas };
        if !policy.add_schedule(source, trigger, schedule) {
            continue;
        }
        let remark = if scales_to_zero {
            Remark::Kept(
                "keep the trigger: it starts a target that KEDA has scaled to 0, which a policy does not",
            )
        } else if others == 0 {
            Remark::Kept(
                "keep one trigger: KEDA requires one, and its metric proposes the same count as the schedule",
            )
        } else {
            Remark::Next("remove the trigger after the policy applies".to_owned())
        };
        source.note(trigger, remark);
    }
}

/// Converts the fallback for triggers whose metrics fail.
fn fallback(source: &mut Source<'_>, spec: &Field<'_>, policy: &mut ScalingPolicy) {
    let fallback = spec.at("fallback");
    if !fallback.is_set() {
        return;
    }
    let (threshold, replicas) = (fallback.at("failureThreshold"), fallback.at("replicas"));
    for field in [&threshold, &replicas] {
        if !field.is_set() {
            source.note(field, Remark::Missing);
        }
    }
    let failures = source.count(&threshold, 0, "a count of failures");
    let count = source.count(&replicas, 0, "a count of pods");
    let behavior = fallback.at("behavior");
    let (action, strategy) = match source.text(&behavior).unwrap_or("static") {
        "static" => ("Replicas", Some(Strategy::Static)),
        "currentReplicas" => ("Hold", None),
        "currentReplicasIfHigher" => ("Replicas", Some(Strategy::AtLeast)),
        "currentReplicasIfLower" => ("Replicas", Some(Strategy::AtMost)),
        "scalingModifiers" => {
            source.note(&behavior, Remark::NoCounterpart("policies have no formula"));
            return;
        }
        _ => {
            source.invalid(&behavior, "a behavior of KEDA 2.21");
            return;
        }
    };
    let (Some(failures), Some(count)) = (failures, count) else { return };
    let seconds = failures.saturating_mul(SYNC_PERIOD_SECONDS).min(MAX_SECONDS);
    let entry = Fallback {
        when: Cause::Error,
        failure_duration_seconds: seconds,
        action,
        replicas: strategy.map(|_| count),
        strategy: strategy.filter(|strategy| *strategy != Strategy::Static),
    };
    if !policy.add_fallback(source, &fallback, entry) {
        return;
    }
    let difference =
        format!("{failures} failures are {seconds} seconds, one failure for each sync of 15 seconds");
    source.note(&threshold, Remark::Differs(difference.into()));
    let is_resource = |trigger: &Field<'_>| {
        trigger.at("type").value().is_some_and(|kind| kind == "cpu" || kind == "memory")
    };
    if spec.at("triggers").items().iter().any(is_resource) {
        let difference =
            "it also applies to the cpu and memory triggers; set metric to limit it to one metric";
        source.note(&fallback, Remark::Differs(difference.into()));
    }
    source.note(&fallback, Remark::Kept("KEDA keeps its fallback for triggers that it cannot read; the policy applies when KEDA cannot be reached"));
}
