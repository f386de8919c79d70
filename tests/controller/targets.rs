//! Targets that are watched: what a sync takes from there, and when it reads the Scale all the same.

use concertina::cli::Config;
use concertina::cli::config::ScaleSource;
use concertina::embedded::{FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use crate::support::objects::{deployment, external, hpa};
use crate::support::{Rig, Stage, logs};

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// A Deployment at this count and an HPA that is content with 8.
fn one(replicas: u32) -> Stage {
    let stage = Stage::new();
    add(&stage, "web", replicas);
    stage
}

/// The Deployment, whose status is as if it had its pods, and the HPA.
fn add(stage: &Stage, name: &str, replicas: u32) {
    let mut object = deployment(name, replicas);
    object["status"] = json!({ "replicas": replicas });
    stage.create(object);
    stage.external("queue", "80");
    stage.create(hpa(name, &[external("queue", "10")]));
}

fn replicas(stage: &Stage, name: &str) -> i64 {
    stage.cluster.get("apps/deployments", "shop", name).unwrap()["spec"]["replicas"].as_i64().unwrap()
}

/// Scales as somebody else would.
fn scale(stage: &Stage, name: &str, replicas: u32) {
    let mut object = stage.cluster.get("apps/deployments", "shop", name).unwrap();
    object["spec"]["replicas"] = json!(replicas);
    stage.cluster.put_raw(object);
}

/// How many Scales were read, and written.
fn scales(stage: &Stage) -> (usize, usize) {
    let of = |verb: &str| stage.cluster.requests().count(|r| r.verb == verb && r.path.ends_with("/scale"));
    (of("get"), of("update"))
}

/// How many Scales were read, and written, while this many seconds passed.
async fn meanwhile(rig: &Rig, seconds: f64) -> (usize, usize) {
    let before = scales(rig);
    rig.pass(seconds).await;
    let after = scales(rig);
    (after.0 - before.0, after.1 - before.1)
}

fn syncs(rig: &Rig) -> f64 {
    let all = [("none", "none"), ("scale_up", "none"), ("scale_down", "none"), ("none", "internal")];
    all.into_iter().map(|(action, error)| rig.reconciliations(action, error)).sum()
}

fn source(source: ScaleSource) -> Config {
    Config { scale_source: source, ..Config::default() }
}

fn deny(stage: &Stage, resource: &str) {
    let denied = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {},
        "status": {"allowed": false},
    });
    stage.fault("/selfsubjectaccessreviews", FaultAction::Body(denied.to_string()));
    let message = format!("{resource} is forbidden: User \"c\" cannot list resource \"{resource}\"");
    stage.fault(&format!("/{resource}"), FaultAction::Status(Status::new(403, "Forbidden", &message)));
}

#[tokio::test(start_paused = true)]
async fn a_steady_sync_reads_no_scale() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    let before = syncs(&rig);
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
    assert_eq!(syncs(&rig) - before, 20.0);
    let status = &rig.hpa("web")["status"];
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(8), &json!(8)));
    assert_eq!(rig.count("watch", DEPLOYMENTS), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_reads_the_scale_once_and_writes_it_once() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 1));
    assert_eq!(replicas(&rig, "web"), 10);
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_is_decided_again_when_the_scale_turns_out_to_be_another() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_mins(1));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    // The watch shows 8 for another minute, and 10 are wanted; but 10 there are.
    scale(&rig, "web", 10);
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 0));
    assert_eq!(rig.reconciliations("scale_up", "none"), 0.0);
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], json!(10));
    let condition = rig.condition("web", "AbleToScale");
    assert!(condition.starts_with("True ReadyForNewScale"), "{condition}");
    // It is known to be further than the watch shows, so it is read until the watch has caught up.
    assert_eq!(meanwhile(&rig, 30.0).await, (2, 0));
    rig.pass(30.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_switched_off_unseen_is_not_scaled() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_mins(1));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    scale(&rig, "web", 0);
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 0));
    assert!(rig.condition("web", "ScalingActive").starts_with("False ScalingDisabled"));
}

