//! Findings about the target, other writers of its count, and its pods.

use std::collections::{BTreeMap, BTreeSet};

use autoscaling::explanation::{
    DecisionPath, LimitingStep, MetricExplanation, MetricReading, PodGroup, Span, amount,
};
use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use autoscaling::pod::{ConditionStatus, Phase};

use crate::facts::FieldManager;
use crate::{Facts, Finding, FindingId, counted, listed, owner, target_name};

/// Maximum number of foreign pods that a message names for each owner.
const NAMED: usize = 3;

/// Finds a Scale that cannot be read or has no selector.
pub(crate) fn scale(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = &facts.explanation;
    let target = target_name(facts);
    let failure = explanation.failure.as_deref().unwrap_or_default();
    match explanation.path {
        DecisionPath::NoSelector => Some(Finding::error(
            FindingId::NoSelector,
            format!("the scale of {target} has no selector, so its pods cannot be found"),
            "If the target is a custom resource, set labelSelectorPath in the scale subresource of its definition and make \
             its controller set that field.",
        )),
        // `refused` reports a read that the server refused.
        DecisionPath::NoScale if facts.blind().next().is_some() => None,
        DecisionPath::NoScale => Some(match explanation.scale_failure() {
            ScaleFailureClass::NoMatchForKind => Finding::error(
                FindingId::UnknownTargetKind,
                format!("the cluster does not serve the kind of {target}: {failure}"),
                match facts.target.and_then(|target| built_in(&target.kind)) {
                    Some((kind, version)) => {
                        format!("{kind} is served by {version}: correct apiVersion and kind in spec.scaleTargetRef.")
                    }
                    None => "Correct apiVersion and kind in spec.scaleTargetRef, or install the CustomResourceDefinition \
                             of that kind."
                        .to_owned(),
                },
            ),
            ScaleFailureClass::NotFound => Finding::error(
                FindingId::MissingTarget,
                format!("{target} does not exist, or has no scale: {failure}{}", others(facts)),
                "Correct spec.scaleTargetRef (the target must be in the HPA's namespace), or delete the HPA if its \
                 target was removed permanently.",
            ),
            ScaleFailureClass::TooManyMetrics => Finding::error(
                FindingId::UnreadableScale,
                format!("the HPA is not evaluated: {failure}"),
                "Remove metrics, or replace several by one that has the highest of their values.",
            ),
            ScaleFailureClass::InvalidReference | ScaleFailureClass::Forbidden | ScaleFailureClass::Other => {
                Finding::error(
                    FindingId::UnreadableScale,
                    format!("the scale of {target} cannot be read: {failure}"),
                    match facts.target.and_then(|target| built_in(&target.kind)) {
                        Some(_) => {
                            "Try to read it with kubectl get --subresource=scale; while it cannot be read, nothing is scaled."
                        }
                        None => {
                            "Try to read it with kubectl get --subresource=scale; while it cannot be read, nothing is scaled. \
                             In the definition of a custom resource, specReplicasPath and statusReplicasPath must lead to \
                             numbers, and labelSelectorPath to the text of a selector."
                        }
                    },
                )
            }
        }),
        _ => None,
    }
}

/// Names the workloads of other kinds with the name of the target: `; StatefulSet/web exists`.
fn others(facts: &Facts<'_>) -> String {
    let others = facts.target.map(|target| target.others.as_slice()).unwrap_or_default();
    let verb = if others.len() == 1 { "exists" } else { "exist" };
    if others.is_empty() { String::new() } else { format!("; {} {verb}", others.join(" and ")) }
}

/// Returns a kind of workload that every cluster serves, and its API version. The letters may have any case.
fn built_in(kind: &str) -> Option<(&'static str, &'static str)> {
    let kinds = [
        ("Deployment", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("ReplicaSet", "apps/v1"),
        ("ReplicationController", "v1"),
    ];
    kinds.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(kind))
}

