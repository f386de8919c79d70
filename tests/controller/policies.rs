//! Scaling policies from annotations and from objects.

use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use serde_json::{Value, json};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

const ANNOTATION: &str = "concertina.dev/policy";

/// Returns the HPA with `policy` as its only annotation.
pub(crate) fn annotated(mut object: Value, policy: &str) -> Value {
    object["metadata"]["annotations"] = json!({ ANNOTATION: policy });
    object
}

/// An HPA `web` with 4 replicas, a demand of 8, and a policy.
pub(crate) fn demanding(policy: &str) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "80");
    stage.create(annotated(hpa("web", &[external("queue", "10")]), policy));
    stage
}

pub(crate) fn active(stage: &Fixture) -> String {
    stage.condition("web", "ScalingPolicyActive")
}

fn count_of(stage: &Fixture, reason: &str) -> usize {
    stage.events("web").iter().filter(|event| event.starts_with(&format!("{reason} "))).count()
}

#[tokio::test(start_paused = true)]
async fn pause_holds_the_count_and_ends_at_its_time() {
    let rig = Harness::start(demanding("mode: Paused\nuntil: 2030-01-01T00:01:07Z\n"));
    rig.pass(60.0).await;
    assert_eq!(rig.replicas("web"), 4);
    assert_eq!(active(&rig), "True Paused paused at 4 until 2030-01-01T00:01:07Z, the recommendation is 8");
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], 4);
    assert!(rig.condition("web", "ScalingActive").starts_with("True ValidMetricFound"));
    assert_eq!(count_of(&rig, "Paused"), 1, "{:?}", rig.events("web"));
    assert!(
        rig.telemetry
            .render()
            .contains(r#"concertina_policy_active{name="web",namespace="shop",reason="Paused"} 1"#)
    );
    // The next periodic sync would be at 75 s.
    rig.until("the end of the pause", 7.5, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert!(active(&rig).starts_with("False NoEffect"), "{}", active(&rig));
    assert_eq!(count_of(&rig, "ScalingPolicyInactive"), 1);
    assert!(!rig.telemetry.render().contains("concertina_policy_active{"));
}

#[tokio::test(start_paused = true)]
async fn one_way_modes_allow_their_direction_only() {
    for (mode, up, down) in [("ScaleUpOnly", 8, 8), ("ScaleDownOnly", 4, 1), ("DryRun", 4, 4)] {
        let rig = Harness::start(demanding(&format!(
            "{{mode: {mode}, downscaleStabilizationSeconds: 0, syncPeriodSeconds: 5}}"
        )));
        rig.pass(10.0).await;
        assert_eq!(rig.replicas("web"), up, "{mode}");
        rig.external("queue", "5");
        rig.pass(40.0).await;
        assert_eq!(rig.replicas("web"), down, "{mode}");
        assert!(active(&rig).starts_with(&format!("True {mode}")), "{}", active(&rig));
    }
}

#[tokio::test(start_paused = true)]
async fn pinned_count_ignores_bounds_and_failed_metrics() {
    let stage = demanding("mode: Pinned\nreplicas: 15\n");
    stage.metrics.set_external(serde_json::Value::default());
    let rig = Harness::start(stage);
    rig.pass(2.0).await;
    assert_eq!(rig.replicas("web"), 15);
    assert!(active(&rig).starts_with("True Pinned pinned at 15"), "{}", active(&rig));
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], 15);
    rig.pass(60.0).await;
    assert_eq!(rig.replicas("web"), 15);
    // Without the pin, the maximum of the HPA applies again.
    rig.edit("web", |hpa| hpa["metadata"]["annotations"] = json!({}));
    rig.until("the maximum", 2.0, |stage| stage.replicas("web") == 10).await;
    rig.pass(1.0).await;
    assert_eq!(active(&rig), "");
}

#[tokio::test(start_paused = true)]
async fn schedule_changes_bounds_exactly_at_its_edges() {
    let rig = Harness::start(demanding(
        "schedules: [{name: sale, from: 2030-01-01T00:00:20Z, to: 2030-01-01T00:00:52Z, minReplicas: 9}]",
    ));
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(18.5).await;
    assert_eq!(rig.replicas("web"), 8);
    rig.until("the floor", 2.0, |stage| stage.replicas("web") == 9).await;
    assert!((20.0..20.2).contains(&rig.now().as_secs_f64()), "{:?}", rig.now());
    rig.pass(1.0).await;
    assert!(
        active(&rig)
            .starts_with("True ScheduleActive schedule sale sets minReplicas to 9 instead of 1 until"),
        "{}",
        active(&rig)
    );
    rig.pass(32.0).await;
    assert!(active(&rig).starts_with("False NoEffect"), "{}", active(&rig));
}

