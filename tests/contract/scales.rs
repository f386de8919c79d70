//! The scale subresource of workloads and of a custom resource.

use serde_json::{Value, json};

use crate::Section;
use crate::rest::media;
use crate::step::{Step, get, patch, post, put};

const APPS: &str = "/apis/apps/v1/namespaces/{ns}";

pub(crate) fn sections() -> Vec<Section> {
    vec![
        workload("deployments", "Deployment"),
        workload("replicasets", "ReplicaSet"),
        workload("statefulsets", "StatefulSet"),
        replication_controllers(),
        custom_resource(),
        wrong_scales(),
    ]
}

/// A workload that selects `app=NAME` and, with an expression, one of two tiers.
pub(crate) fn body(kind: &str, name: &str, replicas: u32) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {
                "matchLabels": {"app": name},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
            },
            "template": {
                "metadata": {"labels": {"app": name, "tier": "a"}},
                "spec": {"containers": [{
                    "name": "app", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}},
                }]},
            },
        },
    });
    if kind == "StatefulSet" {
        body["spec"]["serviceName"] = json!(name);
    }
    body
}

fn scale(name: &str, replicas: i64, version: Option<&str>) -> Value {
    let mut body = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": "{ns}"},
        "spec": {"replicas": replicas},
    });
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = json!(version);
    }
    body
}

fn workload(resource: &'static str, kind: &str) -> Section {
    let all = format!("{APPS}/{resource}");
    let part = format!("{all}/web/scale");
    let conflict = format!(
        "Operation cannot be fulfilled on {resource}.apps \"web\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    Section {
        name: resource,
        steps: vec![
            post(&all, body(kind, "web", 2))
                .is("/metadata/generation", 1)
                .save("uid", "/metadata/uid")
                .save("first", "/metadata/resourceVersion"),
            get(&part)
                .is("/kind", "Scale")
                .is("/apiVersion", "autoscaling/v1")
                .is("/metadata/name", "web")
                .is("/metadata/namespace", "{ns}")
                .is("/metadata/uid", "{uid}")
                .is("/metadata/resourceVersion", "{first}")
                .is("/spec", json!({"replicas": 2}))
                .is("/status/replicas", 0)
                .is("/status/selector", "app=web,tier in (a,b)"),
            put(&part, scale("web", 3, Some("{first}")))
                .is("/spec/replicas", 3)
                .other("/metadata/resourceVersion", "first")
                .save("second", "/metadata/resourceVersion"),
            put(&part, scale("web", 4, Some("{first}"))).fails(409, "Conflict", &conflict),
            put(&format!("{part}?fieldManager=another-tool"), scale("web", 5, None)).is("/spec/replicas", 5),
            get(&format!("{all}/web"))
                .is("/spec/replicas", 5)
                .is("/metadata/generation", 3)
                .is("/metadata/managedFields/[manager=another-tool]/subresource", "scale")
                .is("/metadata/managedFields/[manager=another-tool]/operation", "Update"),
            // The status has the count that the workload's controller reports, not the desired one.
            patch(media::MERGE, &format!("{all}/web/status"), json!({"status": {"replicas": 2}}))
                .is("/metadata/generation", 3)
                .is("/status/replicas", 2),
            get(&part).is("/spec/replicas", 5).is("/status/replicas", 2),
            put(&part, scale("web", 0, None)).is("/spec", json!({})),
            put(&part, scale("web", -1, None)).fails(
                422,
                "Invalid",
                "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            patch(media::MERGE, &part, json!({"spec": {"replicas": 1}})).is("/spec/replicas", 1),
        ],
    }
}

fn replication_controllers() -> Section {
    let all = "/api/v1/namespaces/{ns}/replicationcontrollers";
    let part = format!("{all}/old/scale");
    let old = json!({
        "apiVersion": "v1", "kind": "ReplicationController",
        "metadata": {"name": "old"},
        "spec": {
            "selector": {"b": "2", "a": "1"},
            "template": {
                "metadata": {"labels": {"a": "1", "b": "2"}},
                "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
            },
        },
    });
    Section {
        name: "replicationcontrollers",
        steps: vec![
            post(all, old).is("/spec/replicas", 1),
            get(&part).is("/kind", "Scale").is("/spec/replicas", 1).is("/status/selector", "a=1,b=2"),
            put(&part, scale("old", 3, None)).is("/spec/replicas", 3),
            get(&format!("{all}/old")).is("/spec/replicas", 3).is("/metadata/generation", 2),
        ],
    }
}

fn custom_resource() -> Section {
    let all = "/apis/example.com/v1/namespaces/{ns}/widgets";
    let one = format!("{all}/fleet");
    let part = format!("{one}/scale");
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "fleet"}, "spec": {"replicas": 2},
    });
    Section {
        name: "widgets",
        steps: vec![
            post(all, widget).is("/metadata/generation", 1).absent("/status"),
            // A resource without a status has no selector.
            get(&part)
                .is("/kind", "Scale")
                .is("/apiVersion", "autoscaling/v1")
                .is("/spec/replicas", 2)
                .is("/status", json!({"replicas": 0})),
            patch(media::MERGE, &format!("{one}/status"), json!({"status": {"replicas": 2, "selector": "app=fleet"}}))
                .is("/metadata/generation", 1)
                .is("/status/selector", "app=fleet"),
            get(&part)
                .is("/status", json!({"replicas": 2, "selector": "app=fleet"}))
                .save("version", "/metadata/resourceVersion"),
            put(&part, scale("fleet", 3, Some("{version}"))).is("/spec/replicas", 3),
            put(&part, scale("fleet", 4, Some("{version}"))).fails(
                409,
                "Conflict",
                "Operation cannot be fulfilled on widgets.example.com \"fleet\": the object has been modified; please \
                 apply your changes to the latest version and try again",
            ),
            get(&one).is("/spec/replicas", 3).is("/metadata/generation", 2),
        ],
    }
}

fn wrong_scales() -> Section {
    let all = format!("{APPS}/deployments");
    let part = format!("{all}/web/scale");
    let refused = |step: Step| step.code(400).is("/reason", "BadRequest");
    Section {
        name: "wrong-scales",
        steps: vec![
            post(&all, body("Deployment", "web", 2)),
            refused(put(&part, scale("other", 3, None))),
            refused(put(&part, body("Deployment", "web", 3))),
            put(&format!("{all}/none/scale"), scale("none", 3, None)).fails(
                404,
                "NotFound",
                "deployments.apps \"none\" not found",
            ),
        ],
    }
}
