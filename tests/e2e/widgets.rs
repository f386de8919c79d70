//! A custom resource with a scale subresource, as an operator defines it. The scenarios and the contract
//! use it for targets outside of Kubernetes' own workloads.

use std::time::Duration;

use serde_json::json;

use crate::outcome::{Outcome, eventually};
use crate::rest::Rest;

/// Defines `widgets.example.com` and waits until the API is served.
pub(crate) async fn define_widgets(api: &Rest) -> Outcome {
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer"}, "selector": {"type": "string"},
                        }},
                    },
                }},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    eventually(Duration::from_secs(30), "widgets are served", async || {
        api.get("/apis/example.com/v1/widgets").await.map(drop)
    })
    .await
}
