//! Findings about pods: those of others, those that do not count.

use std::collections::BTreeMap;

use autoscaling::explanation::{MetricReading, PodGroup};

use super::super::situation::{Owner, Target};
use super::{Finding, Situation, counted, listed, target_name};

/// So many names of foreign pods are told for each owner.
const NAMED: usize = 3;

/// Pods that the selector matches and the target does not own.
pub(super) fn foreign(situation: &Situation) -> Option<Finding> {
    let target = situation.target.as_ref()?;
    let mut own = 0usize;
    let mut strangers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in &situation.pods {
        // A pod of which nothing is known is nobody's in particular.
        let Some(chain) = situation.owners.get(&pod.name) else {
            continue;
        };
        if chain.iter().any(|owner| is_target(owner, target)) {
            own += 1;
        } else if !may_go_on(situation, chain) {
            let owner = match chain.last() {
                Some(owner) => format!("{}/{}", owner.kind, owner.name),
                None => "without a controller".to_owned(),
            };
            strangers.entry(owner).or_default().push(&pod.name);
        }
    }
    let number: usize = strangers.values().map(Vec::len).sum();
    if number == 0 {
        return None;
    }
    let whose: Vec<String> = strangers
        .iter()
        .map(|(owner, pods)| {
            let of = if owner.contains('/') { format!("of {owner}") } else { owner.clone() };
            format!("{} {of} ({})", pods.len(), listed(pods, NAMED))
        })
        .collect();
    let name = target_name(situation);
    let whose = whose.join(", ");
    if own == 0 {
        return Some(Finding::info(
            "foreign-pods",
            format!(
                "by their owner references, none of the {} belongs to {name}: {whose}",
                counted(number, "pod")
            ),
            "Fine if the target's controller makes pods by way of other objects. If not, the selector of the scale matches the \
             wrong pods.",
        ));
    }
    Some(Finding::warning(
        "foreign-pods",
        format!(
            "the selector of {name} also matches {} of others, and they count in the metrics: {whose}",
            counted(number, "pod")
        ),
        format!(
            "Change the labels of those pods, or give the pods of {name} a label of their own and select by it (the selector \
             of a Deployment cannot be edited: it must be created anew)."
        ),
    ))
}

fn is_target(owner: &Owner, target: &Target) -> bool {
    match &target.object {
        Some(object) if !object.uid.is_empty() => owner.uid == object.uid,
        _ => owner.kind == target.kind && owner.name == target.name,
    }
}

/// Whether the chain may go on beyond what could be read.
fn may_go_on(situation: &Situation, chain: &[Owner]) -> bool {
    let Some(last) = chain.last() else {
        return false;
    };
    let group = last.api_version.split_once('/').map_or("", |(group, _)| group);
    situation.refused.iter().any(|refused| {
        refused.group == group
            && refused.resource.to_ascii_lowercase().starts_with(&last.kind.to_ascii_lowercase())
    })
}

/// Half of the pods or more are not ready.
pub(super) fn unready(situation: &Situation) -> Option<Finding> {
    uncounted(situation, PodGroup::is_unready, |reading, number, all| {
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
            (starting, 0) => format!(" ({starting} started lately)"),
            (starting, pending) => format!(" ({starting} started lately, {pending} pending)"),
        };
        Finding::warning(
            "unready-pods",
            format!(
                "{number} of {} are not ready{how}: what they use of {subject} does not count",
                counted(all, "pod")
            ),
            "See why with kubectl describe pod. If pods start slowly, give them a startup probe; if they are unready because \
             they are overloaded, a metric that does not depend on readiness serves better.",
        )
    })
}

/// Half of the pods or more have no sample.
pub(super) fn missing(situation: &Situation) -> Option<Finding> {
    uncounted(
        situation,
        |group| group == PodGroup::Missing,
        |reading, number, all| {
            Finding::warning(
                "missing-samples",
                format!("{number} of {} have no sample of {}", counted(all, "pod"), reading.subject),
                "Samples of new pods take a minute or two; if they stay away, see whether what serves the metric knows these pods \
             (kubectl top pod for cpu and memory).",
            )
        },
    )
}

/// The first metric of which half of the pods or more are in a group.
fn uncounted(
    situation: &Situation,
    is_in: impl Fn(PodGroup) -> bool,
    finding: impl Fn(&MetricReading, usize, usize) -> Finding,
) -> Option<Finding> {
    let mut readings = situation.explanation.metrics.iter().filter_map(|metric| metric.reading());
    readings.find_map(|reading| {
        let all = reading.count(|group| !group.is_ignored());
        let number = reading.count(&is_in);
        (number > 0 && number * 2 >= all).then(|| finding(reading, number, all))
    })
}