/// Finds a target at zero replicas, which the HPA does not change.
pub(crate) fn paused(facts: &Facts<'_>) -> Option<Finding> {
    (facts.explanation.path == DecisionPath::Disabled).then(|| {
        let target = target_name(facts);
        let is_own = facts.hpa.is_some_and(|hpa| hpa.is_scaled_to_zero) && !facts.settings.scale_to_zero;
        let (cause, gate) = if is_own {
            (
                " (set by this HPA while the gate HPAScaleToZero was on, and it is off now)",
                "Enable the gate. ",
            )
        } else {
            ("", "")
        };
        Finding::warning(
            FindingId::Paused,
            format!("{target} has 0 replicas{cause}, which disables autoscaling"),
            format!(
                "{gate}To enable it again: kubectl -n {} scale {target} --replicas={}.",
                facts.namespace,
                facts.explanation.min.max(1)
            ),
        )
    })
}

/// Finds other HPAs that select the same pods.
pub(crate) fn shared(facts: &Facts<'_>) -> Option<Finding> {
    let stopped = facts.explanation.path == DecisionPath::Ambiguous;
    let names = &facts.sharing;
    if names.is_empty() && !stopped {
        return None;
    }
    let others = match (names.as_slice(), facts.explanation.failure.as_deref()) {
        ([], Some(failure)) => failure.to_owned(),
        (names, _) => listed(names, 5),
    };
    let advice = "Keep one HPA for these pods: put all metrics into it (the highest proposal counts), or give the pods of \
                  each target distinct labels.";
    Some(if stopped {
        let message = format!("other HPAs select the same pods, so none of them scales ({others})");
        Finding::error(FindingId::SharedPods, message, advice)
    } else {
        Finding::warning(FindingId::SharedPods, format!("other HPAs select the same pods ({others})"), advice)
    })
}

/// Finds field managers that set `spec.replicas` without the scale subresource. The finding is a warning if a further
/// write is likely. Likely writers are known tools, server-side apply, and managers that set the field after the HPA's
/// last rescale.
pub(crate) fn field_managers(facts: &Facts<'_>) -> Option<Finding> {
    let object = facts.target?.object.as_ref()?;
    let mut managers: Vec<&FieldManager> =
        object.replicas_owners.iter().filter(|owner| owner.subresource != "scale").collect();
    managers.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.manager.cmp(&b.manager)));
    let first = managers.first()?;
    let (tool, more) =
        tool_of(&first.manager).map(|(tool, advice)| (format!(" ({tool})"), advice)).unwrap_or_default();
    let named: Vec<String> = managers
        .iter()
        .map(|manager| {
            let since = manager.time.map(|time| format!(" {} ago", Span::between(time, facts.at)));
            format!("{}{}", manager.manager, since.unwrap_or_default())
        })
        .collect();
    let scaled = facts.hpa.and_then(|hpa| hpa.last_scale);
    let recurs = managers.iter().any(|manager| {
        let after = scaled.zip(manager.time).is_some_and(|(scaled, set)| set > scaled);
        manager.operation == "Apply" || tool_of(&manager.manager).is_some() || after
    });
    let message = format!(
        "spec.replicas of {} is also set by {}{tool}: the next such write resets the count",
        target_name(facts),
        named.join(", ")
    );
    let advice = format!("Remove replicas from the manifest of {}.{more}", target_name(facts));
    let finding = if recurs { Finding::warning } else { Finding::info };
    Some(finding(FindingId::ReplicasAlsoSet, message, advice))
}

/// Returns the name of the tool with this field manager, and advice that is specific to the tool.
fn tool_of(manager: &str) -> Option<(&'static str, &'static str)> {
    Some(match manager {
        manager if manager.starts_with("argocd") => (
            "Argo CD",
            " If it must stay there, set ignoreDifferences for /spec/replicas and the sync option \
             RespectIgnoreDifferences=true.",
        ),
        "helm" | "Helm" => {
            ("Helm", " In a chart, omit the field from the template while autoscaling is enabled.")
        }
        "kustomize-controller" | "helm-controller" | "flux" => ("Flux", ""),
        "kubectl" | "kubectl-client-side-apply" | "kubectl-last-applied" | "before-first-apply" => {
            ("kubectl", "")
        }
        manager if manager.to_ascii_lowercase().contains("terraform") => {
            ("Terraform", " If it must stay there, set ignore_changes for that field in its lifecycle block.")
        }
        _ => return None,
    })
}

