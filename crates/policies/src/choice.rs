//! The choice among the proposals of metrics: corrections of proposals, fallbacks of failed metrics, then `combine`. If
//! no rule has an effect, the choice is that of the reference.
//!
//! [`ignore_containers`] applies `corrections.ignoreContainersWithoutRequest`: it omits the named containers from a
//! resource that they do not request. Without the correction, such a container fails the whole metric. The correction
//! changes the inputs of a metric, not its computation. [`choose`] applies `corrections.averageValueWithinTolerance`.

use std::fmt;
use std::sync::Arc;

use autoscaling::Choice;
use autoscaling::pod::{ContainerRequests, Pod, PodRequests};
use autoscaling::query::{Answer, ContainerUsage, PodUsage};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::{MetricState, Outcome, PolicyHistory, matching};
use crate::spec::{Cause, Combine, Fallback, FallbackAction, PolicySpec, Strategy};

/// The choice among the proposals, with the effects of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The choice. `None` means that of the reference.
    pub choice: Option<Choice>,
    /// The fallbacks that apply.
    pub fallbacks: Vec<FallbackStep>,
    /// The corrected proposals.
    pub corrections: Vec<CorrectionStep>,
    /// The effect of `combine: Min`.
    pub combined: Option<CombineStep>,
}

/// The effect of a fallback on a failed metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FallbackStep {
    /// The short name of the metric.
    pub metric: Arc<str>,
    /// The cause of the last failure.
    pub cause: Cause,
    /// The time of the first failure after the last value.
    pub since: Timestamp,
    /// The action of the fallback.
    pub action: FallbackAction,
    /// The count that the fallback proposes. `None` if the metric is ignored.
    pub proposal: Option<i32>,
}

/// The effect of a correction on a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectionStep {
    /// The short name of the metric.
    pub metric: Arc<str>,
    /// The proposal of the reference.
    pub from: i32,
    /// The corrected proposal.
    pub to: i32,
}

/// The effect of `combine: Min`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CombineStep {
    /// The highest proposal.
    pub highest: i32,
    /// The chosen proposal.
    pub chosen: i32,
    /// The first failed metric without a fallback, which keeps the count, because its proposal might be the lowest.
    pub failed: Option<Arc<str>>,
}

impl fmt::Display for FallbackStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, cause, since, action, proposal } = self;
        let state = match cause {
            Cause::Error => "has failed",
            Cause::Empty => "has had no value",
        };
        write!(f, "{metric} {state} since {since:.0}, so ")?;
        match (action, proposal) {
            (FallbackAction::Ignore, _) | (_, None) => write!(f, "it is ignored"),
            (FallbackAction::Hold, Some(count)) => write!(f, "it proposes the current count {count}"),
            (FallbackAction::LastValue, Some(count)) => write!(f, "it proposes {count} as before"),
            (FallbackAction::Replicas(..), Some(count)) => write!(f, "it proposes {count}"),
        }
    }
}

impl fmt::Display for CorrectionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, from, to } = self;
        write!(f, "{metric} is within tolerance, so it proposes spec.replicas {to} instead of {from}")
    }
}

impl fmt::Display for CombineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { highest, chosen, failed } = self;
        match failed {
            None => write!(f, "the lowest proposal {chosen} is chosen, the highest is {highest}"),
            Some(metric) => {
                write!(f, "{metric} failed and may propose the lowest count, so the count stays at {chosen}")
            }
        }
    }
}

