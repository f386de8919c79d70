//! Guards of scaling policies: pending pods, owned pods, rollouts, zero metrics and steps.

use serde_json::{Value, json};

use super::{DEFINITIONS, WITHHELD, active, hpa, policy};
use crate::metrics::Load;
use crate::outcome::{Outcome, ensure, eventually};
use crate::rest::Rest;
use crate::world::{APP, SOON, World, external, pods_average};

const ROLLOUTS: &str = "/apis/argoproj.io/v1alpha1";

/// Creates a pod that no scheduler places, with the label of an app.
async fn waiting_pod(world: &World, app: &str, name: &str) -> Outcome<String> {
    let pods = format!("/api/v1/namespaces/{}/pods", world.namespace);
    let containers = json!([{"name": "app", "image": "example.com/app"}]);
    let body =
        json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": containers}});
    world.api.create(&pods, &body).await?;
    Ok(format!("{pods}/{name}"))
}

pub(super) async fn pending_pods(world: &World) -> Outcome {
    let web = world.deployments("web");
    policy(world, "guard", &json!({"guards": {"pendingPods": {"maximum": 0}}})).await?;
    // Create the pod before the Deployment is ready, so that the first sync of the HPA finds the pod in the cache.
    let waiting = waiting_pod(world, "web", "waiting").await?;
    world.deployment("web", 2, APP).await?;
    world.external("web", &["60"]);
    let spec =
        json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [external("web", "AverageValue", "10")]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    active(world, "web", "PendingPods").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    // With `unschedulableOnly`, the guard ignores the pod until it is marked as unschedulable.
    let unschedulable = json!({"guards": {"pendingPods": {"maximum": 0, "unschedulableOnly": true}}});
    policy(world, "guard", &unschedulable).await?;
    world.replicas_become(&web, 6).await?;
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    world.api.merge(&format!("{waiting}/status"), &json!({"status": {"conditions": [condition]}})).await?;
    world.external("web", &["80"]);
    active(world, "web", "PendingPods").await?;
    world.replicas_stay(&web, 6, WITHHELD).await?;
    world.api.delete_now(&waiting).await?;
    world.replicas_become(&web, 8).await
}

pub(super) async fn owned_pods(world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    // The selector of the first Deployment also matches the pods of this second Deployment.
    let mut canary = world.api.get(&web).await?;
    let metadata = json!({"name": "canary", "namespace": world.namespace});
    let labels = json!({"app": "web", "track": "canary"});
    canary["metadata"] = metadata;
    canary["spec"]["selector"]["matchLabels"] = labels.clone();
    canary["spec"]["template"]["metadata"]["labels"] = labels;
    canary["status"] = Value::Null;
    world.api.create(world.deployments("").trim_end_matches('/'), &canary).await?;
    eventually(SOON, "ready pods of canary", async || {
        let ready = world.api.get(&world.deployments("canary")).await?["status"]["readyReplicas"].clone();
        ensure(ready == 2, || ready.to_string())
    })
    .await?;
    // 7 pods are above the tolerance, and 8 pods are at their target, whole numbers each.
    world.per_pod("web", "requests", Load::Total(84, ""));
    policy(world, "guard", &json!({"guards": {"ownedPodsOnly": true}})).await?;
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [pods_average("requests", "10")]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    active(world, "web", "OwnedPodsOnly").await?;
    // With 6 pods of `web`, all 8 pods are at their target. If the pods of `canary` counted, the proposal would be 8.
    world.replicas_become(&web, 6).await?;
    world.replicas_stay(&web, 6, WITHHELD).await?;
    // Now each of the 8 pods is at 15. With the guard, 9 pods would suffice. Without it, the count reaches the maximum.
    world
        .api
        .delete(&format!("{}/namespaces/{}/scalingpolicies/guard", super::GROUP, world.namespace))
        .await?;
    world.per_pod("web", "requests", Load::Total(120, ""));
    world.replicas_become(&web, 10).await
}

/// Defines the kind Rollout with a scale, and with any fields in spec and status.
pub(super) async fn define_rollouts(api: &Rest) -> Outcome {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": {"plural": "rollouts", "singular": "rollout", "kind": "Rollout", "listKind": "RolloutList"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    api.create(DEFINITIONS, &definition).await?;
    eventually(SOON, "rollouts are served", async || api.get(&format!("{ROLLOUTS}/rollouts")).await.map(drop))
        .await
}

