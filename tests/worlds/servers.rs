//! The servers of a stage, in addition to the API server: a proxy between a controller and the API server, the three
//! metrics APIs, and an aggregated API. The aggregated API has targets whose Scales have the kinds of earlier versions
//! of Kubernetes.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::controlplane::{ControlPlane, Keys};
use crate::gate::Gate;
use crate::metrics::{self, CUSTOM, EXTERNAL, RESOURCE};
use crate::outcome::{Context as _, Outcome};
use crate::plan::{Action, Answer, Class, PodUsage, Readings};
use crate::rest::Rest;

type BoxError = Box<dyn Error + Send + Sync>;
type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The reason why the proxy closes a connection without a response.
#[derive(Debug, thiserror::Error)]
enum NoResponse {
    #[error("a planned fault closes the connection")]
    Planned,
    #[error("the request cannot be forwarded: {0}")]
    Upstream(#[from] kube::Error),
    #[error("the request or response is invalid: {0}")]
    Http(#[from] http::Error),
    #[error("a body is truncated: {0}")]
    Body(BoxError),
    #[error("the object cannot be changed: {0}")]
    Interference(String),
}

/// The proxy between a controller and the API server. It blocks syncs, injects faults and observes watches. It supports
/// only HTTP/1.1, so that a broken connection affects one request.
pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) authority: PathBuf,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Upstream {
    client: Client,
    admin: Rest,
    gate: Gate,
}

impl Proxy {
    pub(crate) async fn start(plane: &ControlPlane, gate: Gate) -> Outcome<Self> {
        let keys = Keys::generate()?;
        let authority = plane.folder().join("proxy.crt");
        std::fs::write(&authority, &keys.authority_pem)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(keys.key_der));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(keys.certificate_der)], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let mut to = kube::Config::new(plane.url.parse::<Uri>()?);
        to.accept_invalid_certs = true;
        to.read_timeout = None;
        to.default_retry = false;
        let upstream = Upstream { client: Client::try_from(to)?, admin: plane.admin.clone(), gate };

        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let upstream = upstream.clone();
                        async move { upstream.respond(request).await }
                    });
                    // A fault that cuts the connection is an error of the service.
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { url, authority, task })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, NoResponse> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(namespace) = namespace(&path) else {
            return self.forward(request).await;
        };
        let class = class(&method, &path);
        let Some(passage) = self.gate.enter(namespace, class, &path).await else {
            return self.forward(request).await;
        };
        let fault = class.and_then(|class| self.gate.fault(namespace, class, &path));
        let response = match fault {
            None => self.forward(request).await?,
            Some(Action::Answer(answer)) => {
                request.into_body().collect().await.map_err(|error| NoResponse::Body(error.into()))?;
                answer_response(answer)?
            }
            Some(Action::CutBefore) => return Err(NoResponse::Planned),
            Some(Action::CutAfter) => {
                let response = self.forward(request).await?;
                response.into_body().collect().await.map_err(NoResponse::Body)?;
                return Err(NoResponse::Planned);
            }
            Some(Action::CutWithin) => {
                let (parts, body) = self.forward(request).await?.into_parts();
                let bytes = body.collect().await.map_err(NoResponse::Body)?.to_bytes();
                let first = bytes.slice(..bytes.len() / 2);
                let frames = [Ok(Frame::data(first)), Err(BoxError::from("cut within the body"))];
                let body = StreamBody::new(futures::stream::iter(frames));
                return Ok(Response::from_parts(parts, UnsyncBoxBody::new(body)));
            }
            Some(Action::Interfere) => {
                let object = path.rsplit_once('/').map_or(&*path, |(object, _)| object);
                let note = format!("{:?}", tokio::time::Instant::now());
                let change = json!({"metadata": {"annotations": {"example.com/interference": note}}});
                self.admin.merge(object, &change).await.map_err(|error| NoResponse::Interference(error.0))?;
                self.forward(request).await?
            }
        };
        if class == Some(Class::ScalePut) && !response.status().is_success() {
            self.gate.refused(namespace, &path);
        }
        // The sync continues when the body has arrived. The body is small, because no controller watches a single
        // namespace.
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(NoResponse::Body)?.to_bytes();
        drop(passage);
        Ok(Response::from_parts(parts, UnsyncBoxBody::new(Full::new(bytes).map_err(|never| match never {}))))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, NoResponse> {
        let observed = request.method() == Method::GET
            && (request.uri().path().ends_with("/pods")
                || request.uri().path().ends_with("/horizontalpodautoscalers"));
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| NoResponse::Body(error.into()))?.to_bytes();
        let response = self.client.send(Request::from_parts(parts, Body::from(body))).await?;
        let gate = self.gate.clone();
        let mut tail = Vec::new();
        Ok(response.map(|body| {
            let body = body.map_err(BoxError::from).map_frame(move |frame| {
                if let (true, Some(data)) = (observed, frame.data_ref()) {
                    gate.scan(&mut tail, data);
                }
                frame
            });
            UnsyncBoxBody::new(body)
        }))
    }
}

