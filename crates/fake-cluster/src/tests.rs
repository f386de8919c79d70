//! Tests of the embedded cluster through HTTP, in virtual time.

mod hpas;
mod http;
mod objects;

use std::sync::Arc;

use ::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cluster;
use clock::VirtualClock;

/// Creates a cluster with a clock that starts in 2000.
pub(super) fn cluster() -> Cluster {
    let epoch: Timestamp = "2000-01-01T00:00:00Z".parse().unwrap();
    Cluster::new(Arc::new(VirtualClock::starting_at(epoch)))
}

/// A client on one connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    /// Returns the code and the message of a Status.
    pub(super) fn status(&self) -> (u16, String) {
        (self.code, self.json()["message"].as_str().unwrap_or("").to_owned())
    }
}

impl Client {
    pub(super) async fn to(cluster: &Cluster) -> Self {
        let (sender, connection) = handshake(TokioIo::new(cluster.dial())).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    pub(super) async fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> hyper::Result<Answer> {
        let response = self.start(method, path, headers, body).await?;
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
        Ok(Answer { code: head.status.as_u16(), headers: head.headers, text })
    }

    pub(super) async fn start(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> hyper::Result<::http::Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "cluster");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        self.sender.send_request(request.body(Full::new(body.into())).unwrap()).await
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.try_send("GET", path, &[], String::new()).await.unwrap()
    }

    pub(super) async fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json"), ("user-agent", "test/1")];
        self.try_send(method, path, &headers, body.to_string()).await.unwrap()
    }

    pub(super) async fn patch(&mut self, path: &str, kind: &str, body: &Value) -> Answer {
        let kind = format!("application/{kind}+json");
        self.try_send("PATCH", path, &[("content-type", &kind)], body.to_string()).await.unwrap()
    }

    pub(super) async fn watch(mut self, path: &str) -> Watch {
        let response = self.start("GET", path, &[], String::new()).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body(), buffer: String::new(), _client: self }
    }
}

pub(super) struct Watch {
    body: Incoming,
    buffer: String,
    _client: Client,
}

impl Watch {
    /// Returns the next event, or `None` at the end of the watch.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.buffer.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.buffer = rest.to_owned();
                return Some(event);
            }
            let frame = self.body.frame().await?.ok()?;
            self.buffer.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }

    /// Returns the next event as `TYPE name`, or `end`.
    pub(super) async fn next_summary(&mut self) -> String {
        match self.next().await {
            Some(event) => {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or("");
                format!("{} {name}", event["type"].as_str().unwrap()).trim().to_owned()
            }
            None => "end".to_owned(),
        }
    }
}

pub(super) fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": labels },
        "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
    })
}

pub(super) fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    })
}

pub(super) fn hpa(name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": "default", "labels": { "team": "a" } },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "maxReplicas": 10,
        },
    })
}
