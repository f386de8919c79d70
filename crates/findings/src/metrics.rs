//! Findings about metrics: missing APIs and requests, failures, stale samples, and the sources of scaling policies.

use std::collections::BTreeMap;

use autoscaling::explanation::{FailedMetric, MetricExplanation, Span};
use autoscaling::failure::MetricFailureClass;
use autoscaling::pod::{ContainerRequests, Pod, PodRequests};
use autoscaling::query::{Answer, Api};
use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::{SignedDuration, Timestamp};
use policies::steps::{NO_SOURCES, SourceReading};

use crate::{Facts, Finding, FindingId, counted, listed, owner, target_name};

/// Maximum number of pods of other owners that a message names.
const NAMED: usize = 3;
/// Maximum age of a fresh sample, in addition to its window. Metrics APIs collect samples at least once a minute.
const DELAY: SignedDuration = SignedDuration::from_secs(60);
/// Age above which the number of a source is reported as stale, in seconds. By default, sources are read at least once
/// a minute.
const STALE_SECONDS: f64 = 60.0;
/// The reason in a [`SourceReading`] if the metric may not use the source.
const NOT_ALLOWED: &str = "NotAllowed";
/// The reason in a [`SourceReading`] if the number is older than `maxAgeSeconds`.
const TOO_OLD: &str = "TooOld";

/// Finds metrics APIs that the cluster does not serve.
pub(crate) fn missing_apis(facts: &Facts<'_>) -> Vec<Finding> {
    let mut apis = facts.missing_apis.to_vec();
    apis.sort_unstable();
    apis.dedup();
    apis.into_iter()
        .map(|api| {
            let advice = match api {
                Api::Resource => {
                    "metrics-server usually serves it: install it, or check its registration with \
                     kubectl get apiservice v1beta1.metrics.k8s.io."
                }
                Api::Custom => {
                    "An adapter for your monitoring system serves it, such as prometheus-adapter: install one, or check its \
                     registration with kubectl get apiservice."
                }
                Api::External => {
                    "An adapter for your monitoring system serves it, such as KEDA or prometheus-adapter: install one, or \
                     check its registration with kubectl get apiservice v1beta1.external.metrics.k8s.io."
                }
            };
            let message =
                format!("the cluster does not serve {}, which a metric of this HPA needs", api.group());
            Finding::error(FindingId::MissingMetricsApi, message, advice)
        })
        .collect()
}

/// For targets in percent, finds containers without the request, and pods without the container of the metric.
pub(crate) fn requests(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(hpa) = facts.hpa else {
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
        // The pods in which a container lacks the request, by the name of the container.
        let mut without: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        // The number of pods without any container that the metric measures.
        let mut absent = 0usize;
        for pod in facts.pods {
            let containers =
                long_running(&pod.requests).filter(|each| only.is_none_or(|only| &*each.name == only));
            let mut any = false;
            for container in containers {
                any = true;
                // For a Resource metric, pod-level requests replace the requests of the containers. A
                // ContainerResource metric ignores them.
                let has_pod_level = only.is_none() && !pod.requests.pod_level.is_empty();
                if container.requests.get(resource).is_none() && !has_pod_level {
                    without.entry(&container.name).or_default().push(pod);
                }
            }
            absent += usize::from(!any);
        }
        let pods = facts.pods.len();
        let target = target_name(facts);
        found.extend(missing_request(
            facts,
            &metric.subject(facts.namespace).to_string(),
            resource,
            &without,
        ));
        if let Some(only) = only.filter(|_| absent > 0) {
            found.push(Finding::error(
                FindingId::MissingContainer,
                format!("{} has no container {only} in {absent} of {}", target, counted(pods, "pod")),
                "Correct the container's name in the metric; pods without that container make the whole metric fail.",
            ));
        }
    }
    found
}

