//! IntelligentHorizontalPodAutoscalers of Kapacity (`autoscaling.kapacitystack.io/v1alpha1`).
//!
//! Kapacity scales without an HPA. The operator must create an HPA for the same target, with the label of the policy's
//! selector.

use super::manifest::{Remark, ScalingPolicy, Schedule};
use super::{Field, Source};
use crate::spec::Mode;

/// Converts an IntelligentHorizontalPodAutoscaler. Returns `None` if none of its fields has a counterpart.
pub(super) fn convert(source: &mut Source<'_>) -> Option<ScalingPolicy> {
    let (mut policy, label) = ScalingPolicy::labelled(source, "kapacity");
    let spec = source.root.at("spec");
    mode(source, &spec, &mut policy);
    let providers = spec.at("portraitProviders").items();
    for provider in &providers {
        portrait(source, provider, &providers, &mut policy);
    }
    for (name, field) in spec.fields() {
        let remark = match name {
            "scaleTargetRef" | "minReplicas" | "maxReplicas" | "paused" | "scaleMode" | "behavior"
            | "portraitProviders" => continue,
            "stabilityCheckers" => Remark::NoCounterpart(
                "policies check no metrics of stability; guards.rollout and guards.pendingPods hold scale-ups",
            ),
            _ => Remark::NoCounterpart("IntelligentHorizontalPodAutoscalers of v1alpha1 have no such field"),
        };
        source.note(&field, remark);
    }
    let policy = policy.if_useful()?;
    let target = spec.at("scaleTargetRef");
    let text = |field: Field<'_>| match field.value() {
        Some(serde_json::Value::String(text)) => text.clone(),
        value => value.map(ToString::to_string).unwrap_or_default(),
    };
    let step = format!(
        "create an HPA for {} {} with minReplicas {}, maxReplicas {} and the label {label}, and delete this object",
        text(target.at("kind")),
        text(target.at("name")),
        text(spec.at("minReplicas")),
        text(spec.at("maxReplicas")),
    );
    source.note(&target, Remark::Next(step));
    Some(policy)
}

/// Converts `paused`, `scaleMode` and disabled directions. They take precedence in this order.
fn mode(source: &mut Source<'_>, spec: &Field<'_>, policy: &mut ScalingPolicy) {
    let behavior = spec.at("behavior");
    let (up, down) = (behavior.at("scaleUp"), behavior.at("scaleDown"));
    let is_paused = source.is_true(&spec.at("paused"));
    let (no_up, no_down) = (source.is_true(&up.at("disabled")), source.is_true(&down.at("disabled")));
    let scale_mode = spec.at("scaleMode");
    let is_preview = match source.text(&scale_mode).unwrap_or("Auto") {
        "Auto" => false,
        "Preview" => true,
        _ => {
            source.invalid(&scale_mode, "Auto or Preview");
            false
        }
    };
    let mode = match (is_paused, is_preview, no_up, no_down) {
        (true, ..) | (false, false, true, true) => Some(Mode::Paused),
        (false, true, ..) => Some(Mode::DryRun),
        (false, false, true, false) => Some(Mode::ScaleDownOnly),
        (false, false, false, true) => Some(Mode::ScaleUpOnly),
        (false, false, false, false) => None,
    };
    if let Some(mode) = mode {
        policy.set_mode(mode, None);
    }
    for direction in [&up, &down] {
        let gray = direction.at("grayStrategy");
        if gray.is_set() {
            let reason = "changes in stages need Kapacity's own controller; guards.maxStep limits the change of one sync";
            source.note(&gray, Remark::NoCounterpart(reason));
        }
    }
    let profile = behavior.at("replicaProfile");
    if profile.is_set() {
        source.note(
            &profile,
            Remark::NoCounterpart("pods that are cut off or on standby need Kapacity's own controller"),
        );
    }
}

/// Converts a provider of type Cron. The provider with the highest priority sets the count. If several providers have
/// this priority, each of them sets only a floor.
fn portrait(source: &mut Source<'_>, provider: &Field<'_>, all: &[Field<'_>], policy: &mut ScalingPolicy) {
    let kind = provider.at("type");
    let priority = |provider: &Field<'_>| {
        provider.at("priority").value().and_then(serde_json::Value::as_i64).unwrap_or(0)
    };
    match source.required_text(&kind) {
        Some("Cron") => {}
        Some("Static") => {
            let reason = "for a constant count, set minReplicas and maxReplicas of the HPA to it";
            source.note(&provider.at("static"), Remark::NoCounterpart(reason));
            return;
        }
        Some("Dynamic") => {
            let reason = "metrics belong to spec.metrics of the HPA, and predictions have no counterpart";
            source.note(&provider.at("dynamic"), Remark::NoCounterpart(reason));
            return;
        }
        Some(_) => {
            source.invalid(&kind, "Static, Cron or Dynamic");
            return;
        }
        None => return,
    }
    let own = priority(provider);
    let others = all.iter().filter(|other| other.path() != provider.path()).map(priority).max();
    if others.is_some_and(|others| others > own) {
        source.note(provider, Remark::NoCounterpart("a provider with a higher priority replaces its count"));
        return;
    }
    let is_fixed = others.is_none_or(|others| others < own);
    for cron in provider.at("cron").at("crons").items() {
        let mut text = |name: &str| source.required_text(&cron.at(name)).map(str::to_owned);
        let (name, start, end) = (text("name"), text("start"), text("end"));
        let time_zone = source.text(&cron.at("timeZone")).unwrap_or("UTC").to_owned();
        let count = cron.at("replicas");
        if !count.is_set() {
            source.note(&count, Remark::Missing);
        }
        let replicas = source.count(&count, 0, "a count of pods");
        let (Some(name), Some(start), Some(end), Some(replicas)) = (name, start, end, replicas) else {
            continue;
        };
        let schedule = Schedule {
            name,
            time_zone: Some(time_zone),
            start: Some(start),
            end: Some(end),
            min_replicas: Some(replicas),
            max_replicas: is_fixed.then_some(replicas),
            ..Schedule::default()
        };
        policy.add_schedule(source, &cron, schedule);
    }
}
