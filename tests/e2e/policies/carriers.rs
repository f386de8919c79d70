//! The objects that contain policies: precedence, deletion, limits, status and columns.

use http::Method;
use serde_json::{Value, json};

use super::{ANNOTATION, GROUP, WITHHELD, active, cluster_policy, hpa, policy};
use crate::conditions::conditions;
use crate::outcome::{Outcome, ensure, eventually};
use crate::rest::media;
use crate::world::{SOON, World};

/// Sets the annotation of an HPA.
pub(super) async fn annotate(world: &World, hpa: &str, policy: &str) -> Outcome {
    let patch = json!({"metadata": {"annotations": {ANNOTATION: policy}}});
    world.api.merge(&world.hpas(hpa), &patch).await.map(drop)
}

pub(super) async fn annotation(world: &World) -> Outcome {
    let shop = world.deployments("shop");
    hpa(world, "shop", 20).await?;
    annotate(world, "shop", "mode: Paused").await?;
    active(world, "shop", "Paused").await?;
    world.external("shop", &["60"]);
    world.replicas_stay(&shop, 2, WITHHELD).await?;
    let patch = json!({"metadata": {"annotations": {ANNOTATION: null}}});
    world.api.merge(&world.hpas("shop"), &patch).await?;
    world.replicas_become(&shop, 6).await?;
    eventually(SOON, "no condition of a policy", async || {
        let all = conditions(&world.api.get(&world.hpas("shop")).await?);
        ensure(!all.iter().any(|condition| condition.starts_with("ScalingPolicyActive=True")), || {
            all.join("\n")
        })
    })
    .await
}

pub(super) async fn deleted_in_a_pause(world: &World) -> Outcome {
    let web = world.deployments("web");
    policy(world, "pause", &json!({"mode": "Paused"})).await?;
    hpa(world, "web", 60).await?;
    active(world, "web", "Paused").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    let path = format!("{GROUP}/namespaces/{}/scalingpolicies/pause", world.namespace);
    world.api.delete(&path).await?;
    world.replicas_become(&web, 6).await
}

pub(super) async fn limits(world: &World) -> Outcome {
    let web = world.deployments("web");
    let limits = json!({"allowedModes": ["Auto"], "highestFloor": 4});
    cluster_policy(world, "platform", &json!({"limits": limits})).await?;
    let from_to = json!({"name": "always", "from": super::at(-60), "to": super::at(3600), "minReplicas": 9});
    policy(world, "tenant", &json!({"mode": "Paused", "schedules": [from_to]})).await?;
    hpa(world, "web", 20).await?;
    // The mode is not allowed, and the floor is limited.
    world.replicas_become(&web, 4).await?;
    for part in ["mode: exceeds allowedModes", "exceeds highestFloor 4 of ClusterScalingPolicy platform"] {
        world.any_condition("web", part, |condition| condition.contains(part)).await?;
    }
    world.replicas_stay(&web, 4, WITHHELD).await
}

pub(super) async fn status(world: &World) -> Outcome {
    let base = format!("{GROUP}/namespaces/{}/scalingpolicies", world.namespace);
    hpa(world, "web", 20).await?;
    hpa(world, "api", 20).await?;
    policy(world, "good", &json!({"tolerance": 0.2})).await?;
    // The schema cannot know the names of time zones.
    let zone = json!({"name": "a", "timeZone": "Europe/Nowhere", "start": "0 8 * * *", "end": "0 9 * * *", "minReplicas": 2});
    policy(world, "bad", &json!({"schedules": [zone]})).await?;
    for (name, accepted) in [("good", "True"), ("bad", "False")] {
        eventually(SOON, &format!("the status of {name}"), async || {
            let object = world.api.get(&format!("{base}/{name}")).await?;
            let status = &object["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let is_set = conditions.iter().any(|it| it["type"] == "Accepted" && it["status"] == accepted);
            let is_current = status["observedGeneration"] == object["metadata"]["generation"];
            ensure(is_set && is_current && status["matched"] == 2, || status.to_string())
        })
        .await?;
    }
    let table = world.api.send(Method::GET, &base, &[("accept", media::TABLE)], None).await?.json();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect();
    let column = names.iter().position(|name| *name == "Matched");
    let matched = |row: &Value| column.and_then(|column| row["cells"].get(column)).cloned();
    let rows = table["rows"].as_array().cloned().unwrap_or_default();
    ensure(rows.len() == 2 && rows.iter().all(|row| matched(row) == Some(json!(2))), || table.to_string())
}