pub(super) async fn rollouts(world: &World) -> Outcome {
    policy(world, "guard", &json!({"guards": {"rollout": "Hold"}})).await?;
    let (web, store) = (world.deployments("web"), world.stateful_sets("store"));
    hpa(world, "web", 20).await?;
    world.stateful_set("store", 2, APP).await?;
    world.external("store", &["20"]);
    let metrics = |name: &str| json!([external(name, "AverageValue", "10")]);
    let spec = |name: &str| json!({"minReplicas": 1, "maxReplicas": 10, "metrics": metrics(name)});
    world.hpa("store", ("apps/v1", "StatefulSet", "store"), spec("store")).await?;
    let rollout = format!("{ROLLOUTS}/namespaces/{}/rollouts", world.namespace);
    let body = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "argo"}, "spec": {"replicas": 2},
    });
    world.api.create(&rollout, &body).await?;
    let rollout = format!("{rollout}/argo");
    let status = |updated: u32| {
        json!({"status": {
            "replicas": 2, "readyReplicas": 2, "updatedReplicas": updated, "selector": "app=argo",
            "currentPodHash": "b", "stableRS": if updated == 2 { "b" } else { "a" },
        }})
    };
    world.api.merge(&format!("{rollout}/status"), &status(1)).await?;
    world.external("argo", &["60"]);
    world.hpa("argo", ("argoproj.io/v1alpha1", "Rollout", "argo"), spec("argo")).await?;
    for name in ["web", "store"] {
        world.status(name, "/desiredReplicas", json!(2)).await?;
    }
    // Pods of the new template get no node, so the rollout does not end.
    let template = |node: Option<&str>| json!({"spec": {"template": {"spec": {"nodeName": node}}}});
    for path in [&web, &store] {
        world.api.merge(path, &template(None)).await?;
    }
    for path in [&web, &store] {
        eventually(SOON, "the rollout starts", async || {
            let object = world.api.get(path).await?;
            let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            let updated = object["status"]["updatedReplicas"].as_i64().unwrap_or_default();
            ensure(is_current && updated < 2, || object["status"].to_string())
        })
        .await?;
    }
    for name in ["web", "store"] {
        world.external(name, &["60"]);
    }
    for name in ["web", "store", "argo"] {
        active(world, name, "RolloutInProgress").await?;
    }
    for path in [&web, &store, &rollout] {
        world.replicas_stay(path, 2, WITHHELD / 2).await?;
    }
    world.api.merge(&format!("{rollout}/status"), &status(2)).await?;
    world.api.merge(&web, &template(Some(crate::metrics::NODE))).await?;
    world.api.merge(&store, &template(Some(crate::metrics::NODE))).await?;
    // The controller of StatefulSets replaces no pod that is not ready (a known limit of its rolling update).
    let pods = format!("/api/v1/namespaces/{}/pods", world.namespace);
    world.api.delete_now(&format!("{pods}/store-1")).await?;
    for path in [&rollout, &web, &store] {
        world.replicas_become(path, 6).await?;
    }
    Ok(())
}

pub(super) async fn zero_metrics(world: &World) -> Outcome {
    let web = world.deployments("web");
    policy(world, "guard", &json!({"guards": {"zeroMetrics": "Hold"}})).await?;
    hpa(world, "web", 40).await?;
    world.replicas_become(&web, 4).await?;
    world.external("web", &["0"]);
    active(world, "web", "ZeroMetrics").await?;
    world.replicas_stay(&web, 4, WITHHELD).await?;
    world.external("web", &["20"]);
    world.replicas_become(&web, 2).await
}

pub(super) async fn steps(world: &World) -> Outcome {
    let web = world.deployments("web");
    let step = json!({"up": "100%", "maximumPodsUp": 1, "down": 1});
    policy(world, "guard", &json!({"guards": {"maxStep": step}})).await?;
    hpa(world, "web", 50).await?;
    let (step, above) = ("scaling policy: MaxStep", "external metric web(nil) above target");
    let rises = [(3, step), (4, step), (5, above)];
    let falls = [(4, step), (3, step), (2, step), (1, "All metrics below target")];
    for (demand, last, rescales) in [("50", 5, &rises[..]), ("10", 1, &falls[..])] {
        world.external("web", &[demand]);
        world.replicas_become(&web, last).await?;
        // A count lasts for one sync period only, so events show it.
        for (count, reason) in rescales {
            world.event("web", "SuccessfulRescale", &format!("New size: {count}; reason: {reason}")).await?;
        }
    }
    for text in ["from 2 is to 3, not to 4", "from 5 is to 4, not to 1"] {
        world.event("web", "MaxStep", &format!("the largest step {text}")).await?;
    }
    Ok(())
}