fn answer_response(answer: Answer) -> Result<Response<ResponseBody>, NoResponse> {
    let body = Full::new(Bytes::from(answer.body)).map_err(|never| match never {});
    let mut response = Response::new(UnsyncBoxBody::new(body));
    *response.status_mut() = StatusCode::from_u16(answer.code).map_err(http::Error::from)?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.media));
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    Ok(response)
}

fn namespace(path: &str) -> Option<&str> {
    path.split_once("/namespaces/")?.1.split_once('/').map(|(namespace, _)| namespace)
}

fn class(method: &Method, path: &str) -> Option<Class> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("PUT", ["apis", "autoscaling", _, _, _, "horizontalpodautoscalers", _, "status"]) => {
            Some(Class::StatusPut)
        }
        ("GET", [.., "namespaces", _, _, _, "scale"]) => Some(Class::ScaleGet),
        ("PUT", [.., "namespaces", _, _, _, "scale"]) => Some(Class::ScalePut),
        ("POST" | "PATCH", ["api", "v1", "namespaces", _, "events", ..]) => Some(Class::Event),
        ("GET", ["apis", group, ..]) if group.ends_with("metrics.k8s.io") => Some(Class::Metrics),
        _ => None,
    }
}

/// Writes a copy of a kubeconfig with the proxy as the server. Returns the path of the copy.
pub(crate) fn redirect(kubeconfig: &Path, proxy: &Proxy) -> Outcome<PathBuf> {
    let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    config["clusters"][0]["cluster"] = json!({
        "server": proxy.url, "certificate-authority": proxy.authority,
    });
    let path = kubeconfig.with_extension("proxy.kubeconfig");
    std::fs::write(&path, config.to_string()).context(path.display())?;
    Ok(path)
}

/// The current readings of the metrics APIs, by namespace.
#[derive(Clone, Default)]
pub(crate) struct Backend(Arc<Mutex<BTreeMap<String, Readings>>>);

impl Backend {
    pub(crate) fn set(&self, namespace: &str, readings: Readings) {
        self.0.lock().insert(namespace.to_owned(), readings);
    }

    /// Answers a GET of one of the three APIs.
    pub(crate) fn answer(&self, path: &str, query: &str) -> (u16, &'static str, String) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let found = match parts.as_slice() {
            ["apis", group, version] => metrics::discovery(group, version),
            ["apis", group, _, "namespaces", namespace, rest @ ..] => {
                let all = self.0.lock();
                let readings = all.get(*namespace);
                if let Some(answer) = readings.and_then(|readings| readings.failures.get(group)) {
                    return (answer.code, answer.media, answer.body.clone());
                }
                readings.and_then(|readings| match (*group, rest) {
                    (RESOURCE, ["pods"]) => Some(usage(namespace, readings, &app(query)?)),
                    (CUSTOM, ["pods", "*", metric]) => pods(namespace, readings, metric, &app(query)?),
                    (CUSTOM, [resource, name, metric]) => object(namespace, readings, resource, name, metric),
                    (EXTERNAL, [metric]) => Some(external(readings, metric)),
                    _ => None,
                })
            }
            _ => None,
        };
        match found {
            Some(body) => (200, "application/json", body.to_string()),
            None => (404, "application/json", metrics::not_found(path).to_string()),
        }
    }
}

/// The application that a label selector selects.
fn app(query: &str) -> Option<String> {
    metrics::selector(query).remove("app")
}

fn usage(namespace: &str, readings: &Readings, app: &str) -> Value {
    let items: Vec<_> = readings
        .usage
        .iter()
        .filter(|usage| usage.app == app)
        .map(|PodUsage { pod, age, containers, .. }| {
            let containers: Vec<_> = containers
                .iter()
                .map(|(name, usage)| {
                    let usage: BTreeMap<_, _> = usage.iter().cloned().collect();
                    json!({"name": name, "usage": usage})
                })
                .collect();
            json!({
                "metadata": {"name": pod, "namespace": namespace, "labels": {"app": app}},
                "timestamp": metrics::before_now(*age), "window": "30s", "containers": containers,
            })
        })
        .collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
}

