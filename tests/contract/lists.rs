//! Lists, pages, selectors and watches, and the tables of `kubectl get`, which the server renders.

use serde_json::{Value, json};

use crate::Section;
use crate::hpas::{HPAS, hpa};
use crate::rest::media;
use crate::scales::{body, pod};
use crate::step::{Step, delete, get, patch, post, put, watch};

const PODS: &str = "/api/v1/namespaces/{ns}/pods";

pub(crate) fn sections() -> Vec<Section> {
    vec![selectors(), pages(), watches(), streaming_lists(), too_old()]
}

fn selectors() -> Section {
    let by = |selector: &str| format!("{PODS}?labelSelector={selector}");
    let fields = |selector: &str| format!("{PODS}?fieldSelector={selector}");
    Section {
        name: "selectors",
        steps: vec![
            get(PODS)
                .is("/kind", "PodList")
                .is("/apiVersion", "v1")
                .present("/metadata/resourceVersion")
                .size("/items", 0),
            post(PODS, pod("a", &json!({"app": "web", "tier": "front"}))).is("/status/phase", "Pending"),
            post(PODS, pod("b", &json!({"app": "web", "tier": "back"}))),
            post(PODS, pod("c", &json!({"app": "db"}))),
            // The list is sorted by name. Its items have no kind.
            get(PODS)
                .size("/items", 3)
                .is("/items/0/metadata/name", "a")
                .is("/items/2/metadata/name", "c")
                .absent("/items/0/kind"),
            get(&by("app%3Dweb")).size("/items", 2),
            get(&by("app%3D%3Dweb,tier%21%3Dback")).size("/items", 1).is("/items/0/metadata/name", "a"),
            get(&by("tier+in+%28front,back%29")).size("/items", 2),
            get(&by("tier+notin+%28front%29")).size("/items", 2).is("/items/1/metadata/name", "c"),
            get(&by("%21tier")).size("/items", 1).is("/items/0/metadata/name", "c"),
            get(&by("tier")).size("/items", 2),
            get(&by("app%3D%3D%3D")).code(400).is("/reason", "BadRequest"),
            get(&fields("metadata.name%3Db")).size("/items", 1).is("/items/0/metadata/name", "b"),
            get(&fields("status.phase%3DRunning")).size("/items", 0),
            get(&fields("spec.colour%3Dred")).code(400).is("/reason", "BadRequest"),
            get("/api/v1/pods?labelSelector=app%3Ddb,%21tier&fieldSelector=metadata.namespace%3D{ns}")
                .size("/items", 1),
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))),
            get(&format!("{HPAS}?fieldSelector=metadata.name%3Dweb"))
                .is("/kind", "HorizontalPodAutoscalerList")
                .is("/apiVersion", "autoscaling/v2")
                .size("/items", 1),
            get(&format!("{HPAS}?fieldSelector=metadata.name%3Dnone")).size("/items", 0),
        ],
    }
}

fn pages() -> Section {
    Section {
        name: "pages",
        steps: vec![
            post(PODS, pod("a", &json!({}))),
            post(PODS, pod("b", &json!({}))),
            post(PODS, pod("c", &json!({}))),
            get(&format!("{PODS}?limit=2"))
                .size("/items", 2)
                .is("/metadata/remainingItemCount", 1)
                .save("token", "/metadata/continue")
                .save("version", "/metadata/resourceVersion"),
            // The second page has the resourceVersion of the first page, so the new pod is not in it.
            post(PODS, pod("d", &json!({}))),
            get(&format!("{PODS}?limit=2&continue={{token}}"))
                .size("/items", 1)
                .is("/items/0/metadata/name", "c")
                .is("/metadata/resourceVersion", "{version}")
                .absent("/metadata/continue")
                .absent("/metadata/remainingItemCount"),
            get(&format!("{PODS}?limit=9")).size("/items", 4).absent("/metadata/continue"),
            get(&format!("{PODS}?limit=2&continue=nonsense")).code(400).is("/reason", "BadRequest"),
            get(&format!("{PODS}?resourceVersion=0")).size("/items", 4),
        ],
    }
}

