//! Extends the API: registers APIs that the API server proxies to a server on loopback, and defines custom resources
//! with a scale subresource.

use std::time::Duration;

use serde_json::{Value, json};

use super::outcome::{Failure, Outcome, eventually};
use super::rest::Rest;

const SERVICES: &str = "/api/v1/namespaces/kube-system/services";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "test-metrics";

/// Creates the Service for API registrations, with `port` on loopback.
pub(crate) async fn name(api: &Rest, port: u16) -> Outcome {
    name_as(api, NAME, port).await
}

/// Like [`name`], but with another name of the Service.
pub(crate) async fn name_as(api: &Rest, service: &str, port: u16) -> Outcome {
    let service = json!({
        "metadata": {"name": service},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    api.create(SERVICES, &service).await.map(drop)
}

pub(crate) async fn register(api: &Rest, port: u16, group: &str, version: &str) -> Outcome {
    register_at(api, (NAME, port), group, version).await
}

/// Like [`register`], but with another Service.
pub(crate) async fn register_at(
    api: &Rest,
    (name, port): (&str, u16),
    group: &str,
    version: &str,
) -> Outcome {
    let service = json!({
        "metadata": {"name": format!("{version}.{group}")},
        "spec": {
            "group": group, "version": version,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": name, "port": port},
        },
    });
    api.create(API_SERVICES, &service).await.map(drop)
}

pub(crate) async fn unregister(api: &Rest, group: &str, version: &str) -> Outcome {
    api.delete(&format!("{API_SERVICES}/{version}.{group}")).await.map(drop)
}

/// Waits until the API server has reached the server of the API and lists the API in discovery.
pub(crate) async fn available(api: &Rest, group: &str, version: &str) -> Outcome {
    eventually(Duration::from_secs(30), &format!("{group} is available"), async || {
        let service = api.get(&format!("{API_SERVICES}/{version}.{group}")).await?;
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        if !ready {
            return Err(Failure(format!("status {}", service["status"])));
        }
        api.get(&format!("/apis/{group}/{version}")).await?;
        let groups = api.get("/apis").await?;
        let listed =
            groups["groups"].as_array().is_some_and(|all| all.iter().any(|entry| entry["name"] == group));
        if listed { Ok(()) } else { Err(Failure("not in discovery".to_owned())) }
    })
    .await
}

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
