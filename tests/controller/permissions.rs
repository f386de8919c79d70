//! Actions that the controller must not perform, because of RBAC or a dry run.

use cluster::gate::Refusal;
use concertina::cli::Config;
use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule, LoggedRequest, Status};

use crate::support::logs;
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

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
    assert!(rig.assembly.controller.events.stats().refused >= 3);
    assert_eq!(rig.assembly.controller.events.stats().failed, 0);

    assert!(rig.reconciliations("scale_up", "none") >= 10.0, "{}", rig.telemetry.render());
    // In a dry run syncs are a tenth of the period further apart, so that the other controller acts first.
    assert!(rig.reconciliations("none", "internal") >= 36.0, "{}", rig.telemetry.render());
    let desired = r#"horizontal_pod_autoscaler_controller_desired_replicas{hpa_name="web",namespace="shop"}"#;
    assert!(rig.series(desired) > 1.0);
    // The shadow logs separate lines about rescales that it could not compare.
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