#[tokio::test(start_paused = true)]
async fn recurring_schedule_follows_its_time_zone() {
    // The test starts at 05:30 in India.
    let rig = Harness::start(demanding(
        "schedules: [{name: early, timeZone: Asia/Kolkata, start: \"31 5 * * *\", end: \"33 5 * * *\", minReplicas: 9}]",
    ));
    rig.pass(59.0).await;
    assert_eq!(rig.replicas("web"), 8);
    rig.until("the floor", 2.0, |stage| stage.replicas("web") == 9).await;
    assert!((60.0..60.2).contains(&rig.now().as_secs_f64()), "{:?}", rig.now());
    rig.pass(1.0).await;
    assert!(active(&rig).ends_with("instead of 1 until 2030-01-01T00:03:00Z"), "{}", active(&rig));
    rig.until("the end", 121.0, |stage| active(stage).starts_with("False NoEffect")).await;
}

#[tokio::test(start_paused = true)]
async fn sync_period_replaces_that_of_the_controller() {
    for (seconds, expected) in [(5, 12), (60, 2)] {
        let rig = Harness::start(demanding(&format!("syncPeriodSeconds: {seconds}")));
        rig.pass(30.0).await;
        let before = rig.syncs("web").len();
        rig.pass(60.0).await;
        let syncs = rig.syncs("web").len() - before;
        assert!(syncs.abs_diff(expected) <= 1, "{seconds}: {syncs}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_sync_period_gets_a_new_answer_of_the_metrics_api_each_time() {
    let rig = Harness::start(demanding("syncPeriodSeconds: 1"));
    rig.pass(10.0).await;
    let queries =
        || rig.cluster.requests().count(|request| request.path.starts_with("/apis/external.metrics"));
    let (syncs_before, queries_before) = (rig.syncs("web").len(), queries());
    rig.pass(12.0).await;
    let (syncs, queries) = (rig.syncs("web").len() - syncs_before, queries() - queries_before);
    assert!(syncs >= 11, "{syncs}");
    assert!(queries.abs_diff(syncs) <= 1, "{queries} queries for {syncs} syncs");
}

#[tokio::test(start_paused = true)]
async fn fallback_applies_to_the_failed_metric() {
    let policy = "fallback: [{when: Error, failureDurationSeconds: 0, action: Replicas, replicas: 6, strategy: AtLeast}, \
                  {when: Empty, failureDurationSeconds: 0, action: Hold}]";
    let stage = demanding(policy);
    stage.metrics.set_external(serde_json::Value::default());
    let rig = Harness::start(stage);
    rig.pass(2.0).await;
    assert!(active(&rig).starts_with("True FallbackActive"), "{}", active(&rig));
    assert!(
        rig.condition("web", "ScalingActive").starts_with("True"),
        "{}",
        rig.condition("web", "ScalingActive")
    );
    assert!([4, 6].contains(&rig.replicas("web")), "{}", active(&rig));
    rig.external("queue", "80");
    rig.until("the metric", 16.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert!(active(&rig).starts_with("False NoEffect"), "{}", active(&rig));
}

#[tokio::test(start_paused = true)]
async fn lowest_proposal_is_chosen_and_steps_are_bounded() {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "80");
    stage.external("other", "60");
    let object = hpa("web", &[external("queue", "10"), external("other", "10")]);
    stage.create(annotated(object, r#"{"combine":"Min","guards":{"maxStep":{"up":"25%"}}}"#));
    let rig = Harness::start(stage);
    rig.pass(2.0).await;
    assert_eq!(rig.replicas("web"), 5);
    assert!(
        active(&rig).starts_with(
            "True MaxStep the largest step from 4 is to 5, not to 6; the lowest proposal 6 is chosen"
        ),
        "{}",
        active(&rig)
    );
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 6);
}

#[tokio::test(start_paused = true)]
async fn lowest_proposal_of_a_failed_metric_keeps_the_count() {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "80");
    let object = hpa("web", &[external("queue", "10"), external("missing", "10")]);
    stage.create(annotated(object, "combine: Min"));
    let rig = Harness::start(stage);
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 4);
    assert!(
        active(&rig).starts_with("True CombinedMin missing failed and may propose the lowest count"),
        "{}",
        active(&rig)
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_fields_are_reported_once_and_the_others_apply() {
    let rig = Harness::start(demanding(
        "mode: ScaleUpOnly\nsyncPeriodSeconds: 0\ntolerence: 1\nguards: {rolout: Hold}\nschedules: [{name: a, timeZone: Berlin, start: \"0 8 * * *\", end: \"0 9 * * *\", minReplicas: 1}]",
    ));
    rig.until("the scale-up", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(40.0).await;
    let events = rig.events("web");
    let invalid: Vec<_> = events.iter().filter(|event| event.starts_with("InvalidScalingPolicy")).collect();
    assert_eq!(invalid.len(), 1, "{events:?}");
    for part in [
        "annotation concertina.dev/policy: ",
        "syncPeriodSeconds: must be a whole number from 1 to 3600, not 0",
        "tolerence: is unknown and has no effect; did you mean tolerance?",
        "guards.rolout: is unknown and has no effect; did you mean rollout?",
        "schedules[0]: timeZone: no time zone has the name \"Berlin\"; did you mean \"Europe/Berlin\"?",
    ] {
        assert!(invalid[0].contains(part), "{part}: {}", invalid[0]);
        assert!(active(&rig).contains(part), "{part}: {}", active(&rig));
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_mode_or_unreadable_policy_is_reported() {
    for (policy, replicas, expected) in [
        ("mode: Pause", 4, "True InvalidMode"),
        ("mode: Pinned", 4, "True InvalidMode"),
        ("mode: Paused\nuntil: tomorrow", 4, "True InvalidMode"),
        ("mode: [", 8, "False NoEffect"),
        ("- mode", 8, "False NoEffect"),
        (&"x".repeat(200 << 10), 8, "False NoEffect"),
    ] {
        let rig = Harness::start(demanding(policy));
        rig.pass(2.0).await;
        let shown = policy.get(..20).unwrap_or(policy);
        assert_eq!(rig.replicas("web"), replicas, "{shown}");
        assert!(active(&rig).starts_with(expected), "{shown}: {}", active(&rig));
        assert_eq!(count_of(&rig, "InvalidScalingPolicy"), 1, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_annotation_is_applied_at_once() {
    let rig = Harness::start(demanding("mode: Paused"));
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 4);
    rig.edit("web", |hpa| hpa["metadata"]["annotations"] = json!({}));
    rig.until("the scale-up", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert_eq!(active(&rig), "");
    assert_eq!(count_of(&rig, "ScalingPolicyInactive"), 1);
}

fn with_objects() -> Config {
    let mut config = Config::default();
    config.controller.watch_scaling_policies = true;
    config
}

fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    if kind == "ScalingPolicy" {
        object["metadata"]["namespace"] = json!("shop");
    }
    object
}

#[tokio::test(start_paused = true)]
async fn policy_objects_apply_by_selector_and_precedence() {
    let stage = Fixture::growing();
    stage.edit("web", |hpa| hpa["metadata"]["labels"] = json!({"team": "shop"}));
    stage.create(policy(
        "ClusterScalingPolicy",
        "platform",
        &json!({"mode": "Pinned", "replicas": 7, "syncPeriodSeconds": 5}),
    ));
    stage.create(policy(
        "ScalingPolicy",
        "pause",
        &json!({"mode": "Paused", "selector": {"matchLabels": {"team": "shop"}}}),
    ));
    let rig = Harness::with(stage, &with_objects());
    rig.pass(20.0).await;
    assert!(active(&rig).starts_with("True Paused"), "{}", active(&rig));
    rig.edit("web", |hpa| hpa["metadata"]["labels"] = json!({"team": "bank"}));
    rig.until("the pin of the platform", 16.0, |stage| stage.replicas("web") == 7).await;
    rig.cluster.delete("autoscaling.concertina.dev/clusterscalingpolicies", "", "platform").unwrap();
    rig.until("no policy", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert_eq!(active(&rig), "");
}

#[tokio::test(start_paused = true)]
async fn namespace_selector_follows_the_labels_of_namespaces() {
    let stage = Fixture::growing();
    let spec = json!({"mode": "Paused", "namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    stage.create(policy("ClusterScalingPolicy", "gold", &spec));
    let rig = Harness::with(stage, &with_objects());
    rig.until("no policy", 2.0, |stage| stage.replicas("web") == 8).await;
    let mut namespace = rig.cluster.get("namespaces", "", "shop").unwrap();
    namespace["metadata"]["labels"] = json!({"tier": "gold"});
    rig.cluster.update(namespace).unwrap();
    rig.until("the policy", 3.0, |stage| active(stage).starts_with("True Paused")).await;
}

/// An HPA `web` with a demand of 8 instead of 4 replicas, a paused policy for all HPAs, and an API server that fails to
/// serve policies.
fn unserved(error: Status) -> Fixture {
    let stage = Fixture::growing();
    stage.create(policy("ClusterScalingPolicy", "freeze", &json!({"mode": "Paused"})));
    stage
        .cluster
        .faults()
        .add(FaultRule::new(FaultAction::Status(error)).path_contains("autoscaling.concertina.dev"));
    stage
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_about_hpas_until_their_policies_are_known() {
    let rig = Harness::with(unserved(Status::new(503, "ServiceUnavailable", "no")), &with_objects());
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 4);
    assert_eq!(rig.count("PUT", "/horizontalpodautoscalers/web/status"), 0);
    let missing = rig.assembly.policies.missing();
    assert!(missing.iter().any(|text| text.starts_with("failed to list scalingpolicies")), "{missing:?}");
    rig.cluster.faults().clear();
    rig.until("the policy", 17.0, |stage| active(stage).starts_with("True Paused")).await;
    assert_eq!((rig.replicas("web"), rig.assembly.policies.missing().len()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_policies_hold_only_hpas_that_had_one() {
    let stage = unserved(Status::new(403, "Forbidden", "no"));
    stage.target("api", 4);
    stage.create(annotated(hpa("api", &[external("queue", "10")]), "syncPeriodSeconds: 15\n"));
    let rig = Harness::with(stage, &with_objects());
    rig.until("no policy", 5.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(120.0).await;
    assert_eq!(rig.replicas("api"), 4, "a policy of the cluster may limit what the annotation allows");
    assert!(rig.assembly.policies.missing().iter().any(|text| text.contains("failed to list")));
    rig.cluster.faults().clear();
    rig.until("the policy", 20.0, |stage| {
        stage.condition("api", "ScalingPolicyActive").starts_with("True Paused")
    })
    .await;
    assert_eq!(rig.replicas("api"), 4);
}

#[tokio::test(start_paused = true)]
async fn status_of_a_policy_reports_matches_and_problems() {
    let stage = Fixture::growing();
    stage.create(policy("ScalingPolicy", "one", &json!({"mode": "Paused", "tolerence": 1})));
    stage.create(policy("ScalingPolicy", "none", &json!({"selector": {"matchLabels": {"team": "x"}}})));
    let rig = Harness::with(stage, &with_objects());
    rig.pass(30.0).await;
    let status = |name: &str| {
        rig.cluster.get("autoscaling.concertina.dev/scalingpolicies", "shop", name).unwrap()["status"].clone()
    };
    assert_eq!(status("one")["matched"], 1, "{}", status("one"));
    assert_eq!(status("one")["conditions"][0]["status"], "False", "{}", status("one"));
    let message = status("one")["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tolerence: is unknown and has no effect"), "{message}");
    assert_eq!(status("none")["matched"], 0, "{}", status("none"));
    assert_eq!(status("none")["conditions"][0]["reason"], "Accepted");
    let writes = rig.count("patch", "/status");
    rig.pass(120.0).await;
    assert_eq!(rig.count("patch", "/status"), writes, "an unchanged status is not written again");
}

/// With the CustomResourceDefinition of an older release, the server drops every field of the status, or has no status
/// subresource.
#[tokio::test(start_paused = true)]
async fn status_that_the_server_does_not_keep_is_written_again_after_ten_minutes() {
    let object = json!({"metadata": {"name": "one"}, "status": {}}).to_string();
    let missing = Status::not_found("autoscaling.concertina.dev", "scalingpolicies", "one");
    for answer in [FaultAction::Body(object), FaultAction::Status(missing)] {
        let stage = Fixture::growing();
        stage.create(policy("ScalingPolicy", "one", &json!({"tolerance": 0.2})));
        let older =
            stage.cluster.faults().add(FaultRule::new(answer).verb("patch").path_suffix("one/status"));
        let rig = Harness::with(stage, &with_objects());
        rig.pass(300.0).await;
        // The first match may cause a second write.
        let writes = rig.count("patch", "/status");
        assert!((1..=2).contains(&writes), "{writes}");
        // The status of another policy is not delayed.
        rig.create(policy("ScalingPolicy", "two", &json!({"tolerance": 0.3})));
        rig.pass(15.0).await;
        let status = |name: &str| {
            rig.cluster.get("autoscaling.concertina.dev/scalingpolicies", "shop", name).unwrap()["status"]
                .clone()
        };
        assert_eq!(status("two")["matched"], 1);
        // With the definition of this release, the status is written and kept.
        rig.cluster.faults().remove(older);
        rig.pass(620.0).await;
        assert_eq!(status("one")["matched"], 1, "{}", status("one"));
        assert_eq!(status("one")["conditions"][0]["reason"], "Accepted");
    }
}

#[tokio::test(start_paused = true)]
async fn status_of_a_cluster_policy_syncs_no_hpa() {
    let stage = demanding("syncPeriodSeconds: 3600");
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
    let rig = Harness::with(stage, &with_objects());
    rig.pass(5.0).await;
    rig.create(policy(
        "ClusterScalingPolicy",
        "platform",
        &json!({"namespaceSelector": selector, "limits": {"highestFloor": 4}}),
    ));
    rig.pass(20.0).await;
    let before = rig.syncs("web").len();
    rig.pass(200.0).await;
    assert_eq!(rig.syncs("web").len(), before);
}

#[tokio::test(start_paused = true)]
async fn status_reports_fields_of_other_policies_and_limits() {
    let stage = Fixture::growing();
    stage.create(policy("ScalingPolicy", "older", &json!({"tolerance": 0.2, "syncPeriodSeconds": 5})));
    stage.create(policy(
        "ClusterScalingPolicy",
        "platform",
        &json!({"limits": {"shortestSyncPeriodSeconds": 10}}),
    ));
    let rig = Harness::with(stage, &with_objects());
    rig.pass(1.0).await;
    rig.create(policy("ScalingPolicy", "younger", &json!({"tolerance": 0.3})));
    rig.pass(30.0).await;
    let condition = |name: &str, kind: &str| {
        let object = rig.cluster.get("autoscaling.concertina.dev/scalingpolicies", "shop", name).unwrap();
        let conditions = object["status"]["conditions"].as_array().unwrap().clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind);
        found.map(|it| {
            let text = |field: &str| it[field].as_str().unwrap().to_owned();
            format!("{} {}: {}", text("status"), text("reason"), text("message"))
        })
    };
    let text = |name: &str, kind: &str| condition(name, kind).unwrap_or_default();
    assert_eq!(
        text("older", "Overlapping"),
        "True SameFields: tolerance: comes before ScalingPolicy shop/younger, which is younger"
    );
    assert_eq!(
        text("younger", "Overlapping"),
        "True SameFields: tolerance: ScalingPolicy shop/older is older and comes first"
    );
    let limited = text("older", "Limited");
    let expected = "True BeyondLimits: syncPeriodSeconds: exceeds shortestSyncPeriodSeconds 10 of ClusterScalingPolicy platform";
    assert!(limited.starts_with(expected), "{limited}");
    assert_eq!(condition("younger", "Limited"), None);
    rig.cluster.delete("autoscaling.concertina.dev/scalingpolicies", "shop", "younger").unwrap();
    rig.pass(30.0).await;
    assert!(
        text("older", "Overlapping").starts_with("False NoSameFields"),
        "{}",
        text("older", "Overlapping")
    );
}

#[tokio::test(start_paused = true)]
async fn absent_kinds_cost_one_request_a_minute_and_are_found_later() {
    let group = "autoscaling.concertina.dev";
    let stage = Fixture::growing();
    stage.cluster.set_discovery(group, false);
    let rig = Harness::with(stage, &with_objects());
    rig.pass(600.0).await;
    assert_eq!(rig.replicas("web"), 8);
    let requests = rig.times(|request| request.path.contains(group)).len();
    assert!((20..=24).contains(&requests), "{requests}");
    rig.cluster.set_discovery(group, true);
    rig.create(policy("ScalingPolicy", "pause", &json!({"mode": "Paused"})));
    rig.until("the policy", 70.0, |stage| active(stage).starts_with("True Paused")).await;
}

#[tokio::test(start_paused = true)]
async fn controller_without_the_flag_sends_no_request_for_policies() {
    let rig = Harness::start(Fixture::growing());
    rig.pass(120.0).await;
    assert_eq!(rig.times(|request| request.path.contains("concertina.dev")).len(), 0);
    assert_eq!(active(&rig), "");
}
