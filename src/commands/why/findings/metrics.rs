//! Findings about metrics: missing requests, failures, old samples.

use std::collections::BTreeMap;

use autoscaling::explanation::{FailedMetric, MetricExplanation, Span};
use autoscaling::pod::{Pod, PodRequests};
use autoscaling::query::Answer;
use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::{SignedDuration, Timestamp};

use super::{Finding, Situation, counted, listed, target_name};

/// So much later than its window a sample may arrive: metrics APIs collect once a minute at most.
const DELAY: SignedDuration = SignedDuration::from_secs(60);

/// Containers without the request that a target in percent is a share of.
pub(super) fn requests(situation: &Situation) -> Vec<Finding> {
    let Some(hpa) = &situation.hpa else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for metric in &hpa.spec.metrics {
        let (resource, only) = match metric {
            MetricSource::Resource { resource, target: ResourceTarget::Utilization(_) } => (resource, None),
            MetricSource::ContainerResource {
                resource,
                container,
                target: ResourceTarget::Utilization(_),
            } => (resource, Some(&**container)),
            _ => continue,
        };
        // By container: how many pods have it without a request, and how many have it not at all.
        let mut without: BTreeMap<&str, usize> = BTreeMap::new();
        let mut absent = 0usize;
        for pod in &situation.pods {
            let containers =
                long_running(&pod.requests).filter(|each| only.is_none_or(|only| &*each.name == only));
            let mut any = false;
            for container in containers {
                any = true;
                if container.requests.get(resource).is_none() && !(only.is_none() && has_pod_level(pod)) {
                    *without.entry(&container.name).or_default() += 1;
                }
            }
            absent += usize::from(!any);
        }
        let pods = situation.pods.len();
        let target = target_name(situation);
        if !without.is_empty() {
            let names: Vec<&str> = without.keys().copied().collect();
            let most = without.values().copied().max().unwrap_or(0);
            let (noun, verb) =
                if names.len() == 1 { ("container", "requests") } else { ("containers", "request") };
            let names = listed(&names, 5);
            found.push(Finding::error(
                "missing-request",
                format!(
                    "{} is measured in percent of the request, but {noun} {names} {verb} no {resource} (in {most} of {})",
                    metric.subject(),
                    counted(pods, "pod")
                ),
                format!(
                    "Set resources.requests.{resource} on {noun} {names} in the pod template of {target}, or measure only a \
                     container that has one (metric type ContainerResource), or use a target of type AverageValue."
                ),
            ));
        }
        if let Some(only) = only.filter(|_| absent > 0) {
            found.push(Finding::error(
                "missing-container",
                format!("{} has no container {only} in {absent} of {}", target, counted(pods, "pod")),
                "Correct the container's name in the metric; pods without that container make the whole metric fail.",
            ));
        }
    }
    found
}

/// Containers, and init containers that keep running beside them.
fn long_running(requests: &PodRequests) -> impl Iterator<Item = &autoscaling::pod::ContainerRequests> {
    let beside = requests.init_containers.iter().filter(|container| container.restartable);
    requests.containers.iter().chain(beside)
}

/// Whether the pod sets requests as a whole: then containers need none.
fn has_pod_level(pod: &Pod) -> bool {
    !pod.requests.pod_level.is_empty()
}

/// Metrics that fail for other reasons than those that have findings of their own.
pub(super) fn failed(situation: &Situation) -> Vec<Finding> {
    let metrics = situation.explanation.metrics.iter();
    let failed = metrics.filter_map(|metric| match metric {
        MetricExplanation::Failed(failed) => Some(failed),
        MetricExplanation::Valid(_) => None,
    });
    failed.filter_map(|failed| of_failure(situation, failed)).collect()
}

