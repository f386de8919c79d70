//! Containers without requests.

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
    let containers =
        containers.iter().map(|name| ContainerUsage { name: (*name).into(), usage: list("cpu") }).collect();
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
    assert_eq!(kept, [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["proxy"], vec!["app", "proxy"]]);
    let Answer::Resource(usage) = &corrected.answer else { panic!() };
    let counted =
        |usage: &PodUsage| usage.containers.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    let counted: Vec<_> = usage.iter().map(counted).collect();
    assert_eq!(counted, [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["app", "proxy"]]);
    assert_eq!(corrected.step.to_string(), "container proxy requests no cpu and does not count in 2 pods");

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
