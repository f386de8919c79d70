//! Scenarios with missing, wrong or duplicated objects.

use std::time::Duration;

use serde_json::json;

use crate::adapter::{available, unregister_api};
use crate::metrics::{CUSTOM, Fault, Load, RESOURCE};
use crate::outcome::Outcome;
use crate::workload_scenarios::{READY, found};
use crate::world::{APP, Autoscaler, Fixture, World, cpu_utilization, pods_average};

pub(crate) async fn bad_targets(world: &World) -> Outcome {
    let spec = || json!({"minReplicas": 1, "maxReplicas": 5, "metrics": [cpu_utilization(50)]});
    world.hpa("absent", ("apps/v1", "Deployment", "absent"), spec()).await?;
    world.hpa("sprocket", ("example.com/v1", "Sprocket", "x"), spec()).await?;
    world.hpa("scaleless", ("batch/v1", "CronJob", "nightly"), spec()).await?;

    for (hpa, error) in [
        ("absent", "deployments.apps \"absent\" not found"),
        ("sprocket", "no matches for kind \"Sprocket\" in group \"example.com\""),
        ("scaleless", "the server could not find the requested resource"),
    ] {
        world.event(hpa, "FailedGetScale", error).await?;
        let condition = format!(
            "AbleToScale=False FailedGetScale: the HPA controller was unable to get the target's current scale: {error}"
        );
        world.condition(hpa, &condition).await?;
    }

    // The target appears, and the HPA recovers without any change to the autoscaler.
    world.cpu("absent", 50);
    world.deployment("absent", 1, APP).await?;
    world.condition("absent", READY).await
}

pub(crate) async fn metrics_fail_and_recover(world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    world.condition("web", READY).await?;

    // Without metrics the replica count must not change, whatever the load.
    world.cpu("web", 400);
    let prefix = "failed to get cpu utilization: unable to get metrics for resource cpu: \
                  unable to fetch metrics from resource metrics API: ";
    for (fault, error) in [
        (
            Fault::UNAVAILABLE,
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
        (Fault::BROKEN, "the store is on fire"),
    ] {
        world.fault(RESOURCE, Some(fault));
        let error = format!("{prefix}{error}");
        world.event("web", "FailedGetResourceMetric", &error).await?;
        let all = format!(
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {error}"
        );
        world.event("web", "FailedComputeMetricsReplicas", &all).await?;
        let condition = format!(
            "ScalingActive=False FailedGetResourceMetric: the HPA was unable to compute the replica count: {error}"
        );
        world.condition("web", &condition).await?;
    }
    // The message of the decoder may differ between the programs, but the replica count must not change.
    world.fault(RESOURCE, Some(Fault::TRUNCATED));
    let replicas = world.replicas(&web).await?;
    world.replicas_stay(&web, replicas, Duration::from_secs(4)).await?;

    world.fault(RESOURCE, None);
    world.replicas_become(&web, 8).await?;
    world.condition("web", &found("cpu resource utilization (percentage of request)")).await
}

pub(crate) async fn two_autoscalers_on_one_workload(world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 100);
    let spec = || json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    let target = ("apps/v1", "Deployment", "web");
    world.hpa("first", target, spec()).await?;
    world.condition("first", READY).await?;
    world.hpa("second", target, spec()).await?;
    let namespace = &world.namespace;
    for hpa in ["first", "second"] {
        // The built-in controller names the two HPAs in any order.
        let texts = [("first", "second"), ("second", "first")].map(|(one, two)| {
            format!("pods by selector app=web are controlled by more than one HPA (e.g. [{namespace}/{one} {namespace}/{two}])")
        });
        let wanted = |condition: &str| {
            texts.iter().enumerate().any(|(index, text)| {
                condition == format!("ScalingActive=False AmbiguousSelector: {text}")
                    && (index == 0 || world.autoscaler == Autoscaler::BuiltIn)
            })
        };
        world.any_condition(hpa, "ambiguous", wanted).await?;
        for reason in ["AmbiguousSelector", "FailedComputeMetricsReplicas"] {
            world.any_event(hpa, reason, &texts).await?;
        }
    }
    world.cpu("web", 400);
    world.replicas_stay(&web, 2, Duration::from_secs(4)).await?;

    world.delete_hpa("second").await?;
    world.replicas_become(&web, 8).await?;
    world.condition("first", &found("cpu resource utilization (percentage of request)")).await
}

pub(crate) async fn recreated_under_its_name(world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 6, APP).await?;
    world.cpu("web", 300);
    let spec = || {
        json!({
            "minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3600}},
        })
    };
    let target = ("apps/v1", "Deployment", "web");
    world.hpa("web", target, spec()).await?;
    world.condition("web", READY).await?;
    world.cpu("web", 50);
    let stabilized = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, \
                      applying the highest recent recommendation";
    world.condition("web", stabilized).await?;
    world.replicas_stay(&web, 6, Duration::from_secs(2)).await?;

    // The window of the deleted HPA keeps six replicas for an hour. The recreated HPA starts with an empty history.
    world.delete_hpa("web").await?;
    if world.autoscaler == Autoscaler::BuiltIn {
        // The built-in controller keeps the history of a name until a sync finds no HPA of that name.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    world.api.merge(&format!("{web}/scale"), &json!({"spec": {"replicas": 3}})).await?;
    world.hpa("web", target, spec()).await?;
    world.condition("web", stabilized).await?;
    world.status("web", "/desiredReplicas", json!(3)).await?;
    world.replicas_stay(&web, 3, Duration::from_secs(4)).await
}

/// Unregisters the custom metrics API, which affects all scenarios. This scenario therefore runs alone at the end.
pub(crate) async fn metrics_api_is_unregistered(stage: &Fixture, world: &World) -> Outcome {
    let web = world.deployments("web");
    world.deployment("web", 1, APP).await?;
    world.per_pod("web", "requests", Load::Total(30, ""));
    let spec = json!({"minReplicas": 1, "maxReplicas": 4, "metrics": [pods_average("requests", "30")]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    world.condition("web", READY).await?;
    unregister_api(&world.api, CUSTOM).await?;
    world.per_pod("web", "requests", Load::Total(90, ""));
    let reason = "ScalingActive=False FailedGetPodsMetric: the HPA was unable to compute the replica count: \
                  unable to get metric requests: unable to fetch metrics from custom metrics API: ";
    let none = format!("{reason}no custom metrics API (custom.metrics.k8s.io) registered");
    world.condition("web", &none).await?;
    world.replicas_stay(&web, 1, Duration::from_secs(2)).await?;
    stage.adapter.register_api(&world.api, CUSTOM).await?;
    available(&world.api, CUSTOM).await?;
    world.replicas_become(&web, 3).await
}
