//! Actions that the controller must not perform because of RBAC, a dry run or `--watch-namespaces`.

use cluster::gate::Refusal;
use controller::options::Options;
use fake_cluster::{BareScale, FaultAction, FaultRule, LoggedRequest, ScalePath, Status};
use flags::Config;
use serde_json::{Value, json};

use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness, logs};

fn forbidden(message: &str) -> FaultAction {
    FaultAction::Status(Status::new(403, "Forbidden", message))
}

const MAY_NOT_LIST: &str = "pods is forbidden: User \"system:serviceaccount:kube-system:concertina\" cannot list \
                            resource \"pods\" in API group \"\" at the cluster scope";

#[tokio::test(start_paused = true)]
async fn controller_is_unready_until_it_may_list_pods() {
    let stage = Fixture::growing();
    stage.fault("/api/v1/pods", forbidden(MAY_NOT_LIST));
    let rig = Harness::start(stage);
    rig.pass(120.0).await;
    assert!(rig.assembly.hpas.is_synced() && !rig.assembly.pods.is_synced());
    let status = rig.assembly.pods.status();
    assert_eq!((&*status.resource, status.error.unwrap().to_string()), ("pods", MAY_NOT_LIST.to_owned()));
    assert_eq!(rig.syncs("web").len(), 0);
    assert_eq!(logs::with(MAY_NOT_LIST).len(), 1, "{:?}", logs::with(""));
    rig.cluster.faults().clear();
    rig.until("the target scales", 7.6, |stage| stage.replicas("web") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn forbidden_scale_read_is_reported_with_the_servers_message() {
    let message =
        "deployments.apps \"web\" is forbidden: User \"c\" cannot get resource \"deployments/scale\"";
    let stage = Fixture::growing();
    stage.fault("/web/scale", forbidden(message));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    assert_eq!(
        rig.condition("web", "AbleToScale"),
        format!(
            "False FailedGetScale the HPA controller was unable to get the target's current scale: {message}"
        )
    );
    assert_eq!(rig.events("web"), [format!("FailedGetScale {message}")]);
    assert_eq!(rig.reconciliations("none", "internal"), 2.0);
    rig.cluster.faults().clear();
    rig.until("the target scales after the grant", 15.1, |stage| stage.replicas("web") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn forbidden_scale_write_is_a_failed_rescale() {
    let message =
        "deployments.apps \"web\" is forbidden: User \"c\" cannot update resource \"deployments/scale\"";
    let stage = Fixture::growing();
    stage.cluster.faults().add(FaultRule::new(forbidden(message)).verb("update").subresource("scale"));
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    assert_eq!(rig.count("update", "/web/scale"), 1);
    let condition = rig.condition("web", "AbleToScale");
    assert!(condition.starts_with("False FailedUpdateScale") && condition.ends_with(message), "{condition}");
}

fn writes(request: &LoggedRequest) -> bool {
    // An access review creates no object.
    !matches!(request.verb, "get" | "list" | "watch") && !request.path.ends_with("/selfsubjectaccessreviews")
}

#[tokio::test(start_paused = true)]
async fn dry_run_decides_everything_and_writes_nothing() {
    let stage = Fixture::growing();
    stage.target("idle", 2);
    stage.create(hpa("idle", &[external("missing", "10")]));
    let rig = Harness::with(stage, &Config::from(Options { dry_run: true, ..Options::default() }));
    for minute in 0..20_u32 {
        rig.external("queue", &(20 + minute * 37 % 80).to_string());
        rig.pass(30.0).await;
    }
    let sent = rig.cluster.requests().entries().into_iter().filter(writes).collect::<Vec<_>>();
    assert_eq!(sent, []);
    assert_eq!(rig.replicas("web"), 4);
    assert!(rig.hpa("web")["status"]["conditions"].is_null());

    let refused = rig.gate.refused();
    let count = |verb, resource: &str| refused.get(&(verb, resource.to_owned())).copied().unwrap_or(0);
    assert!(count("update", "deployments/scale") >= 10, "{refused:?}");
    // A sync with a withheld rescale sends no status.
    assert!(count("update", "horizontalpodautoscalers/status") >= 30, "{refused:?}");
    assert!(count("create", "events") >= 1, "{refused:?}");
    assert!(rig.assembly.controller.clients.events.stats().refused >= 3);
    assert_eq!(rig.assembly.controller.clients.events.stats().failed, 0);

    assert!(rig.reconciliations("scale_up", "none") >= 10.0, "{}", rig.telemetry.render());
    // In a dry run, syncs are a tenth of the period further apart, so that the other controller acts first.
    assert!(rig.reconciliations("none", "internal") >= 36.0, "{}", rig.telemetry.render());
    let desired = r#"horizontal_pod_autoscaler_controller_desired_replicas{hpa_name="web",namespace="shop"}"#;
    assert!(rig.series(desired) > 1.0);
    // The comparison with the other controller logs separate lines.
    let mut lines = logs::with("goes from 4 to 8: ");
    lines.retain(|line| line.contains("reconcile::report"));
    assert!(
        lines.iter().all(|line| line.contains("withheld=true") && line.contains("shop/web")),
        "{lines:?}"
    );
    assert!(!lines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn opened_gate_permits_writes_from_the_next_period() {
    let rig =
        Harness::with(Fixture::growing(), &Config::from(Options { dry_run: true, ..Options::default() }));
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 4);
    rig.gate.open_for(Refusal::DryRun);
    rig.until("the controller writes", 15.1, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], 8);
}

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
    // Without a list of the pods in the namespace, no decision is made.
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
    let keys: Vec<_> = rig.assembly.controller.stores.hpas.keys().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["shop/web"]);
    assert_eq!(rig.assembly.controller.stores.pods.len(), 2);
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
