//! Watched targets: syncs use the watched object, and read the Scale only if the watch cannot replace it.

use cluster::client::{ClientOptions, Clients};
use cluster::mapper::Mapping;
use controller::options::Options;
use engine::store::Key;
use engine::targets::{self, CachedScales, Targets};
use engine::tasks::Tasks;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::objects::{deployment, external, hpa};
use crate::support::{Fixture, Harness, logs};

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// A Deployment with `replicas` replicas and an HPA with a demand of 8.
fn one(replicas: u32) -> Fixture {
    let stage = Fixture::new();
    add(&stage, "web", replicas);
    stage
}

/// Adds the HPA and its Deployment, with a status as if all pods existed.
fn add(stage: &Fixture, name: &str, replicas: u32) {
    let mut object = deployment(name, replicas);
    object["status"] = json!({ "replicas": replicas });
    stage.create(object);
    stage.external("queue", "80");
    stage.create(hpa(name, &[external("queue", "10")]));
}

fn replicas(stage: &Fixture, name: &str) -> i64 {
    stage.cluster.get("apps/deployments", "shop", name).unwrap()["spec"]["replicas"].as_i64().unwrap()
}

/// Scales the target, as another client would.
fn scale(stage: &Fixture, name: &str, replicas: u32) {
    let mut object = stage.cluster.get("apps/deployments", "shop", name).unwrap();
    object["spec"]["replicas"] = json!(replicas);
    stage.cluster.put_raw(object);
}

/// Number of reads and of writes of Scales.
fn scales(stage: &Fixture) -> (usize, usize) {
    let count = |verb: &str| stage.cluster.requests().count(|r| r.verb == verb && r.path.ends_with("/scale"));
    (count("get"), count("update"))
}

/// Number of reads and of writes of Scales during the next `seconds`.
async fn meanwhile(rig: &Harness, seconds: f64) -> (usize, usize) {
    let before = scales(rig);
    rig.pass(seconds).await;
    let after = scales(rig);
    (after.0 - before.0, after.1 - before.1)
}

fn syncs(rig: &Harness) -> f64 {
    let all = [("none", "none"), ("scale_up", "none"), ("scale_down", "none"), ("none", "internal")];
    all.into_iter().map(|(action, error)| rig.reconciliations(action, error)).sum()
}

fn deny(stage: &Fixture, resource: &str) {
    let denied = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {},
        "status": {"allowed": false},
    });
    stage.fault("/selfsubjectaccessreviews", FaultAction::Body(denied.to_string()));
    let message = format!("{resource} is forbidden: User \"c\" cannot list resource \"{resource}\"");
    stage.fault(&format!("/{resource}"), FaultAction::Status(Status::new(403, "Forbidden", &message)));
}

#[tokio::test(start_paused = true)]
async fn steady_sync_reads_no_scale() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    let before = syncs(&rig);
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
    assert_eq!(syncs(&rig) - before, 20.0);
    let status = &rig.hpa("web")["status"];
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(8), &json!(8)));
    assert_eq!(rig.count("watch", DEPLOYMENTS), 1);
}

#[tokio::test(start_paused = true)]
async fn rescale_reads_and_writes_the_scale_once() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 1));
    assert_eq!(replicas(&rig, "web"), 10);
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn sync_decides_again_when_the_scale_differs_from_the_watch() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_mins(1));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    // The watch shows 8 for another minute, although the count already equals the demand of 10.
    scale(&rig, "web", 10);
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 0));
    assert_eq!(rig.reconciliations("scale_up", "none"), 0.0);
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], json!(10));
    let condition = rig.condition("web", "AbleToScale");
    assert!(condition.starts_with("True ReadyForNewScale"), "{condition}");
    // The Scale is newer than the watch, so it is read until the watch has caught up.
    assert_eq!(meanwhile(&rig, 30.0).await, (2, 0));
    rig.pass(30.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn target_scaled_to_zero_unobserved_is_not_scaled_up() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_mins(1));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    scale(&rig, "web", 0);
    rig.external("queue", "100");
    assert_eq!(meanwhile(&rig, 14.9).await, (1, 0));
    assert!(rig.condition("web", "ScalingActive").starts_with("False ScalingDisabled"));
}