/// Returns the finding for containers without the request of a resource. It names the pods, because the selector may
/// match pods that are not those of the target.
fn missing_request(
    facts: &Facts<'_>,
    subject: &str,
    resource: &str,
    without: &BTreeMap<&str, Vec<&Pod>>,
) -> Option<Finding> {
    let most = without.values().max_by_key(|pods| pods.len())?;
    let names: Vec<&str> = without.keys().copied().collect();
    let (noun, verb) = if names.len() == 1 { ("container", "requests") } else { ("containers", "request") };
    let names = listed(&names, 5);
    let (of_others, own): (Vec<&Pod>, Vec<&Pod>) =
        without.values().flatten().copied().partition(|pod| owner::is_foreign(facts, &pod.name));
    let described = |pod: &&Pod| {
        let owner = owner::text(facts, &pod.name).map(|owner| format!(", {owner}")).unwrap_or_default();
        format!("{} ({:?}{owner})", pod.name, pod.phase)
    };
    let pods = counted(facts.pods.len(), "pod");
    let mut message = format!(
        "{subject} is measured in percent of the request, but {noun} {names} {verb} no {resource} (in {} of {pods})",
        most.len()
    );
    let set = format!(
        "Set resources.requests.{resource} on {noun} {names} in the pod template of {}, or measure only a container that \
         has one (metric type ContainerResource), or use a target of type AverageValue.",
        target_name(facts)
    );
    if of_others.is_empty() {
        return Some(Finding::error(FindingId::MissingRequest, message, set));
    }
    let shown: Vec<String> = of_others.iter().take(NAMED).map(described).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let more = match of_others.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    message = format!("{message}: {}{more} of other owners", shown.join(", "));
    let also = if own.is_empty() { String::new() } else { format!(" {set}") };
    let advice = format!(
        "Delete these pods, change their labels, or set resources.requests.{resource} in their own manifest or template: \
         also finished pods need the request.{also}"
    );
    Some(Finding::error(FindingId::MissingRequest, message, advice))
}

/// Returns the containers, and the restartable init containers (sidecars), which run as long as the containers.
fn long_running(requests: &PodRequests) -> impl Iterator<Item = &ContainerRequests> {
    let sidecars = requests.init_containers.iter().filter(|container| container.restartable);
    requests.containers.iter().chain(sidecars)
}

/// Finds failed metrics, except failures that another function reports.
pub(crate) fn failed(facts: &Facts<'_>) -> Vec<Finding> {
    let metrics = facts.explanation.metrics.iter();
    let failed = metrics.filter_map(|metric| match metric {
        MetricExplanation::Failed(failed) => Some(failed),
        MetricExplanation::Valid(_) => None,
    });
    failed
        .filter(|failed| !has_failed_source(facts, &failed.subject.name))
        .filter_map(|failed| failure(facts, failed))
        .collect()
}

fn failure(facts: &Facts<'_>, failed: &FailedMetric) -> Option<Finding> {
    let (subject, cause, class) = (&failed.subject, failed.cause(), failed.class());
    let error =
        |id, advice: &str| Some(Finding::error(id, format!("{subject} cannot be read: {cause}"), advice));
    let api = match &*subject.kind {
        "Resource" | "ContainerResource" => Api::Resource,
        "External" => Api::External,
        _ => Api::Custom,
    };
    let (group, backend) =
        (api.group(), if api == Api::Resource { "metrics-server" } else { "the adapter that serves it" });
    match class {
        MetricFailureClass::MissingRequest | MetricFailureClass::NoContainer => {
            // If the pods are known, `requests` reports this failure. Otherwise, the text of the error names a pod.
            let has_pods = !facts.pods.is_empty() && facts.hpa.is_some();
            let advice = "Set the request, or use a target of type AverageValue.";
            return if has_pods { None } else { error(FindingId::MissingRequest, advice) };
        }
        MetricFailureClass::MissingPodRequest => {
            return error(
                FindingId::MissingRequest,
                "Set the resource in the pod-level requests (spec.resources of the template), or on each container.",
            );
        }
        _ => {}
    }
    if facts.missing_apis.contains(&api) || facts.blind().any(|refused| refused.group == group) {
        return None;
    }
    let is_per_pod = matches!(&*subject.kind, "Resource" | "ContainerResource" | "Pods");
    if matches!(class, MetricFailureClass::NoValues | MetricFailureClass::NoSamples)
        && let Some(none) = none_runs(facts).filter(|_| is_per_pod)
    {
        return Some(Finding::error(
            FindingId::NoMetricValues,
            format!("{subject} cannot be read: {none}"),
            "Only a running pod has samples: find out with kubectl describe pod why the pods do not run.",
        ));
    }
    match class {
        MetricFailureClass::ApiUnavailable => error(
            FindingId::MetricsApiUnavailable,
            &format!(
                "The API {group} is registered but does not respond: check kubectl get apiservice, and the pods and logs of \
                 {backend}."
            ),
        ),
        MetricFailureClass::InvalidMetric => Some(Finding::error(
            FindingId::InvalidMetric,
            format!("a metric of the spec cannot be used: {cause}"),
            "Correct this metric in the spec; until then it counts as failed and nothing is scaled down.",
        )),
        MetricFailureClass::NoValues => {
            let lower = subject.name.to_lowercase();
            let name = match api {
                Api::External if *lower != *subject.name => {
                    format!("It is requested as {lower}, because controllers write the name in lower case. ")
                }
                _ => String::new(),
            };
            error(
                FindingId::NoMetricValues,
                &format!(
                    "{group} responds, but has no value for this metric. {name}Compare its name and selector with the \
                     metrics of {backend}; a series that disappears when idle should report 0 instead."
                ),
            )
        }
        MetricFailureClass::NoSamples => error(
            FindingId::NoMetricValues,
            "No counted pod has a sample: check whether the pods are running and ready. Samples of new pods take a minute \
             or two.",
        ),
        MetricFailureClass::NoPods => error(
            FindingId::NoPods,
            &format!(
                "Find out why {} has no pods with kubectl describe, also on its newest ReplicaSet.",
                target_name(facts)
            ),
        ),
        _ => error(
            FindingId::MetricFailed,
            "While it fails, nothing is scaled down, and this metric cannot scale up. The error text comes from the metrics \
             API.",
        ),
    }
}

