//! The tables of `kubectl get`, which the server renders.

use serde_json::{Value, json};

use crate::hpas::{HPAS, hpa};
use crate::lists::pod;
use crate::rest::media;
use crate::scales::body;
use crate::sections::Section;
use crate::step::{Step, get, patch, post, put, watch};

pub(crate) fn sections() -> Vec<Section> {
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

/// Expects the first cells of a row. The age, which varies, is not among them.
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
