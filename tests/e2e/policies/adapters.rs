//! Metrics that do not come from the default APIs: a second metrics adapter with its own API group, and the cpu usage
//! on the page of a kubelet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{WITHHELD, hpa, policy};
use crate::adapter::{Adapter, Received};
use crate::election::now;
use crate::extensions;
use crate::metrics::{NODE, NODE_ADDRESS, external_values, not_found};
use crate::outcome::{Outcome, ensure, eventually};
use crate::reaction_sources::own_address;
use crate::world::{Autoscaler, Fixture, SOON, World};

/// The group that the file of metric sources lists.
pub(super) const GROUP: &str = "queues.example.com";
const VERSION: &str = "v1beta1";
const SERVICE: &str = "queue-metrics";

/// Answers `40` for every external metric of the group.
fn answer(received: &Received) -> (u16, &'static str, String) {
    let path = received.path.trim_matches('/');
    let segments: Vec<&str> = path.split('/').collect();
    let body = match segments.as_slice() {
        ["apis", GROUP, VERSION] => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
            "resources": [{
                "name": "web", "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }],
        }),
        ["apis", GROUP, VERSION, "namespaces", _, metric] => {
            external_values(metric, [&"40".to_owned()].into_iter())
        }
        _ => return (404, "application/json", not_found(path).to_string()),
    };
    (200, "application/json", body.to_string())
}

/// Reads the same metric from the default adapter, then from the group, and again from the default adapter.
pub(super) async fn second_adapter(world: &World) -> Outcome {
    let web = world.deployments("web");
    hpa(world, "web", 60).await?;
    world.replicas_become(&web, 6).await?;
    let source = json!({"metrics": [{"metric": "web", "source": {"apiGroup": GROUP}}]});
    policy(world, "source", &source).await?;
    // Without an adapter the group is absent, and the count stays.
    eventually(SOON, "the condition names the group", async || {
        let object = world.api.get(&world.hpas("web")).await?;
        let text = object["status"]["conditions"].to_string();
        ensure(text.contains(&format!("API group \\\"{GROUP}\\\": ")), || text)
    })
    .await?;
    world.replicas_stay(&web, 6, WITHHELD).await?;
    let adapter = Adapter::start(answer).await?;
    extensions::name_as(&world.api, SERVICE, adapter.port).await?;
    extensions::register_at(&world.api, (SERVICE, adapter.port), GROUP, VERSION).await?;
    extensions::available(&world.api, GROUP, VERSION).await?;
    world.replicas_become(&web, 4).await?;
    world.replicas_stay(&web, 4, Duration::from_secs(2)).await?;
    refused(world).await?;
    policy(world, "source", &json!({})).await?;
    world.replicas_become(&web, 6).await?;
    extensions::unregister(&world.api, GROUP, VERSION).await
}

/// The definitions refuse a default group, and two sources of one metric.
async fn refused(world: &World) -> Outcome {
    let origins: [(Value, &str); 2] = [
        (
            json!({"source": {"apiGroup": "external.metrics.k8s.io"}}),
            "apiGroup must be none of the default groups",
        ),
        (
            json!({"source": {"apiGroup": GROUP}, "prometheus": {"server": "main", "query": "up"}}),
            "only one of prometheus, pods and source may be set",
        ),
    ];
    for (mut entry, expected) in origins {
        entry["metric"] = json!("web");
        let refused = policy(world, "refused", &json!({"metrics": [entry]})).await;
        let text = refused.err().map(|failure| failure.0).unwrap_or_default();
        ensure(text.contains(expected), || format!("{expected}: {text}"))?;
    }
    Ok(())
}

/// Reads cpu from the kubelet, which leads to four replicas. The usage in the metrics API would lead to one replica.
pub(crate) async fn is_followed(stage: &Fixture) -> Outcome {
    let address = own_address().await?;
    let (others, started) = (Arc::new(AtomicUsize::new(0)), now().as_second() - 1000);
    let counted = Arc::clone(&others);
    let node = Adapter::start_at(address, move |received| {
        if received.path != "/metrics/resource" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        let labels = "{container=\"app\",namespace=\"direct\",pod=\"web\"}";
        // In hundredths of a second, for a usage of 40 millicores.
        let at = now().as_second();
        let used = (at - started) * 4;
        let page = format!(
            "container_cpu_usage_seconds_total{labels} {}.{:02} {}\n\
             container_memory_working_set_bytes{labels} 67108864 {}\n\
             container_start_time_seconds{labels} {started}\n",
            used / 100,
            used % 100,
            at * 1000,
            at * 1000
        );
        (200, "text/plain; version=0.0.4", page)
    })
    .await?;
    let folder = stage.plane.folder();
    let (file, token) = (folder.join("kubelets.yaml"), folder.join("kubelet-token"));
    std::fs::write(&token, "of-the-kubelet")?;
    let text = format!(
        "kubelet: {{enabled: true, insecureSkipVerify: true, bearerTokenFile: {}, port: {}, interval: 1s}}",
        token.display(),
        node.port
    );
    std::fs::write(&file, text)?;
    let world = World::make(stage, "direct", Autoscaler::Concertina).await?;
    let target = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "web"}, "spec": {"replicas": 1},
    });
    world.api.create(world.widgets("").trim_end_matches('/'), &target).await?;
    let status = json!({"status": {"replicas": 1, "selector": "app=web"}});
    world.api.merge(&format!("{}/status", world.widgets("web")), &status).await?;
    let pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {NODE_ADDRESS: address.to_string()}},
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "example.com/app"}]},
    });
    world.api.create("/api/v1/namespaces/direct/pods", &pod).await?;
    world.cpu("web", 10);
    let cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "AverageValue", "averageValue": "12m"},
    }});
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu]});
    world.hpa("web", ("example.com/v1", "Widget", "web"), spec).await?;
    let policy = json!({"metrics": [{"metric": "cpu", "kubelet": {}}]}).to_string();
    let policy = json!({"metadata": {"annotations": {"concertina.dev/policy": policy}}});
    world.api.merge(&world.hpas("web"), &policy).await?;
    let flag = format!("--metric-sources={}", file.display());
    let _concertina = stage.autoscaler_with(Autoscaler::Concertina, &[&flag]).await?;
    world.replicas_become(&world.widgets("web"), 4).await?;
    let others = others.load(Ordering::Relaxed);
    ensure(others == 0, || format!("{others} requests for other pages"))
}
