//! ScaledObjects of KEDA 2.21 (`keda.sh/v1alpha1`).
//!
//! After an import, KEDA still writes the HPA and serves its metrics. A policy replaces the features for which KEDA
//! deletes the HPA, changes its behavior, or replaces values of metrics.

use autoscaling::selector::faults_of_value;
use jiff::Timestamp;

use super::manifest::{Fallback, Remark, ScalingPolicy, Schedule};
use super::{Field, Source};
use crate::schedule::Recurrence;
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

/// The fields of the spec.
const FIELDS: [&str; 10] = [
    "scaleTargetRef",
    "minReplicaCount",
    "maxReplicaCount",
    "advanced",
    "triggers",
    "fallback",
    "pollingInterval",
    "cooldownPeriod",
    "initialCooldownPeriod",
    "idleReplicaCount",
];
/// The fields of a cron trigger's metadata.
const CRON_FIELDS: [&str; 4] = ["timezone", "start", "end", "desiredReplicas"];

/// Converts a ScaledObject. Returns `None` if none of its fields has a counterpart.
pub(super) fn convert(source: &mut Source<'_>, now: Timestamp) -> Option<ScalingPolicy> {
    if !source.is_named() {
        return None;
    }
    let selected = [
        label(source, "app.kubernetes.io/managed-by", "keda-operator")?,
        label(source, "app.kubernetes.io/part-of", source.name)?,
    ];
    let mut policy = ScalingPolicy::new(source, "keda", selected.into());
    pause(source, &mut policy);
    let spec = source.root.at("spec");
    triggers(source, &spec, &mut policy, now);
    fallback(source, &spec, &mut policy);
    for (name, field) in spec.fields() {
        // KEDA writes the other fields to the HPA, or they were converted above.
        let reason = match name {
            "pollingInterval" => {
                "KEDA checks at this interval whether to activate the target; syncPeriodSeconds of a policy sets the period of the HPA"
            }
            "cooldownPeriod" | "initialCooldownPeriod" | "idleReplicaCount" => {
                "KEDA keeps scaling to and from 0 or idleReplicaCount"
            }
            _ => continue,
        };
        source.note(&field, Remark::Kept(reason));
    }
    source.unknown(&spec, &FIELDS);
    policy.if_useful()
}

/// A label that KEDA sets on the HPA, unless the ScaledObject sets it. Notes the reason and returns `None` for a label
/// with which KEDA cannot create the HPA.
fn label(source: &mut Source<'_>, name: &str, default: &str) -> Option<(String, String)> {
    let metadata = source.root.at("metadata");
    let field = metadata.at("labels").at(name);
    let (field, value) = if field.is_set() {
        let value = source.text(&field)?.to_owned();
        (field, value)
    } else {
        (metadata.at("name"), default.to_owned())
    };
    let faults = faults_of_value(&value);
    if !faults.is_empty() {
        let reason = format!("as the label {name} of the HPA, the text {}", faults.join(" and "));
        source.note(&field, Remark::Refused(reason));
        return None;
    }
    Some((name.to_owned(), value))
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
fn triggers(source: &mut Source<'_>, spec: &Field<'_>, policy: &mut ScalingPolicy, now: Timestamp) {
    let triggers = spec.at("triggers");
    let formula = spec.at("advanced").at("scalingModifiers").at("formula");
    let formula = formula.value().and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
    let is_cron = |trigger: &Field<'_>| trigger.at("type").value().is_some_and(|kind| kind == "cron");
    let all = triggers.items();
    let others = all.iter().filter(|trigger| !is_cron(trigger)).count();
    if others > 0 {
        source.note(
            &triggers,
            Remark::Kept(if formula.is_some() {
                "KEDA writes the formula of scalingModifiers to the HPA as one metric, in place of all triggers other than cpu and memory"
            } else {
                "triggers other than cron stay metrics of the HPA that KEDA writes"
            }),
        );
    }
    for (index, trigger) in all.iter().enumerate().filter(|(_, trigger)| is_cron(trigger)) {
        if let Some(formula) = formula {
            let name = trigger.at("name").value().and_then(serde_json::Value::as_str);
            let reason = if name.is_some_and(|name| has_word(formula, name)) {
                "the formula of scalingModifiers uses the value of the trigger, so the value cannot become a floor"
            } else {
                "the formula of scalingModifiers does not use the trigger, so the trigger proposes no count"
            };
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
        source.unknown(&metadata, &CRON_FIELDS);
        let (Some(time_zone), Some(start), Some(end), Some(replicas)) = (time_zone, start, end, replicas)
        else {
            continue;
        };
        let recurrence = Recurrence::parse(&time_zone, &start, &end);
        let name = source.text(&trigger.at("name")).map_or_else(|| format!("cron-{index}"), str::to_owned);
        let schedule = Schedule { name, time_zone, start, end, min_replicas: replicas };
        if !policy.add_schedule(source, trigger, schedule) {
            continue;
        }
        let difference = recurrence.ok().and_then(|recurrence| recurrence.keda_difference(now));
        let remark = after_import(spec, others, difference.is_some());
        if let Some(difference) = difference {
            source.note(trigger, Remark::Differs(difference.to_string().into()));
        }
        source.note(trigger, remark);
    }
}

/// What happens to a cron trigger after the import.
fn after_import(spec: &Field<'_>, others: usize, differs: bool) -> Remark {
    let minimum = spec.at("minReplicaCount").value().and_then(serde_json::Value::as_i64).unwrap_or(0);
    if spec.at("idleReplicaCount").is_set() {
        Remark::Kept(
            "keep the trigger: it starts a target that KEDA has scaled to idleReplicaCount, which a policy does not",
        )
    } else if minimum == 0 {
        Remark::Kept(
            "keep the trigger: it starts a target that KEDA has scaled to 0, which a policy does not",
        )
    } else if others > 0 {
        Remark::Next("remove the trigger after the policy applies".to_owned())
    } else if differs {
        Remark::Kept(
            "keep one trigger: KEDA requires one, and its metric still proposes its count at KEDA's times",
        )
    } else {
        Remark::Kept(
            "keep one trigger: KEDA requires one, and its metric proposes the same count as the schedule",
        )
    }
}

/// Whether a formula contains the name of a trigger.
fn has_word(formula: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty() && formula.split(|letter: char| !is_part(letter)).any(|word| word == name)
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
    let counted = if failures == 1 { "1 failure is".to_owned() } else { format!("{failures} failures are") };
    let difference = format!("{counted} {seconds} seconds, one failure for each sync of 15 seconds");
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