fn watches() -> Section {
    let since = |rest: &str| format!("{HPAS}?watch=true&timeoutSeconds=1&resourceVersion={{list}}{rest}");
    Section {
        name: "watches",
        steps: vec![
            post(HPAS, hpa("before", json!({"maxReplicas": 3}))),
            get(HPAS).size("/items", 1).save("list", "/metadata/resourceVersion"),
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))),
            patch(media::MERGE, &format!("{HPAS}/web"), json!({"metadata": {"labels": {"a": "b"}}}))
                .save("labelled", "/metadata/resourceVersion"),
            patch(media::MERGE, &format!("{HPAS}/web"), json!({"metadata": {"labels": null}})),
            delete(&format!("{HPAS}/web")),
            watch(&since(""))
                .size("", 4)
                .is("/0/type", "ADDED")
                .is("/0/object/kind", "HorizontalPodAutoscaler")
                .is("/0/object/apiVersion", "autoscaling/v2")
                .is("/0/object/metadata/name", "web")
                .is("/1/type", "MODIFIED")
                .is("/1/object/metadata/resourceVersion", "{labelled}")
                .is("/3/type", "DELETED")
                .other("/3/object/metadata/resourceVersion", "labelled"),
            // With a selector, an object that starts to match is ADDED, and an object that no longer matches is
            // DELETED.
            watch(&since("&labelSelector=a%3Db")).size("", 2).is("/0/type", "ADDED").is("/1/type", "DELETED"),
            watch(&since("&fieldSelector=metadata.name%3Dbefore")).size("", 0),
            // Without a resourceVersion, the watch starts with the existing objects.
            watch(&format!("{HPAS}?watch=1&timeoutSeconds=1"))
                .size("", 1)
                .is("/0/type", "ADDED")
                .is("/0/object/metadata/name", "before"),
        ],
    }
}

fn streaming_lists() -> Section {
    let list = format!(
        "{PODS}?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    Section {
        name: "streaming-lists",
        steps: vec![
            post(PODS, pod("a", &json!({}))),
            post(PODS, pod("b", &json!({}))),
            watch(&list)
                .size("", 3)
                .is("/0/type", "ADDED")
                .is("/1/type", "ADDED")
                .is("/2/type", "BOOKMARK")
                .is("/2/object/kind", "Pod")
                .is("/2/object/apiVersion", "v1")
                .present("/2/object/metadata/resourceVersion")
                .is("/2/object/metadata/annotations", json!({"k8s.io/initial-events-end": "true"})),
            watch(&format!("{list}&resourceVersion=0")).is("/2/type", "BOOKMARK"),
            get(&format!("{PODS}?watch=true&timeoutSeconds=1&sendInitialEvents=true"))
                .code(422)
                .is("/reason", "Invalid"),
        ],
    }
}

fn too_old() -> Section {
    Section {
        name: "too-old",
        steps: vec![
            // The resourceVersion is older than the server's watch history. The error is an event of the
            // stream.
            watch(
                "/apis/example.com/v1/namespaces/{ns}/widgets?watch=true&timeoutSeconds=1&resourceVersion=1",
            )
            .size("", 1)
            .is("/0/type", "ERROR")
            .is("/0/object/kind", "Status")
            .is("/0/object/code", 410)
            .is("/0/object/reason", "Expired")
            .contains("/0/object/message", "too old resource version: 1"),
            // The server may never reach a future resourceVersion.
            get(&format!("{HPAS}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan"))
                .code(504)
                .is("/reason", "Timeout"),
        ],
    }
}

pub(crate) fn table_sections() -> Vec<Section> {
    vec![hpas(), pods_and_deployments()]
}

/// Expects columns with the given names, types and priorities.
fn columns(mut step: Step, names: &[(&str, &str, i64)]) -> Step {
    step =
        step.is("/kind", "Table").is("/apiVersion", "meta.k8s.io/v1").size("/columnDefinitions", names.len());
    for (index, (name, kind, priority)) in names.iter().enumerate() {
        let column = format!("/columnDefinitions/{index}");
        step = step
            .is(&format!("{column}/name"), *name)
            .is(&format!("{column}/type"), *kind)
            .is(&format!("{column}/priority"), *priority);
    }
    step
}

/// Expects the first cells of a row. Callers omit the age, which varies.
fn row(mut step: Step, row: usize, cells: &[Value]) -> Step {
    for (column, cell) in cells.iter().enumerate() {
        step = step.is(&format!("/rows/{row}/cells/{column}"), cell.clone());
    }
    step
}

