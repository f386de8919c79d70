//! `--watch-namespaces`: the controller acts in some namespaces with permissions for them only.

use concertina::cli::Config;
use controller::options::Options;
use fake_cluster::{BareScale, FaultAction, FaultRule, ScalePath, Status};
use serde_json::{Value, json};

use crate::support::logs;
use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

fn path(namespace: &str) -> ScalePath {
    ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: namespace.to_owned(),
        name: "web".to_owned(),
    }
}

fn within(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// The same HPA, target and pod in three namespaces, with 4 replicas and a demand of 8 each.
fn three() -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "80");
    for namespace in ["shop", "bank", "mill"] {
        if namespace != "shop" {
            stage.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        }
        let scale = BareScale { spec_replicas: 4, status_replicas: 4, selector: "app=web".to_owned() };
        stage.cluster.put_scale(&path(namespace), scale);
        stage.create(within(namespace, pod("web", 0)));
        stage.create(within(namespace, hpa("web", &[external("queue", "10")])));
    }
    stage
}

fn replicas(stage: &Fixture, namespace: &str) -> i64 {
    stage.cluster.scale(&path(namespace)).unwrap().spec_replicas
}

fn only(namespaces: &[&str]) -> Config {
    let names = namespaces.iter().map(ToString::to_string).collect();
    Config::from(Options { watch_namespaces: Some(names), ..Options::default() })
}

fn forbid(stage: &Fixture, prefix: &str) {
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "pods is forbidden: no"));
    stage.cluster.faults().add(FaultRule::new(forbidden).path_prefix(prefix));
}

#[tokio::test(start_paused = true)]
async fn requests_stay_within_the_watched_namespaces() {
    let rig = Harness::with(three(), &only(&["bank", "shop"]));
    rig.until("both namespaces are scaled", 1.0, |stage| {
        replicas(stage, "shop") + replicas(stage, "bank") == 16
    })
    .await;
    rig.pass(31.0).await;
    assert_eq!(replicas(&rig, "mill"), 4);
    let elsewhere = rig.cluster.requests().entries().into_iter().filter(|request| {
        let prefixes = ["/namespaces/shop/", "/namespaces/bank/"];
        let discovery = !request.path.contains("/namespaces/") && request.verb == "get";
        let is_access_review = request.path.ends_with("/selfsubjectaccessreviews");
        !discovery && !is_access_review && !prefixes.iter().any(|prefix| request.path.contains(prefix))
    });
    assert_eq!(elsewhere.map(|request| request.path).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn forbidden_namespace_is_logged_and_the_others_are_served() {
    let stage = three();
    forbid(&stage, "/api/v1/namespaces/bank/pods");
    let rig = Harness::with(stage, &only(&["bank", "shop"]));
    rig.until("the permitted namespace is scaled", 2.0, |stage| replicas(stage, "shop") == 8).await;
    rig.pass(60.0).await;
    assert!(!rig.assembly.pods.is_synced());
    let status = rig.assembly.pods.status();
    assert_eq!(status.place(), "pods in namespace bank");
    assert!(status.error.is_some_and(|error| error.is_forbidden()));
    let warnings = logs::with("not allowed to list and watch");
    assert_eq!(warnings.iter().filter(|line| line.contains("pods in namespace bank")).count(), 1);
    // Without a list of its pods, no decision is made.
    assert_eq!(replicas(&rig, "bank"), 4);
    assert!(rig.hpa_in("bank", "web")["status"]["conditions"].is_null());
    rig.cluster.faults().clear();
    rig.until("the namespace is scaled after the grant", 8.0, |stage| replicas(stage, "bank") == 8).await;
    assert!(rig.assembly.pods.is_synced() && rig.assembly.hpas.is_synced());
}

#[tokio::test(start_paused = true)]
async fn controller_waits_while_all_namespaces_are_forbidden() {
    let stage = three();
    forbid(&stage, "/api/v1/namespaces/");
    let rig = Harness::with(stage, &only(&["bank", "shop"]));
    rig.pass(30.0).await;
    rig.cluster.faults().clear();
    rig.until("all namespaces are scaled after the grant", 9.0, |stage| {
        replicas(stage, "shop") == 8 && replicas(stage, "bank") == 8
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn relist_of_one_namespace_does_not_affect_the_others() {
    let rig = Harness::with(three(), &only(&["bank", "shop"]));
    rig.until("both namespaces are scaled", 1.0, |stage| {
        replicas(stage, "shop") + replicas(stage, "bank") == 16
    })
    .await;
    let expired = FaultAction::WatchError(Status::new(410, "Expired", "too old"));
    rig.cluster
        .faults()
        .add(FaultRule::new(expired).path_prefix("/apis/autoscaling/v2/namespaces/bank").times(1));
    rig.cluster.delete_now(HPAS, "bank", "web").unwrap();
    rig.pass(20.0).await;
    let keys: Vec<_> = rig.assembly.controller.hpas.keys().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["shop/web"]);
    assert_eq!(rig.assembly.controller.pods.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn namespace_created_later_is_watched() {
    let rig = Harness::with(three(), &only(&["new", "shop"]));
    rig.pass(5.0).await;
    rig.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}));
    let scale = BareScale { spec_replicas: 4, status_replicas: 4, selector: "app=web".to_owned() };
    rig.cluster.put_scale(&path("new"), scale);
    rig.create(within("new", hpa("web", &[external("queue", "10")])));
    rig.until("the target is scaled", 1.0, |stage| replicas(stage, "new") == 8).await;
}
