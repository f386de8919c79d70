//! Findings about pods: pods of foreign owners, and uncounted pods.

use std::collections::BTreeMap;

use autoscaling::explanation::{MetricReading, PodGroup};

use crate::facts::{Owner, Target};
use crate::{Facts, Finding, FindingId, counted, listed, target_name};

/// Maximum number of foreign pods to name per owner.
const NAMED: usize = 3;

/// Finds pods that the selector matches but the target does not own.
pub(crate) fn foreign(facts: &Facts<'_>) -> Option<Finding> {
    let target = facts.target?;
    let mut own = 0usize;
    let mut foreign: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in facts.pods {
        // The owner of a pod without a chain is unknown.
        let Some(chain) = facts.owners.get(&pod.name) else {
            continue;
        };
        if chain.iter().any(|owner| is_target(owner, target)) {
            own += 1;
        } else if !may_continue(facts, chain) {
            let owner = match chain.last() {
                Some(owner) => format!("{}/{}", owner.kind, owner.name),
                None => "without a controller".to_owned(),
            };
            foreign.entry(owner).or_default().push(&pod.name);
        }
    }
    let number: usize = foreign.values().map(Vec::len).sum();
    if number == 0 {
        return None;
    }
    let owners: Vec<String> = foreign
        .iter()
        .map(|(owner, pods)| {
            let owner = if owner.contains('/') { format!("of {owner}") } else { owner.clone() };
            format!("{} {owner} ({})", pods.len(), listed(pods, NAMED))
        })
        .collect();
    let name = target_name(facts);
    let owners = owners.join(", ");
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
    Some(Finding::warning(
        FindingId::ForeignPods,
        format!(
            "the selector of {name} also matches {} of other owners, which count in the metrics: {owners}",
            counted(number, "pod")
        ),
        format!(
            "Change the labels of those pods, or add a distinct label to the pods of {name} and select by it (the selector \
             of a Deployment is immutable: recreate the Deployment)."
        ),
    ))
}

fn is_target(owner: &Owner, target: &Target) -> bool {
    match &target.object {
        Some(object) if !object.uid.is_empty() => owner.uid == object.uid,
        _ => owner.kind == target.kind && owner.name == target.name,
    }
}

/// Returns whether the chain may continue with an owner that could not be read.
fn may_continue(facts: &Facts<'_>, chain: &[Owner]) -> bool {
    let Some(last) = chain.last() else {
        return false;
    };
    let group = last.api_version.split_once('/').map_or("", |(group, _)| group);
    facts.refused.iter().any(|refused| {
        refused.group == group
            && refused.resource.to_ascii_lowercase().starts_with(&last.kind.to_ascii_lowercase())
    })
}

/// Finds a metric with at least half of its pods not ready.
pub(crate) fn unready(facts: &Facts<'_>) -> Option<Finding> {
    uncounted(facts, PodGroup::is_unready, |reading, number, all| {
        let subject = &reading.subject;
        let starting = reading.count(|group| {
            matches!(
                group,
                PodGroup::UnreadyInitializing | PodGroup::UnreadySampleTooOld | PodGroup::UnreadyNotStarted
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
            format!("{number} of {} are not ready{how}: their {subject} does not count", counted(all, "pod")),
            "Find the cause with kubectl describe pod. If pods start slowly, add a startup probe; if they are unready because \
             of overload, use a metric that does not depend on readiness.",
        )
    })
}

/// Finds a metric with at least half of its pods without a sample.
pub(crate) fn missing(facts: &Facts<'_>) -> Option<Finding> {
    uncounted(
        facts,
        |group| group == PodGroup::Missing,
        |reading, number, all| {
            Finding::warning(
                FindingId::MissingSamples,
                format!("{number} of {} have no sample of {}", counted(all, "pod"), reading.subject),
                "Samples of new pods take a minute or two. If they stay missing, check whether the source of the metric reports \
                 these pods (kubectl top pod for cpu and memory).",
            )
        },
    )
}

/// Creates the finding for the first metric with at least half of its pods in a group.
fn uncounted(
    facts: &Facts<'_>,
    is_in: impl Fn(PodGroup) -> bool,
    finding: impl Fn(&MetricReading, usize, usize) -> Finding,
) -> Option<Finding> {
    let mut readings = facts.explanation.metrics.iter().filter_map(|metric| metric.reading());
    readings.find_map(|reading| {
        let all = reading.count(|group| !group.is_ignored());
        let number = reading.count(&is_in);
        (number > 0 && number * 2 >= all).then(|| finding(reading, number, all))
    })
}