#[tokio::test(start_paused = true)]
async fn view_older_than_our_last_write_is_not_used() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    let late = FaultAction::WatchDelay(std::time::Duration::from_secs(40));
    rig.cluster.faults().add(FaultRule::new(late).path_suffix(DEPLOYMENTS));
    rig.external("queue", "100");
    rig.until("the target has grown", 15.0, |stage| replicas(stage, "web") == 10).await;
    // The controller syncs twice before the watch shows the write.
    assert_eq!(meanwhile(&rig, 35.0).await, (2, 0));
    rig.pass(10.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert_eq!(rig.reconciliations("scale_up", "none"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn scale_is_read_after_a_write_without_a_response() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    let lost = FaultRule::new(FaultAction::Silence).verb("update").path_suffix("/web/scale").times(1);
    rig.cluster.faults().add(lost);
    rig.external("queue", "100");
    rig.pass(14.9).await;
    let (read, written) = scales(&rig);
    assert_eq!(written, 1);
    rig.until("the count is written", 90.0, |stage| replicas(stage, "web") == 10).await;
    assert!(scales(&rig).0 > read);
}

#[tokio::test(start_paused = true)]
async fn scales_are_read_only_while_the_watch_is_down() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    rig.fault(DEPLOYMENTS, FaultAction::Close);
    let close = FaultRule::new(FaultAction::WatchClose).path_suffix(DEPLOYMENTS);
    rig.cluster.faults().add(close);
    rig.pass(6.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
    scale(&rig, "web", 20);
    // The count first drops to the maximum, and then to the demand.
    rig.until("the change that the watch missed is corrected", 31.0, |stage| replicas(stage, "web") == 8)
        .await;
    rig.cluster.faults().clear();
    rig.pass(10.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn watch_silent_for_longer_than_the_bookmark_interval_is_not_used() {
    let rig = Harness::start(one(8));
    rig.pass(20.0).await;
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchSilence).path_suffix(DEPLOYMENTS));
    rig.pass(70.0).await;
    assert_eq!(meanwhile(&rig, 45.0).await, (3, 0));
    // The first silence causes a list, which gives a current view.
    rig.pass(15.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    rig.pass(60.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
}

#[tokio::test(start_paused = true)]
async fn missing_watch_permission_is_logged_once_and_scales_are_read() {
    let stage = one(8);
    deny(&stage, "deployments");
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    assert_eq!(meanwhile(&rig, 405.0).await, (27, 0));
    let logged = logs::with("not allowed to list, watch deployments.apps");
    assert_eq!(logged.len(), 1, "{logged:?}");
    let rule = "{apiGroups: [apps], resources: [deployments], verbs: [list, watch]}";
    assert!(logged[0].contains("INFO") && logged[0].contains(rule), "{logged:?}");
    assert_eq!(rig.count("watch", DEPLOYMENTS), 0);
    rig.cluster.faults().clear();
    rig.pass(320.0).await;
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0), "the resource is watched after the grant");
}

#[tokio::test(start_paused = true)]
async fn revoked_permission_ends_the_watch() {
    let rig = Harness::start(one(8));
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
async fn without_watches_of_targets_each_sync_reads_the_scale() {
    let rig = Harness::with(one(8), &Config::from(Options { watch_targets: false, ..Options::default() }));
    rig.pass(1.0).await;
    assert_eq!(meanwhile(&rig, 300.0).await, (20, 0));
    assert_eq!(rig.count("watch", DEPLOYMENTS) + rig.count("list", DEPLOYMENTS), 0);
    assert_eq!(rig.count("create", "/selfsubjectaccessreviews"), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_target_is_reported_with_the_servers_message() {
    let stage = one(8);
    add(&stage, "api", 8);
    let rig = Harness::start(stage);
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
    rig.until("the recreated target scales", 15.1, |stage| replicas(stage, "web") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn undecodable_target_affects_only_its_hpa() {
    let stage = one(8);
    add(&stage, "api", 8);
    let rig = Harness::start(stage);
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
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0), "the repaired target is watched again");
}

#[tokio::test(start_paused = true)]
async fn resource_is_watched_while_an_hpa_refers_to_it() {
    let stage = one(8);
    add(&stage, "api", 8);
    let mut set = deployment("web", 8);
    set["kind"] = json!("ReplicaSet");
    set["status"] = json!({ "replicas": 8 });
    stage.create(set);
    let rig = Harness::start(stage);
    let views =
        || rig.telemetry.render().contains("concertina_watch_age_seconds{resource=\"deployments.apps\"}");
    rig.pass(20.0).await;
    assert!(views());
    // The HPA refers to another kind.
    rig.edit("web", |hpa| hpa["spec"]["scaleTargetRef"]["kind"] = json!("ReplicaSet"));
    rig.pass(20.0).await;
    assert_eq!(rig.count("watch", "/apis/apps/v1/replicasets"), 1);
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert!(views());
    rig.cluster.delete("autoscaling/horizontalpodautoscalers", "shop", "api").unwrap();
    rig.pass(590.0).await;
    assert!(views());
    rig.pass(90.0).await;
    assert!(!views());
    let before = rig.count("watch", DEPLOYMENTS);
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchClose).path_suffix(DEPLOYMENTS));
    rig.pass(400.0).await;
    assert_eq!(rig.count("watch", DEPLOYMENTS), before, "the watch of Deployments has ended");
}

#[tokio::test(start_paused = true)]
async fn kind_that_changes_each_second_costs_one_list_per_kind() {
    let stage = one(8);
    let mut set = deployment("web", 8);
    set["kind"] = json!("ReplicaSet");
    set["status"] = json!({ "replicas": 8 });
    stage.create(set);
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    for second in 0..600 {
        let kind = if second % 2 == 0 { "ReplicaSet" } else { "Deployment" };
        rig.edit("web", |hpa| hpa["spec"]["scaleTargetRef"]["kind"] = json!(kind));
        rig.pass(1.0).await;
    }
    let lists = |path: &str| {
        rig.count("list", path)
            + rig.cluster.requests().count(|r| r.path == path && r.query.contains("sendInitialEvents"))
    };
    assert_eq!((lists(DEPLOYMENTS), lists("/apis/apps/v1/replicasets")), (1, 1));
    assert_eq!(rig.count("create", "/selfsubjectaccessreviews"), 4);
}

#[tokio::test(start_paused = true)]
async fn access_reviews_of_many_namespaces_have_a_rate() {
    let stage = Fixture::new();
    let clients = Clients::over(stage.cluster.connector(), &ClientOptions::default()).unwrap();
    let longest_wait = std::time::Duration::from_secs(7);
    let options = targets::Options { by_namespace: true, longest_wait, seed: 0 };
    let targets = Targets::new(&clients, options, &Tasks::default(), &CancellationToken::new());
    let mapping = Mapping {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespaced: true,
        scale_version: Some("autoscaling/v1".to_owned()),
    };
    for number in 0..500 {
        let hpa = Key::new(format!("namespace-{number}"), "web");
        assert_eq!(targets.cached_scale(&hpa, &mapping, "web"), None);
    }
    stage.pass(1.0).await;
    let reviews = stage.count("create", "/selfsubjectaccessreviews");
    assert!((200..=225).contains(&reviews), "{reviews} reviews in a second");
}

#[tokio::test(start_paused = true)]
async fn each_watched_namespace_has_a_separate_watch() {
    let namespaces = ["shop".to_owned(), "bank".to_owned()];
    let config = Config::from(Options { watch_namespaces: Some(namespaces.into()), ..Options::default() });
    let rig = Harness::with(one(8), &config);
    rig.pass(20.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (0, 0));
    assert_eq!(rig.count("watch", DEPLOYMENTS), 0);
    assert_eq!(rig.count("watch", "/apis/apps/v1/namespaces/shop/deployments"), 1);
    assert_eq!(rig.count("watch", "/apis/apps/v1/namespaces/bank/deployments"), 0);
}

#[tokio::test(start_paused = true)]
async fn custom_resource_counts_are_read_at_the_paths_of_its_definition() {
    let stage = Fixture::new();
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
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    assert_eq!(meanwhile(&rig, 300.0).await, (0, 0));
    assert_eq!(rig.hpa("web")["status"]["currentReplicas"], json!(8));
    // Without the definition and its paths, the controller reads the Scale.
    rig.cluster.faults().clear();
    rig.pass(70.0).await;
    assert_eq!(meanwhile(&rig, 60.0).await, (4, 0));
}

#[tokio::test(start_paused = true)]
async fn scale_of_an_earlier_version_is_read_in_each_sync() {
    let stage = Fixture::new();
    stage.cluster.requests().keep_bodies();
    let target = ("apps.openshift.io/v1", "DeploymentConfig");
    stage.cluster.put_raw(json!({
        "apiVersion": target.0, "kind": target.1, "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 3, "selector": {"app": "web"}}, "status": {"replicas": 3},
    }));
    stage.external("queue", "80");
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["scaleTargetRef"] = json!({"apiVersion": target.0, "kind": target.1, "name": "web"});
    stage.create(object);
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    let writes = rig.cluster.requests().entries();
    let writes = writes.iter().filter(|request| request.verb == "update" && request.path.ends_with("/scale"));
    let writes: Vec<Value> = writes.map(|write| serde_json::from_slice(&write.body).unwrap()).collect();
    // One sync at most doubles the count.
    let [write, _] = writes.as_slice() else { panic!("two writes: {writes:?}") };
    assert_eq!((&write["kind"], &write["apiVersion"]), (&json!("Scale"), &json!("extensions/v1beta1")));
    assert_eq!(write["spec"], json!({"replicas": 6}));
    let status = json!({"replicas": 3, "selector": {"app": "web"}, "targetSelector": "app=web"});
    assert_eq!(write["status"], status);
    let config = rig.cluster.get("apps.openshift.io/deploymentconfigs", "shop", "web").unwrap();
    assert_eq!(config["spec"]["replicas"], json!(8));
    rig.pass(60.0).await;
    let (before, requests) = (syncs(&rig), meanwhile(&rig, 60.0).await);
    assert_eq!(f64::from(u32::try_from(requests.0).unwrap()), syncs(&rig) - before);
    let others = |path: &str| rig.cluster.requests().count(|request| request.path.contains(path));
    assert_eq!((others("customresourcedefinitions"), others("v1/deploymentconfigs")), (0, 0));
}
