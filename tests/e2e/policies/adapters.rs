//! A second metrics adapter with an API group of its own, next to the default one.

use std::time::Duration;

use serde_json::{Value, json};

use super::{WITHHELD, hpa, policy};
use crate::adapter::{Adapter, Received};
use crate::aggregation;
use crate::metrics::{external_values, not_found};
use crate::outcome::{Outcome, ensure, eventually};
use crate::world::{SOON, World};

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

/// The same metric comes from the default adapter, from the group, and again from the default one.
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
    aggregation::name_as(&world.api, SERVICE, adapter.port).await?;
    aggregation::register_at(&world.api, (SERVICE, adapter.port), GROUP, VERSION).await?;
    aggregation::available(&world.api, GROUP, VERSION).await?;
    world.replicas_become(&web, 4).await?;
    world.replicas_stay(&web, 4, Duration::from_secs(2)).await?;
    refused(world).await?;
    policy(world, "source", &json!({})).await?;
    world.replicas_become(&web, 6).await?;
    aggregation::unregister(&world.api, GROUP, VERSION).await
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
