//! HorizontalPodAutoscalers: defaults, validation, generation, status.

use serde_json::{Value, json};

use crate::Section;
use crate::step::{Step, delete, get, post, put};

pub(crate) const HPAS: &str = "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers";

pub(crate) fn sections() -> Vec<Section> {
    vec![defaults(), behavior_defaults(), validation(), generation(), status(), versions()]
}

pub(crate) fn hpa(name: &str, spec: Value) -> Value {
    let mut body = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    merge(&mut body["spec"], spec);
    body
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn defaults() -> Section {
    let one = format!("{HPAS}/web");
    Section {
        name: "defaults",
        steps: vec![
            post(HPAS, hpa("web", json!({"maxReplicas": 3})))
                .is("/kind", "HorizontalPodAutoscaler")
                .is("/apiVersion", "autoscaling/v2")
                .is("/metadata/namespace", "{ns}")
                .is("/metadata/generation", 1)
                .present("/metadata/uid")
                .present("/metadata/resourceVersion")
                .present("/metadata/creationTimestamp")
                .is("/spec/minReplicas", 1)
                .is(
                    "/spec/metrics",
                    json!([{"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
                    }}]),
                )
                .absent("/spec/behavior")
                .is("/status", json!({"desiredReplicas": 0, "currentMetrics": null})),
            get(&one)
                .is("/spec/minReplicas", 1)
                .is("/status/desiredReplicas", 0)
                .save("uid", "/metadata/uid"),
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))).fails(
                409,
                "AlreadyExists",
                "horizontalpodautoscalers.autoscaling \"web\" already exists",
            ),
            delete(&one).is("/kind", "Status").is("/status", "Success").is(
                "/details",
                json!({
                    "name": "web", "group": "autoscaling", "kind": "horizontalpodautoscalers", "uid": "{uid}",
                }),
            ),
            delete(&one).fails(404, "NotFound", "horizontalpodautoscalers.autoscaling \"web\" not found"),
            // After the deletion, the name is free for another object.
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))).other("/metadata/uid", "uid"),
        ],
    }
}

