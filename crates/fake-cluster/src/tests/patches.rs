//! The three forms of PATCH, and dry runs.

use serde_json::{Value, json};

use super::{Client, cluster, deployment, hpa};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

#[tokio::test(start_paused = true)]
async fn merge_patch_changes_fields_and_removes_null_fields() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(hpa("web")).unwrap();
    let url = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web";
    let patch =
        json!({ "metadata": { "labels": { "team": null, "a": "b" } }, "spec": { "maxReplicas": 20 } });
    let patched = client.patch(url, "merge-patch", &patch).await;
    assert_eq!(patched.code, 200);
    let patched = patched.json();
    assert_eq!(patched["metadata"]["labels"], json!({ "a": "b" }));
    assert_eq!(
        (&patched["spec"]["maxReplicas"], &patched["metadata"]["generation"]),
        (&json!(20), &json!(2))
    );
    let old = json!({ "metadata": { "resourceVersion": "1" }, "spec": { "maxReplicas": 21 } });
    assert_eq!(client.patch(url, "merge-patch", &old).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn strategic_patch_merges_containers_by_name() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(deployment("web", 1)).unwrap();
    let pods = |pods: Value| json!({ "spec": { "template": { "spec": pods } } });
    let patch = pods(json!({
        "$setElementOrder/containers": [{ "name": "proxy" }, { "name": "app" }],
        "containers": [{ "name": "app", "image": "app:2" }, { "name": "proxy", "image": "proxy:1" }],
    }));
    let patched = client.patch(WEB, "strategic-merge-patch", &patch).await.json();
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        containers.iter().map(|it| format!("{}={}", it["name"], it["image"]).replace('"', "")).collect()
    };
    assert_eq!(names(&patched), ["proxy=proxy:1", "app=app:2"]);
    let patch = pods(json!({ "containers": [{ "name": "proxy", "$patch": "delete" }] }));
    let patched = client.patch(WEB, "strategic-merge-patch", &patch).await.json();
    assert_eq!(names(&patched), ["app=app:2"]);
}

#[tokio::test(start_paused = true)]
async fn strategic_patch_merges_conditions_and_replaces_metrics() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let mut stored = cluster.create(hpa("web")).unwrap();
    stored["status"] =
        json!({ "conditions": [{ "type": "A", "status": "True" }, { "type": "B", "status": "True" }] });
    cluster.update_status(stored).unwrap();
    let url = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web";
    let patch = json!({ "status": { "conditions": [{ "type": "B", "status": "False" }] } });
    let patched = client.patch(&format!("{url}/status"), "strategic-merge-patch", &patch).await.json();
    assert_eq!(
        patched["status"]["conditions"],
        json!([{ "type": "A", "status": "True" }, { "type": "B", "status": "False" }])
    );
    let metric = json!({ "name": "memory", "target": { "type": "Utilization", "averageUtilization": 50 } });
    let metrics = json!([{ "type": "Resource", "resource": metric }]);
    let patch = json!({ "spec": { "metrics": metrics } });
    let patched = client.patch(url, "strategic-merge-patch", &patch).await.json();
    assert_eq!(patched["spec"]["metrics"], metrics);
}

#[tokio::test(start_paused = true)]
async fn json_patch_applies_its_operations_in_order() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(deployment("web", 1)).unwrap();
    let patch = json!([
        { "op": "test", "path": "/spec/replicas", "value": 1 },
        { "op": "replace", "path": "/spec/replicas", "value": 2 },
        { "op": "add", "path": "/metadata/annotations", "value": {} },
        { "op": "add", "path": "/metadata/annotations/a~1b", "value": "c" },
        { "op": "add", "path": "/spec/template/spec/containers/-", "value": { "name": "new", "image": "x" } },
        { "op": "remove", "path": "/spec/template/spec/containers/0" },
    ]);
    let patched = client.patch(WEB, "json-patch", &patch).await.json();
    assert_eq!(patched["metadata"]["annotations"], json!({ "a/b": "c" }));
    assert_eq!(patched["spec"]["template"]["spec"]["containers"][0]["name"], "new");
    let wrong = client.patch(WEB, "json-patch", &patch).await;
    assert_eq!((wrong.code, &wrong.json()["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn unsupported_patch_types_are_refused() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(deployment("web", 1)).unwrap();
    let headers = [("content-type", "application/apply-patch+yaml")];
    let apply = client.try_send("PATCH", WEB, &headers, "{}".to_owned()).await.unwrap();
    assert_eq!((apply.code, &apply.json()["reason"]), (415, &json!("UnsupportedMediaType")));
    let widget = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" } });
    cluster.create(widget).unwrap();
    let path = "/apis/example.com/v1/namespaces/default/widgets/w";
    assert_eq!(client.patch(path, "strategic-merge-patch", &json!({})).await.code, 415);
}

#[tokio::test(start_paused = true)]
async fn dry_run_changes_nothing() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let all = "/apis/apps/v1/namespaces/default/deployments?dryRun=All";
    let created = client.send("POST", all, &deployment("web", 1)).await;
    assert_eq!((created.code, created.json()["spec"]["replicas"].clone()), (201, json!(1)));
    assert!(cluster.list("apps/deployments", None).is_empty());
    let stored = cluster.create(deployment("web", 1)).unwrap();
    client
        .patch(&format!("{WEB}/scale?dryRun=All"), "merge-patch", &json!({ "spec": { "replicas": 3 } }))
        .await;
    client.send("DELETE", &format!("{WEB}?dryRun=All"), &json!({})).await;
    assert_eq!(cluster.get("apps/deployments", "default", "web"), Some(stored));
}

#[tokio::test(start_paused = true)]
async fn scale_patch_changes_the_replicas_of_a_custom_resource() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "replicas": 1 },
    });
    let mut stored = cluster.create(widget).unwrap();
    stored["status"] = json!({ "replicas": 1, "selector": "app=w" });
    cluster.update_status(stored).unwrap();
    let path = "/apis/example.com/v1/namespaces/default/widgets/w/scale";
    let scale = client.patch(path, "merge-patch", &json!({ "spec": { "replicas": 6 } })).await.json();
    assert_eq!(scale["status"], json!({ "replicas": 1, "selector": "app=w" }));
    assert_eq!(cluster.get("example.com/widgets", "default", "w").unwrap()["spec"]["replicas"], 6);
}