#[tokio::test(start_paused = true)]
async fn after_an_own_write_an_older_view_does_not_count() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_secs(40));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    rig.external("queue", "100");
    rig.until("it has grown", 15.0, |stage| replicas(stage, "web") == 10).await;
    // Two syncs until the watch shows it.
    assert_eq!(meanwhile(&rig, 35.0).await, (2, 0));
    rig.pass(10.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert_eq!(rig.reconciliations("scale_up", "none"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn after_a_write_whose_answer_was_lost_the_scale_is_read() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    // Neither the write nor what is read back is answered.
    let silence = rig.fault("/web/scale", FaultAction::Silence);
    rig.cluster.faults().remove(silence);
    let lost = FaultRule::new(FaultAction::Silence).verb("update").path_suffix("/web/scale").times(1);
    rig.cluster.faults().add(lost);
    rig.external("queue", "100");
    rig.pass(14.9).await;
    let (read, written) = scales(&rig);
    assert_eq!(written, 1);
    rig.until("it is written in the end", 90.0, |stage| replicas(stage, "web") == 10).await;
    assert!(scales(&rig).0 > read);
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_is_down_scales_are_read_and_no_more_when_it_works_again() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    rig.fault(DEPLOYMENTS, FaultAction::Close);
    let close = FaultRule::new(FaultAction::WatchClose).path_suffix(DEPLOYMENTS);
    rig.cluster.faults().add(close);
    rig.pass(6.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
    scale(&rig, "web", 20);
    // At once to the most that is allowed, then to what is wanted.
    rig.until("what the watch missed is seen", 31.0, |stage| replicas(stage, "web") == 8).await;
    rig.cluster.faults().clear();
    rig.pass(10.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_been_silent_for_longer_than_bookmarks_are_apart_does_not_count() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchSilence).path_suffix(DEPLOYMENTS));
    rig.pass(90.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_scales_are_read_and_that_is_told_once() {
    for (config, level) in [(ScaleSource::Auto, "INFO"), (ScaleSource::Watch, "WARN")] {
        let stage = one(8);
        deny(&stage, "deployments");
        let rig = Rig::with(stage, &source(config));
        rig.pass(1.0).await;
        assert_eq!(meanwhile(&rig, 405.0).await, (27, 0));
        let told = logs::with("not allowed to list, watch deployments.apps");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].contains("WARN"), level == "WARN", "{told:?}");
        let rule = "{apiGroups: [apps], resources: [deployments], verbs: [list, watch]}";
        assert_eq!(told[0].contains(rule), config == ScaleSource::Watch, "{told:?}");
        assert_eq!(rig.count("watch", DEPLOYMENTS), 0);
        rig.cluster.faults().clear();
        rig.pass(320.0).await;
        assert_eq!(meanwhile(&rig, 300.0).await, (0, 0), "granted, it is watched");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_taken_away_ends_the_watch() {
    let rig = Rig::start(one(8));
    rig.pass(20.0).await;
    deny(&rig, "deployments");
    let close = FaultRule::new(FaultAction::WatchClose).path_suffix(DEPLOYMENTS);
    rig.cluster.faults().add(close.times(1));
    rig.pass(70.0).await;
    let before = rig.count("watch", DEPLOYMENTS);
    assert_eq!(meanwhile(&rig, 120.0).await, (8, 0));
    assert_eq!(rig.count("watch", DEPLOYMENTS), before);
}

#[tokio::test(start_paused = true)]
async fn told_to_read_it_asks_for_nothing_else() {
    let rig = Rig::with(one(8), &source(ScaleSource::Get));
    rig.pass(1.0).await;
    assert_eq!(meanwhile(&rig, 300.0).await, (20, 0));
    assert_eq!(rig.count("watch", DEPLOYMENTS) + rig.count("list", DEPLOYMENTS), 0);
    assert_eq!(rig.count("create", "/selfsubjectaccessreviews"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_not_there_is_told_of_in_the_servers_words() {
    let stage = one(8);
    add(&stage, "api", 8);
    let rig = Rig::start(stage);
    rig.pass(20.0).await;
    rig.cluster.delete("apps/deployments", "shop", "web").unwrap();
    assert_eq!(meanwhile(&rig, 30.0).await, (2, 0));
    assert_eq!(
        rig.condition("web", "AbleToScale"),
        "False FailedGetScale the HPA controller was unable to get the target's current scale: deployments.apps \
         \"web\" not found"
    );
    let mut object = deployment("web", 5);
    object["status"] = json!({ "replicas": 5 });
    rig.create(object);
    rig.until("it is back", 15.1, |stage| replicas(stage, "web") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_read_hurts_only_its_own_hpa() {
    let stage = one(8);
    add(&stage, "api", 8);
    let rig = Rig::start(stage);
    rig.pass(20.0).await;
    let mut object = rig.cluster.get("apps/deployments", "shop", "api").unwrap();
    for (field, poison) in [
        ("replicas", json!("many")),
        ("replicas", json!(1e40)),
        ("replicas", Value::Null),
        ("selector", json!({"matchLabels": {"app": "not a value!"}})),
        ("selector", json!(["app"])),
    ] {
        let sound = object["spec"][field].take();
        object["spec"][field] = poison;
        rig.cluster.put_raw(object.clone());
        rig.pass(1.0).await;
        let before = rig.count("get", "/api/scale");
        assert_eq!(meanwhile(&rig, 30.0).await.0, rig.count("get", "/api/scale") - before, "{field}");
        assert!(rig.count("get", "/api/scale") - before >= 2, "{}", object["spec"][field]);
        assert!(rig.condition("web", "AbleToScale").starts_with("True"));
        object["spec"][field] = sound;
    }
    object["status"] = json!({ "replicas": 8 });
    rig.cluster.put_raw(object);
    rig.pass(16.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0), "sound again, it is seen again");
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_watched_while_an_hpa_refers_to_it() {
    let stage = one(8);
    add(&stage, "api", 8);
    let mut set = deployment("web", 8);
    set["kind"] = json!("ReplicaSet");
    set["status"] = json!({ "replicas": 8 });
    stage.create(set);
    let rig = Rig::start(stage);
    let views =
        || rig.telemetry.render().contains("concertina_watch_age_seconds{resource=\"deployments.apps\"}");
    rig.pass(20.0).await;
    assert!(views());
    // Another kind.
    rig.edit("web", |hpa| hpa["spec"]["scaleTargetRef"]["kind"] = json!("ReplicaSet"));
    rig.pass(20.0).await;
    assert_eq!(rig.count("watch", "/apis/apps/v1/replicasets"), 1);
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert!(views());
    rig.cluster.delete("autoscaling/horizontalpodautoscalers", "shop", "api").unwrap();
    rig.pass(20.0).await;
    assert!(!views());
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchClose).path_suffix(DEPLOYMENTS));
    rig.pass(400.0).await;
    assert_eq!(rig.count("watch", DEPLOYMENTS), 1, "nobody watches them any more");
}

#[tokio::test(start_paused = true)]
async fn of_limited_namespaces_each_is_watched_by_itself() {
    let namespaces = ["shop".to_owned(), "bank".to_owned()];
    let config = Config { watch_namespaces: Some(namespaces.into()), ..Config::default() };
    let rig = Rig::with(one(8), &config);
    rig.pass(20.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert_eq!(rig.count("watch", DEPLOYMENTS), 0);
    assert_eq!(rig.count("watch", "/apis/apps/v1/namespaces/shop/deployments"), 1);
    assert_eq!(rig.count("watch", "/apis/apps/v1/namespaces/bank/deployments"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_seen_where_its_definition_says() {
    let stage = Stage::new();
    let definition = |paths: Value| {
        let version = json!({"name": "v1", "subresources": {"scale": paths}});
        json!({"kind": "CustomResourceDefinition", "spec": {"versions": [version]}}).to_string()
    };
    let path = "/customresourcedefinitions/widgets.example.com";
    let paths = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    });
    stage.fault(path, FaultAction::Body(definition(paths)));
    stage.create(json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 8},
    }));
    let mut widget = stage.cluster.get("example.com/widgets", "shop", "web").unwrap();
    widget["status"] = json!({"replicas": 8, "selector": "app=web"});
    stage.cluster.put_raw(widget);
    stage.external("queue", "80");
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["scaleTargetRef"] =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    stage.create(object);
    let rig = Rig::start(stage);
    rig.pass(20.0).await;
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
    assert_eq!(rig.hpa("web")["status"]["currentReplicas"], json!(8));
    // Where nothing says where the counts are, they are read.
    rig.cluster.faults().clear();
    rig.pass(70.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
}
