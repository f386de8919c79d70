mod prometheus;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{Listening, Scene};
use crate::options::decision::DecisionFlags;
use crate::process::fake::FAKE;
use crate::why::{Refusals, client_options};
use clock::SystemClock;
use cluster::client::Clients;
use fake_cluster::Cluster;

/// Returns the body of the explanation of `shop/web` in a cluster.
async fn explanation(cluster: &Cluster) -> String {
    answer(cluster, "").await
}

fn scene(clients: &Clients, refusals: Arc<Refusals>) -> Scene<'_> {
    Scene {
        clients,
        refusals,
        namespace: None,
        leaders: Vec::new(),
        flags: DecisionFlags::default(),
        sources: None,
        process: FAKE,
        clock: Arc::new(SystemClock),
    }
}

/// Returns the body of the response to a path below the explanation of `shop/web`.
async fn answer(cluster: &Cluster, rest: &str) -> String {
    let refusals = Refusals::new();
    let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
    let scene = scene(&clients, refusals);
    let listening = Listening::start(scene, 0).await.unwrap();
    let (host, path) = listening.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request =
        format!("GET /{path}hpas/shop/web{rest} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listening.serve(stop.clone()));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    stop.cancel();
    serving.await.unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn hpa() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 9,
        },
    })
}

#[tokio::test]
async fn explanation_has_findings_steps_and_yaml() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.create(hpa()).unwrap();
    let document: Value = serde_json::from_str(&explanation(&cluster).await).unwrap();
    assert_eq!(document["findings"][0]["code"], "missing-target");
    assert!(document["text"].as_str().unwrap().contains("missing-target"), "{}", document["text"]);
    assert!(document["yaml"].as_str().unwrap().contains("maxReplicas: 9"), "{}", document["yaml"]);
    assert_eq!(document["recentEvents"], json!([]));
    let markup = document["timeline"]["markup"].as_str().unwrap();
    assert!(markup.contains("<path class=\"s-desired\"") && !markup.contains("s-ready"), "{markup}");
    assert_eq!(document["timeline"]["data"]["courses"].as_array().unwrap().len(), 1);
    assert_eq!((&document["recorded"], &document["form"]["max"]), (&json!(false), &json!(9)));
}

#[tokio::test]
async fn explanation_of_a_missing_hpa_is_the_error_of_why() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    assert_eq!(explanation(&cluster).await, "HPA web not found in namespace shop");
}

/// A cluster with a Deployment of 3 pods and its HPA.
fn running() -> Cluster {
    let cluster = Cluster::new(Arc::new(SystemClock));
    let container = json!({"name": "app", "image": "a", "resources": {"requests": {"cpu": "500m"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    cluster
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }))
        .unwrap();
    let mut hpa = hpa();
    let target = json!({"type": "Utilization", "averageUtilization": 60});
    hpa["spec"]["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    cluster.create(hpa).unwrap();
    cluster
}

#[tokio::test]
async fn question_is_answered_with_a_patch_and_a_difference() {
    let cluster = running();
    let writes = || cluster.requests().count(|request| !["get", "list", "watch"].contains(&request.verb));
    let before = writes();
    let text = answer(&cluster, "/whatif?hours=1&max=20&downWindow=60").await;
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(
        document["command"],
        "kubectl patch hpa web --namespace shop --type=merge --patch \
         '{\"spec\":{\"behavior\":{\"scaleDown\":{\"stabilizationWindowSeconds\":60}},\"maxReplicas\":20}}'"
    );
    let diff = document["diff"].as_str().unwrap();
    for line in ["-  maxReplicas: 9\n", "+  maxReplicas: 20\n", "+      stabilizationWindowSeconds: 60\n"] {
        assert!(diff.contains(line), "{diff}");
    }
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);
    assert_eq!(writes(), before, "a question writes nothing");
}

#[tokio::test]
async fn invalid_question_names_its_field() {
    let cluster = running();
    let text = answer(&cluster, "/whatif?hours=1&max=1").await;
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(error["field"], "max", "{error}");
    let text = answer(&cluster, "/whatif?hours=1&nothing=1").await;
    assert!(text.contains("unknown field"), "{text}");
}
