//! Writes of HPAs (defaults, validation, canonical quantities), the three forms of PATCH, and dry runs.

use serde_json::{Value, json};

use super::{Client, cluster, deployment, hpa};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const HPAS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut hpa = hpa("web");
    change(&mut hpa["spec"]);
    hpa
}

fn refused(hpa: Value) -> String {
    let status = cluster().create(hpa).unwrap_err();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?}");
    let head = "HorizontalPodAutoscaler.autoscaling \"web\" is invalid: ";
    status.message.strip_prefix(head).expect(&status.message).to_owned()
}

#[tokio::test(start_paused = true)]
async fn omitted_fields_get_defaults() {
    let created = cluster().create(hpa("web")).unwrap();
    assert_eq!(created["spec"]["minReplicas"], 1);
    assert_eq!(
        created["spec"]["metrics"],
        json!([{
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } },
        }])
    );
    assert!(created["spec"].get("behavior").is_none());
    assert_eq!(created["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn behavior_gets_defaults_field_by_field() {
    let created = cluster()
        .create(with(|spec| {
            spec["behavior"] =
                json!({ "scaleUp": { "selectPolicy": "Min" }, "scaleDown": { "tolerance": "0.05" } });
        }))
        .unwrap();
    assert_eq!(
        created["spec"]["behavior"],
        json!({
            "scaleUp": {
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Min",
                "policies": [
                    { "type": "Pods", "value": 4, "periodSeconds": 15 },
                    { "type": "Percent", "value": 100, "periodSeconds": 15 },
                ],
            },
            "scaleDown": {
                "selectPolicy": "Max",
                "policies": [{ "type": "Percent", "value": 100, "periodSeconds": 15 }],
                "tolerance": "50m",
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn quantities_are_stored_canonically() {
    let metric = |value: Value| {
        with(|spec| {
            let target = json!({ "type": "AverageValue", "averageValue": value });
            spec["metrics"] =
                json!([{ "type": "External", "external": { "metric": { "name": "q" }, "target": target } }]);
        })
    };
    let cluster = cluster();
    let created = cluster.create(metric(json!("0.5"))).unwrap();
    let target = &created["spec"]["metrics"][0]["external"]["target"];
    assert_eq!(target["averageValue"], "500m");
    let mut same = created.clone();
    same["spec"]["metrics"][0]["external"]["target"]["averageValue"] = json!("500m");
    cluster.update(same).unwrap();
    assert_eq!(
        cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap()["metadata"]["generation"],
        1
    );
    let wrong = super::cluster().create(metric(json!("many"))).unwrap_err();
    assert_eq!(wrong.code, 400);
    assert!(
        wrong.message.starts_with("HorizontalPodAutoscaler in version \"v2\" cannot be handled"),
        "{wrong}"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_bounds_fail_with_kubernetes_texts() {
    let max = |max: i64| with(|spec| spec["maxReplicas"] = json!(max));
    assert_eq!(
        refused(max(0)),
        "[spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`, spec.maxReplicas: \
         Required value]"
    );
    assert!(
        refused(max(-1))
            .ends_with("spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1]")
    );
    assert_eq!(
        refused(with(|spec| spec["minReplicas"] = json!(11))),
        "spec.maxReplicas: Invalid value: 10: must be greater than or equal to `minReplicas`"
    );
    assert_eq!(
        refused(with(|spec| spec["minReplicas"] = json!(-1))),
        "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"
    );
    assert_eq!(
        refused(with(|spec| spec["minReplicas"] = json!(0))),
        "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero \
         replicas"
    );
}

#[tokio::test(start_paused = true)]
async fn target_requires_kind_name_and_group() {
    let target = |target: Value| with(|spec| spec["scaleTargetRef"] = target);
    assert_eq!(
        refused(target(json!({ "apiVersion": "apps/v1" }))),
        "[spec.scaleTargetRef.kind: Required value, spec.scaleTargetRef.name: Required value]"
    );
    assert_eq!(
        refused(target(json!({ "kind": "Deployment", "name": "a/b", "apiVersion": "v1" }))),
        "[spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/', spec.scaleTargetRef.apiVersion: \
         Invalid value: \"v1\": apiVersion must specify API group]"
    );
    assert_eq!(
        refused(target(json!({ "kind": "Deployment", "name": "web", "apiVersion": "a/b/c" }))),
        "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
    );
    let core = json!({ "kind": "ReplicationController", "name": "web", "apiVersion": "v1" });
    assert!(cluster().create(target(core)).is_ok());
    let stored = hpa("web");
    let store = cluster();
    let mut wrong = stored;
    wrong["spec"]["scaleTargetRef"]["apiVersion"] = json!("a/b/c");
    let mut wrong = store.put_raw(wrong);
    wrong["spec"]["maxReplicas"] = json!(12);
    assert!(store.update(wrong).is_ok(), "a stored invalid value may stay");
}

#[tokio::test(start_paused = true)]
async fn metric_requires_one_source_with_one_target() {
    let metrics = |metrics: Value| refused(with(|spec| spec["metrics"] = metrics));
    assert_eq!(
        metrics(json!([{ "type": "Resource" }])),
        "spec.metrics[0].resource: Required value: must populate information for the given metric source"
    );
    let resource = json!({ "name": "cpu", "target": { "type": "Utilization" } });
    assert_eq!(
        metrics(json!([{ "type": "Resource", "resource": resource }])),
        "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a \
         target utilization"
    );
    let unknown = metrics(json!([{ "type": "Magic" }]));
    assert_eq!(
        unknown,
        "spec.metrics[0].type: Unsupported value: \"Magic\": supported values: \"ContainerResource\", \"External\", \
         \"Object\", \"Pods\", \"Resource\""
    );
    let both = json!({ "metric": { "name": "q" }, "target": { "type": "Value", "value": "1", "averageValue": "0" } });
    assert_eq!(
        metrics(json!([{ "type": "External", "external": both }])),
        "[spec.metrics[0].external.target.averageValue: Invalid value: \"0\": must be positive, \
         spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod \
         target]"
    );
    let container =
        json!({ "name": "gpu", "container": "A", "target": { "type": "X", "averageUtilization": 1 } });
    let container = metrics(json!([{ "type": "ContainerResource", "containerResource": container }]));
    for part in [
        "containerResource.name: Invalid value: \"gpu\": must be a standard resource for containers",
        "containerResource.container: Invalid value: \"A\": a lowercase RFC 1123 label must consist of",
        "target.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue",
    ] {
        assert!(container.contains(part), "no {part} in {container}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_outside_their_ranges_are_refused() {
    let rules = |rules: Value| refused(with(|spec| spec["behavior"] = json!({ "scaleDown": rules })));
    assert_eq!(
        rules(json!({ "stabilizationWindowSeconds": 3601, "selectPolicy": "Most" })),
        "[spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to \
         3600, spec.behavior.scaleDown.selectPolicy: Unsupported value: \"Most\": supported values: \"Disabled\", \
         \"Max\", \"Min\"]"
    );
    assert_eq!(
        rules(json!({ "policies": [] })),
        "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy"
    );
    let policy = json!([{ "type": "Pods", "value": 0, "periodSeconds": 1801 }]);
    assert_eq!(
        rules(json!({ "policies": policy, "tolerance": "-0.1" })),
        "[spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero, \
         spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800, \
         spec.behavior.scaleDown.tolerance: Invalid value: \"-100m\": must be greater than or equal to 0]"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_names_and_labels_are_refused() {
    let mut named = hpa("web");
    named["metadata"]["name"] = json!("Web!");
    let status = cluster().create(named).unwrap_err();
    assert!(
        status.message.contains("metadata.name: Invalid value: \"Web!\": a lowercase RFC 1123 subdomain")
    );
    let labelled = with(|_| {});
    let mut labelled = labelled;
    labelled["metadata"]["labels"] = json!({ "a": "not a label" });
    assert!(
        refused(labelled)
            .starts_with("metadata.labels: Invalid value: \"not a label\": a valid label must be")
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_status_is_refused() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let mut stored = cluster.create(hpa("web")).unwrap();
    stored["status"] = json!({ "desiredReplicas": -1 });
    let answer = client.send("PUT", &format!("{HPAS}/web/status"), &stored).await;
    assert_eq!(answer.code, 422);
    let causes = &answer.json()["details"]["causes"];
    assert_eq!(
        causes,
        &json!([{
            "reason": "FieldValueInvalid",
            "message": "Invalid value: -1: must be greater than or equal to 0",
            "field": "status.desiredReplicas",
        }])
    );
}

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
