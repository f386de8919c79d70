//! cpu from the kubelet of a pod's node: a page over HTTPS, without a metrics API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::adapter::Adapter;
use crate::election::now;
use crate::fixture::{Autoscaler, Fixture};
use crate::kubelet::{NODE, NODE_ADDRESS};
use crate::outcome::{Outcome, ensure};
use crate::reaction::own_address;
use crate::world::World;

/// The metrics API would ask for one replica, the kubelet asks for four.
pub(crate) async fn is_followed(stage: &Fixture) -> Outcome {
    let address = own_address().await?;
    let (others, started) = (Arc::new(AtomicUsize::new(0)), now().as_second() - 1000);
    let counted = Arc::clone(&others);
    let node = Adapter::start_at(address, move |received| {
        if received.path != "/metrics/resource" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        let labels = "{container=\"app\",namespace=\"direct\",pod=\"web\"}";
        // 40 millicores, measured each second.
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