/// Returns a text such as `0 of 5 pods run (5 Pending)` if there are pods, and none of them runs.
fn none_runs(facts: &Facts<'_>) -> Option<String> {
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for pod in facts.pods {
        let phase = if pod.terminating { "being deleted".to_owned() } else { format!("{:?}", pod.phase) };
        *phases.entry(phase).or_default() += 1;
    }
    if phases.is_empty() || phases.contains_key("Running") {
        return None;
    }
    let phases: Vec<_> = phases.iter().map(|(phase, pods)| format!("{pods} {phase}")).collect();
    Some(format!("0 of {} run ({})", counted(facts.pods.len(), "pod"), phases.join(", ")))
}

/// Finds Object metrics of a namespace other than that of the HPA.
pub(crate) fn other_namespace(facts: &Facts<'_>) -> Vec<Finding> {
    let metrics = facts.hpa.map(|hpa| hpa.spec.metrics.as_ref()).unwrap_or_default();
    let found = metrics.iter().filter_map(|metric| match metric {
        MetricSource::Object { described, metric, .. }
            if described.is_namespace() && described.name != facts.namespace =>
        {
            Some(Finding::warning(
                FindingId::OtherNamespace,
                format!(
                    "{} names namespace {}, but its value is that of namespace {}",
                    metric.name, described.name, facts.namespace
                ),
                "The custom metrics API has only the metrics of the namespace of the HPA. For another namespace, use an \
                 External metric, or move the HPA.",
            ))
        }
        _ => None,
    });
    found.collect()
}

/// Finds samples whose age exceeds the sum of their window and [`DELAY`].
pub(crate) fn stale(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (metric, answer) in facts.explanation.metrics.iter().zip(facts.metrics) {
        let Some(Ok(answer)) = answer else {
            continue;
        };
        let samples = samples(facts, answer);
        let number = samples.len();
        let mut old: Vec<Sample<'_>> =
            samples.into_iter().filter(|sample| sample.is_stale(facts.at)).collect();
        old.sort_by_key(|sample| sample.taken);
        let Some(oldest) = old.first() else {
            continue;
        };
        let age = Span::between(oldest.taken, facts.at);
        let source = oldest.source.map(|source| format!(" ({source})")).unwrap_or_default();
        found.push(Finding::warning(
            FindingId::StaleMetric,
            format!(
                "{} of {number} for {} {} stale: the oldest was taken {age} ago{source}",
                counted(old.len(), "sample"),
                metric.subject(),
                if old.len() == 1 { "is" } else { "are" },
            ),
            "The decision uses them as if they were fresh. Check whether the metric is still collected: for cpu and memory, \
             by metrics-server and the kubelet of the pod's node.",
        ));
    }
    found
}

struct Sample<'a> {
    /// The name of the pod or object that the sample describes.
    source: Option<&'a str>,
    taken: Timestamp,
    window: SignedDuration,
}

impl Sample<'_> {
    fn is_stale(&self, now: Timestamp) -> bool {
        let fresh = self.window.checked_add(DELAY).unwrap_or(SignedDuration::MAX);
        now.duration_since(self.taken) > fresh
    }
}