/// Finds pods that the selector matches but the target does not own.
pub(crate) fn foreign_pods(facts: &Facts<'_>) -> Option<Finding> {
    let mut own = 0usize;
    let mut foreign: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in facts.pods {
        if owner::is_own(facts, &pod.name) {
            own += 1;
        } else if owner::is_foreign(facts, &pod.name)
            && let Some(owner) = owner::text(facts, &pod.name)
        {
            foreign.entry(owner).or_default().push(&pod.name);
        }
    }
    let number: usize = foreign.values().map(Vec::len).sum();
    if number == 0 {
        return None;
    }
    let owners: Vec<String> = foreign
        .iter()
        .map(|(owner, pods)| format!("{} {owner} ({})", pods.len(), listed(pods, NAMED)))
        .collect();
    let name = target_name(facts);
    let owners = owners.join(", ");
    let names: BTreeSet<&str> = foreign.values().flatten().copied().collect();
    let counting = names.iter().filter(|pod| counts(facts, pod)).count();
    if own == 0 {
        return Some(Finding::info(
            FindingId::ForeignPods,
            format!(
                "by their owner references, none of the {} belongs to {name}: {owners}",
                counted(number, "pod")
            ),
            "This is fine if the target's controller creates pods through other objects. Otherwise the selector of the \
             scale matches the wrong pods.",
        ));
    }
    let also = format!("the selector of {name} also matches {} of other owners", counted(number, "pod"));
    let advice = format!(
        "Change the labels of those pods, or add a distinct label to the pods of {name} and select by it (the selector \
         of a Deployment is immutable: recreate the Deployment)."
    );
    // A missing request fails the metric, also that of a pod that does not count.
    let is_failed = facts.explanation.metrics.iter().any(|metric| match metric {
        MetricExplanation::Failed(failed) if failed.class() == MetricFailureClass::MissingRequest => {
            names.iter().any(|pod| failed.cause().ends_with(&format!(" of Pod {pod}")))
        }
        _ => false,
    });
    Some(match counting {
        0 if is_failed => Finding::warning(
            FindingId::ForeignPods,
            format!("{also}, whose missing requests make a metric fail: {owners}"),
            advice,
        ),
        0 => {
            Finding::info(FindingId::ForeignPods, format!("{also}, which do not count now: {owners}"), advice)
        }
        _ if counting == number => Finding::warning(
            FindingId::ForeignPods,
            format!("{also}, which count in the metrics: {owners}"),
            advice,
        ),
        _ => Finding::warning(
            FindingId::ForeignPods,
            format!("{also}, of which {counting} count in the metrics: {owners}"),
            advice,
        ),
    })
}

/// Whether a pod counts for a reading of the decision: with its sample, as a missing or unready pod, or as a ready pod
/// by which a ratio is multiplied.
fn counts(facts: &Facts<'_>, name: &str) -> bool {
    let is_ready = || {
        let at = facts.pods.binary_search_by(|pod| (*pod.name).cmp(name)).ok();
        at.and_then(|at| facts.pods.get(at)).is_some_and(|pod| {
            let ready = pod.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True);
            ready && pod.phase == Phase::Running
        })
    };
    facts.explanation.metrics.iter().filter_map(MetricExplanation::reading).any(|reading| {
        let listed = reading.pods.iter().any(|pod| *pod.name == *name && !pod.group.is_ignored());
        listed || (reading.ready_pods.is_some() && is_ready())
    })
}

