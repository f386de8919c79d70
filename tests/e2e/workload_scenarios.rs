//! Scenarios in which the load changes and the workload follows, one per kind of target and metric. Also scenarios for
//! the rules between a proposal and the workload: behavior, bounds, zero replicas, several metrics.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::metrics::Load;
use crate::outcome::{Outcome, ensure};
use crate::world::{
    APP, Container, World, container_cpu, cpu_utilization, external, ingress, memory_average, pods_average,
};

pub(crate) const READY: &str = "AbleToScale=True ReadyForNewScale: recommended size matches current size";
const IN_RANGE: &str =
    "ScalingLimited=False DesiredWithinRange: the desired count is within the acceptable range";

/// The `ScalingActive` condition for a valid metric.
pub(crate) fn found(metric: &str) -> String {
    format!(
        "ScalingActive=True ValidMetricFound: the HPA was able to successfully calculate a replica count from {metric}"
    )
}

pub(crate) async fn deployment_on_cpu(world: &World) -> Outcome {
    let web = world.deployments("web");
    let cpu = "cpu resource utilization (percentage of request)";
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    world.condition("web", READY).await?;
    world.condition("web", &found(cpu)).await?;
    world.condition("web", IN_RANGE).await?;
    world.status("web", "/currentReplicas", json!(2)).await?;
    world.status("web", "/observedGeneration", json!(1)).await?;
    let current = json!({"averageUtilization": 50, "averageValue": "50m"});
    world.status("web", "/currentMetrics/0/resource/current", current).await?;

    // The metric proposes eight, but one sync at most doubles two replicas. A sync that finds the new pods unready
    // proposes four, and the stabilization window raises the proposal to eight. The reason of that rescale names no
    // metric.
    world.cpu("web", 400);
    world.replicas_become(&web, 8).await?;
    let reasons = |size: u32| {
        [format!("New size: {size}; reason: {cpu} above target"), format!("New size: {size}; reason: ")]
    };
    world.event("web", "SuccessfulRescale", &reasons(4)[0]).await?;
    world.any_event("web", "SuccessfulRescale", &reasons(8)).await?;
    world.scale_is_managed_by(&web, "kube-controller-manager").await?;
    world.condition("web", READY).await?;
    world.status("web", "/desiredReplicas", json!(8)).await?;

    world.cpu("web", 100);
    let stabilized = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, \
                      applying the highest recent recommendation";
    world.condition("web", stabilized).await?;
    world.replicas_become(&web, 2).await?;
    world.event("web", "SuccessfulRescale", "New size: 2; reason: All metrics below target").await?;

    world.change_hpa("web", json!({"maxReplicas": 1})).await?;
    world.replicas_become(&web, 1).await?;
    let above = "New size: 1; reason: Current number of replicas above Spec.MaxReplicas";
    world.event("web", "SuccessfulRescale", above).await?;
    world.status("web", "/observedGeneration", json!(2)).await
}

pub(crate) async fn stateful_set_on_memory(world: &World) -> Outcome {
    let store = world.stateful_sets("store");
    world.stateful_set("store", 1, APP).await?;
    world.usage("store", "app", "memory", Load::Total(384, "Mi"));
    let spec = json!({"minReplicas": 1, "maxReplicas": 5, "metrics": [memory_average("96Mi")]});
    world.hpa("store", ("apps/v1", "StatefulSet", "store"), spec).await?;
    world.replicas_become(&store, 4).await?;
    let event = "New size: 4; reason: memory resource above target";
    world.event("store", "SuccessfulRescale", event).await?;
    world.condition("store", &found("memory resource")).await?;
    let current = json!({"averageValue": "96Mi"});
    world.status("store", "/currentMetrics/0/resource/current", current).await?;

    world.usage("store", "app", "memory", Load::Total(192, "Mi"));
    world.replicas_become(&store, 2).await?;
    world.condition("store", READY).await
}

pub(crate) async fn custom_resource_on_external_metric(world: &World) -> Outcome {
    let fleet = world.widgets("fleet");
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "fleet"}, "spec": {"replicas": 1},
    });
    world.api.create(world.widgets("").trim_end_matches('/'), &body).await?;
    let _operator = WidgetOperator::start(world, "fleet");
    world.external("queue", &["25", "10"]);
    let spec =
        json!({"minReplicas": 1, "maxReplicas": 6, "metrics": [external("queue", "AverageValue", "10")]});
    world.hpa("fleet", ("example.com/v1", "Widget", "fleet"), spec).await?;
    world.replicas_become(&fleet, 4).await?;
    let event = "New size: 4; reason: external metric queue(nil) above target";
    world.event("fleet", "SuccessfulRescale", event).await?;
    world.status("fleet", "/currentMetrics/0/external/current", json!({"averageValue": "8750m"})).await?;
    world.condition("fleet", &found("external metric queue(nil)")).await?;

    world.external("queue", &["5"]);
    world.replicas_become(&fleet, 1).await?;
    world.condition("fleet", IN_RANGE).await
}

