//! Serves the metrics APIs as a metrics adapter does, over HTTPS behind the aggregation layer of the API server.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::controlplane::Keys;
use crate::extensions;
use crate::metrics::APIS;
use crate::outcome::Outcome;
use crate::rest::Rest;

pub(crate) struct Adapter {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Adapter {
    /// Starts a server on loopback. `answer` returns the status code, the media type and the body of each response.
    pub(crate) async fn start(
        answer: impl Fn(&Received) -> (u16, &'static str, String) + Clone + Send + Sync + 'static,
    ) -> Outcome<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), answer).await
    }

    /// Like [`Self::start`], but at another address.
    pub(crate) async fn start_at(
        address: IpAddr,
        answer: impl Fn(&Received) -> (u16, &'static str, String) + Clone + Send + Sync + 'static,
    ) -> Outcome<Self> {
        let keys = Keys::generate()?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(keys.key_der));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(keys.certificate_der)], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| {
                        let answer = answer.clone();
                        async move { Ok::<_, Infallible>(respond(&answer, request).await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    // The API server closes idle connections, which is not an error.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { port, task })
    }

    /// Registers all APIs and waits until the API server proxies them.
    pub(crate) async fn register(&self, api: &Rest) -> Outcome {
        extensions::name(api, self.port).await?;
        for (group, ..) in APIS {
            self.register_api(api, group).await?;
        }
        for (group, ..) in APIS {
            available(api, group).await?;
        }
        Ok(())
    }

    pub(crate) async fn register_api(&self, api: &Rest, group: &str) -> Outcome {
        extensions::register(api, self.port, group, version(group)?).await
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn unregister_api(api: &Rest, group: &str) -> Outcome {
    extensions::unregister(api, group, version(group)?).await
}

/// Waits until the API server has reached the server of the API and lists the API in discovery.
pub(crate) async fn available(api: &Rest, group: &str) -> Outcome {
    extensions::available(api, group, version(group)?).await
}

fn version(group: &str) -> Outcome<&'static str> {
    Ok(APIS.iter().find(|api| api.0 == group).ok_or("unknown API group")?.1)
}

/// A request, decoded.
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Bytes,
}

async fn respond(
    answer: &impl Fn(&Received) -> (u16, &'static str, String),
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy();
    let received = Received {
        method: request.method().clone(),
        path: path.into_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        body: request
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default(),
    };
    let (code, media, body) = answer(&received);
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    response
}
