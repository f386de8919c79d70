//! The metrics server, behind the API server's aggregation layer. Like metrics-server, it supports HTTP/2. It counts
//! its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::SystemClock;
use fake_cluster::{Cluster, MetricsApi, MetricsBackend as _, MetricsReply, MetricsRequest};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::control_plane::controlplane::Keys;
use super::control_plane::convert_error;
use crate::Failure;
use crate::observations::{RequestCount, now};
use crate::workload::{POISONED, Workload};
use crate::world::World;

/// The served APIs: group, version, and name and kind of the resource in the discovery document.
pub(super) const APIS: [(MetricsApi, &str, &str, &str, &str); 2] = [
    (MetricsApi::Resource, "metrics.k8s.io", "v1beta1", "pods", "PodMetrics"),
    (MetricsApi::External, "external.metrics.k8s.io", "v1beta1", "queue_length", "ExternalMetricValueList"),
];

/// The server, which responds with the metrics of the current world.
#[derive(Debug)]
pub(super) struct Stub {
    state: Mutex<State>,
    /// An empty cluster, because a [`MetricsRequest`] requires one.
    empty_cluster: Cluster,
}

#[derive(Debug, Default)]
struct State {
    world: Option<(Workload, Arc<World>)>,
    /// Requests for metrics, by verb and API group.
    counts: BTreeMap<(&'static str, &'static str), RequestCount>,
    /// The number of requests in each second, by seconds since 1970.
    seconds: BTreeMap<i64, u64>,
}

/// The parts of a path of a metrics API.
#[derive(Debug, PartialEq, Eq)]
struct Subject<'a> {
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    /// The decoded segments after the version and the namespace. Empty for discovery.
    rest: Vec<String>,
}

impl<'a> Subject<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let mut words = path.split('/').skip(1);
        if words.next()? != "apis" {
            return None;
        }
        let (group, version) = (words.next()?, words.next()?);
        let words: Vec<_> = words.collect();
        let (namespace, rest) = match words.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let rest = rest.iter().map(|word| percent_decode_str(word).decode_utf8_lossy().into_owned());
        Some(Self { group, version, namespace, rest: rest.collect() })
    }
}

impl Stub {
    /// Starts the server on a loopback port, without a world. Returns the server and the port.
    pub(super) async fn start() -> Result<(Arc<Self>, u16), Failure> {
        let stub =
            Arc::new(Self { state: Mutex::default(), empty_cluster: Cluster::new(Arc::new(SystemClock)) });
        let keys = convert_error(Keys::generate())?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(keys.key_der));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(keys.certificate_der)], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let served = Arc::clone(&stub);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&served).connection(acceptor.clone(), stream));
            }
        });
        Ok((stub, port))
    }

    /// Serves the metrics of `world` from now on.
    pub(super) fn set_world(&self, workload: &Workload, world: Arc<World>) {
        self.state.lock().world = Some((workload.clone(), world));
    }

    /// Returns the requests since the last call: by kind, and the number in each second since 1970.
    pub(super) fn take_counts(&self) -> (Vec<RequestCount>, BTreeMap<i64, u64>) {
        let mut state = self.state.lock();
        let counts = std::mem::take(&mut state.counts);
        (counts.into_values().collect(), std::mem::take(&mut state.seconds))
    }

    async fn connection(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let uses_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        let service = service_fn(move |request| {
            let stub = Arc::clone(&self);
            async move { Ok::<_, Infallible>(stub.respond(&request).await) }
        });
        // The API server closes idle connections, so errors are ignored.
        if uses_http2 {
            let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        } else {
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let found = match Subject::parse(request.uri().path()) {
            Some(subject) if subject.rest.is_empty() => discovery(&subject),
            Some(subject) => {
                self.delay(&subject).await;
                self.answer(&subject, request.uri().query().unwrap_or_default())
            }
            None => None,
        };
        let is_there = found.is_some();
        let mut response = Response::new(Full::new(found.unwrap_or_default()));
        if !is_there {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    async fn delay(&self, subject: &Subject<'_>) {
        let Some((slowness, poisoned)) =
            self.state.lock().world.as_ref().map(|(it, _)| (it.slowness, it.poisoned))
        else {
            return;
        };
        if subject.group == "external.metrics.k8s.io" && slowness > Duration::ZERO {
            tokio::time::sleep(slowness).await;
        } else if subject.group == "metrics.k8s.io" && poisoned && subject.namespace == POISONED {
            std::future::pending::<()>().await;
        }
    }

    fn answer(&self, subject: &Subject<'_>, query: &str) -> Option<Bytes> {
        let (_, world) = self.state.lock().world.clone()?;
        let (api, group, ..) = APIS.into_iter().find(|api| api.1 == subject.group)?;
        let label_selector = parameter(query, "labelSelector");
        let metrics_request = MetricsRequest {
            cluster: &self.empty_cluster,
            api,
            version: subject.version,
            namespace: subject.namespace,
            path: &subject.rest,
            label_selector: &label_selector,
            metric_label_selector: "",
        };
        let body: Option<Bytes> = match world.answer(&metrics_request) {
            MetricsReply::Json(value) => Some(value.to_string().into()),
            MetricsReply::Encoded(body) => Some(body),
            _ => None,
        };
        self.state.lock().count(group, body.as_ref());
        body
    }
}

impl State {
    fn count(&mut self, group: &'static str, body: Option<&Bytes>) {
        let counted = self.counts.entry(("list", group)).or_insert_with(|| RequestCount {
            verb: "list".to_owned(),
            resource: group.to_owned(),
            ..RequestCount::default()
        });
        counted.count += 1;
        counted.failed += u64::from(body.is_none());
        counted.sent += u64::try_from(body.map_or(0, Bytes::len)).unwrap_or(u64::MAX);
        *self.seconds.entry(now().div_euclid(1_000_000)).or_default() += 1;
    }
}

fn parameter(query: &str, name: &str) -> String {
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    // In a query, a plus sign stands for a space.
    let text = pair.unwrap_or_default().replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

fn discovery(subject: &Subject<'_>) -> Option<Bytes> {
    let (.., name, kind) = APIS.into_iter().find(|api| (api.1, api.2) == (subject.group, subject.version))?;
    let list = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{}/{}", subject.group, subject.version),
        "resources": [{"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"]}],
    });
    Some(list.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_parsed_as_the_api_server_forwards_them() {
        let expected = Subject {
            group: "metrics.k8s.io",
            version: "v1beta1",
            namespace: "team-001",
            rest: vec!["pods".to_owned()],
        };
        assert_eq!(Subject::parse("/apis/metrics.k8s.io/v1beta1/namespaces/team-001/pods"), Some(expected));
        let query = "limit=5&labelSelector=app.kubernetes.io%2Fname%3Dweb";
        assert_eq!(parameter(query, "labelSelector"), "app.kubernetes.io/name=web");
        assert!(Subject::parse("/apis/metrics.k8s.io/v1beta1").unwrap().rest.is_empty());
    }
}
