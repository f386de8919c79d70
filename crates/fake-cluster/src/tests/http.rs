//! Discovery, tables, metrics backends, watches, faults and the request log.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Client, cluster, deployment, hpa, pod};
use crate::{
    FaultAction, FaultRule, Latency, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest, Status,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test(start_paused = true)]
async fn discovery_lists_scale_subresources_and_omits_hidden_groups() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let apps = client.get("/apis/apps/v1").await.json();
    let scale =
        apps["resources"].as_array().unwrap().iter().find(|it| it["name"] == "deployments/scale").unwrap();
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
    );
    let groups = |list: &Value| -> Vec<String> {
        let groups = list["groups"].as_array().unwrap().iter();
        groups.map(|group| group["name"].as_str().unwrap().to_owned()).collect()
    };
    let custom = "custom.metrics.k8s.io".to_owned();
    assert!(groups(&client.get("/apis").await.json()).contains(&custom));
    cluster.set_discovery(&custom, false);
    assert!(!groups(&client.get("/apis").await.json()).contains(&custom));
    assert_eq!(client.get("/apis/custom.metrics.k8s.io/v1beta2").await.code, 404);
    cluster.set_discovery(&custom, true);
    assert_eq!(
        client.get("/apis/custom.metrics.k8s.io").await.json()["preferredVersion"]["version"],
        "v1beta2"
    );
    assert_eq!(client.get("/version").await.json()["gitVersion"], "v1.37.1");
    assert_eq!(client.get("/readyz").await.text, "ok");
}

#[tokio::test(start_paused = true)]
async fn tables_contain_metadata_and_watches_send_columns_once() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(hpa("web")).unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let headers = [("accept", TABLE)];
    let table = client.try_send("GET", path, &headers, String::new()).await.unwrap().json();
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["web", "Deployment/web", "cpu: <unknown>/80%", "1", 10, 0, "3m20s"])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    let watch = format!("{path}?watch=1");
    let response = client.start("GET", &watch, &headers, String::new()).await.unwrap();
    let mut watch = super::Watch { body: response.into_body(), buffer: String::new(), _client: client };
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    cluster.create(hpa("db")).unwrap();
    let second = watch.next().await.unwrap();
    assert_eq!((&second["object"]["columnDefinitions"], &second["type"]), (&Value::Null, &json!("ADDED")));
    assert_eq!(second["object"]["rows"][0]["cells"][0], "db");
}

#[derive(Debug)]
struct Echo;

