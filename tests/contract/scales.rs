//! The scale subresource of workloads and of a custom resource, and the three kinds of patches that kubectl and
//! controllers send.

use serde_json::{Value, json};

use crate::Section;
use crate::hpas::{HPAS, hpa};
use crate::rest::media;
use crate::step::{Step, delete, get, patch, post, put};

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

pub(crate) fn patch_sections() -> Vec<Section> {
    vec![merge(), strategic(), json_patch(), deletion()]
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

pub(crate) fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
    })
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
            // The status has the count that the workload's controller reports, not the desired count.
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

fn merge() -> Section {
    let one = format!("{HPAS}/web");
    Section {
        name: "merge-patches",
        steps: vec![
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))).save("first", "/metadata/resourceVersion"),
            patch(media::MERGE, &one, json!({"spec": {"maxReplicas": 5}}))
                .is("/spec/maxReplicas", 5)
                .is("/spec/minReplicas", 1)
                .is("/metadata/generation", 2),
            patch(media::MERGE, &one, json!({"metadata": {"annotations": {"a": "1", "b": "2"}}}))
                .is("/metadata/annotations", json!({"a": "1", "b": "2"}))
                .is("/metadata/generation", 2),
            patch(media::MERGE, &one, json!({"metadata": {"annotations": {"a": null}}}))
                .is("/metadata/annotations", json!({"b": "2"})),
            // A merge patch replaces lists as a whole, and null resets a field to its default.
            patch(media::MERGE, &one, json!({"spec": {"minReplicas": null, "metrics": null}}))
                .is("/spec/minReplicas", 1)
                .is("/spec/metrics/0/resource/target/averageUtilization", 80),
            patch(media::MERGE, &one, json!({"metadata": {"resourceVersion": "{first}"}, "spec": {"maxReplicas": 6}}))
                .code(409)
                .is("/reason", "Conflict"),
            patch(media::MERGE, &one, json!({"spec": {"maxReplicas": 0}})).fails(
                422,
                "Invalid",
                "HorizontalPodAutoscaler.autoscaling \"web\" is invalid: [spec.maxReplicas: Invalid value: 0: must be greater \
                 than or equal to `minReplicas`, spec.maxReplicas: Required value]",
            ),
            patch(media::MERGE, &format!("{one}/status"), json!({"spec": {"maxReplicas": 9}, "status": {"desiredReplicas": 2}}))
                .is("/spec/maxReplicas", 5)
                .is("/status/desiredReplicas", 2)
                .is("/metadata/annotations", json!({"b": "2"})),
            patch(media::MERGE, &format!("{HPAS}/none"), json!({})).fails(
                404,
                "NotFound",
                "horizontalpodautoscalers.autoscaling \"none\" not found",
            ),
        ],
    }
}

fn strategic() -> Section {
    let deployments = format!("{APPS}/deployments");
    let one = format!("{deployments}/web");
    let containers = |patch: Value| json!({"spec": {"template": {"spec": {"containers": patch}}}});
    Section {
        name: "strategic-patches",
        steps: vec![
            post(&deployments, body("Deployment", "web", 1)),
            // Containers merge by name. Other containers and omitted fields of the named container remain.
            patch(
                media::STRATEGIC,
                &one,
                containers(json!([{"name": "sidecar", "image": "example.com/side:1"}])),
            )
            .size("/spec/template/spec/containers", 2)
            .is("/spec/template/spec/containers/[name=app]/image", "example.com/app:1")
            .is("/metadata/generation", 2),
            patch(media::STRATEGIC, &one, containers(json!([{"name": "app", "image": "example.com/app:2"}])))
                .size("/spec/template/spec/containers", 2)
                .is("/spec/template/spec/containers/[name=app]/image", "example.com/app:2")
                .is("/spec/template/spec/containers/[name=app]/resources/requests/cpu", "100m"),
            patch(media::STRATEGIC, &one, containers(json!([{"name": "sidecar", "$patch": "delete"}])))
                .size("/spec/template/spec/containers", 1),
            patch(media::STRATEGIC, &one, json!({"metadata": {"labels": {"x": "y"}}}))
                .is("/metadata/labels", json!({"x": "y"})),
            patch(media::STRATEGIC, &one, json!({"metadata": {"labels": {"x": null}}}))
                .absent("/metadata/labels"),
            // Custom resources have no merge keys for lists.
            post(
                "/apis/example.com/v1/namespaces/{ns}/widgets",
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}),
            ),
            patch(
                media::STRATEGIC,
                "/apis/example.com/v1/namespaces/{ns}/widgets/w",
                json!({"spec": {"replicas": 2}}),
            )
            .code(415)
            .is("/reason", "UnsupportedMediaType"),
            patch(media::JSON, &one, json!({})).code(415).is("/reason", "UnsupportedMediaType"),
        ],
    }
}

fn json_patch() -> Section {
    let deployments = format!("{APPS}/deployments");
    let one = format!("{deployments}/web");
    Section {
        name: "json-patches",
        steps: vec![
            post(&deployments, body("Deployment", "web", 1)),
            patch(
                media::JSON_PATCH,
                &one,
                json!([
                    {"op": "test", "path": "/spec/replicas", "value": 1},
                    {"op": "replace", "path": "/spec/replicas", "value": 4},
                ]),
            )
            .is("/spec/replicas", 4),
            patch(
                media::JSON_PATCH,
                &one,
                json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
            )
            .is("/metadata/labels", json!({"a": "b"})),
            patch(media::JSON_PATCH, &one, json!([{"op": "remove", "path": "/metadata/labels/a"}]))
                .absent("/metadata/labels"),
            patch(media::JSON_PATCH, &one, json!([{"op": "test", "path": "/spec/replicas", "value": 1}]))
                .code(422)
                .is("/reason", "Invalid"),
            get(&one).is("/spec/replicas", 4),
        ],
    }
}

fn deletion() -> Section {
    let one = format!("{HPAS}/held");
    let mut held = hpa("held", json!({"maxReplicas": 3}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    Section {
        name: "deletion",
        steps: vec![
            post(HPAS, held),
            // With a finalizer, the object is only marked for deletion.
            delete(&one)
                .is("/kind", "HorizontalPodAutoscaler")
                .present("/metadata/deletionTimestamp")
                .is("/metadata/generation", 2),
            get(&one).present("/metadata/deletionTimestamp"),
            patch(media::MERGE, &one, json!({"metadata": {"finalizers": null}}))
                .absent("/metadata/finalizers"),
            get(&one).code(404),
            post(HPAS, hpa("one", json!({"maxReplicas": 3}))),
            post(HPAS, hpa("two", json!({"maxReplicas": 3}))),
            delete(HPAS).is("/kind", "HorizontalPodAutoscalerList").size("/items", 2),
            get(HPAS).size("/items", 0),
            // A pod that is not bound to a node is deleted immediately.
            post("/api/v1/namespaces/{ns}/pods", pod("p", &json!({}))),
            delete("/api/v1/namespaces/{ns}/pods/p").is("/kind", "Pod"),
            get("/api/v1/namespaces/{ns}/pods/p").code(404),
        ],
    }
}