/// Chooses among the proposals of the metrics. `current` is the current count. `history` contains this sync, by
/// [`PolicyHistory::observe`].
pub fn choose(
    policy: &PolicySpec,
    current: i32,
    states: &[MetricState],
    history: &PolicyHistory,
    now: Timestamp,
) -> Chosen {
    let fallbacks = policy.fallback.as_deref().unwrap_or_default();
    let corrects = policy.corrections.average_value_within_tolerance.unwrap_or(false);
    let mut chosen = Chosen::default();
    let mut proposals = Vec::new();
    let mut failed = None;
    for (index, state) in states.iter().enumerate() {
        match state.outcome {
            Outcome::Proposal { replicas, .. } => {
                let mut to = replicas;
                if corrects && state.keeps_status_replicas && replicas != current {
                    to = current;
                    let metric = Arc::clone(&state.subject);
                    chosen.corrections.push(CorrectionStep { metric, from: replicas, to });
                }
                let name = Arc::clone(&state.label);
                proposals.push(Choice { replicas: to, winner: Some(index), name });
            }
            Outcome::Failed(cause) => match fallback(fallbacks, state, cause, current, history, now) {
                None => failed = failed.or(Some(&state.subject)),
                Some(step) => {
                    if let Some(replicas) = step.proposal {
                        let name = format!("the fallback of {}", state.subject).into();
                        proposals.push(Choice { replicas, winner: None, name });
                    }
                    chosen.fallbacks.push(step);
                }
            },
        }
    }
    let Some(highest) = proposals.iter().map(|proposal| proposal.replicas).max() else {
        // All metrics failed or are ignored.
        return chosen;
    };
    let is_lowest = policy.combine.unwrap_or_default() == Combine::Min;
    if is_lowest && let Some(metric) = failed {
        chosen.combined = Some(CombineStep { highest, chosen: current, failed: Some(Arc::clone(metric)) });
        chosen.choice = Some(Choice { replicas: current, winner: None, name: "combine: Min".into() });
        return chosen;
    }
    let best = if is_lowest {
        proposals.iter().min_by_key(|proposal| proposal.replicas)
    } else {
        // As in the reference, the first of several equal proposals is chosen. There, any proposal also replaces 0, even
        // a negative one, which gives the same count.
        proposals.iter().rev().max_by_key(|proposal| proposal.replicas)
    };
    let Some(best) = best else { return chosen };
    if is_lowest && best.replicas != highest {
        chosen.combined = Some(CombineStep { highest, chosen: best.replicas, failed: None });
    }
    // As in the reference, a failed metric without a fallback prevents a scale-down.
    let is_prevented = failed.is_some() && best.replicas < current;
    let is_changed = !chosen.fallbacks.is_empty()
        || !chosen.corrections.is_empty()
        || chosen.combined.is_some()
        || states.iter().any(|state| state.is_replaced);
    if is_changed && !is_prevented {
        chosen.choice = Some(best.clone());
    }
    chosen
}

/// Returns the effect of the fallback of a failed metric. `None` without a fallback, or if its failure duration has not
/// elapsed.
fn fallback(
    fallbacks: &[Fallback],
    state: &MetricState,
    cause: Cause,
    current: i32,
    history: &PolicyHistory,
    now: Timestamp,
) -> Option<FallbackStep> {
    let fallback = matching(fallbacks, &state.name, cause)?;
    let metric = history.metrics.get(&state.key);
    let since = metric.and_then(|metric| metric.failing).map_or(now, |(since, _)| since);
    if now.duration_since(since) < SignedDuration::from_secs(fallback.failure_duration_seconds.into()) {
        return None;
    }
    let proposal = match fallback.action {
        FallbackAction::Hold => Some(current),
        FallbackAction::Ignore => None,
        FallbackAction::Replicas(replicas, Strategy::Static) => Some(replicas),
        FallbackAction::Replicas(replicas, Strategy::AtLeast) => Some(replicas.max(current)),
        FallbackAction::Replicas(replicas, Strategy::AtMost) => Some(replicas.min(current)),
        // Without an earlier proposal, the metric proposes the current count.
        FallbackAction::LastValue => Some(metric.and_then(|metric| metric.last_proposal).unwrap_or(current)),
    };
    let metric = Arc::clone(&state.subject);
    Some(FallbackStep { metric, cause, since, action: fallback.action, proposal })
}

/// The omitted containers of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredContainersStep {
    /// The name of the resource.
    pub resource: Arc<str>,
    /// The names of the omitted containers, sorted.
    pub containers: Vec<Arc<str>>,
    /// The number of pods with such a container.
    pub pods: usize,
}

impl fmt::Display for IgnoredContainersStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, containers, pods } = self;
        write!(
            f,
            "container {} requests no {resource} and does not count in {pods} pods",
            containers.join(", ")
        )
    }
}

