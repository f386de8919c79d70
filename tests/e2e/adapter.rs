//! The metrics server as a process would be one: HTTPS on loopback, reached by
//! the API server through aggregation.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::assets::Keys;
use crate::metrics::{APIS, Metrics};
use crate::outcome::{Failure, Outcome, eventually};
use crate::rest::Rest;

const SERVICES: &str = "/api/v1/namespaces/kube-system/services";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "metrics-of-the-test";

pub(crate) struct Adapter {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Adapter {
    pub(crate) async fn start(metrics: Metrics) -> Outcome<Self> {
        let keys = Keys::generate()?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(keys.key_der));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(keys.certificate_der)], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, metrics) = (acceptor.clone(), metrics.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| {
                        let response = respond(&metrics, &request);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    // The API server closes idle connections; that is no error of ours.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { port, task })
    }

    /// Registers the three APIs and waits until the API server forwards them.
    pub(crate) async fn register(&self, api: &Rest) -> Outcome {
        let service = json!({
            "metadata": {"name": NAME},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        });
        api.create(SERVICES, &service).await?;
        for (group, ..) in APIS {
            self.register_api(api, group).await?;
        }
        for (group, ..) in APIS {
            available(api, group).await?;
        }
        Ok(())
    }

    pub(crate) async fn register_api(&self, api: &Rest, group: &str) -> Outcome {
        let (_, version, ..) = APIS.iter().find(|api| api.0 == group).ok_or("no such API")?;
        let service = json!({
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"namespace": "kube-system", "name": NAME, "port": self.port},
            },
        });
        api.create(API_SERVICES, &service).await.map(drop)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn unregister_api(api: &Rest, group: &str) -> Outcome {
    let (_, version, ..) = APIS.iter().find(|api| api.0 == group).ok_or("no such API")?;
    api.delete(&format!("{API_SERVICES}/{version}.{group}")).await.map(drop)
}

/// Waits until the API server has looked at the server behind the API and discovery names it.
pub(crate) async fn available(api: &Rest, group: &str) -> Outcome {
    let (_, version, ..) = APIS.iter().find(|api| api.0 == group).ok_or("no such API")?;
    eventually(Duration::from_secs(30), &format!("{group} is available"), async || {
        let service = api.get(&format!("{API_SERVICES}/{version}.{group}")).await?;
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        if !ready {
            return Err(Failure(format!("status {}", service["status"])));
        }
        api.get(&format!("/apis/{group}/{version}")).await?;
        let groups = api.get("/apis").await?;
        let listed =
            groups["groups"].as_array().is_some_and(|all| all.iter().any(|entry| entry["name"] == group));
        if listed { Ok(()) } else { Err(Failure("not in discovery".to_owned())) }
    })
    .await
}

fn respond(metrics: &Metrics, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy();
    let (code, media, body) = metrics.answer(&path, request.uri().query().unwrap_or_default());
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    response
}