/// Finds the first metric for which at least half of the pods are unready.
pub(crate) fn unready_pods(facts: &Facts<'_>) -> Option<Finding> {
    let of_pods = uncounted(
        facts,
        PodGroup::is_unready,
        |_| false,
        |reading, number, all| {
            let subject = &reading.subject;
            let starting = reading.count(|group| {
                matches!(
                    group,
                    PodGroup::UnreadyInitializing
                        | PodGroup::UnreadySampleTooOld
                        | PodGroup::UnreadyNotStarted
                )
            });
            let pending = reading.count(|group| group == PodGroup::UnreadyPending);
            let how = match (starting, pending) {
                (0, 0) => String::new(),
                (0, pending) => format!(" ({pending} pending)"),
                (starting, 0) => format!(" ({starting} started recently)"),
                (starting, pending) => format!(" ({starting} started recently, {pending} pending)"),
            };
            Finding::warning(
                FindingId::UnreadyPods,
                format!(
                    "{number} of {} are not ready{how}: their {subject} does not count",
                    counted(all, "pod")
                ),
                "Find the cause with kubectl describe pod. If pods start slowly, add a startup probe; if they are unready because \
             of overload, use a metric that does not depend on readiness.",
            )
        },
    );
    of_pods.or_else(|| unready_factor(facts))
}

/// Finds the first Object or External metric whose ratio is multiplied by less than half of the pods, because the others
/// are not ready.
fn unready_factor(facts: &Facts<'_>) -> Option<Finding> {
    let all = usize::try_from(facts.explanation.status_replicas).unwrap_or_default().max(facts.pods.len());
    let mut readings = facts.explanation.metrics.iter().filter_map(MetricExplanation::reading);
    let (reading, ready) = readings.find_map(|reading| {
        let ready = reading.ready_pods.and_then(|ready| usize::try_from(ready).ok())?;
        (ready * 2 <= all && ready < all).then_some((reading, ready))
    })?;
    let subject = &reading.subject;
    Some(Finding::warning(
        FindingId::UnreadyPods,
        format!(
            "{ready} of {} are ready, and the ratio of {subject} is multiplied by the number of ready pods: it is at {}, its \
             target is {}, and it asks for {}",
            counted(all, "pod"),
            amount(reading.value, subject),
            amount(reading.target, subject),
            reading.proposal
        ),
        "Find the cause with kubectl describe pod. A target of type AverageValue does not depend on readiness.",
    ))
}

/// Finds a metric that asks for more pods although it is below its target, because more pods count than `spec.replicas`.
pub(crate) fn surplus_pods(facts: &Facts<'_>) -> Option<Finding> {
    let current = facts.explanation.current;
    let reading = facts.explanation.winning_metric().and_then(MetricExplanation::reading)?;
    let counted_pods = match reading.ready_pods {
        Some(ready) => usize::try_from(ready).unwrap_or_default(),
        None => reading.count(|group| !group.is_ignored()),
    };
    let surplus = counted_pods.checked_sub(usize::try_from(current).ok()?).filter(|surplus| *surplus > 0)?;
    if reading.ratio >= 1.0 || reading.proposal <= current {
        return None;
    }
    let subject = &reading.subject;
    // A ratio of a metric of the whole workload is multiplied by the ready pods, also by those that are being deleted.
    let ending = facts.pods.iter().filter(|pod| pod.terminating && reading.ready_pods.is_some()).count();
    let (why, advice) = if ending > 0 {
        (
            format!("; {ending} of the {} are being deleted", counted(facts.pods.len(), "pod")),
            "Ready pods count until they are gone. If that takes long, check their grace period and finalizers; a target of \
             type AverageValue does not depend on the number of pods.",
        )
    } else {
        (
            String::new(),
            "Find out which pods these are: during a rollout, the pods of both versions count. With guards.rollout: Hold, a \
             scaling policy holds the count during a rollout.",
        )
    };
    Some(Finding::warning(
        FindingId::SurplusPods,
        format!(
            "{subject} is at {}, below its target of {}, but {} count, {surplus} more than spec.replicas, so it asks for \
             {}{why}",
            amount(reading.value, subject),
            amount(reading.target, subject),
            counted(counted_pods, "pod"),
            reading.proposal
        ),
        advice,
    ))
}

