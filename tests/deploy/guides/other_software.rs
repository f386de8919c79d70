//! The guides about other software, with small definitions of its kinds and a metrics adapter of the test. KEDA itself
//! runs in `tests/e2e/handover/keda.rs`.

use serde_json::{Value, json};

use crate::adapter::Adapter;
use crate::controlplane::ControlPlane;
use crate::outcome::{Context, Outcome, ensure};

use super::{ACCOUNT, Workspace};

/// Defines a kind with any fields and a scale.
pub(super) fn define(
    workspace: &Workspace<'_>,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Outcome {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.HPAReplicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    workspace.apply(&definition)?;
    let wait = format!("kubectl wait --for=condition=Established crd/{plural}.{group} --timeout=60s");
    workspace.shell(&wait)?;
    // Discovery lists the kind shortly after it is established.
    let listed = format!(
        "for i in $(seq 50); do kubectl get {plural}.{group} -A >/dev/null 2>&1 && exit 0; done; exit 1"
    );
    workspace.shell(&listed).map(drop)
}

fn hpa(name: &str, target: &Value, metric: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": [metric]},
    })
}

/// Applies manifests as Flux does. A manifest without `replicas` keeps the current count. A manifest with `replicas`
/// resets the count, and `why` names the field manager.
pub(super) fn gitops(workspace: &Workspace<'_>) -> Outcome {
    let page = workspace.page("guides/other-tools.md")?;
    let _: Value = serde_saphyr::from_str(page.block("RespectIgnoreDifferences")?)
        .map_err(|error| format!("the manifest for Argo CD: {error}"))?;
    let apply = |replicas: Option<u32>| {
        let labels = json!({"app": "git"});
        let mut manifest = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "git", "namespace": "shop"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]},
                },
            },
        });
        if let Some(replicas) = replicas {
            manifest["spec"]["replicas"] = replicas.into();
        }
        let flags = "--server-side --force-conflicts --field-manager=kustomize-controller";
        workspace.shell(&format!("kubectl apply {flags} -f - <<'JSON'\n{manifest}\nJSON"))
    };
    let count = || workspace.shell("kubectl -n shop get deployment git -o jsonpath='{.spec.replicas}'");
    apply(None)?;
    workspace.shell("kubectl -n shop scale deployment git --replicas=5")?;
    apply(None)?;
    let kept = count()?;
    apply(Some(2))?;
    let reset = count()?;
    ensure((kept.as_str(), reset.as_str()) == ("5", "2"), || format!("counts {kept}, then {reset}"))?;

    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "git"});
    let metric = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "AverageValue", "averageValue": "200m"},
    }});
    workspace.apply(&hpa("git", &target, &metric))?;
    let why = workspace.shell("concertina why -n shop git -o json || [ $? = 3 ]")?;
    let expected = ["replicas-also-set", "kustomize-controller"];
    ensure(expected.iter().all(|part| why.contains(part)), || format!("no finding in:\n{why}"))
}

/// Returns whether the account of Concertina has an access right in the namespace `shop`. The check creates a review,
/// because `kubectl auth can-i` cannot name the group of an API that is not installed.
fn can(workspace: &Workspace<'_>, verb: &str, resource: &str, subresource: &str) -> Outcome<bool> {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": {
            "namespace": "shop", "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        }},
    });
    let line = format!("kubectl create -o jsonpath='{{.status.allowed}}' -f - <<'JSON'\n{review}\nJSON");
    Ok(workspace.shell(&line)? == "true")
}

/// Defines a kind with the scale of Argo Rollouts. Checks its role, and an explanation that reads its scale.
pub(super) fn custom_targets(workspace: &Workspace<'_>) -> Outcome {
    let page = workspace.page("guides/other-tools.md")?;
    let values = page.block("scaleTargets:")?;
    let list = values.trim().trim_start_matches("scaleTargets: [").trim_end_matches(']').replace(", ", ",");
    define(workspace, "argoproj.io", "v1alpha1", "Rollout", "rollouts")?;
    workspace.shell(&format!("concertina rbac --scale-targets={list} -o json | kubectl apply -f -"))?;
    for (verb, resource, subresource, expected) in [
        ("update", "rollouts.argoproj.io", "scale", true),
        ("watch", "rollouts.argoproj.io", "", true),
        ("update", "deployments.apps", "scale", true),
        ("update", "replicasets.apps", "scale", false),
        ("update", "rollouts.argoproj.io", "", false),
        // The roles include the rights to read from metrics adapters.
        ("get", "pods.custom.metrics.k8s.io", "", true),
        ("list", "orders.external.metrics.k8s.io", "", true),
    ] {
        let allowed = can(workspace, verb, resource, subresource)?;
        ensure(allowed == expected, || format!("{verb} {resource} {subresource}: expected {expected}"))?;
    }
    let rollout = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "canary", "namespace": "shop"}, "spec": {"replicas": 4},
    });
    workspace.apply(&rollout)?;
    let status = json!({"status": {"HPAReplicas": 4, "selector": "app=canary"}});
    workspace.shell(&format!(
        "kubectl -n shop patch rollout canary --subresource=status --type=merge --patch='{status}'"
    ))?;
    let target = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "canary"});
    let metric = json!({"type": "Pods", "pods": {
        "metric": {"name": "requests_per_second"}, "target": {"type": "AverageValue", "averageValue": "20"},
    }});
    workspace.apply(&hpa("canary", &target, &metric))?;
    let why = workspace.shell("concertina why -n shop canary || [ $? = 3 ]")?;
    ensure(why.contains("Rollout/canary") && why.contains("stays at 4"), || {
        format!("the scale of the Rollout is not explained:\n{why}")
    })
}

