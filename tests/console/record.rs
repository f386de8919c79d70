//! The record of `shop/web`, and an API server with the pod of a controller. Port-forwards lead to the pod, which serves
//! given documents over TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock as _, SystemClock};
use fake_cluster::Cluster;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

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
        let server = Self { cluster: cluster.clone(), documents: Arc::new(documents), tls };
        let pods = server.clone();
        cluster.set_pod_ports(move |_, _| {
            let (near, far) = duplex(1 << 16);
            tokio::spawn(pods.clone().pod(far));
            Ok(near)
        });
        server
    }

    /// Serves connections until the task is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                // Clients send tokens over TLS only.
                let Ok(stream) = server.tls.clone().accept(stream).await else { return };
                server.cluster.serve_stream(stream, None).await;
            });
        }
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
