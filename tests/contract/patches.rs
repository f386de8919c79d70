//! The three kinds of patches that kubectl and controllers send.

use serde_json::json;

use crate::Section;
use crate::hpas::{HPAS, hpa};
use crate::rest::media;
use crate::scales::body;
use crate::step::{delete, get, patch, post};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";

pub(crate) fn sections() -> Vec<Section> {
    vec![merge(), strategic(), json_patch(), deletion()]
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
    let one = format!("{DEPLOYMENTS}/web");
    let containers =
        |patch: serde_json::Value| json!({"spec": {"template": {"spec": {"containers": patch}}}});
    Section {
        name: "strategic-patches",
        steps: vec![
            post(DEPLOYMENTS, body("Deployment", "web", 1)),
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
    let one = format!("{DEPLOYMENTS}/web");
    Section {
        name: "json-patches",
        steps: vec![
            post(DEPLOYMENTS, body("Deployment", "web", 1)),
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
            // A pod without a kubelet is deleted immediately.
            post("/api/v1/namespaces/{ns}/pods", crate::lists::pod("p", &json!({}))),
            delete("/api/v1/namespaces/{ns}/pods/p").is("/kind", "Pod"),
            get("/api/v1/namespaces/{ns}/pods/p").code(404),
        ],
    }
}
