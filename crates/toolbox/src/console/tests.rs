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
    let refusals = Refusals::new();
    let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
    let scene = Scene {
        clients: &clients,
        refusals,
        namespace: None,
        leaders: Vec::new(),
        flags: DecisionFlags::default(),
        process: FAKE,
        clock: Arc::new(SystemClock),
    };
    let listening = Listening::start(scene, 0).await.unwrap();
    let (host, path) = listening.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!("GET /{path}hpas/shop/web HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
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
    assert!(
        document["timeline"].as_str().unwrap().contains("<path class=\"s-desired\""),
        "{}",
        document["timeline"]
    );
}

#[tokio::test]
async fn explanation_of_a_missing_hpa_is_the_error_of_why() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    assert_eq!(explanation(&cluster).await, "HPA web not found in namespace shop");
}