fn behavior_defaults() -> Section {
    let every = json!([
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    Section {
        name: "behavior-defaults",
        steps: vec![
            post(HPAS, hpa("empty", json!({"maxReplicas": 3, "behavior": {}})))
                .is("/spec/behavior/scaleUp/stabilizationWindowSeconds", 0)
                .is("/spec/behavior/scaleUp/selectPolicy", "Max")
                .is("/spec/behavior/scaleUp/policies", every.clone())
                .absent("/spec/behavior/scaleDown/stabilizationWindowSeconds")
                .is("/spec/behavior/scaleDown/selectPolicy", "Max")
                .is("/spec/behavior/scaleDown/policies", down.clone()),
            post(
                HPAS,
                hpa(
                    "partial",
                    json!({"maxReplicas": 3, "behavior": {"scaleDown": {
                        "stabilizationWindowSeconds": 30, "tolerance": "50m",
                    }}}),
                ),
            )
            .is("/spec/behavior/scaleUp/policies", every)
            .is("/spec/behavior/scaleDown/stabilizationWindowSeconds", 30)
            .is("/spec/behavior/scaleDown/tolerance", "50m")
            .is("/spec/behavior/scaleDown/policies", down),
            post(
                HPAS,
                hpa(
                    "own",
                    json!({"maxReplicas": 3, "behavior": {"scaleUp": {
                        "selectPolicy": "Disabled",
                        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                    }}}),
                ),
            )
            .is("/spec/behavior/scaleUp/selectPolicy", "Disabled")
            .is(
                "/spec/behavior/scaleUp/policies",
                json!([{"type": "Pods", "value": 1, "periodSeconds": 60}]),
            ),
        ],
    }
}

fn validation() -> Section {
    let cpu = |target: Value| json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    let policy = |policy: Value| json!({"maxReplicas": 3, "behavior": {"scaleUp": {"policies": [policy]}}});
    Section {
        name: "validation",
        steps: vec![
            refused_for(json!({"maxReplicas": 0}), "[spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`, spec.maxReplicas: Required value]"),
            refused_for(
                json!({"minReplicas": 5, "maxReplicas": 3}),
                "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
            ),
            refused_for(
                json!({"minReplicas": -1, "maxReplicas": 3}),
                "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            refused_for(
                json!({"minReplicas": 0, "maxReplicas": 3}),
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ),
            refused_for(
                json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}}),
                "spec.scaleTargetRef.name: Required value",
            ),
            refused_for(
                json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "name": "web"}}),
                "spec.scaleTargetRef.kind: Required value",
            ),
            refused_for(
                json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "web"}}),
                "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
            ),
            refused_for(json!({"maxReplicas": 3, "metrics": cpu(json!({"type": "Utilization"}))}), "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"),
            refused_for(
                json!({"maxReplicas": 3, "metrics": cpu(json!({
                    "type": "Utilization", "averageUtilization": 50, "averageValue": "1",
                }))}),
                "spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
            ),
            refused_for(
                json!({"maxReplicas": 3, "metrics": cpu(json!({"type": "Utilization", "averageUtilization": 0}))}),
                "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            ),
            refused_for(json!({"maxReplicas": 3, "metrics": [{"type": "Sideways"}]}), "spec.metrics[0].type: Unsupported value: \"Sideways\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\""),
            refused_for(json!({"maxReplicas": 3, "metrics": [{"type": "External"}]}), "spec.metrics[0].external: Required value: must populate information for the given metric source"),
            refused_for(policy(json!({"type": "Pods", "value": 0, "periodSeconds": 15})), "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero"),
            refused_for(policy(json!({"type": "Pods", "value": 1, "periodSeconds": 1801})), "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"),
            refused_for(policy(json!({"type": "Cores", "value": 1, "periodSeconds": 15})), "spec.behavior.scaleUp.policies[0].type: Unsupported value: \"Cores\": supported values: \"Percent\", \"Pods\""),
            refused_for(
                json!({"maxReplicas": 3, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601}}}),
                "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            ),
            refused_for(json!({"maxReplicas": 3, "behavior": {"scaleDown": {"selectPolicy": "Average"}}}), "spec.behavior.scaleDown.selectPolicy: Unsupported value: \"Average\": supported values: \"Disabled\", \"Max\", \"Min\""),
            // The message lists all errors.
            refused_for(json!({"minReplicas": -1, "maxReplicas": 0}), "[spec.minReplicas: Invalid value: -1: must be greater than or equal to 0, spec.maxReplicas: Required value]"),
            post(HPAS, hpa("Not_A_Name", json!({"maxReplicas": 3}))).code(422).contains("/message", "metadata.name: Invalid value: \"Not_A_Name\""),
            post(HPAS, json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {}, "spec": {}}))
                .code(422)
                .contains("/message", "metadata.name: Required value"),
            post(HPAS, json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}})).code(400).is("/reason", "BadRequest"),
            post(HPAS, json!("no object")).code(400).is("/reason", "BadRequest"),
        ],
    }
}

/// A create request that validation refuses for `reason`.
fn refused_for(spec: Value, reason: &str) -> Step {
    let message = format!("HorizontalPodAutoscaler.autoscaling \"bad\" is invalid: {reason}");
    post(HPAS, hpa("bad", spec))
        .fails(422, "Invalid", &message)
        .is("/details/name", "bad")
        .is("/details/kind", "HorizontalPodAutoscaler")
        .is("/details/group", "autoscaling")
        .present("/details/causes/0/field")
}

fn generation() -> Section {
    let one = format!("{HPAS}/web");
    let body = |max: u32, labels: Value| {
        let mut body = hpa("web", json!({"maxReplicas": max}));
        body["metadata"]["labels"] = labels;
        body
    };
    let mut stale = body(9, json!({}));
    stale["metadata"]["resourceVersion"] = json!("{first}");
    let mut other = body(9, json!({}));
    other["metadata"]["uid"] = json!("6b4a5d3e-0000-4000-8000-000000000001");
    Section {
        name: "generation",
        steps: vec![
            post(HPAS, body(3, json!({}))).is("/metadata/generation", 1).save("first", "/metadata/resourceVersion"),
            put(&one, body(4, json!({})))
                .is("/metadata/generation", 2)
                .is("/spec/maxReplicas", 4)
                .other("/metadata/resourceVersion", "first")
                .save("second", "/metadata/resourceVersion"),
            // Changed metadata does not increase the generation.
            put(&one, body(4, json!({"a": "b"})))
                .is("/metadata/generation", 2)
                .is("/metadata/labels", json!({"a": "b"}))
                .other("/metadata/resourceVersion", "second")
                .save("third", "/metadata/resourceVersion"),
            // A write without a change does not change the resourceVersion.
            put(&one, body(4, json!({"a": "b"})))
                .is("/metadata/generation", 2)
                .is("/metadata/resourceVersion", "{third}"),
            put(&one, stale).fails(
                409,
                "Conflict",
                "Operation cannot be fulfilled on horizontalpodautoscalers.autoscaling \"web\": the object has been \
                 modified; please apply your changes to the latest version and try again",
            ),
            put(&one, other).code(409).is("/reason", "Conflict").contains("/message", "Precondition failed: UID in precondition"),
            put(&format!("{HPAS}/other"), hpa("other", json!({"maxReplicas": 3}))).fails(
                404,
                "NotFound",
                "horizontalpodautoscalers.autoscaling \"other\" not found",
            ),
            put(&format!("{HPAS}/other"), body(3, json!({}))).code(400).is("/reason", "BadRequest"),
        ],
    }
}