/// Acts as the operator of a custom resource, which copies the spec to the status.
struct WidgetOperator(JoinHandle<()>);

impl WidgetOperator {
    fn start(world: &World, name: &'static str) -> Self {
        let (api, path) = (world.api.clone(), world.widgets(name));
        Self(tokio::spawn(async move {
            loop {
                if let Ok(widget) = api.get(&path).await {
                    let status =
                        json!({"replicas": widget["spec"]["replicas"], "selector": format!("app={name}")});
                    if widget["status"] != status {
                        let _ = api.merge(&format!("{path}/status"), &json!({"status": status})).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

impl Drop for WidgetOperator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn deployment_on_a_pods_metric(world: &World) -> Outcome {
    let api = world.deployments("api");
    world.deployment("api", 1, APP).await?;
    world.per_pod("api", "requests", Load::Total(120, ""));
    let spec = json!({"minReplicas": 1, "maxReplicas": 4, "metrics": [pods_average("requests", "30")]});
    world.hpa("api", ("apps/v1", "Deployment", "api"), spec).await?;
    world.replicas_become(&api, 4).await?;
    let event = "New size: 4; reason: pods metric requests above target";
    world.event("api", "SuccessfulRescale", event).await?;
    world.status("api", "/currentMetrics/0/pods/current", json!({"averageValue": "30"})).await?;
    world.condition("api", &found("pods metric requests")).await?;
    world.per_pod("api", "requests", Load::Total(60, ""));
    world.replicas_become(&api, 2).await
}

pub(crate) async fn deployment_on_an_object_metric(world: &World) -> Outcome {
    let shop = world.deployments("shop");
    world.deployment("shop", 1, APP).await?;
    world.object("ingresses.networking.k8s.io", "main", "hits", "150");
    let spec =
        json!({"minReplicas": 1, "maxReplicas": 6, "metrics": [ingress("hits", "AverageValue", "50")]});
    world.hpa("shop", ("apps/v1", "Deployment", "shop"), spec).await?;
    world.replicas_become(&shop, 3).await?;
    let event = "New size: 3; reason: external metric hits(nil) above target";
    world.event("shop", "SuccessfulRescale", event).await?;
    world.status("shop", "/currentMetrics/0/object/current", json!({"averageValue": "50"})).await?;

    // A total above its target raises the count up to the bound.
    world.change_hpa("shop", json!({"metrics": [ingress("hits", "Value", "100")]})).await?;
    world.replicas_become(&shop, 6).await?;
    let too_many = "ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count";
    world.condition("shop", too_many).await?;
    world.condition("shop", &found("Ingress metric hits")).await?;
    world.status("shop", "/currentMetrics/0/object/current", json!({"value": "150"})).await
}

pub(crate) async fn deployment_on_one_container(world: &World) -> Outcome {
    let duo = world.deployments("duo");
    // The sidecar has no request and a high usage. Neither may affect the result.
    world.deployment("duo", 1, &[Container("app", "200m", ""), Container("sidecar", "", "")]).await?;
    world.usage("duo", "app", "cpu", Load::Total(240, "m"));
    world.usage("duo", "sidecar", "cpu", Load::Each(4000, "m"));
    let spec = json!({"minReplicas": 1, "maxReplicas": 9, "metrics": [container_cpu("app", 40)]});
    world.hpa("duo", ("apps/v1", "Deployment", "duo"), spec).await?;
    world.replicas_become(&duo, 3).await?;
    let metric = "cpu container resource utilization (percentage of request)";
    world.event("duo", "SuccessfulRescale", &format!("New size: 3; reason: {metric} above target")).await?;
    world.condition("duo", &found(metric)).await?;
    let current = json!({
        "name": "cpu", "container": "app",
        "current": {"averageUtilization": 40, "averageValue": "80m"},
    });
    world.status("duo", "/currentMetrics/0/containerResource", current).await
}

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
    // The policy allows two pods per six seconds, so the next step comes later and adds two pods.
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

    // A user sets zero replicas, which disables scaling regardless of the metric.
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