/// The inputs of a Resource metric without the omitted containers.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrectedInputs {
    /// All pods, in the same order.
    pub pods: Vec<Arc<Pod>>,
    /// The usage of the pods, without the omitted containers.
    pub answer: Answer,
    /// The omitted containers.
    pub step: IgnoredContainersStep,
}

/// Omits the containers in `names` that do not request the resource. Returns `None` if no container is omitted. Only
/// metrics of type Resource with a target of `averageUtilization` need this correction.
///
/// A pod keeps its containers if all of them would be omitted, so the metric still fails. A pod with pod-level requests
/// needs no correction.
pub fn ignore_containers(
    names: &[Arc<str>],
    resource: &str,
    answer: &Answer,
    pods: &[Arc<Pod>],
) -> Option<CorrectedInputs> {
    let Answer::Resource(usage) = answer else { return None };
    let mut corrected = Vec::with_capacity(pods.len());
    let mut ignored: Vec<IgnoredOfPod<'_>> = Vec::new();
    // Pods of one template share their requests, and are often adjacent in the list.
    let mut last: Option<(&Arc<PodRequests>, Without)> = None;
    for pod in pods {
        let known = last.take().filter(|(of, _)| Arc::ptr_eq(of, &pod.requests));
        let (_, Without { requests, containers }) =
            last.insert(known.unwrap_or_else(|| (&pod.requests, without(&pod.requests, names, resource))));
        if containers.is_empty() {
            corrected.push(Arc::clone(pod));
        } else {
            ignored.push((&pod.name, containers.clone()));
            corrected.push(Arc::new(Pod { requests: Arc::clone(requests), ..(**pod).clone() }));
        }
    }
    if ignored.is_empty() {
        return None;
    }
    let mut containers: Vec<Arc<str>> = ignored.iter().flat_map(|(_, names)| names.iter().cloned()).collect();
    containers.sort();
    containers.dedup();
    let step = IgnoredContainersStep { resource: resource.into(), containers, pods: ignored.len() };
    ignored.sort_by_key(|(pod, _)| *pod);
    let answer = Answer::Resource(usage.iter().map(|usage| usage_without(usage, &ignored)).collect());
    Some(CorrectedInputs { pods: corrected, answer, step })
}

/// The name of a pod, and its omitted containers.
type IgnoredOfPod<'a> = (&'a Arc<str>, Vec<Arc<str>>);

struct Without {
    /// The requests without the omitted containers.
    requests: Arc<PodRequests>,
    /// The names of the omitted containers.
    containers: Vec<Arc<str>>,
}

fn without(requests: &Arc<PodRequests>, names: &[Arc<str>], resource: &str) -> Without {
    let is_ignored = |container: &ContainerRequests| {
        names.contains(&container.name) && container.requests.get(resource).is_none()
    };
    let keeps_one = requests.containers.iter().any(|container| !is_ignored(container));
    let all = requests.containers.iter().chain(&requests.init_containers);
    let ignored: Vec<Arc<str>> =
        all.filter(|container| is_ignored(container)).map(|container| Arc::clone(&container.name)).collect();
    if !keeps_one || !requests.pod_level.is_empty() || ignored.is_empty() {
        return Without { requests: Arc::clone(requests), containers: Vec::new() };
    }
    let kept = |containers: &[ContainerRequests]| {
        containers.iter().filter(|container| !is_ignored(container)).cloned().collect()
    };
    let requests = PodRequests {
        containers: kept(&requests.containers),
        init_containers: kept(&requests.init_containers),
        pod_level: requests.pod_level.clone(),
    };
    Without { requests: Arc::new(requests), containers: ignored }
}

fn usage_without(usage: &PodUsage, ignored: &[IgnoredOfPod<'_>]) -> PodUsage {
    let at = ignored.binary_search_by(|(pod, _)| (**pod).cmp(&usage.pod));
    let Some((_, names)) = at.ok().and_then(|at| ignored.get(at)) else { return usage.clone() };
    let counts = |container: &&ContainerUsage| !names.contains(&container.name);
    PodUsage { containers: usage.containers.iter().filter(counts).cloned().collect(), ..usage.clone() }
}

#[cfg(test)]
mod tests;
