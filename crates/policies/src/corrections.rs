//! `corrections.ignoreContainersWithoutRequest`: omits the named containers from a resource that they do not request.
//! Without the correction, such a container fails the whole metric. The correction changes the inputs of a metric, not its
//! computation. [`crate::choice`] applies the other correction, `averageValueWithinTolerance`.

use std::fmt;
use std::sync::Arc;

use autoscaling::pod::{ContainerRequests, Pod, PodRequests};
use autoscaling::query::{Answer, ContainerUsage, PodUsage};
use serde::{Deserialize, Serialize};

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
    /// The usage of the pods.
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
mod tests {
    use autoscaling::pod::{LabelSet, Phase, ResourceList};

    use super::*;

    fn list(resource: &str) -> ResourceList {
        ResourceList::new([(resource.into(), "100m".parse().unwrap())])
    }

    fn container(name: &str, requests: ResourceList) -> ContainerRequests {
        ContainerRequests { name: name.into(), restartable: false, requests }
    }

    fn pod(name: &str, containers: &[(&str, Option<&str>)], pod_level: ResourceList) -> Arc<Pod> {
        let containers =
            containers.iter().map(|(name, resource)| container(name, resource.map(list).unwrap_or_default()));
        let requests = PodRequests { containers: containers.collect(), pod_level, ..PodRequests::default() };
        Arc::new(Pod {
            name: name.into(),
            labels: Arc::new(LabelSet::default()),
            requests: Arc::new(requests),
            phase: Phase::Running,
            terminating: false,
            ready: None,
            start_time: None,
        })
    }

    fn usage(pod: &str, containers: &[&str]) -> PodUsage {
        let containers = containers
            .iter()
            .map(|name| ContainerUsage { name: (*name).into(), usage: list("cpu") })
            .collect();
        PodUsage { pod: pod.into(), timestamp: None, window_nanos: 0, containers }
    }

    fn names(pod: &Pod) -> Vec<&str> {
        pod.requests.containers.iter().map(|container| &*container.name).collect()
    }

    #[test]
    fn container_without_a_request_counts_neither_in_requests_nor_in_usage() {
        let none = ResourceList::default;
        let pods = [
            pod("b", &[("app", Some("cpu")), ("proxy", None)], none()),
            pod("a", &[("app", Some("cpu")), ("proxy", Some("memory"))], none()),
            pod("c", &[("app", Some("cpu")), ("proxy", Some("cpu"))], none()),
            pod("d", &[("proxy", None)], none()),
            pod("e", &[("app", Some("cpu")), ("proxy", None)], list("cpu")),
        ];
        let answer = Answer::Resource(["a", "b", "c", "x"].map(|pod| usage(pod, &["app", "proxy"])).into());
        let proxy = ["proxy".into(), "other".into()];
        let corrected = ignore_containers(&proxy, "cpu", &answer, &pods).unwrap();
        let kept: Vec<_> = corrected.pods.iter().map(|pod| names(pod)).collect();
        assert_eq!(
            kept,
            [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["proxy"], vec!["app", "proxy"]]
        );
        let Answer::Resource(usage) = &corrected.answer else { panic!() };
        let counted =
            |usage: &PodUsage| usage.containers.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
        let counted: Vec<_> = usage.iter().map(counted).collect();
        assert_eq!(counted, [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["app", "proxy"]]);
        assert_eq!(
            corrected.step.to_string(),
            "container proxy requests no cpu and does not count in 2 pods"
        );

        assert_eq!(ignore_containers(&["app".into()], "cpu", &answer, &pods), None);
        assert_eq!(ignore_containers(&[], "cpu", &answer, &pods), None);
        assert_eq!(ignore_containers(&proxy, "cpu", &Answer::External([].into()), &pods), None);
    }

    #[test]
    fn pods_of_one_template_share_the_corrected_requests() {
        let one = pod("a", &[("app", Some("cpu")), ("proxy", None)], ResourceList::default());
        let other = Arc::new(Pod { name: "b".into(), ..(*one).clone() });
        let answer = Answer::Resource([usage("a", &["app"])].into());
        let corrected = ignore_containers(&["proxy".into()], "cpu", &answer, &[one, other]).unwrap();
        assert!(Arc::ptr_eq(&corrected.pods[0].requests, &corrected.pods[1].requests));
    }
}
