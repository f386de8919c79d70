//! The state of the controller for the console, read as a user from its Lease, pods and pages.

use cluster::client::{ClientOptions, Clients};
use console::controller::{ControllerState, Inspect, Missing};
use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::json;
use toolbox::console::Inspector;
use toolbox::options::why::Leader;

use super::leader::{POD, rig, user};
use super::port_forward_proxy::{PortForwardProxy, TOKEN};
use crate::support::Harness;

/// Adds the label of an installation to the pod of the controller.
fn label(rig: &Harness) {
    rig.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system", "labels": {"app.kubernetes.io/name": "concertina"}},
        "spec": {"nodeName": "cp-1", "containers": [{"name": "concertina", "image": "concertina:1",
            "ports": [{"name": "https", "containerPort": 10257}]}]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "concertina", "restartCount": 2, "ready": true, "image": "c", "imageID": ""}],
        },
    }));
}

async fn state(front: &PortForwardProxy, token: &str) -> ControllerState {
    let clients = Clients::over(front.connector(), &ClientOptions::default()).unwrap();
    let clients = clients.with_user(&user(token)).unwrap();
    Inspector::new(clients, Leader::candidates(None)).inspect().await
}

fn part<'a>(state: &'a ControllerState, part: &str) -> &'a Missing {
    state.missing.iter().find(|missing| missing.part == part).unwrap_or_else(|| panic!("{:?}", state.missing))
}

fn refuse(rig: &Harness, path: &str) {
    let action = FaultAction::Status(Status::new(403, "Forbidden", "no"));
    rig.cluster.faults().add(FaultRule::new(action).path_contains(path));
}

#[tokio::test(start_paused = true)]
async fn leader_shows_its_replicas_and_numbers() {
    let rig = rig();
    label(&rig);
    rig.pass(31.0).await;
    let state = state(&PortForwardProxy::new(&rig, POD, 10257), TOKEN).await;
    let lease = state.lease.as_ref().unwrap();
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("kube-system", "concertina"));
    let [replica] = &state.replicas[..] else { panic!("{:?}", state.replicas) };
    assert_eq!((replica.pod.as_str(), replica.leads, replica.ready, replica.restarts), (POD, true, true, 2));
    let numbers = state.numbers.as_ref().unwrap();
    assert_eq!(numbers.hpas, Some(2.0));
    assert!(numbers.lateness.as_ref().unwrap().count > 0.0, "{numbers:?}");
    assert!(numbers.requests.iter().any(|row| row.resource.starts_with("horizontalpodautoscalers")));
    // The proxy serves no /handover.
    assert!(part(&state, "handover").reason.contains("404"), "{:?}", state.missing);
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_are_named_and_the_rest_is_shown() {
    let rig = rig();
    label(&rig);
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let refused = state(&front.forbidding(), TOKEN).await;
    let pages = part(&refused, "pages of the controller");
    assert_eq!(pages.reason, "you may not get and create pods/portforward in namespace kube-system");
    assert_eq!(
        pages.advice,
        "A Role with get and create on pods/portforward in namespace kube-system allows it."
    );
    assert!(refused.lease.is_some() && refused.replicas.len() == 1);

    let denied = state(&front.answering("403 Forbidden"), TOKEN).await;
    assert_eq!(
        part(&denied, "metrics").advice,
        "A ClusterRole with get on the nonResourceURL /metrics allows it."
    );

    refuse(&rig, "/leases/");
    refuse(&rig, "/pods");
    let nothing = state(&front, TOKEN).await;
    assert_eq!(
        part(&nothing, "Lease").advice,
        "A Role with get on leases.coordination.k8s.io in namespace concertina-system allows it."
    );
    assert_eq!(part(&nothing, "replicas").reason, "you may not list pods in namespace concertina-system");
    assert!(nothing.lease.is_none() && nothing.numbers.is_none());
}

#[tokio::test(start_paused = true)]
async fn cluster_without_concertina_says_so() {
    let rig = rig();
    rig.cluster.delete("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    let state = state(&PortForwardProxy::new(&rig, POD, 10257), TOKEN).await;
    let [missing] = &state.missing[..] else { panic!("{:?}", state.missing) };
    assert!(missing.reason.starts_with("no Concertina controller runs in this cluster"), "{missing:?}");
    assert!(missing.advice.contains("--leader"), "{missing:?}");
}
