//! Answers about many HPAs: their targets are listed, and the answers equal those from single reads.

use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use super::permissions::owned;
use super::{codes, document};
use crate::support::Fixture;
use crate::support::objects::{cpu, deployment, external, hpa, pod};

/// The number of HPAs in [`many`].
const MANY: usize = 12;

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// Creates a Deployment with a ReplicaSet of the name `set`, two pods of the template `7d9`, and an HPA.
fn workload(stage: &Fixture, app: &str, set: &str) {
    let mut target = deployment(app, 2);
    target["metadata"]["managedFields"] = json!([{
        "manager": "helm", "operation": "Apply", "time": "2029-12-31T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    let target = stage.cluster.put_raw(target);
    let replicas = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "shop", "name": set},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": app}}},
    });
    let replicas = stage.cluster.put_raw(owned(replicas, "Deployment", app, uid(&target)));
    for index in 0..2 {
        let mut pod = pod(app, index);
        pod["metadata"]["labels"]["pod-template-hash"] = json!("7d9");
        stage.cluster.put_raw(owned(pod, "ReplicaSet", set, uid(&replicas)));
    }
    stage.create(hpa(app, &[cpu(50)]));
}

/// Creates [`MANY`] workloads. Those of `web-0` also select a pod of another owner. `web-1` has a ReplicaSet with a name
/// that a Deployment does not choose, and `web-2` has been deleted.
fn many() -> Fixture {
    let stage = Fixture::new();
    for number in 0..MANY {
        let app = format!("web-{number}");
        workload(&stage, &app, &if number == 1 { "own".to_owned() } else { format!("{app}-7d9") });
    }
    stage.cluster.put_raw(owned(pod("web-0", 2), "StatefulSet", "db", "another"));
    stage.cluster.delete_now("apps/deployments", "shop", "web-2").unwrap();
    let usage = |app: usize, index: usize| {
        json!({
            "metadata": pod(&format!("web-{app}"), index)["metadata"],
            "timestamp": "2030-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "app", "usage": {"cpu": "50m", "memory": "1Mi"}}],
        })
    };
    let usages = (0..MANY).flat_map(|app| (0..3).map(move |index| usage(app, index)));
    stage.metrics.set_resource(Some(json!({"items": usages.collect::<Vec<_>>()})));
    stage
}

/// Returns the answers by HPA, and the numbers of requests for Scales, Deployments and ReplicaSets.
async fn answers(stage: &Fixture) -> (Vec<Value>, [usize; 3]) {
    let list = document(stage, &[]).await;
    let items = list["items"].as_array().unwrap().clone();
    let count = |part: &str| {
        let requests = stage.cluster.requests();
        requests.count(|request| request.path.contains(part) && !request.path.ends_with("/scale"))
    };
    (items, [stage.count("get", "/scale"), count("/deployments"), count("/replicasets/")])
}

#[tokio::test(start_paused = true)]
async fn listed_targets_give_the_answers_of_single_reads() {
    let stage = many();
    let (listed, requests) = answers(&stage).await;
    // Only the missing target is read, for its claim, its sync and its error, and only the ReplicaSet that is not
    // recognized by its name.
    assert_eq!(requests, [2, 2, 1]);
    let message = "deployments.apps is forbidden: User \"viewer\" cannot list resource \"deployments\"";
    let action = FaultAction::Status(Status::new(403, "Forbidden", message));
    stage.cluster.faults().add(FaultRule::new(action).path_suffix("/namespaces/shop/deployments"));
    let (read, requests) = answers(&stage).await;
    assert!(requests[0] >= 2 * MANY && requests[1] > MANY && requests[2] + 1 >= MANY, "{requests:?}");
    assert_eq!((listed.len(), &listed), (MANY, &read));
    let of = |name: &str| listed.iter().find(|answer| answer["metadata"]["name"] == name).unwrap();
    assert!(of("web-0")["findings"].to_string().contains("StatefulSet/db"), "{}", of("web-0"));
    for name in ["web-1", "web-3"] {
        assert_eq!(codes(of(name)), codes(of("web-11")), "{}", of(name));
    }
    assert!(of("web-3")["findings"].to_string().contains("Helm"), "{}", of("web-3"));
    assert_eq!(of("web-2")["explanation"]["course"], "noScale");
}

#[tokio::test(start_paused = true)]
async fn listed_custom_resources_give_the_answers_of_single_reads() {
    let stage = Fixture::new();
    stage.external("queue", "80");
    for number in 0..MANY {
        let name = format!("web-{number}");
        stage.cluster.put_raw(json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "shop", "name": name},
            "spec": {"replicas": 8}, "status": {"replicas": 8, "selector": format!("app={name}")},
        }));
        let mut object = hpa(&name, &[external("queue", "10")]);
        object["spec"]["scaleTargetRef"] =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": name});
        stage.create(object);
    }
    let paths = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    });
    let version = json!({"name": "v1", "subresources": {"scale": paths}});
    let definition = json!({"kind": "CustomResourceDefinition", "spec": {"versions": [version]}});
    let path = "/customresourcedefinitions/widgets.example.com";
    let fault = stage.fault(path, FaultAction::Body(definition.to_string()));
    let (listed, requests) = answers(&stage).await;
    assert_eq!(requests[0], 0, "only the lists are read");
    let sentence = listed[0]["sentence"].as_str().unwrap();
    assert_eq!(sentence, "stays at 8: queue is at its target of 10 per pod");
    // Without the definition, the paths in the objects are unknown.
    stage.cluster.faults().remove(fault);
    let (read, requests) = answers(&stage).await;
    assert!(requests[0] >= MANY, "{requests:?}");
    assert_eq!((listed.len(), listed), (MANY, read));
}
