//! Modes, schedules, settings, fallbacks, combinations and corrections.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::json;

use super::{WITHHELD, active, at, hpa, policy};
use crate::election::now;
use crate::metric_specs::{cpu_utilization, external};
use crate::metrics::{Fault, Load};
use crate::outcome::Outcome;
use crate::world::{APP, Container, World};

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
    // A period that is longer than the test: only the end of the mode can start the sync that scales.
    let spec = json!({"mode": "Paused", "until": at(12), "syncPeriodSeconds": 3600});
    policy(world, "pause", &spec).await?;
    hpa(world, "web", 60).await?;
    active(world, "web", "Paused").await?;
    // The first step of the scale-up. The next sync is in an hour.
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
    // A time zone in which it is about noon, whenever the test runs.
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
    // A window that is longer than the test.
    annotate(world, "late", "downscaleStabilizationSeconds: 3600").await?;
    // A sync for a change may be as late as 8 s after it, if the HPA has changed before.
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

async fn annotate(world: &World, hpa: &str, policy: &str) -> Outcome {
    super::carriers::annotate(world, hpa, policy).await
}
