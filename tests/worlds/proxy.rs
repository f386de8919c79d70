//! The proxy between a controller and the API server. It holds syncs, injects faults and observes watches.
//!
//! The proxy speaks HTTP/1.1 only, so that a broken connection affects one request.

use std::error::Error;
use std::path::PathBuf;
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
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::controlplane::{ControlPlane, Keys};
use crate::gate::Gate;
use crate::outcome::{Context as _, Outcome};
use crate::plan::{Action, Answer, Class};
use crate::rest::Rest;

type BoxError = Box<dyn Error + Send + Sync>;
type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request without a response: the proxy closes its connection.
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
                    // A cut connection is an error of the service.
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
        // The sync continues when the body has arrived. Bodies are small, except the bodies of watches, and no
        // controller watches a single namespace.
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

/// Writes a copy of a kubeconfig that names the proxy as the server.
pub(crate) fn redirect(kubeconfig: &std::path::Path, proxy: &Proxy) -> Outcome<PathBuf> {
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    config["clusters"][0]["cluster"] = json!({
        "server": proxy.url, "certificate-authority": proxy.authority,
    });
    let path = kubeconfig.with_extension("proxy.kubeconfig");
    std::fs::write(&path, config.to_string()).context(path.display())?;
    Ok(path)
}