/// Finds the first metric for which at least half of the pods have no sample, or for which pods without a sample prevent
/// a change of the count.
pub(crate) fn pods_without_samples(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = facts.explanation;
    let prevents = |reading: &MetricReading| {
        explanation.limiting_step() == Some(LimitingStep::MissingPods)
            && explanation.winning_metric().is_some_and(|metric| *metric.subject() == reading.subject)
    };
    uncounted(
        facts,
        |group| group == PodGroup::Missing,
        prevents,
        |reading, number, all| {
            let effect = if prevents(reading) { ", which prevents a change of the count" } else { "" };
            Finding::warning(
                FindingId::MissingSamples,
                format!("{number} of {} have no sample of {}{effect}", counted(all, "pod"), reading.subject),
                "Samples of new pods take a minute or two. If they stay missing, check whether the source of the metric reports \
                 these pods (kubectl top pod for cpu and memory).",
            )
        },
    )
}

/// Creates the finding for the first metric with at least half of its pods in a group, or for which `decides` is true.
/// Ignored pods do not count.
fn uncounted(
    facts: &Facts<'_>,
    is_in: impl Fn(PodGroup) -> bool,
    decides: impl Fn(&MetricReading) -> bool,
    finding: impl Fn(&MetricReading, usize, usize) -> Finding,
) -> Option<Finding> {
    let mut readings = facts.explanation.metrics.iter().filter_map(|metric| metric.reading());
    readings.find_map(|reading| {
        let all = reading.count(|group| !group.is_ignored());
        let number = reading.count(&is_in);
        (number > 0 && (number * 2 >= all || decides(reading))).then(|| finding(reading, number, all))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use autoscaling::explanation::{Explanation, Measure, PodVerdict, ProposalReason, Subject};
    use autoscaling::pod::Pod;
    use autoscaling::settings::Settings;

    use super::*;

    /// Returns a decision from `current` to `proposal`, with a ratio below 1.
    fn below_target(current: i32, proposal: i32, pods: usize, ready_pods: Option<i64>) -> Explanation {
        let verdict = |number| PodVerdict {
            name: format!("web-{number}").into(),
            group: PodGroup::Ready,
            sample: Some(40),
            request: Some(100),
        };
        let reading = MetricReading {
            subject: Subject { kind: "Resource".into(), name: "cpu".into(), ..Subject::default() },
            name: "cpu".into(),
            target: Measure::Percent(50),
            value: Measure::Percent(40),
            total: None,
            ratio: 0.8,
            lowest_tolerated: 0.9,
            highest_tolerated: 1.1,
            pods: (0..pods).map(verdict).collect(),
            unlisted: Vec::new(),
            unmatched: None,
            ready_pods,
            corrected: None,
            why: ProposalReason::Ratio,
            proposal,
        };
        let metrics = vec![MetricExplanation::Valid(reading)];
        Explanation { current, winner: Some(0), metrics, ..Explanation::default() }
    }

    fn found(explanation: &Explanation, pods: &[Arc<Pod>]) -> Option<String> {
        let settings = Settings::default();
        let facts = Facts { pods, ..Facts::new("shop", jiff::Timestamp::UNIX_EPOCH, explanation, &settings) };
        surplus_pods(&facts).map(|finding| finding.message)
    }

    #[test]
    fn scale_up_below_the_target_names_the_surplus_of_pods() {
        assert_eq!(
            found(&below_target(38, 61, 76, None), &[]).as_deref(),
            Some(
                "cpu is at 40 %, below its target of 50 %, but 76 pods count, 38 more than spec.replicas, so it asks for 61"
            )
        );
        let pod = |number: i32| Pod {
            name: format!("web-{number}").into(),
            labels: Arc::default(),
            requests: Arc::default(),
            phase: Phase::Running,
            terminating: number > 0,
            ready: None,
            start_time: None,
        };
        let pods: Vec<_> = (0..10).map(|number| Arc::new(pod(number))).collect();
        let text = found(&below_target(4, 8, 0, Some(10)), &pods).unwrap();
        assert!(text.ends_with("10 pods count, 6 more than spec.replicas, so it asks for 8; 9 of the 10 pods are being deleted"), "{text}");
        assert_eq!(found(&below_target(76, 61, 76, None), &[]), None, "a scale-down");
        assert_eq!(found(&below_target(38, 38, 76, None), &[]), None);
    }
}
