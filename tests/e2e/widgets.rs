//! A custom resource with a scale subresource, as an operator defines it. The scenarios and the contract
//! use it for targets outside of Kubernetes' own workloads.

use std::time::Duration;

use serde_json::json;

use crate::outcome::{Outcome, eventually};
use crate::rest::Rest;

/// Defines `widgets.example.com` and waits until the API is served.
pub(crate) async fn define_widgets(api: &Rest) -> Outcome {
    define(api, "widgets", "widget", "Widget").await
}

/// Defines a kind of `example.com` with a scale subresource, and waits until the API is served.
pub(crate) async fn define(api: &Rest, plural: &str, singular: &str, kind: &str) -> Outcome {
    let definition = json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List"),
            },
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
    eventually(Duration::from_secs(30), &format!("{plural} are served"), async || {
        api.get(&format!("/apis/example.com/v1/{plural}")).await.map(drop)
    })
    .await
}
