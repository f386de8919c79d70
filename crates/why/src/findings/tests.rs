use autoscaling::Overlap;
use autoscaling::event::EventKind;
use autoscaling::pod::Phase;
use autoscaling::query::{Answer, Api};
use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::scene::{
    Scene, ago, chain, external, external_metric, pod, pods_metric, query_error, starting, usage, usages,
};
use crate::situation::{EventContent, FieldManager, RecentEvent, Refused};
use engine::store::Key;

mod policies;

/// A situation and its expected finding, as identifier, severity and message.
type Case = (Situation, FindingId, Severity, &'static str);

fn with(scene: Scene, change: impl FnOnce(&mut Situation)) -> Situation {
    let mut situation = scene.situation();
    change(&mut situation);
    situation
}

/// Checks that each case has exactly the expected finding.
fn check(cases: Vec<Case>) {
    for (situation, code, severity, message) in cases {
        let found = findings(&situation);
        let found_fields: Vec<(FindingId, Severity, &str)> =
            found.iter().map(|finding| (finding.code, finding.severity, finding.message.as_str())).collect();
        assert_eq!(found_fields, [(code, severity, message)]);
        assert!(found[0].advice.ends_with('.'), "{}", found[0].advice);
        assert!(code.reference().severities.contains(&severity), "{code} has the severity {severity}");
    }
}

fn failing(message: &str) -> Scene {
    let mut scene = Scene::cpu(5, 400);
    scene.answers = vec![Some(Err(query_error(message)))];
    scene
}

#[test]
fn healthy_hpa_has_no_findings() {
    assert_eq!(findings(&Scene::cpu(5, 400).situation()), []);
    assert_eq!(findings(&Scene::cpu(5, 600).situation()), []);
}

#[test]
fn unusable_targets_are_found() {
    let unreadable = |text: &str| {
        let mut scene = Scene::cpu(5, 400);
        scene.scale = Err(text.to_owned());
        scene.situation()
    };
    let no_selector = with(Scene::cpu(5, 400), |situation| {
        situation.explanation.path = autoscaling::explanation::DecisionPath::NoSelector;
        situation.explanation.metrics.clear();
    });
    let mut zero = Scene::cpu(0, 400);
    zero.scale = Ok((0, 0));
    check(vec![
        (
            unreadable("deployments.apps \"web\" not found"),
            FindingId::MissingTarget,
            Severity::Error,
            "Deployment/web does not exist, or has no scale: deployments.apps \"web\" not found",
        ),
        (
            unreadable("no matches for kind \"Deploymet\" in group \"apps\""),
            FindingId::UnknownTargetKind,
            Severity::Error,
            "the cluster does not serve the kind of Deployment/web: no matches for kind \"Deploymet\" in group \"apps\"",
        ),
        (
            unreadable("Timeout: request did not complete"),
            FindingId::UnreadableScale,
            Severity::Error,
            "the scale of Deployment/web cannot be read: Timeout: request did not complete",
        ),
        (
            no_selector,
            FindingId::NoSelector,
            Severity::Error,
            "the scale of Deployment/web has no selector, so its pods cannot be found",
        ),
        (
            zero.situation(),
            FindingId::Paused,
            Severity::Warning,
            "Deployment/web has 0 replicas, which disables autoscaling",
        ),
    ]);
}

#[test]
fn hpas_that_share_pods_are_found() {
    let mut scene = Scene::cpu(5, 400);
    scene.overlap = Overlap::Shared(vec!["shop/web".to_owned(), "shop/web-2".to_owned()]);
    let stopped = with(scene, |situation| situation.sharing = vec![Key::new("shop", "web-2")]);
    check(vec![(
        stopped,
        FindingId::SharedPods,
        Severity::Error,
        "other HPAs select the same pods, so none of them scales (web-2)",
    )]);
}

#[test]
fn missing_and_unavailable_metrics_apis_are_found() {
    let missing = |message: &str, api| with(failing(message), |situation| situation.missing_apis = vec![api]);
    check(vec![
        (
            missing(
                "the server could not find the requested resource (get pods.metrics.k8s.io)",
                Api::Resource,
            ),
            FindingId::MissingMetricsApi,
            Severity::Error,
            "the cluster does not serve metrics.k8s.io, which a metric of this HPA needs",
        ),
        (
            failing("the server is currently unable to handle the request (get pods.metrics.k8s.io)")
                .situation(),
            FindingId::MetricsApiUnavailable,
            Severity::Error,
            "cpu cannot be read: the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
    ]);
}

#[test]
fn other_metric_failures_are_found() {
    let mut empty = Scene::cpu(5, 400);
    empty.answers = vec![Some(Ok(Answer::Resource([].into())))];
    let mut unmatched = Scene::cpu(2, 400);
    unmatched.answers = vec![Some(Ok(Answer::Resource([usage("web-9", 100)].into())))];
    unmatched.pods = vec![starting("web-1"), starting("web-2")];
    unmatched.answers = vec![Some(Ok(usages(&unmatched.pods, 100)))];
    let mut podless = Scene::cpu(2, 400);
    podless.pods.clear();
    let mut invalid = Scene::cpu(5, 400);
    invalid.spec["metrics"][0]["type"] = json!("Resouce");
    check(vec![
        (
            failing("Internal error occurred").situation(),
            FindingId::MetricFailed,
            Severity::Error,
            "cpu cannot be read: Internal error occurred",
        ),
        (
            empty.situation(),
            FindingId::NoMetricValues,
            Severity::Error,
            "cpu cannot be read: no metrics returned from resource metrics API",
        ),
        (
            unmatched.situation(),
            FindingId::NoMetricValues,
            Severity::Error,
            "cpu cannot be read: did not receive metrics for targeted pods (pods might be unready)",
        ),
        (
            podless.situation(),
            FindingId::NoPods,
            Severity::Error,
            "cpu cannot be read: no pods returned by selector while calculating replica count",
        ),
        (
            invalid.situation(),
            FindingId::InvalidMetric,
            Severity::Error,
            "a metric of the spec cannot be used: unknown metric source type \"Resouce\"",
        ),
    ]);
}

#[test]
fn refused_reads_are_found() {
    let refused = |resource: &str, decides| Refused {
        verb: "list",
        group: "metrics.k8s.io".to_owned(),
        resource: resource.to_owned(),
        namespace: Some("shop".to_owned()),
        name: None,
        text: "pods.metrics.k8s.io is forbidden".to_owned(),
        decides,
    };
    let metrics = with(failing("pods.metrics.k8s.io is forbidden"), |situation| {
        situation.refused = vec![refused("pods", true)];
    });
    let other = with(Scene::cpu(5, 400), |situation| {
        situation.refused = vec![Refused { group: "apps".to_owned(), ..refused("replicasets", false) }];
    });
    check(vec![
        (
            metrics,
            FindingId::Forbidden,
            Severity::Error,
            "you may not list pods.metrics.k8s.io in namespace shop, so this decision is not the controller's",
        ),
        (
            other,
            FindingId::Forbidden,
            Severity::Info,
            "you may not list replicasets.apps in namespace shop, so some checks were skipped",
        ),
    ]);
}

#[test]
fn missing_requests_and_containers_are_found() {
    let mut scene = Scene::cpu(5, 400);
    scene.pods[1] = pod("web-2", None);
    let mut sidecar = Scene::cpu(2, 400);
    sidecar.spec["metrics"][0] = json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
        "container": "proxy", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let no_container = with(sidecar, |situation| {
        // The explanation of the failed metric would give another finding.
        situation.explanation.metrics.clear();
    });
    check(vec![
        (
            scene.situation(),
            FindingId::MissingRequest,
            Severity::Error,
            "cpu is measured in percent of the request, but container app requests no cpu (in 1 of 5 pods)",
        ),
        (
            no_container,
            FindingId::MissingContainer,
            Severity::Error,
            "Deployment/web has no container proxy in 2 of 2 pods",
        ),
    ]);
}

#[test]
fn stale_samples_are_found() {
    let mut scene = Scene::cpu(5, 400);
    let old = |name: &str| autoscaling::query::PodUsage { timestamp: Some(ago(400)), ..usage(name, 400) };
    let fresh = |name: &str| usage(name, 400);
    let samples = [fresh("web-1"), fresh("web-2"), old("web-3"), fresh("web-4"), old("web-5")];
    scene.answers = vec![Some(Ok(Answer::Resource(samples.into())))];
    check(vec![(
        scene.situation(),
        FindingId::StaleMetric,
        Severity::Warning,
        "2 samples of 5 for cpu are stale: the oldest was taken 6 min 40 s ago (web-3)",
    )]);
}

#[test]
fn pods_of_other_owners_are_found() {
    let mut scene = Scene::cpu(3, 400);
    scene.pods.extend(["job-1", "job-2", "lone-1"].map(|name| pod(name, Some("500m"))));
    scene.pods.sort_by(|a, b| a.name.cmp(&b.name));
    scene.answers = vec![Some(Ok(usages(&scene.pods, 400)))];
    let situation = with(scene, |situation| {
        let mut job = chain("report");
        job.truncate(1);
        job[0].kind = "Job".to_owned();
        for name in ["job-1", "job-2"] {
            situation.owners.insert(name.into(), job.clone());
        }
        situation.owners.insert("lone-1".into(), Vec::new());
    });
    let others = with(Scene::cpu(2, 400), |situation| {
        for chain in situation.owners.values_mut() {
            chain.clear();
        }
    });
    check(vec![
        (
            situation,
            FindingId::ForeignPods,
            Severity::Warning,
            "the selector of Deployment/web also matches 3 pods of other owners, which count in the metrics: \
             2 of Job/report-7d9 (job-1, job-2), 1 without a controller (lone-1)",
        ),
        (
            others,
            FindingId::ForeignPods,
            Severity::Info,
            "by their owner references, none of the 2 pods belongs to Deployment/web: 2 without a controller (web-1, web-2)",
        ),
    ]);
}

#[test]
fn pods_with_unreadable_owners_are_not_foreign() {
    let situation = with(Scene::cpu(2, 400), |situation| {
        for chain in situation.owners.values_mut() {
            chain.truncate(1);
        }
        situation.refused = vec![Refused {
            verb: "get",
            group: "apps".to_owned(),
            resource: "replicasets".to_owned(),
            namespace: Some("shop".to_owned()),
            name: None,
            text: String::new(),
            decides: false,
        }];
    });
    assert!(findings(&situation).iter().all(|finding| finding.code != FindingId::ForeignPods));
}

#[test]
fn uncounted_pods_are_found() {
    let mut unready = Scene::cpu(4, 400);
    unready.pods[2] = starting("web-3");
    unready.pods[3] = autoscaling::pod::Pod { phase: Phase::Pending, ..pod("web-4", Some("500m")) };
    let mut missing = Scene::cpu(4, 400);
    missing.answers = vec![Some(Ok(usages(&missing.pods[..2], 400)))];
    check(vec![
        (
            unready.situation(),
            FindingId::UnreadyPods,
            Severity::Warning,
            "2 of 4 pods are not ready (1 started recently, 1 pending): their cpu does not count",
        ),
        (
            missing.situation(),
            FindingId::MissingSamples,
            Severity::Warning,
            "2 of 4 pods have no sample of cpu, which prevents a change of the count",
        ),
    ]);
}

#[test]
fn limits_by_bounds_and_tolerance_are_found() {
    let mut fixed = Scene::cpu(5, 400);
    (fixed.spec["minReplicas"], fixed.spec["maxReplicas"]) = (json!(5), json!(5));
    check(vec![
        (
            Scene::cpu(10, 600).situation(),
            FindingId::MaxReplicas,
            Severity::Warning,
            "cpu asks for 15, but maxReplicas is 10",
        ),
        (
            fixed.situation(),
            FindingId::FixedSize,
            Severity::Info,
            "minReplicas 5 and maxReplicas 5 leave nothing to scale",
        ),
        (
            Scene::cpu(5, 435).situation(),
            FindingId::Tolerance,
            Severity::Info,
            "cpu is at 87 %, which is within 10 % of its target of 80 %; without tolerance the count would be 6 instead of 5",
        ),
        (
            Scene::jobs(5, &json!({"type": "AverageValue", "averageValue": "30"}), "160").situation(),
            FindingId::Tolerance,
            Severity::Info,
            "jobs is at 32 per pod, which is within 10 % of its target of 30 per pod; without tolerance the count would be 6 \
             instead of 5",
        ),
    ]);
}

#[test]
fn tolerance_without_an_effect_is_not_found() {
    // 0.95 times 5 pods is rounded up to 5 with or without tolerance. In the second case, maxReplicas prevents more
    // pods.
    assert_eq!(findings(&Scene::cpu(5, 380).situation()), []);
    assert_eq!(findings(&Scene::cpu(10, 430).situation()), []);
}

#[test]
fn invalid_and_ignored_behavior_is_found() {
    let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let up =
        |rules| Scene::cpu(5, 400).behavior(json!({"scaleUp": rules, "scaleDown": {"policies": policies}}));
    let mut ignored = up(json!({"tolerance": "0.05", "policies": policies}));
    ignored.settings.configurable_tolerance = false;
    check(vec![
        (
            up(json!({"selectPolicy": "Average", "policies": policies})).situation(),
            FindingId::UnknownBehavior,
            Severity::Warning,
            "behavior.scaleUp.selectPolicy is \"Average\", which is invalid; it counts as Max",
        ),
        (
            up(json!({"policies": [{"type": "Nodes", "value": 1, "periodSeconds": 15}]})).situation(),
            FindingId::UnknownBehavior,
            Severity::Warning,
            "a policy of behavior.scaleUp has an invalid type; it allows the same change as the previous policy",
        ),
        (
            ignored.situation(),
            FindingId::ToleranceIgnored,
            Severity::Warning,
            "behavior sets a tolerance, but the gate HPAConfigurableTolerance is off, so it is ignored",
        ),
    ]);
}

#[test]
fn flapping_counts_are_found() {
    let event = |size: i32, count: u32, first: i64, last: i64| RecentEvent {
        content: EventContent {
            kind: EventKind::Normal,
            reason: "SuccessfulRescale".to_owned(),
            message: format!(
                "New size: {size}; reason: cpu resource utilization (percentage of request) above target"
            ),
        },
        count,
        first: ago(first),
        last: ago(last),
        reporter: "horizontal-pod-autoscaler".to_owned(),
    };
    let flapping = with(Scene::cpu(5, 400), |situation| {
        situation.recent_events = vec![event(8, 3, 3000, 600), event(5, 3, 2400, 0)];
    });
    let calm = with(Scene::cpu(5, 400), |situation| {
        situation.recent_events = vec![
            event(3, 1, 9000, 9000),
            event(6, 1, 3000, 3000),
            event(8, 1, 2000, 2000),
            event(5, 1, 100, 100),
        ];
    });
    check(vec![(
        flapping,
        FindingId::Flapping,
        Severity::Warning,
        "the count changed direction 4 times in the last hour: 8 → 5 → 8 → 5 → 8 → 5",
    )]);
    assert_eq!(findings(&calm), []);
}

#[test]
fn other_writers_of_the_replicas_are_found() {
    let manager = |manager: &str, subresource: &str, seconds| FieldManager {
        manager: manager.to_owned(),
        operation: "Update".to_owned(),
        subresource: subresource.to_owned(),
        time: Some(ago(seconds)),
    };
    let owned = |managers: Vec<FieldManager>| {
        with(Scene::cpu(5, 400), |situation| {
            situation.target.as_mut().unwrap().object.as_mut().unwrap().replicas_owners = managers;
        })
    };
    let messages =
        |situation| findings(&situation).into_iter().map(|finding| finding.message).collect::<Vec<_>>();
    check(vec![(
        owned(vec![manager("kube-controller-manager", "scale", 60), manager("argocd-controller", "", 7200)]),
        FindingId::ReplicasAlsoSet,
        Severity::Warning,
        "spec.replicas of Deployment/web is also set by argocd-controller 2 h ago (Argo CD): the next such write resets \
         the count",
    )]);
    check(vec![(
        owned(vec![manager("kubectl-create", "", 60)]),
        FindingId::ReplicasAlsoSet,
        Severity::Info,
        "spec.replicas of Deployment/web is also set by kubectl-create 1 min ago: the next such write resets the count",
    )]);
    assert_eq!(messages(owned(vec![manager("kube-controller-manager", "scale", 60)])), [""; 0]);
    for (name, tool) in
        [("helm", "Helm"), ("kustomize-controller", "Flux"), ("kubectl-client-side-apply", "kubectl")]
    {
        let found = messages(owned(vec![manager(name, "", 60)]));
        assert!(found[0].contains(&format!("{name} 1 min ago ({tool})")), "{found:?}");
    }
}

#[test]
fn clock_skew_is_found() {
    let skewed = |seconds| {
        with(Scene::cpu(5, 400), |situation| situation.skew = Some(SignedDuration::from_secs(seconds)))
    };
    check(vec![
        (
            skewed(90),
            FindingId::ClockSkew,
            Severity::Warning,
            "the clock of this machine is 1 min 30 s behind the API server's",
        ),
        (
            skewed(-6),
            FindingId::ClockSkew,
            Severity::Warning,
            "the clock of this machine is 6 s ahead of the API server's",
        ),
    ]);
    assert_eq!(findings(&skewed(5)), []);
}

#[test]
fn findings_are_sorted_by_severity() {
    let scene = Scene::cpu(10, 600).and(pods_metric("requests", "10"), Err("no such metric"));
    let situation = with(scene, |situation| situation.skew = Some(SignedDuration::from_secs(60)));
    let codes: Vec<FindingId> = findings(&situation).iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingId::MetricFailed, FindingId::MaxReplicas, FindingId::ClockSkew]);
    let healthy = Scene::cpu(5, 400)
        .and(external_metric("jobs", &json!({"type": "Value", "value": "1"})), Ok(external("1")));
    assert_eq!(findings(&healthy.situation()), []);
}