pub(super) fn keda(workspace: &Workspace<'_>) -> Outcome {
    define(workspace, "keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")?;
    let scaled = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"name": "web"}},
    });
    workspace.apply(&scaled)?;
    workspace.shell(
        "kubectl -n shop patch scaledobject orders --subresource=status --type=merge \
         --patch='{\"status\": {\"hpaName\": \"keda-hpa-orders\"}}'",
    )?;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metric = json!({"type": "External", "external": {
        "metric": {"name": "s0-prometheus"}, "target": {"type": "AverageValue", "averageValue": "5"},
    }});
    workspace.apply(&hpa("keda-hpa-orders", &target, &metric))?;

    let page = workspace.page("guides/keda.md")?;
    page.run("kubectl label scaledobject -n shop orders concertina.dev/controller=concertina")?;
    page.run("kubectl label scaledobject -n shop orders concertina.dev/controller-")?;
    let name =
        page.run("kubectl get scaledobject -n shop orders -o jsonpath='{.status.hpaName}{\"\\n\"}'")?;
    ensure(name.trim() == "keda-hpa-orders", || format!("the name of the HPA is {name}"))?;
    let why = "concertina why -n shop keda-hpa-orders";
    let output = page.explain(why, why)?;
    ensure(output.contains("keda-hpa-orders"), || format!("no explanation in:\n{output}"))?;
    workspace.shell("kubectl -n shop delete hpa keda-hpa-orders")?;
    page.is_complete()
}

/// Replaces prometheus-adapter by a server with one metric of pods, behind the aggregation layer of the API server.
pub(super) async fn adapter(workspace: &Workspace<'_>, plane: &ControlPlane) -> Outcome {
    let adapter = Adapter::start(|request| {
        let list = |kind: &str, version: &str, field: &str, items: Value| {
            (200, "application/json", json!({"kind": kind, "apiVersion": version, field: items}).to_string())
        };
        if request.path.ends_with("/requests_per_second") {
            let version = "custom.metrics.k8s.io/v1beta1";
            let item = json!({
                "describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1", "apiVersion": "v1"},
                "metricName": "requests_per_second", "timestamp": "2030-01-01T00:00:00Z", "value": "35",
            });
            return list("MetricValueList", version, "items", json!([item]));
        }
        let resource = json!({
            "name": "pods/requests_per_second", "singularName": "", "namespaced": true,
            "kind": "MetricValueList", "verbs": ["get"],
        });
        list("APIResourceList", "v1", "resources", json!([resource]))
    })
    .await?;
    adapter.register(&plane.admin).await?;
    let rules = "rules:\n- seriesQuery: 'http_requests_total{namespace!=\"\",pod!=\"\"}'\n  resources:\n    overrides:\n      \
                 namespace: {resource: namespace}\n      pod: {resource: pod}\n  name: {matches: http_requests_total, \
                 as: requests_per_second}\n  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'\n";
    workspace.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}}))?;
    workspace.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adapter-config", "namespace": "monitoring"},
        "data": {"config.yaml": rules},
    }))?;
    let container = json!({
        "name": "adapter", "image": "adapter:1", "args": ["--prometheus-url=https://prometheus.monitoring:9090"],
    });
    workspace.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "adapter", "namespace": "monitoring"},
        "spec": {
            "selector": {"matchLabels": {"app": "adapter"}},
            "template": {"metadata": {"labels": {"app": "adapter"}}, "spec": {"containers": [container]}},
        },
    }))?;

    let page = workspace.page("guides/prometheus-adapter.md")?;
    let services = page.run("kubectl get apiservice | grep metrics")?;
    ensure(services.contains("v1beta1.custom.metrics.k8s.io"), || services.clone())?;
    let raw = r#"kubectl get --raw "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/requests_per_second""#;
    let values = page.run(raw)?;
    ensure(values.contains("\"35\""), || values.clone())?;
    page.explain("concertina why -n shop web", "concertina why -n shop web")?;
    page.run("kubectl get configmap,deployment -n monitoring -o yaml > adapter.yaml")?;
    page.run("kubectl get hpa -A -o yaml > hpas.yaml")?;
    let import =
        "concertina sources import -f adapter.yaml -f hpas.yaml --sources sources.yaml > policies.yaml";
    page.explain(import, import)?;
    let policies = workspace.shell("cat policies.yaml")?;
    for part in ["kind: ScalingPolicy", "namespace: shop", "rate(http_requests_total"] {
        ensure(policies.contains(part), || format!("no {part} in:\n{policies}"))?;
    }
    let sources = workspace.shell("cat sources.yaml")?;
    ensure(sources.contains("url: https://prometheus.monitoring:9090"), || sources.clone())?;
    page.is_complete().context("prometheus-adapter")
}
