//! Objects: create, read, update, delete, scale, status.

use serde_json::json;

use super::{Client, cluster, deployment, hpa, pod};
use crate::{BareScale, ScalePath};

const HPAS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[tokio::test(start_paused = true)]
async fn created_object_has_the_fields_that_the_server_sets() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let created = client.send("POST", DEPLOYMENTS, &deployment("web", 3)).await;
    assert_eq!(created.code, 201);
    let metadata = &created.json()["metadata"];
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["creationTimestamp"], "2000-01-01T00:00:00Z");
    assert_eq!(metadata["resourceVersion"], cluster.resource_version().to_string());
    assert!(!metadata["uid"].as_str().unwrap().is_empty());
    let read = client.get(&format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(read.json(), created.json());
    let again = client.send("POST", DEPLOYMENTS, &deployment("web", 3)).await;
    assert_eq!(again.status(), (409, "deployments.apps \"web\" already exists".to_owned()));
}

#[test]
fn spec_text_replaces_the_spec_only() {
    let cluster = cluster();
    let read = || cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    let put = |spec: &str| cluster.put_spec("autoscaling/horizontalpodautoscalers", "shop", "web", spec);
    put(r#"{"maxReplicas":5}"#);
    let mut created = read();
    assert_eq!(
        (&created["spec"], &created["metadata"]["generation"]),
        (&json!({"maxReplicas": 5}), &json!(1))
    );
    created["status"] = json!({"currentReplicas": 2});
    cluster.put_raw(created);
    put(r#"{"maxReplicas":6}"#);
    let (before, changed) = (cluster.resource_version(), read());
    assert_eq!(changed["metadata"]["resourceVersion"], before.to_string());
    assert_eq!(
        (&changed["spec"], &changed["metadata"]["generation"]),
        (&json!({"maxReplicas": 6}), &json!(2))
    );
    assert_eq!(changed["status"], json!({"currentReplicas": 2}));
}

#[tokio::test(start_paused = true)]
async fn missing_objects_fail_with_kubernetes_texts() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let absent = client.get(&format!("{DEPLOYMENTS}/web")).await;
    assert_eq!(absent.status(), (404, "deployments.apps \"web\" not found".to_owned()));
    let core = client.get("/api/v1/namespaces/default/pods/x").await;
    assert_eq!(core.status(), (404, "pods \"x\" not found".to_owned()));
    let path = client.get("/apis/missing.example/v1/things").await;
    assert_eq!((path.code, path.text.trim()), (404, "404 page not found"));
    assert!(path.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    let namespace =
        client.send("POST", "/api/v1/namespaces/nowhere/pods", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(namespace.status(), (404, "namespaces \"nowhere\" not found".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn update_from_an_old_version_conflicts() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let old = cluster.create(deployment("web", 1)).unwrap();
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(2);
    let path = format!("{DEPLOYMENTS}/web");
    let updated = client.send("PUT", &path, &new).await;
    assert_eq!((updated.code, &updated.json()["metadata"]["generation"]), (200, &json!(2)));
    let conflict = client.send("PUT", &path, &new).await;
    assert_eq!(
        conflict.status(),
        (
            409,
            "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply \
             your changes to the latest version and try again"
                .to_owned()
        )
    );
    assert_eq!(conflict.json()["reason"], "Conflict");
}

#[tokio::test(start_paused = true)]
async fn update_without_changes_keeps_the_version() {
    let cluster = cluster();
    let created = cluster.create(hpa("web")).unwrap();
    cluster.update(created.clone()).unwrap();
    let stored = || cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!(stored(), created);
    let mut relabelled = created.clone();
    relabelled["metadata"]["labels"]["team"] = json!("b");
    cluster.update(relabelled).unwrap();
    let updated = stored();
    assert_ne!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(updated["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn status_put_keeps_the_spec_and_takes_the_metadata() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let created = cluster.create(hpa("web")).unwrap();
    let mut sent = created.clone();
    sent["metadata"].as_object_mut().unwrap().remove("labels");
    sent["spec"]["maxReplicas"] = json!(99);
    sent["status"] = json!({ "currentReplicas": 1, "desiredReplicas": 2 });
    let answer = client.send("PUT", &format!("{HPAS}/web/status"), &sent).await;
    assert_eq!(answer.code, 200);
    let now = cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!(now["spec"], created["spec"]);
    assert_eq!(now["status"]["desiredReplicas"], 2);
    assert!(now["metadata"].get("labels").is_none(), "omitted labels are deleted");
    assert_eq!(now["metadata"]["generation"], 1);
    let mut spec = now;
    spec["status"] = json!({});
    spec["spec"]["maxReplicas"] = json!(11);
    cluster.update(spec).unwrap();
    let now = cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!((&now["status"]["desiredReplicas"], &now["metadata"]["generation"]), (&json!(2), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn scale_reads_and_writes_the_workload() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let mut stored = cluster.create(deployment("web", 3)).unwrap();
    stored["status"] = json!({ "replicas": 2 });
    cluster.update_status(stored).unwrap();
    let path = format!("{DEPLOYMENTS}/web/scale");
    let mut scale = client.get(&path).await.json();
    assert_eq!(scale["spec"], json!({ "replicas": 3 }));
    assert_eq!(scale["status"], json!({ "replicas": 2, "selector": "app=web" }));
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    scale["spec"]["replicas"] = json!(7);
    assert_eq!(client.send("PUT", &path, &scale).await.code, 200);
    let conflict = client.send("PUT", &path, &scale).await;
    assert!(
        conflict
            .status()
            .1
            .starts_with("Operation cannot be fulfilled on deployments.apps \"web\": the object")
    );
    assert_eq!(cluster.get("apps/deployments", "default", "web").unwrap()["spec"]["replicas"], 7);
    scale["metadata"]["resourceVersion"] = json!("");
    scale["spec"]["replicas"] = json!(-1);
    let negative = client.send("PUT", &path, &scale).await;
    assert_eq!(
        negative.status(),
        (
            422,
            "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
                .to_owned()
        )
    );
    let absent = client.get(&format!("{DEPLOYMENTS}/gone/scale")).await;
    assert_eq!(absent.status(), (404, "deployments.apps \"gone\" not found".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn bare_scale_is_served_without_a_workload() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let path = ScalePath {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        resource: "widgets".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    cluster.put_scale(
        &path,
        BareScale { spec_replicas: 0, status_replicas: 4, selector: "app in (".to_owned() },
    );
    let mut scale = client.get(&path.to_string()).await.json();
    assert_eq!(scale["spec"], json!({}), "0 is omitted, as in Go");
    assert_eq!(scale["status"]["selector"], "app in (");
    scale["spec"]["replicas"] = json!(5);
    assert_eq!(client.send("PUT", &path.to_string(), &scale).await.code, 200);
    assert_eq!(client.send("PUT", &path.to_string(), &scale).await.code, 409);
    assert_eq!(cluster.scale(&path).unwrap().spec_replicas, 5);
    cluster.remove_scale(&path);
    let gone = client.get(&path.to_string()).await;
    assert_eq!(gone.status(), (404, "widgets.example.com \"web\" not found".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn scale_of_an_earlier_version_has_both_selectors() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let config = json!({
        "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig", "metadata": { "name": "web" },
        "spec": { "replicas": 1, "selector": { "b": "x", "a": "y" } },
    });
    cluster.create(config).unwrap();
    let list = client.get("/apis/apps.openshift.io/v1").await.json();
    let entry = list["resources"].as_array().unwrap().iter().find(|entry| entry["kind"] == "Scale").unwrap();
    assert_eq!((&entry["group"], &entry["version"]), (&json!("extensions"), &json!("v1beta1")));
    let path = "/apis/apps.openshift.io/v1/namespaces/default/deploymentconfigs/web/scale";
    let mut scale = client.get(path).await.json();
    assert_eq!(scale["apiVersion"], "extensions/v1beta1");
    let status = json!({ "replicas": 0, "selector": { "a": "y", "b": "x" }, "targetSelector": "a=y,b=x" });
    assert_eq!(scale["status"], status);
    scale["spec"]["replicas"] = json!(4);
    assert_eq!(client.send("PUT", path, &scale).await.json()["spec"], json!({ "replicas": 4 }));
    scale["apiVersion"] = json!("autoscaling/v1");
    assert_eq!(client.send("PUT", path, &scale).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_and_filtered() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web"), ("d", "web")] {
        cluster.create(pod(name, &json!({ "app": app }))).unwrap();
    }
    let names = |list: &serde_json::Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap_or_else(|| panic!("no items: {list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = client.get("/api/v1/pods").await.json();
    assert_eq!((names(&all).len(), &all["kind"]), (4, &json!("PodList")));
    assert_eq!(all["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    let web =
        client.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb%2Capp+notin+(x)").await.json();
    assert_eq!(names(&web), ["a", "c", "d"]);
    let field = client.get("/api/v1/pods?fieldSelector=metadata.name%3Db,status.phase=Pending").await.json();
    assert_eq!(names(&field), ["b"]);
    let first = client.get("/api/v1/pods?limit=3").await.json();
    assert_eq!((names(&first).len(), &first["metadata"]["remainingItemCount"]), (3, &json!(1)));
    let next = first["metadata"]["continue"].as_str().unwrap();
    let second = client.get(&format!("/api/v1/pods?limit=3&continue={next}")).await.json();
    assert_eq!(names(&second), ["d"]);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    cluster.delete("pods", "default", "d").unwrap();
    cluster.create(pod("e", &json!({}))).unwrap();
    let then = client.get(&format!("/api/v1/pods?limit=3&continue={next}")).await.json();
    assert_eq!(names(&then), ["d"], "later pages show the state of the first page");
    let exact = format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&exact).await.json()), ["a", "b", "c", "d"]);
    cluster.compact();
    assert_eq!(client.get(&exact).await.code, 410);
    let expired = client.get(&format!("/api/v1/pods?limit=3&continue={next}")).await;
    assert_eq!((expired.code, &expired.json()["reason"]), (410, &json!("Expired")));
    let unknown = client.get("/api/v1/pods?fieldSelector=spec.color=red").await;
    assert_eq!(unknown.status(), (400, "field label not supported: spec.color".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn running_pod_terminates_gracefully_and_others_immediately() {
    let cluster = cluster();
    cluster.create(pod("new", &json!({}))).unwrap();
    cluster.delete("pods", "default", "new").unwrap();
    assert!(cluster.get("pods", "default", "new").is_none());
    let mut running = pod("old", &json!({}));
    running["spec"]["nodeName"] = json!("node");
    cluster.create(running).unwrap();
    let ending = cluster.delete("pods", "default", "old").unwrap();
    assert_eq!(ending["metadata"]["deletionTimestamp"], "2000-01-01T00:00:30Z");
    assert!(cluster.get("pods", "default", "old").is_some());
    cluster.delete_now("pods", "default", "old").unwrap();
    assert!(cluster.get("pods", "default", "old").is_none());
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_removes_its_content_and_refuses_more() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    cluster.create(namespace.clone()).unwrap();
    let mut web = deployment("web", 1);
    web["metadata"]["namespace"] = json!("shop");
    cluster.create(web.clone()).unwrap();
    let answer = client.send("DELETE", "/api/v1/namespaces/shop", &json!({})).await;
    assert_eq!((answer.code, &answer.json()["status"]["phase"]), (200, &json!("Terminating")));
    assert!(cluster.list("apps/deployments", None).is_empty());
    let mut ending = namespace;
    ending["status"] = json!({ "phase": "Terminating" });
    cluster.put_raw(ending);
    let refused = cluster.create(web).unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "deployments.apps \"web\" is forbidden: unable to create new content in namespace shop because it is \
             being terminated"
        )
    );
}