fn status() -> Section {
    let one = format!("{HPAS}/web");
    let part = format!("{one}/status");
    let now = "2026-01-02T03:04:05Z";
    let mut created = hpa("web", json!({"maxReplicas": 3}));
    created["metadata"]["labels"] = json!({"team": "checkout"});
    created["metadata"]["annotations"] = json!({"note": "kept"});
    created["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let mut full = created.clone();
    full["spec"]["maxReplicas"] = json!(7);
    full["status"] = json!({
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "lastScaleTime": now,
        "observedGeneration": 1,
        "currentMetrics": [{"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": 70, "averageValue": "0.07"},
        }}],
        "conditions": [{
            "type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale",
            "message": "recommended size matches current size", "lastTransitionTime": now,
        }],
    });
    let mut bare = hpa("web", json!({"maxReplicas": 3}));
    bare["status"] = json!({"currentReplicas": 3, "desiredReplicas": 3});
    let mut stale = bare.clone();
    stale["metadata"]["resourceVersion"] = json!("{first}");
    let mut negative = bare.clone();
    negative["status"] = json!({"currentReplicas": -1, "desiredReplicas": 3});
    Section {
        name: "status",
        steps: vec![
            post(HPAS, created).save("first", "/metadata/resourceVersion"),
            put(&part, full)
                .is("/metadata/generation", 1)
                .is("/spec/maxReplicas", 3)
                .is("/metadata/labels", json!({"team": "checkout"}))
                .is("/status/currentReplicas", 2)
                .is("/status/observedGeneration", 1)
                .is("/status/lastScaleTime", now)
                .is("/status/conditions/0/lastTransitionTime", now)
                .is("/status/currentMetrics/0/resource/current", json!({
                    "averageUtilization": 70, "averageValue": "70m",
                })),
            get(&part).is("/status/desiredReplicas", 3).is("/spec/maxReplicas", 3),
            put(&part, stale).code(409).is("/reason", "Conflict"),
            put(&part, negative).fails(
                422,
                "Invalid",
                "HorizontalPodAutoscaler.autoscaling \"web\" is invalid: status.currentReplicas: Invalid value: -1: \
                 must be greater than or equal to 0",
            ),
            // A status update deletes metadata that it omits.
            put(&part, bare)
                .is("/status/currentReplicas", 3)
                .absent("/status/conditions")
                .absent("/metadata/labels")
                .absent("/metadata/annotations")
                .absent("/metadata/finalizers")
                .is("/metadata/generation", 1),
            // An update of the whole object keeps the status.
            put(&one, hpa("web", json!({"maxReplicas": 8})))
                .is("/metadata/generation", 2)
                .is("/status/currentReplicas", 3),
            put(&format!("{HPAS}/none/status"), hpa("none", json!({"maxReplicas": 3}))).fails(
                404,
                "NotFound",
                "horizontalpodautoscalers.autoscaling \"none\" not found",
            ),
        ],
    }
}

fn versions() -> Section {
    let path_v1 = "/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers/web";
    Section {
        name: "versions",
        steps: vec![
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))),
            // Older clients use v1.
            get(path_v1)
                .is("/apiVersion", "autoscaling/v1")
                .is("/spec/maxReplicas", 3)
                .is("/spec/targetCPUUtilizationPercentage", 80),
        ],
    }
}
