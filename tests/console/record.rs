//! The record of `shop/web`, and an API server with the pod of a controller. The server forwards requests to the
//! embedded cluster, and port-forwards to the pod, which serves given documents over TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clock::{Clock as _, SystemClock};
use fake_cluster::Cluster;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{condition, hpa};

const POD: &str = "concertina-7d9c5";

#[derive(Clone)]
pub(crate) struct ApiServer {
    cluster: Cluster,
    /// The documents of the pod, by path.
    documents: Arc<BTreeMap<String, Value>>,
    tls: TlsAcceptor,
}

impl ApiServer {
    /// Adds the Lease and the pod of a controller with the given documents to a cluster.
    pub(crate) fn new(cluster: &Cluster, documents: BTreeMap<String, Value>) -> Self {
        cluster.put_raw(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "concertina", "namespace": "kube-system"},
            "spec": {"holderIdentity": format!("{POD}_0f8e")},
        }));
        let ports = json!([{"name": "https", "containerPort": 10257}]);
        cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "kube-system"},
            "spec": {"nodeName": "cp-1", "containers": [{"name": "concertina", "image": "c", "ports": ports}]},
            "status": {"phase": "Running"},
        }));
        let own = rcgen::generate_simple_self_signed(vec!["controller.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        Self { cluster: cluster.clone(), documents: Arc::new(documents), tls }
    }

    /// Serves connections until the task is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                // Clients send tokens over TLS only.
                let Ok(stream) = server.tls.clone().accept(stream).await else { return };
                let service = service_fn(move |request| server.clone().answer(request));
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = connection.with_upgrades().await;
            });
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, Infallible> {
        if request.uri().path().ends_with("/portforward") {
            let answer = self.forward(request);
            return Ok(answer.map(|text| Full::from(text).map_err(|never| match never {}).boxed_unsync()));
        }
        let io = TokioIo::new(self.cluster.dial());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        if let Ok(answer) = sender.send_request(request).await {
            return Ok(answer.map(BodyExt::boxed_unsync));
        }
        let empty = Full::default().map_err(|never: Infallible| match never {}).boxed_unsync();
        Ok(Response::builder().status(StatusCode::BAD_GATEWAY).body(empty).unwrap())
    }

    fn forward(self, request: Request<Incoming>) -> Response<String> {
        let key = request.headers().get(SEC_WEBSOCKET_KEY).unwrap().to_str().unwrap();
        let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let answer = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, STANDARD.encode(hash))
            .header(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io");
        tokio::spawn(async move {
            let io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            self.pump(WebSocketStream::from_raw_socket(io, Role::Server, None).await).await;
        });
        answer.body(String::new()).unwrap()
    }

    /// Forwards between the client and the pod, as a kubelet does.
    async fn pump(self, mut socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) {
        for channel in [0, 1] {
            let [low, high] = 10257_u16.to_le_bytes();
            socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        let (near, far) = duplex(1 << 16);
        tokio::spawn(self.pod(far));
        let (mut from_pod, mut to_pod) = tokio::io::split(near);
        let (mut out, mut back) = socket.split();
        let up = async {
            while let Some(Ok(message)) = back.next().await {
                if message.is_close() || to_pod.write_all(&message.into_data()[1..]).await.is_err() {
                    break;
                }
            }
        };
        let down = async {
            let mut piece = vec![0; 8 << 10];
            while let Ok(length @ 1..) = from_pod.read(&mut piece).await {
                let message = [&[0], &piece[..length]].concat();
                if out.send(Message::binary(message)).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! { biased; () = up => {} () = down => {} }
    }

    /// Serves the documents over TLS.
    async fn pod(self, stream: DuplexStream) {
        let Ok(stream) = self.tls.accept(stream).await else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            let found = self.documents.get(request.uri().path()).map(Value::to_string);
            let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let body = Full::<Bytes>::from(found.unwrap_or_else(|| "not found".to_owned()));
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()))
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

/// Returns the end of the record: now, in whole seconds.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(SystemClock.now().as_second()).unwrap()
}

/// Returns the last time 03:10 UTC that is at least two minutes ago.
pub(crate) fn ten_past_three() -> Timestamp {
    let now = now() - SignedDuration::from_mins(2);
    let day = now.to_string().split_once('T').unwrap().0.to_owned();
    let today: Timestamp = format!("{day}T03:10:00Z").parse().unwrap();
    if today <= now { today } else { today - SignedDuration::from_hours(24) }
}

/// Returns an entry of a record, with the counts before and after the decision, and the cpu in percent of the requests.
fn entry(first: Timestamp, last: Timestamp, (from, to): (i32, i32), percent: i32) -> Value {
    // The recommendation is rounded up to whole replicas.
    let asks = (from * percent + 59) / 60;
    let (is_limited, changes) = (asks > 12, from != to);
    let sentence = match (changes, is_limited) {
        (true, true) => format!("goes from {from} to {to}: cpu asks for {asks}, but maxReplicas is 12"),
        (true, false) => format!("goes from {from} to {to}: cpu is at {percent} %, its target is 60 %"),
        (false, true) => format!("stays at {from}: cpu asks for {asks}, but maxReplicas is 12"),
        (false, false) => format!("stays at {from}: cpu is at its target of 60 %"),
    };
    json!({
        "firstAt": first, "lastAt": last, "syncs": if first == last { 1 } else { 9 }, "sentence": sentence,
        "action": if changes { "scaleUp" } else { "none" },
        "limitingStep": if is_limited { json!("maximum") } else { Value::Null },
        "winner": "cpu", "from": from, "to": to, "outcome": if changes { "done" } else { "notNeeded" },
        "explanation": {
            "course": "metrics", "current": from, "statusReplicas": from, "min": 2, "max": 12,
            "metrics": [{"valid": {
                "subject": {"type": "Resource", "name": "cpu"}, "name": "cpu resource utilization (percentage of request)",
                "target": {"percent": 60}, "value": {"percent": percent}, "ratio": f64::from(percent) / 60.0,
                "lowestTolerated": 0.9, "highestTolerated": 1.1, "unlisted": [{"group": "ready", "pods": from}],
                "corrected": null, "why": "ratio", "proposal": asks,
            }}],
            "winner": 0, "proposal": asks,
            "stabilization": {"before": asks, "after": asks, "upWindowSeconds": null, "downWindowSeconds": 300, "heldBy": null},
            "limit": {"before": asks, "after": to, "limit": if is_limited { "maximum" } else { "withinRange" },
                "direction": null, "select": null, "policies": [], "rateAllows": null},
            "liftedToMin": null, "desired": to, "failure": null, "failureClass": null,
        },
    })
}

/// Returns the record of `shop/web`: a rescale at 03:10, and a rescale a minute ago that stopped at 12.
pub(crate) fn documents() -> BTreeMap<String, Value> {
    let (now, night) = (now(), ten_past_three());
    let ago = |minutes: i64| now - SignedDuration::from_mins(minutes);
    let second = SignedDuration::from_secs(15);
    let day = now - SignedDuration::from_hours(24) + SignedDuration::from_secs(5);
    let mut entries =
        vec![entry(day.min(night - second), night - second, (4, 4), 60), entry(night, night, (4, 8), 120)];
    // The second rescale is at least two sync periods after the first rescale.
    let stopped = ago(1).max(night + second * 2);
    entries.push(entry(night + second, stopped - second, (8, 8), 60));
    entries.push(entry(stopped, stopped, (8, 12), 135));
    entries.push(entry(stopped + second, now, (12, 12), 90));
    entries.reverse();
    let controller = json!({
        "version": "0.1.0", "syncPeriod": "15s",
        "settings": {"emulatedVersion": "1.37", "tolerance": 0.1, "downscaleStabilization": "5m0s",
            "cpuInitializationPeriod": "5m0s", "initialReadinessDelay": "30s",
            "featureGates": {"HPAScaleToZero": true, "HPAGeneration": true, "HPAConfigurableTolerance": true}},
    });
    let last = entries[0].clone();
    let decisions = json!({
        "apiVersion": "concertina/v1", "kind": "DecisionList", "controller": controller, "now": now,
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-web"},
        "history": {"recommendations": [], "scaleUps": [], "scaleDowns": [], "inherited": ago(20 * 60)},
        "decisions": entries,
    });
    let mut item = json!({"namespace": "shop", "name": "web", "uid": "u-web"});
    for field in [
        "firstAt",
        "lastAt",
        "syncs",
        "sentence",
        "action",
        "limitingStep",
        "winner",
        "from",
        "to",
        "outcome",
    ] {
        item[field] = last[field].clone();
    }
    let summaries = json!({
        "apiVersion": "concertina/v1", "kind": "DecisionSummaryList", "metadata": {}, "controller": controller,
        "now": now, "items": [item],
    });
    BTreeMap::from([("/decisions".to_owned(), summaries), ("/decisions/shop/web".to_owned(), decisions)])
}

pub(crate) fn deployment(name: &str, replicas: i32) -> Value {
    let requests = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": name, "uid": "d"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "a", "resources": requests}]}}},
        "status": {"replicas": replicas},
    })
}

/// Returns `shop/web` with a target of 60 % and 12 replicas.
pub(crate) fn web() -> Value {
    let mut web = hpa(
        "shop",
        "web",
        &json!([
            condition("AbleToScale", "True", "ReadyForNewScale"),
            condition("ScalingLimited", "True", "TooManyReplicas")
        ]),
    );
    web["metadata"]["uid"] = "u-web".into();
    web["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] = 60.into();
    web["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 300}});
    web["status"]["currentReplicas"] = 12.into();
    web["status"]["desiredReplicas"] = 12.into();
    web
}