fn of_failure(situation: &Situation, failed: &FailedMetric) -> Option<Finding> {
    let (subject, cause) = (&failed.subject, failed.cause());
    let error = |code, advice: String| {
        Some(Finding::error(code, format!("{subject} cannot be read: {cause}"), advice))
    };
    let (group, stands_behind) = match &*subject.kind {
        "Resource" | "ContainerResource" => ("metrics.k8s.io", "metrics-server"),
        "External" => ("external.metrics.k8s.io", "the adapter that serves it"),
        _ => ("custom.metrics.k8s.io", "the adapter that serves it"),
    };
    let has_pods = !situation.pods.is_empty() && situation.hpa.is_some();
    if cause.starts_with("missing request for") || cause.contains("not found in Pod") {
        // From a record the pods are not known: the error names one of them.
        return if has_pods {
            None
        } else {
            error("missing-request", "Set the request, or use a target of type AverageValue.".to_owned())
        };
    }
    if cause.starts_with("missing pod-level request") {
        return error(
            "missing-request",
            "Name the resource in the pod's own requests (spec.resources of the template), or on each container.".to_owned(),
        );
    }
    if situation.missing_apis.iter().any(|api| group == group_of(*api)) {
        return None;
    }
    if situation.blind().any(|refused| refused.group == group) {
        return None;
    }
    if cause.contains("currently unable to handle the request") || cause.contains("connection refused") {
        return error(
            "metrics-api-unavailable",
            format!(
                "The API {group} is registered but does not answer: see kubectl get apiservice and the pods and logs of \
                 {stands_behind}."
            ),
        );
    }
    if &*failed.reason == "InvalidMetricSourceType" || cause.starts_with("invalid ") {
        return Some(Finding::error(
            "invalid-metric",
            format!("a metric of the spec cannot be used: {cause}"),
            "Correct this metric in the spec: while it is there, it counts as failed and nothing is scaled down.",
        ));
    }
    if cause.contains("no metrics returned") || cause.contains("could not find the metric") {
        return error(
            "no-metric-values",
            format!(
                "{group} answers, but has no value for it. Check the metric's name and selector against what {stands_behind} \
                 serves; a series that vanishes when nothing happens should report 0 instead."
            ),
        );
    }
    if cause.contains("did not receive metrics for targeted pods") {
        return error(
            "no-metric-values",
            "No pod that counts has a sample: see whether the pods are running and ready. Samples of new pods take a minute \
             or two."
                .to_owned(),
        );
    }
    if cause.contains("no pods returned by selector") {
        return error(
            "no-pods",
            format!(
                "See why {} has no pods: kubectl describe it and its newest ReplicaSet.",
                target_name(situation)
            ),
        );
    }
    error(
        "metric-failed",
        "While it fails, nothing is scaled down, and it cannot ask for more. The text is what the server of the metrics API \
         says."
            .to_owned(),
    )
}

fn group_of(api: autoscaling::query::Api) -> &'static str {
    match api {
        autoscaling::query::Api::Resource => "metrics.k8s.io",
        autoscaling::query::Api::Custom => "custom.metrics.k8s.io",
        autoscaling::query::Api::External => "external.metrics.k8s.io",
    }
}

/// Samples that are older than their window and the usual delay.
pub(super) fn stale(situation: &Situation) -> Vec<Finding> {
    let mut found = Vec::new();
    for (metric, answer) in situation.explanation.metrics.iter().zip(&situation.metrics) {
        let Some(Ok(answer)) = answer else {
            continue;
        };
        let samples = samples(situation, answer);
        let number = samples.len();
        let mut old: Vec<Sample<'_>> =
            samples.into_iter().filter(|sample| sample.is_stale(situation.at)).collect();
        old.sort_by_key(|sample| sample.taken);
        let Some(oldest) = old.first() else {
            continue;
        };
        let age = Span::between(oldest.taken, situation.at);
        let of = oldest.of.map(|of| format!(" ({of})")).unwrap_or_default();
        found.push(Finding::warning(
            "stale-metric",
            format!(
                "{} of {number} for {} {} old: the oldest was taken {age} ago{of}",
                counted(old.len(), "sample"),
                metric.subject(),
                if old.len() == 1 { "is" } else { "are" },
            ),
            "The decision uses them as if they were new. See whether what serves the metric still collects it: for cpu and \
             memory metrics-server and the kubelet of the pod's node.",
        ));
    }
    found
}

struct Sample<'a> {
    of: Option<&'a str>,
    taken: Timestamp,
    window: SignedDuration,
}

impl Sample<'_> {
    fn is_stale(&self, now: Timestamp) -> bool {
        let fresh = self.window.checked_add(DELAY).unwrap_or(SignedDuration::MAX);
        now.duration_since(self.taken) > fresh
    }
}

/// The samples that have a time, of pods that are not ending.
fn samples<'a>(situation: &'a Situation, answer: &'a Answer) -> Vec<Sample<'a>> {
    let is_ending = |name: &str| {
        let at = situation.pods.binary_search_by(|pod| (*pod.name).cmp(name)).ok();
        at.and_then(|at| situation.pods.get(at)).is_some_and(|pod| pod.terminating)
    };
    match answer {
        Answer::Resource(usages) => usages
            .iter()
            .filter(|usage| !is_ending(&usage.pod))
            .filter_map(|usage| {
                let window = SignedDuration::from_nanos(usage.window_nanos);
                Some(Sample { of: Some(&*usage.pod), taken: usage.timestamp?, window })
            })
            .collect(),
        Answer::Custom(values) => values
            .iter()
            .filter(|value| !is_ending(&value.object))
            .filter_map(|value| {
                let window = SignedDuration::from_secs(value.window_seconds.unwrap_or(0));
                Some(Sample { of: Some(&*value.object), taken: value.timestamp?, window })
            })
            .collect(),
        Answer::External(values) => values
            .iter()
            .filter_map(|value| {
                Some(Sample { of: None, taken: value.timestamp?, window: SignedDuration::ZERO })
            })
            .collect(),
    }
}
