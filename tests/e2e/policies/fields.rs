//! Modes, schedules, settings, fallbacks, combinations and corrections, and the objects that contain them:
//! precedence, deletion, limits, status and columns.

use std::time::Duration;

use http::Method;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{ANNOTATION, GROUP, WITHHELD, active, at, cluster_policy, hpa, policy};
use crate::election::now;
use crate::metrics::{Fault, Load};
use crate::outcome::{Outcome, ensure, eventually};
use crate::rest::{conditions, media};
use crate::world::{APP, Container, SOON, World, cpu_utilization, external};

pub(super) async fn modes(world: &World) -> Outcome {
    let web = world.deployments("web");
    policy(world, "mode", &json!({"mode": "Paused"})).await?;
    hpa(world, "web", 60).await?;
    active(world, "web", "Paused").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    policy(world, "mode", &json!({"mode": "ScaleDownOnly"})).await?;
    active(world, "web", "ScaleDownOnly").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    policy(world, "mode", &json!({"mode": "ScaleUpOnly"})).await?;
    world.replicas_become(&web, 6).await?;
    world.external("web", &["20"]);
    active(world, "web", "ScaleUpOnly").await?;
    world.replicas_stay(&web, 6, WITHHELD).await?;
    // A pinned count may exceed the maximum of the HPA.
    policy(world, "mode", &json!({"mode": "Pinned", "replicas": 12})).await?;
    world.replicas_become(&web, 12).await?;
    policy(world, "mode", &json!({"mode": "DryRun"})).await?;
    active(world, "web", "DryRun").await?;
    world.replicas_stay(&web, 12, WITHHELD).await?;
    world.status("web", "/desiredReplicas", json!(12)).await?;
    policy(world, "mode", &json!({"mode": "ScaleDownOnly"})).await?;
    world.replicas_become(&web, 2).await
}

pub(super) async fn until(world: &World) -> Outcome {
    let web = world.deployments("web");
    // The sync period is longer than the test, so only the end of the mode can start the sync that scales.
    let spec = json!({"mode": "Paused", "until": at(12), "syncPeriodSeconds": 3600});
    policy(world, "pause", &spec).await?;
    hpa(world, "web", 60).await?;
    active(world, "web", "Paused").await?;
    // One sync at most doubles the count. The next sync is in an hour.
    world.replicas_become(&web, 4).await?;
    world.replicas_stay(&web, 4, WITHHELD).await
}

pub(super) async fn schedules(world: &World) -> Outcome {
    let (sale, capped, office) =
        (world.deployments("sale"), world.deployments("capped"), world.deployments("office"));
    for (name, demand) in [("sale", 20), ("capped", 60), ("office", 20)] {
        hpa(world, name, demand).await?;
    }
    world.replicas_become(&capped, 6).await?;
    let once = |name: &str, end: i64, bounds: &str| {
        format!("schedules: [{{name: {name}, from: {}, to: {}, {bounds}}}]", at(-60), at(end))
    };
    annotate(world, "sale", &once("sale", 15, "minReplicas: 5")).await?;
    annotate(world, "capped", &once("capped", 15, "maxReplicas: 3")).await?;
    // In this time zone, it is about noon whenever the test runs.
    let hour = i32::from(now().to_zoned(TimeZone::UTC).hour());
    let recurring = format!(
        "schedules: [{{name: office, timeZone: Etc/GMT{:+}, start: 0 8 * * *, end: 0 19 * * *, minReplicas: 4}}]",
        hour - 12
    );
    annotate(world, "office", &recurring).await?;
    world.replicas_become(&sale, 5).await?;
    active(world, "sale", "ScheduleActive").await?;
    world.replicas_become(&capped, 3).await?;
    world.replicas_become(&office, 4).await?;
    world.replicas_become(&sale, 2).await?;
    world.replicas_become(&capped, 6).await?;
    world.replicas_stay(&office, 4, Duration::from_secs(2)).await
}