impl MetricsBackend for Echo {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        match request.api {
            MetricsApi::Resource => MetricsReply::Absent,
            MetricsApi::External => MetricsReply::Status(Status::new(404, "NotFound", "no such metric")),
            MetricsApi::Custom if request.namespace.is_empty() => {
                MetricsReply::Text { code: 503, body: "down".to_owned() }
            }
            MetricsApi::Custom => MetricsReply::Json(json!({
                "pods": request.cluster.count("pods"),
                "echo": [request.version, request.namespace, request.path.join("|"), request.label_selector,
                         request.metric_label_selector],
            })),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backend_serves_the_metrics_groups() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let resource = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods";
    assert_eq!(client.get(resource).await.text.trim(), "404 page not found");
    cluster.set_metrics(Arc::new(Echo));
    assert_eq!(client.get(resource).await.text.trim(), "404 page not found");
    let custom = "/apis/custom.metrics.k8s.io/v1beta2";
    let path = format!(
        "{custom}/namespaces/shop/pods/%2A/a%2Fb?labelSelector=app%3Dweb&metricLabelSelector=x+in+%28y%29"
    );
    let echo = client.get(&path).await.json();
    assert_eq!(echo["echo"], json!(["v1beta2", "shop", "pods|*|a/b", "app=web", "x in (y)"]));
    let object = client.get(&format!("{custom}/namespaces/shop/metrics/m")).await.json();
    assert_eq!(object["echo"][2], "metrics|m");
    let down = client.get(&format!("{custom}/nodes/n/m")).await;
    assert_eq!((down.code, down.text.as_str()), (503, "down"));
    let external = client.get("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/q").await;
    assert_eq!(external.status(), (404, "no such metric".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn fault_rules_replace_the_configured_number_of_responses() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(deployment("web", 1)).unwrap();
    let faults = cluster.faults();
    let status = Status::conflict("apps", "deployments", "web");
    faults.add(FaultRule::new(FaultAction::Status(status)).verb("update").subresource("scale").times(1));
    let text = FaultAction::Text { code: 500, body: "boom".to_owned() };
    let gets = faults.add(FaultRule::new(text).verb("get").path_prefix("/apis/apps/").after(1));
    let scale = client.get(&format!("{WEB}/scale")).await.json();
    assert_eq!(client.send("PUT", &format!("{WEB}/scale"), &scale).await.code, 409);
    assert_eq!(client.send("PUT", &format!("{WEB}/scale"), &scale).await.code, 200);
    let second = client.get(WEB).await;
    assert_eq!((second.code, second.text.as_str()), (500, "boom"));
    assert!(faults.remove(gets) && !faults.remove(gets));
    faults.add(FaultRule::new(FaultAction::RetryAfter { code: 429, seconds: 3 }).times(1));
    let busy = client.get(WEB).await;
    assert_eq!((busy.code, busy.headers["retry-after"].to_str().unwrap()), (429, "3"));
    faults.add(FaultRule::new(FaultAction::Delay(Duration::from_secs(9))).path_suffix("/web").times(1));
    let start = Instant::now();
    assert_eq!(client.get(WEB).await.code, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn faults_break_connections_before_and_after_the_write() {
    let cluster = cluster();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let post = async |action: FaultAction, name: &str| {
        cluster.faults().clear();
        cluster.faults().add(FaultRule::new(action).verb("create"));
        let mut client = Client::to(&cluster).await;
        let body = deployment(name, 1).to_string();
        let sent = client.try_send("POST", path, &[], body);
        let ended = tokio::time::timeout(Duration::from_mins(1), sent).await;
        (ended.map(|answer| answer.is_ok()).ok(), cluster.get("apps/deployments", "default", name).is_some())
    };
    assert_eq!(post(FaultAction::Close, "a").await, (Some(false), false));
    assert_eq!(post(FaultAction::CloseAfterApplying, "b").await, (Some(false), true));
    assert_eq!(post(FaultAction::Truncate(20), "c").await, (Some(false), true));
    assert_eq!(post(FaultAction::Silence, "d").await, (None, false));
    assert_eq!(post(FaultAction::SilenceAfterApplying, "e").await, (None, true));
    assert_eq!(post(FaultAction::Body("{\"kind\":".to_owned()), "f").await, (Some(true), false));
}

#[tokio::test(start_paused = true)]
async fn request_log_contains_requests_and_status_codes() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    client.get("/api/v1/pods?labelSelector=a").await;
    client.send("POST", "/api/v1/namespaces/default/pods", &pod("a", &json!({}))).await;
    let log = cluster.requests();
    let logged: Vec<String> = log
        .entries()
        .iter()
        .map(|it| format!("{} {}?{} {} {:?}", it.verb, it.path, it.query, it.user_agent, it.code.unwrap()))
        .collect();
    assert_eq!(
        logged,
        ["list /api/v1/pods?labelSelector=a  200", "create /api/v1/namespaces/default/pods? test/1 201"]
    );
    assert_eq!(log.count(|request| request.verb == "create"), 1);
    log.clear();
    assert!(cluster.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn managed_fields_record_the_writer() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    cluster.create(deployment("web", 1)).unwrap();
    let mut scale = client.get(&format!("{WEB}/scale")).await.json();
    scale["spec"]["replicas"] = json!(2);
    client.send("PUT", &format!("{WEB}/scale?fieldManager=kube-controller-manager"), &scale).await;
    let managed = &cluster.get("apps/deployments", "default", "web").unwrap()["metadata"]["managedFields"][0];
    assert_eq!(
        (&managed["manager"], &managed["subresource"], &managed["operation"]),
        (&json!("kube-controller-manager"), &json!("scale"), &json!("Update"))
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_owner_removes_its_dependents() {
    let cluster = cluster();
    let mut client = Client::to(&cluster).await;
    let create_owned = |owner: &Value, name: &str| {
        let mut owned = pod(name, &json!({}));
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner["metadata"]["uid"],
        }]);
        cluster.create(owned).unwrap();
    };
    create_owned(&cluster.create(deployment("web", 1)).unwrap(), "a");
    cluster.delete("apps/deployments", "default", "web").unwrap();
    assert!(cluster.list("pods", None).is_empty());
    create_owned(&cluster.create(deployment("web", 1)).unwrap(), "b");
    client.send("DELETE", WEB, &json!({ "propagationPolicy": "Orphan" })).await;
    assert_eq!(cluster.count("pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn equal_runs_produce_equal_bytes() {
    let run = async || {
        let cluster = cluster();
        let mut client = Client::to(&cluster).await;
        let generated =
            json!({ "metadata": { "generateName": "web-" }, "spec": { "containers": [{ "name": "a" }] } });
        for _ in 0..3 {
            client.send("POST", "/api/v1/namespaces/default/pods", &generated).await;
        }
        client.get("/api/v1/pods").await.text
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test(start_paused = true)]
async fn watch_reports_changes_after_its_version() {
    let cluster = cluster();
    cluster.create(pod("a", &json!({}))).unwrap();
    let from = cluster.resource_version();
    cluster.create(pod("b", &json!({}))).unwrap();
    let mut watch =
        Client::to(&cluster).await.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
    assert_eq!(watch.next_summary().await, "ADDED b");
    let mut a = cluster.get("pods", "default", "a").unwrap();
    a["metadata"]["labels"] = json!({ "x": "y" });
    cluster.update(a).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("MODIFIED"), &json!("Pod")));
    cluster.delete("pods", "default", "a").unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn streaming_list_ends_with_its_bookmark() {
    let cluster = cluster();
    cluster.create(pod("a", &json!({}))).unwrap();
    cluster.create(pod("b", &json!({}))).unwrap();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true"
    );
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    assert_eq!(watch.next_summary().await, "ADDED a");
    assert_eq!(watch.next_summary().await, "ADDED b");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    cluster.create(pod("c", &json!({}))).unwrap();
    assert_eq!(watch.next_summary().await, "ADDED c");
    let start = Instant::now();
    assert_eq!(watch.next_summary().await, "BOOKMARK");
    assert_eq!(start.elapsed(), Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_bookmarks_is_refused() {
    let cluster = cluster();
    let path = format!("{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let refused = Client::to(&cluster).await.get(&path).await;
    assert_eq!((refused.code, &refused.json()["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_compacted_version_fails_with_410() {
    let cluster = cluster();
    let old = cluster.resource_version();
    cluster.create(pod("a", &json!({}))).unwrap();
    let mut running =
        Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&resourceVersion={old}")).await;
    assert_eq!(running.next_summary().await, "ADDED a");
    cluster.compact();
    let mut watch = Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&resourceVersion={old}")).await;
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.next_summary().await, "end");
    cluster.create(pod("b", &json!({}))).unwrap();
    assert_eq!(running.next_summary().await, "ADDED b", "an open watch continues");
}

#[tokio::test(start_paused = true)]
async fn filtered_watch_reports_objects_that_start_or_stop_matching() {
    let cluster = cluster();
    let from = cluster.resource_version();
    let path = format!("{PODS}?watch=1&resourceVersion={from}&labelSelector=app%3Dweb");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    let mut a = cluster.create(pod("a", &json!({ "app": "db" }))).unwrap();
    for app in ["web", "web2"] {
        a["metadata"]["labels"]["app"] = json!(app);
        cluster.update(a).unwrap();
        a = cluster.get("pods", "default", "a").unwrap();
    }
    assert_eq!(watch.next_summary().await, "ADDED a");
    let left = watch.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["app"]),
        (&json!("DELETED"), &json!("web"))
    );
    assert_eq!(left["object"]["metadata"]["resourceVersion"], a["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_its_timeout() {
    let cluster = cluster();
    let start = Instant::now();
    let mut watch = Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&timeoutSeconds=7")).await;
    assert_eq!(watch.next_summary().await, "end");
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn open_watches_obey_faults() {
    let cluster = cluster();
    let from = cluster.resource_version();
    let path = format!("{PODS}?watch=1&resourceVersion={from}");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    let faults = cluster.faults();
    faults.add(FaultRule::new(FaultAction::WatchDrop).times(1));
    faults.add(FaultRule::new(FaultAction::WatchDuplicate).times(1));
    for name in ["a", "b", "c"] {
        cluster.create(pod(name, &json!({}))).unwrap();
    }
    assert_eq!(watch.next_summary().await, "ADDED b");
    assert_eq!(watch.next_summary().await, "ADDED b");
    assert_eq!(watch.next_summary().await, "ADDED c");
    let silence = faults.add(FaultRule::new(FaultAction::WatchSilence));
    cluster.create(pod("d", &json!({}))).unwrap();
    assert!(tokio::time::timeout(Duration::from_mins(5), watch.next_summary()).await.is_err());
    faults.remove(silence);
    assert_eq!(watch.next_summary().await, "ADDED d");
    faults.add(FaultRule::new(FaultAction::WatchError(Status::expired("too old"))).times(1));
    assert_eq!(watch.next_summary().await, "ERROR");
    assert_eq!(watch.next_summary().await, "end");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    faults.add(FaultRule::new(FaultAction::WatchClose).path_suffix("/pods").times(1));
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        events.push(event);
    }
    assert!(events.len() <= 4);
}

/// The durations of equal requests with a seed, in milliseconds, and of the arrival of a watch event.
async fn durations(seed: u64) -> (Vec<u128>, u128) {
    let cluster = cluster();
    let millis = |from, to| Duration::from_millis(from)..Duration::from_millis(to);
    cluster.set_latency(Latency { api: millis(1, 10), metrics: millis(100, 200), seed });
    let (mut client, mut watcher) = (Client::to(&cluster).await, Client::to(&cluster).await);
    let mut taken = Vec::new();
    for path in [PODS, PODS, PODS, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"] {
        let start = Instant::now();
        client.get(path).await;
        taken.push(start.elapsed().as_millis());
    }
    let watch = watcher.start("GET", &format!("{PODS}?watch=1"), &[], String::new()).await.unwrap();
    let mut events = watch.into_body();
    cluster.create(pod("web", &json!({}))).unwrap();
    let start = Instant::now();
    events.frame().await.unwrap().unwrap();
    (taken, start.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn requests_and_watch_events_take_the_drawn_time() {
    let (taken, event) = durations(1).await;
    assert!(taken[..3].iter().all(|millis| (2..=20).contains(millis)), "{taken:?}");
    assert!((200..=400).contains(&taken[3]) && (1..=10).contains(&event), "{taken:?} {event}");
    assert_eq!(durations(1).await, (taken.clone(), event), "equal seeds give equal latencies");
    assert_ne!(durations(2).await.0, taken);
}

#[tokio::test(start_paused = true)]
async fn port_forward_carries_bytes_or_the_reason_of_a_refusal() {
    let cluster = cluster();
    cluster.create(pod("web-1", &json!({}))).unwrap();
    cluster.set_pod_ports(|pod, port| {
        assert_eq!(pod["metadata"]["name"], "web-1");
        if port != 8080 {
            return Err(io::Error::other("nothing listens"));
        }
        let (near, mut far) = tokio::io::duplex(64);
        tokio::spawn(async move {
            let asked = far.read_u8().await.unwrap();
            far.write_all(&[asked, b'!']).await.unwrap();
        });
        Ok(near)
    });
    let path = |port: &str| format!("{PODS}/web-1/portforward?ports={port}");
    let open = async |port: &str, protocol: &str| {
        let mut request = format!("ws://cluster{}", path(port)).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        client_async(request, cluster.dial()).await.map(|(socket, _)| socket)
    };
    let mut socket = open("8080", "v5.channel.k8s.io, v4.channel.k8s.io").await.unwrap();
    let mut next = async || socket.next().await.unwrap().unwrap().into_data().to_vec();
    assert_eq!([next().await, next().await], [[0, 0x90, 0x1f], [1, 0x90, 0x1f]].map(Vec::from));
    socket.send(Message::binary(b"\0a".to_vec())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_data(), b"\0a!".to_vec());
    assert!(socket.next().await.unwrap().unwrap().is_close());

    let refused = open("9", "v4.channel.k8s.io").await.unwrap();
    let messages: Vec<_> = refused.map(|message| message.unwrap().into_data().to_vec()).collect().await;
    assert_eq!(messages[2], b"\x01nothing listens");

    assert!(open("8080", "SPDY/3.1+portforward.k8s.io").await.is_err());
    let mut client = Client::to(&cluster).await;
    assert_eq!(client.get(&path("8080")).await.status(), (400, "Upgrade request required".to_owned()));
    assert_eq!(client.get(&format!("{PODS}/nope/portforward?ports=1")).await.code, 404);
}
