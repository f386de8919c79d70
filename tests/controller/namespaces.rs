//! `--watch-namespaces`: acting in some namespaces with permissions there only.

use concertina::cli::Config;
use concertina::embedded::{BareScale, FaultAction, FaultRule, ScalePath, Status};
use serde_json::{Value, json};

use crate::support::logs;
use crate::support::objects::{external, hpa, pod};
use crate::support::{HPAS, Rig, Stage};

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

/// The same HPA, target and pod in three namespaces; each wants 8 replicas and has 4.
fn three() -> Stage {
    let stage = Stage::new();
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

fn replicas(stage: &Stage, namespace: &str) -> i64 {
    stage.cluster.scale(&path(namespace)).unwrap().spec_replicas
}

fn only(namespaces: &[&str]) -> Config {
    let names = namespaces.iter().map(ToString::to_string).collect();
    Config { watch_namespaces: Some(names), ..Config::default() }
}

fn forbid(stage: &Stage, prefix: &str) {
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "pods is forbidden: no"));
    stage.cluster.faults().add(FaultRule::new(forbidden).path_prefix(prefix));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_but_in_these_namespaces() {
    let rig = Rig::with(three(), &only(&["bank", "shop"]));
    rig.until("both are scaled", 1.0, |stage| replicas(stage, "shop") + replicas(stage, "bank") == 16).await;
    rig.pass(31.0).await;
    assert_eq!(replicas(&rig, "mill"), 4);
    let elsewhere = rig.cluster.requests().entries().into_iter().filter(|request| {
        let places = ["/namespaces/shop/", "/namespaces/bank/"];
        let discovery = !request.path.contains("/namespaces/") && request.verb == "get";
        let asks_what_it_may = request.path.ends_with("/selfsubjectaccessreviews");
        !discovery && !asks_what_it_may && !places.iter().any(|place| request.path.contains(place))
    });
    assert_eq!(elsewhere.map(|request| request.path).collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_namespace_is_named_and_the_others_go_on_without_it() {
    let stage = three();
    forbid(&stage, "/api/v1/namespaces/bank/pods");
    let rig = Rig::with(stage, &only(&["bank", "shop"]));
    rig.until("the allowed one is scaled", 2.0, |stage| replicas(stage, "shop") == 8).await;
    rig.pass(60.0).await;
    assert!(!rig.assembly.pods.is_synced());
    let status = rig.assembly.pods.status();
    assert_eq!(status.place(), "pods in namespace bank");
    assert!(status.error.is_some_and(|error| error.is_forbidden()));
    assert_eq!(logs::with("not allowed to list and watch pods in namespace bank").len(), 1);
    // Without its pods nothing is decided about it.
    assert_eq!(replicas(&rig, "bank"), 4);
    assert!(rig.hpa_in("bank", "web")["status"]["conditions"].is_null());
    rig.cluster.faults().clear();
    rig.until("granted, it is scaled too", 8.0, |stage| replicas(stage, "bank") == 8).await;
    assert!(rig.assembly.pods.is_synced() && rig.assembly.hpas.is_synced());
}

#[tokio::test(start_paused = true)]
async fn as_long_as_all_are_forbidden_it_waits() {
    let stage = three();
    forbid(&stage, "/api/v1/namespaces/");
    let rig = Rig::with(stage, &only(&["bank", "shop"]));
    rig.pass(30.0).await;
    rig.cluster.faults().clear();
    rig.until("granted, all are scaled", 9.0, |stage| {
        replicas(stage, "shop") == 8 && replicas(stage, "bank") == 8
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_namespace_leaves_the_others_alone() {
    let rig = Rig::with(three(), &only(&["bank", "shop"]));
    rig.until("both are scaled", 1.0, |stage| replicas(stage, "shop") + replicas(stage, "bank") == 16).await;
    let gone = FaultAction::WatchError(Status::new(410, "Expired", "too old"));
    rig.cluster
        .faults()
        .add(FaultRule::new(gone).path_prefix("/apis/autoscaling/v2/namespaces/bank").times(1));
    rig.cluster.delete_now(HPAS, "bank", "web").unwrap();
    rig.pass(20.0).await;
    let keys: Vec<_> = rig.assembly.controller.hpas.keys().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["shop/web"]);
    assert_eq!(rig.assembly.controller.pods.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_made_later_is_seen() {
    let rig = Rig::with(three(), &only(&["new", "shop"]));
    rig.pass(5.0).await;
    rig.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}));
    let scale = BareScale { spec_replicas: 4, status_replicas: 4, selector: "app=web".to_owned() };
    rig.cluster.put_scale(&path("new"), scale);
    rig.create(within("new", hpa("web", &[external("queue", "10")])));
    rig.until("it is scaled", 1.0, |stage| replicas(stage, "new") == 8).await;
}