pub(super) async fn settings(world: &World) -> Outcome {
    let (rare, tolerant) = (world.deployments("rare"), world.deployments("tolerant"));
    for name in ["rare", "tolerant", "late"] {
        hpa(world, name, 20).await?;
    }
    annotate(world, "rare", "syncPeriodSeconds: 3600").await?;
    annotate(world, "tolerant", "tolerance: 1.5").await?;
    // The window is longer than the test.
    annotate(world, "late", "downscaleStabilizationSeconds: 3600").await?;
    // The sync after a change of the HPA may be up to 8 s late if the HPA has changed shortly before.
    world.replicas_stay(&rare, 2, Duration::from_secs(9)).await?;
    world.external("rare", &["60"]);
    world.external("tolerant", &["40"]);
    world.external("late", &["60"]);
    world.replicas_become(&world.deployments("late"), 6).await?;
    world.external("late", &["20"]);
    world.replicas_stay(&rare, 2, WITHHELD).await?;
    world.replicas_stay(&tolerant, 2, Duration::from_secs(1)).await?;
    annotate(world, "rare", "syncPeriodSeconds: 1").await?;
    annotate(world, "tolerant", "tolerance: 0").await?;
    world.replicas_become(&rare, 6).await?;
    world.replicas_become(&tolerant, 4).await?;
    world.replicas_stay(&world.deployments("late"), 6, WITHHELD).await?;
    annotate(world, "late", "downscaleStabilizationSeconds: 0").await?;
    world.replicas_become(&world.deployments("late"), 2).await
}

/// The pods started a minute ago and have just become unready. With a period of an hour, the policy excludes them. With
/// a period of 1 s, it includes them.
pub(super) async fn starting_pods(world: &World) -> Outcome {
    let unready = json!({"status": {
        "startTime": at(-60),
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(0)}],
    }});
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    for (name, field) in
        [("early", "cpuInitializationPeriodSeconds"), ("slow", "initialReadinessDelaySeconds")]
    {
        let deployment = world.deployments(name);
        world.deployment(name, 2, APP).await?;
        world.cpu(name, 200);
        let pods = format!("/api/v1/namespaces/{}/pods", world.namespace);
        for pod in world.api.list(&format!("{pods}?labelSelector=app%3D{name}")).await? {
            let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
            world.api.merge(&format!("{pods}/{pod}/status"), &unready).await?;
        }
        policy(world, "settings", &json!({field: 3600})).await?;
        world.hpa(name, ("apps/v1", "Deployment", name), spec.clone()).await?;
        let failed = "ScalingActive=False FailedGetResourceMetric";
        world.any_condition(name, failed, |condition| condition.starts_with(failed)).await?;
        world.replicas_stay(&deployment, 2, WITHHELD).await?;
        policy(world, "settings", &json!({field: 1})).await?;
        world.replicas_become(&deployment, 4).await?;
    }
    Ok(())
}

pub(super) async fn fallback(world: &World) -> Outcome {
    let web = world.deployments("web");
    let fallbacks = json!([
        {"when": "Error", "failureDurationSeconds": 2, "action": "Replicas", "replicas": 6, "strategy": "AtLeast"},
        {"when": "Empty", "failureDurationSeconds": 0, "action": "Hold"},
    ]);
    policy(world, "fallback", &json!({"fallback": fallbacks})).await?;
    hpa(world, "web", 20).await?;
    world.status("web", "/desiredReplicas", json!(2)).await?;
    world.fault("external.metrics.k8s.io", Some(Fault::UNAVAILABLE));
    world.replicas_become(&web, 6).await?;
    active(world, "web", "FallbackActive").await?;
    world.fault("external.metrics.k8s.io", None);
    world.replicas_become(&web, 2).await?;
    world.external("web", &[]);
    active(world, "web", "FallbackActive").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    world.external("web", &["40"]);
    world.replicas_become(&web, 4).await
}

pub(super) async fn combine(world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    world.external("jobs", &["60"]);
    world.external("users", &["30"]);
    policy(world, "combine", &json!({"combine": "Min"})).await?;
    let metrics = [external("jobs", "AverageValue", "10"), external("users", "AverageValue", "10")];
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": metrics});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    world.replicas_become(&web, 3).await?;
    active(world, "web", "CombinedMin").await?;
    policy(world, "combine", &json!({"combine": "Max"})).await?;
    world.replicas_become(&web, 6).await
}

pub(super) async fn corrections(world: &World) -> Outcome {
    let web = world.deployments("web");
    let containers = [Container("app", "100m", "64Mi"), Container("istio-proxy", "", "")];
    world.deployment("web", 2, &containers).await?;
    world.cpu("web", 200);
    world.usage("web", "istio-proxy", "cpu", Load::Each(5, "m"));
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    let failed = "ScalingActive=False FailedGetResourceMetric";
    world.any_condition("web", failed, |condition| condition.starts_with(failed)).await?;
    policy(world, "sidecars", &json!({"corrections": {"ignoreContainersWithoutRequest": ["istio-proxy"]}}))
        .await?;
    world.replicas_become(&web, 4).await
}

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
    // The schema does not check names of time zones.
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
