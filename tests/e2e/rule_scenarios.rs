//! Scenarios for the rules between a proposal and the workload: behavior, bounds, zero replicas, several
//! metrics.

use std::time::Duration;

use serde_json::json;

use crate::metric_specs::{cpu_utilization, external};
use crate::outcome::{Outcome, ensure};
use crate::workload_scenarios::{READY, found};
use crate::world::{APP, World};

pub(crate) async fn behavior_limits_the_rate(world: &World) -> Outcome {
    let slow = world.deployments("slow");
    world.deployment("slow", 2, APP).await?;
    world.cpu("slow", 800);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 20,
        "metrics": [cpu_utilization(50)],
        "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 6}]},
            "scaleDown": {"selectPolicy": "Disabled"},
        },
    });
    world.hpa("slow", ("apps/v1", "Deployment", "slow"), spec).await?;
    let limited = "ScalingLimited=True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate";
    world.condition("slow", limited).await?;
    world.replicas_become(&slow, 4).await?;
    // The limit is two pods per six seconds, so the next step has to wait and is no larger.
    world.replicas_stay(&slow, 4, Duration::from_secs(3)).await?;
    world.replicas_become(&slow, 6).await?;
    let cpu = "cpu resource utilization (percentage of request)";
    for size in [4, 6] {
        let event = format!("New size: {size}; reason: {cpu} above target");
        world.event("slow", "SuccessfulRescale", &event).await?;
    }

    // Scale-down is disabled, so the count stays.
    world.cpu("slow", 10);
    let down = "ScalingLimited=True ScaleDownLimit: the desired replica count is decreasing faster than the maximum scale rate";
    world.condition("slow", down).await?;
    let replicas = world.replicas(&slow).await?;
    ensure(replicas == 6 || replicas == 8, || format!("{replicas} replicas after two steps"))?;
    world.replicas_stay(&slow, replicas, Duration::from_secs(4)).await?;

    let down = json!({"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 50, "periodSeconds": 5}]});
    world.change_hpa("slow", json!({"behavior": {"scaleDown": down}})).await?;
    world.replicas_become(&slow, replicas / 2).await?;
    world.replicas_become(&slow, 1).await
}

pub(crate) async fn behavior_stabilizes_upwards(world: &World) -> Outcome {
    let calm = world.deployments("calm");
    world.deployment("calm", 2, APP).await?;
    world.cpu("calm", 100);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 20,
        "metrics": [cpu_utilization(50)],
        "behavior": {"scaleUp": {"stabilizationWindowSeconds": 8}},
    });
    world.hpa("calm", ("apps/v1", "Deployment", "calm"), spec).await?;
    world.condition("calm", READY).await?;
    world.cpu("calm", 300);
    let stabilized = "AbleToScale=True ScaleUpStabilized: recent recommendations were lower than current one, \
                      applying the lowest recent recommendation";
    world.condition("calm", stabilized).await?;
    world.replicas_stay(&calm, 2, Duration::from_secs(3)).await?;
    world.replicas_become(&calm, 6).await?;
    world.condition("calm", READY).await
}

pub(crate) async fn to_zero_and_back(world: &World) -> Outcome {
    let worker = world.deployments("worker");
    world.deployment("worker", 2, APP).await?;
    world.external("jobs", &["0"]);
    let spec =
        json!({"minReplicas": 0, "maxReplicas": 5, "metrics": [external("jobs", "AverageValue", "10")]});
    world.hpa("worker", ("apps/v1", "Deployment", "worker"), spec).await?;
    world.replicas_become(&worker, 0).await?;
    let zero = "ScaledToZero=True ScaledToZero: the HPA controller scaled the workload to zero";
    world.condition("worker", zero).await?;
    world.event("worker", "SuccessfulRescale", "New size: 0; reason: All metrics below target").await?;

    world.external("jobs", &["30"]);
    world.replicas_become(&worker, 3).await?;
    let not = "ScaledToZero=False NotScaledToZero: the HPA controller did not scale the workload to zero";
    world.condition("worker", not).await?;
    world.condition("worker", &found("external metric jobs(nil)")).await?;

    // A user sets zero replicas, which disables scaling whatever the metric.
    world.api.merge(&format!("{worker}/scale"), &json!({"spec": {"replicas": 0}})).await?;
    let disabled = "ScalingActive=False ScalingDisabled: scaling is disabled since the replica count of the target is zero";
    world.condition("worker", disabled).await?;
    world.replicas_stay(&worker, 0, Duration::from_secs(3)).await?;
    world.api.merge(&format!("{worker}/scale"), &json!({"spec": {"replicas": 1}})).await?;
    world.replicas_become(&worker, 3).await
}

pub(crate) async fn one_of_two_metrics_fails(world: &World) -> Outcome {
    let mixed = world.deployments("mixed");
    world.deployment("mixed", 2, APP).await?;
    world.cpu("mixed", 100);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 8,
        "metrics": [external("nowhere", "Value", "10"), cpu_utilization(50)],
    });
    world.hpa("mixed", ("apps/v1", "Deployment", "mixed"), spec).await?;
    let fetch = format!(
        "unable to get external metric {}/nowhere/nil: no metrics returned from external metrics API",
        world.namespace
    );
    world.event("mixed", "FailedGetExternalMetric", &fetch).await?;
    // The working metric may scale up, but not down on its own.
    world.cpu("mixed", 200);
    world.replicas_become(&mixed, 4).await?;
    world.cpu("mixed", 50);
    let invalid = format!(
        "invalid metrics (1 invalid out of 2), first error is: failed to get nowhere external metric value: \
         failed to get external metric nowhere: {fetch}"
    );
    world.event("mixed", "FailedComputeMetricsReplicas", &invalid).await?;
    let condition = format!(
        "ScalingActive=False FailedGetExternalMetric: the HPA was unable to compute the replica count: {fetch}"
    );
    world.condition("mixed", &condition).await?;
    world.replicas_stay(&mixed, 4, Duration::from_secs(6)).await?;
    world.status("mixed", "/currentMetrics/0/type", json!("")).await?;

    world.external("nowhere", &["10"]);
    world.condition("mixed", READY).await?;
    world.condition("mixed", &found("external metric nowhere(nil)")).await
}