fn pods(namespace: &str, readings: &Readings, metric: &str, app: &str) -> Option<Value> {
    let values = readings.pods.get(metric)?.iter().filter(|(_, of, _)| of == app);
    let items: Vec<_> = values
        .map(|(pod, _, value)| {
            let pod = json!({"kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "/v1"});
            metrics::metric_value(&pod, metric, value)
        })
        .collect();
    Some(metrics::metric_values(&items))
}

fn object(namespace: &str, readings: &Readings, resource: &str, name: &str, metric: &str) -> Option<Value> {
    let value = readings.objects.get(&format!("{resource}/{name}/{metric}"))?;
    let object = json!({"kind": resource, "namespace": namespace, "name": name});
    Some(metrics::metric_values(&[metrics::metric_value(&object, metric, value)]))
}

fn external(readings: &Readings, metric: &str) -> Value {
    metrics::external_values(metric, readings.external.get(metric).into_iter().flatten())
}

pub(crate) const GROUP: &str = "legacy.example.com";
pub(crate) const VERSION: &str = "v1";

/// The kind and resource of each target, and the version of its Scale in discovery and in responses.
pub(crate) const THINGS: [(&str, &str, &str, &str); 6] = [
    ("Autothing", "autothings", "autoscaling/v1", "autoscaling/v1"),
    ("Betathing", "betathings", "apps/v1beta1", "apps/v1beta1"),
    ("Extthing", "extthings", "extensions/v1beta1", "extensions/v1beta1"),
    ("Gammathing", "gammathings", "apps/v1beta2", "apps/v1beta2"),
    ("Mixedthing", "mixedthings", "apps/v1beta2", "extensions/v1beta1"),
    ("Oddthing", "oddthings", "scaling.example.com/v1", "scaling.example.com/v1"),
];

/// The targets of the aggregated API.
#[derive(Clone, Default)]
pub(crate) struct Things(Arc<Mutex<Scales>>);

/// By the path of the Scale: the current count, and a line for each write.
type Scales = BTreeMap<String, (i64, Vec<String>)>;

impl Things {
    /// The kind, spec and status of each write of a Scale.
    pub(crate) fn writes(&self, path: &str) -> Vec<String> {
        self.0.lock().get(path).map(|(_, writes)| writes.clone()).unwrap_or_default()
    }

    pub(crate) fn answer(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let ["apis", GROUP, VERSION, rest @ ..] = parts.as_slice() else { return None };
        let ["namespaces", namespace, resource, name, "scale"] = rest else {
            return rest.is_empty().then(|| (200, discovery()));
        };
        let (.., version) = THINGS.iter().find(|thing| thing.1 == *resource)?;
        let mut all = self.0.lock();
        let (replicas, writes) = all.entry(path.to_owned()).or_insert((3, Vec::new()));
        if method == "PUT" {
            let sent: Value = serde_json::from_slice(body).unwrap_or_default();
            *replicas = sent["spec"]["replicas"].as_i64().unwrap_or_default();
            let kind = format!("{} {}", sent["apiVersion"], sent["kind"]);
            writes.push(format!("{kind}: {} {}", sent["spec"], sent["status"]));
        }
        let selector = if version.starts_with("autoscaling") || version.starts_with("scaling") {
            json!({"replicas": 3, "selector": "app=web"})
        } else {
            json!({"replicas": 3, "selector": {"app": "web"}, "targetSelector": "app=web"})
        };
        let scale = json!({
            "kind": "Scale", "apiVersion": version,
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": (writes.len() + 1).to_string(),
                "creationTimestamp": "2024-01-01T00:00:00Z", "uid": "6b4a5d3e-0000-4000-8000-000000000002"},
            "spec": {"replicas": replicas}, "status": selector,
        });
        Some((200, scale))
    }
}

fn discovery() -> Value {
    let resources = THINGS.iter().flat_map(|(kind, resource, scale, _)| {
        let (group, version) = scale.split_once('/').unwrap_or(("", scale));
        [
            json!({"name": resource, "singularName": "", "namespaced": true, "kind": kind,
                "verbs": ["get", "list"]}),
            json!({"name": format!("{resource}/scale"), "singularName": "", "namespaced": true,
                "kind": "Scale", "group": group, "version": version, "verbs": ["get", "update"]}),
        ]
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": resources.collect::<Vec<_>>(),
    })
}