fn hpas() -> Section {
    let names = [
        ("Name", "string", 0),
        ("Reference", "string", 0),
        ("Targets", "string", 0),
        ("MinPods", "string", 0),
        ("MaxPods", "string", 0),
        ("Replicas", "string", 0),
        ("Age", "string", 0),
    ];
    let several = json!([
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "64Mi"}}},
        {"type": "External", "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
        {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    ]);
    let mut with_status = hpa("web", json!({"maxReplicas": 3}));
    with_status["status"] = json!({
        "currentReplicas": 2, "desiredReplicas": 2,
        "currentMetrics": [{"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": 70, "averageValue": "70m"},
        }}],
    });
    let table = |path: &str| get(path).accept(media::TABLE);
    let web = [json!("web"), json!("Deployment/web"), json!("cpu: 70%/80%"), json!("1"), json!(3), json!(2)];
    Section {
        name: "hpa-tables",
        steps: vec![
            post(HPAS, hpa("many", json!({"maxReplicas": 9, "metrics": several}))),
            post(HPAS, hpa("web", json!({"maxReplicas": 3}))),
            columns(table(HPAS), &names)
                .size("/rows", 2)
                .is("/rows/0/cells/2", "cpu: <unknown>/50%, memory: <unknown>/64Mi + 2 more...")
                .is("/rows/1/cells/2", "cpu: <unknown>/80%"),
            put(&format!("{HPAS}/web/status"), with_status),
            row(columns(table(&format!("{HPAS}/web")), &names).size("/rows", 1), 0, &web)
                .present("/rows/0/cells/6")
                .is("/rows/0/object/kind", "PartialObjectMetadata")
                .is("/rows/0/object/apiVersion", "meta.k8s.io/v1")
                .is("/rows/0/object/metadata/name", "web"),
            table(&format!("{HPAS}/web?includeObject=Object"))
                .is("/rows/0/object/kind", "HorizontalPodAutoscaler"),
            table(&format!("{HPAS}/web?includeObject=None")).is("/rows/0/object", Value::Null),
            table(&format!("{HPAS}/none")).fails(
                404,
                "NotFound",
                "horizontalpodautoscalers.autoscaling \"none\" not found",
            ),
            // `kubectl get --watch` receives a table per event.
            watch(&format!("{HPAS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dweb"))
                .accept(media::TABLE)
                .size("", 1)
                .is("/0/type", "ADDED")
                .is("/0/object/kind", "Table")
                .is("/0/object/rows/0/cells/0", "web"),
        ],
    }
}

fn pods_and_deployments() -> Section {
    let pods = "/api/v1/namespaces/{ns}/pods";
    let deployments = "/apis/apps/v1/namespaces/{ns}/deployments";
    let pod_names = [
        ("Name", "string", 0),
        ("Ready", "string", 0),
        ("Status", "string", 0),
        ("Restarts", "string", 0),
        ("Age", "string", 0),
        ("IP", "string", 1),
        ("Node", "string", 1),
        ("Nominated Node", "string", 1),
        ("Readiness Gates", "string", 1),
    ];
    let deployment_names = [
        ("Name", "string", 0),
        ("Ready", "string", 0),
        ("Up-to-date", "string", 0),
        ("Available", "string", 0),
        ("Age", "string", 0),
        ("Containers", "string", 1),
        ("Images", "string", 1),
        ("Selector", "string", 1),
    ];
    let running = json!({"status": {
        "phase": "Running", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "app", "ready": true, "restartCount": 0, "image": "x", "imageID": "",
            "state": {"running": {}},
        }],
    }});
    let table = |path: &str| get(path).accept(media::TABLE);
    let pending = [json!("p"), json!("0/1"), json!("Pending"), json!("0")];
    let ready = [json!("p"), json!("1/1"), json!("Running"), json!("0")];
    let web = [json!("web"), json!("0/2"), json!(0), json!(0)];
    Section {
        name: "workload-tables",
        steps: vec![
            post(pods, pod("p", &json!({}))),
            row(columns(table(pods), &pod_names).size("/rows", 1), 0, &pending),
            patch(media::MERGE, &format!("{pods}/p/status"), running),
            row(table(pods), 0, &ready).is("/rows/0/cells/5", "10.1.0.7").is("/rows/0/cells/6", "<none>"),
            post(deployments, body("Deployment", "web", 2)),
            row(columns(table(deployments), &deployment_names).size("/rows", 1), 0, &web)
                .is("/rows/0/cells/5", "app")
                .is("/rows/0/cells/6", "example.com/app:1")
                .is("/rows/0/cells/7", "app=web,tier in (a,b)"),
        ],
    }
}