#[test]
fn ignored_pods_of_other_owners_do_not_count() {
    let mut scene = Scene::cpu(3, 400);
    let done = autoscaling::pod::Pod { phase: Phase::Succeeded, ..pod("done-1", Some("500m")) };
    scene.pods.insert(0, done);
    let situation = with(scene, |situation| {
        situation.owners.insert("done-1".into(), Vec::new());
    });
    check(vec![(
        situation,
        FindingId::ForeignPods,
        Severity::Info,
        "the selector of Deployment/web also matches 1 pod of other owners, which do not count now: \
         1 without a controller (done-1)",
    )]);
}

#[test]
fn missing_request_of_a_pod_of_another_owner_names_the_pod() {
    let mut scene = Scene::cpu(3, 400);
    scene.pods.insert(0, autoscaling::pod::Pod { phase: Phase::Succeeded, ..pod("probe-0", None) });
    let situation = with(scene, |situation| {
        situation.owners.insert("probe-0".into(), Vec::new());
    });
    let found = findings(&situation);
    let foreign = found.iter().find(|finding| finding.code == FindingId::ForeignPods).unwrap();
    assert!(foreign.message.contains("whose missing requests make a metric fail"), "{}", foreign.message);
    let request = found.iter().find(|finding| finding.code == FindingId::MissingRequest).unwrap();
    assert!(
        request
            .message
            .ends_with("(in 1 of 4 pods): probe-0 (Succeeded, without a controller) of other owners"),
        "{}",
        request.message
    );
    assert!(request.advice.starts_with("Delete these pods, change their labels"), "{}", request.advice);
}

#[test]
fn value_target_with_unready_pods_is_found() {
    let mut scene = Scene::jobs(6, &json!({"type": "Value", "value": "100"}), "300");
    scene.pods = (1..=6).map(|number| starting(&format!("web-{number}"))).collect();
    check(vec![(
        scene.situation(),
        FindingId::UnreadyPods,
        Severity::Warning,
        "0 of 6 pods are ready, and the ratio of jobs is multiplied by the number of ready pods: it is at 300, its \
         target is 100, and it asks for 0",
    )]);
}

#[test]
fn higher_maximum_is_not_advised_while_scaling_up_is_disabled() {
    let up = json!({"selectPolicy": "Disabled",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    let down = json!({"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    let scene = Scene::cpu(10, 600).behavior(json!({"scaleUp": up, "scaleDown": down}));
    let found = findings(&scene.situation());
    let maximum = found.iter().find(|finding| finding.code == FindingId::MaxReplicas).unwrap();
    assert_eq!(
        maximum.advice,
        "behavior.scaleUp disables scaling up, so a higher maxReplicas alone changes nothing."
    );
}