/// Returns the samples that have a timestamp, except those of pods that are being deleted.
fn samples<'a>(facts: &'a Facts<'_>, answer: &'a Answer) -> Vec<Sample<'a>> {
    let is_terminating = |name: &str| {
        let at = facts.pods.binary_search_by(|pod| (*pod.name).cmp(name)).ok();
        at.and_then(|at| facts.pods.get(at)).is_some_and(|pod| pod.terminating)
    };
    match answer {
        Answer::Resource(usages) => usages
            .iter()
            .filter(|usage| !is_terminating(&usage.pod))
            .filter_map(|usage| {
                let window = SignedDuration::from_nanos(usage.window_nanos);
                Some(Sample { source: Some(&*usage.pod), taken: usage.timestamp?, window })
            })
            .collect(),
        Answer::Custom(values) => values
            .iter()
            .filter(|value| !is_terminating(&value.object))
            .filter_map(|value| {
                let window = SignedDuration::from_secs(value.window_seconds.unwrap_or(0));
                Some(Sample { source: Some(&*value.object), taken: value.timestamp?, window })
            })
            .collect(),
        Answer::External(values) => values
            .iter()
            .filter_map(|value| {
                Some(Sample { source: None, taken: value.timestamp?, window: SignedDuration::ZERO })
            })
            .collect(),
    }
}

/// Returns whether a source failed for the metric. [`sources`] reports such a failure.
fn has_failed_source(facts: &Facts<'_>, metric: &str) -> bool {
    let failed = |reading: &SourceReading| {
        reading.age_seconds.is_none() && reading.reason.as_deref() != Some(NO_SOURCES)
    };
    facts.sources.iter().any(|reading| reading.metric == metric && failed(reading))
}

/// Finds sources that are absent, failing, incomplete or stale.
pub(crate) fn sources(facts: &Facts<'_>) -> Vec<Finding> {
    facts.sources.iter().filter_map(|reading| source(facts, reading)).collect()
}

fn source(facts: &Facts<'_>, reading: &SourceReading) -> Option<Finding> {
    let SourceReading { metric, source, age_seconds, reason, problem, .. } = reading;
    match (age_seconds, reason.as_deref(), problem) {
        (None, Some(NO_SOURCES), _) => Some(absent_source(facts, reading)),
        (None, Some(NOT_ALLOWED), Some(problem)) => Some(Finding::error(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy: {problem}"),
            "Correct the source in the policy, or ask the operator to add it to the file of --metric-sources, with this \
             namespace.",
        )),
        (None, Some(TOO_OLD), Some(problem)) => Some(Finding::error(
            FindingId::StaleSource,
            format!("{metric} from {source} cannot be used: {problem}"),
            "Check whether the source is slow, or raise maxAgeSeconds of the metric in the policy above its interval.",
        )),
        (None, _, Some(problem)) => Some(Finding::error(
            FindingId::FailedSource,
            format!("{metric} from {source} cannot be read: {problem}"),
            "While it fails, nothing is scaled down, and this metric cannot scale up. The text comes from the source; a \
             fallback of the policy bridges the time.",
        )),
        (Some(_), _, Some(problem)) => Some(Finding::warning(
            FindingId::IncompleteSource,
            format!("{metric} has no value for at least one pod: {problem}"),
            "Such a pod counts with its target for a scale-down, and with 0 for a scale-up. Check its port and page, and \
             whether a NetworkPolicy admits Concertina.",
        )),
        (Some(age), _, None) if *age > STALE_SECONDS => Some(Finding::warning(
            FindingId::StaleSource,
            format!("the oldest number of {metric} from {source} is {age:.0} s old"),
            "The decision uses it as if it were fresh. Shorten intervalSeconds, or set maxAgeSeconds in the policy.",
        )),
        _ => None,
    }
}

/// Returns the finding for a policy that names a source, in a process that reads no sources.
fn absent_source(facts: &Facts<'_>, reading: &SourceReading) -> Finding {
    let SourceReading { metric, source, .. } = reading;
    if facts.is_recorded {
        return Finding::error(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy, but the controller has no sources"),
            "Set --metric-sources on the controller. Until then, the metrics API answers.",
        );
    }
    Finding::warning(
        FindingId::AbsentSource,
        format!("{metric} comes from {source} by the scaling policy, which this command does not read"),
        "The value is that of the metrics API. The record of the controller has the number of the source: allow \
         pods/portforward on its pod, or use --from.",
    )
}
