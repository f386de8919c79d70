//! The HTTP server of the page: HTTP/1.1 on a loopback address, GET only, bounded in connections, headers and
//! responses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::client::Client;
use cluster::jitter::Jitter;
use cluster::watch::{Handle, Hpas, WatchOptions, watch};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::store::Store;
use crate::{Explain, Subject, assets, headers, stream};

/// Maximum number of connections. A browser opens at most six.
const MAX_CONNECTIONS: usize = 64;
/// Maximum size of a request's headers, in bytes.
const MAX_HEADERS: usize = 16 << 10;
/// Time limit for the headers of a request, and for an idle connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Time limit of an explanation.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(30);
/// Pause after a failed accept. While the process has no free file descriptors, another accept would fail at
/// once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The console of one cluster.
#[derive(Debug, Clone)]
pub struct Console {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    access: Access,
    store: Store,
    handle: Handle,
    explain: Arc<dyn Explain>,
}

impl Console {
    /// Creates the console of a cluster, and the watch that fills it. `watching` is a client without a token
    /// bucket, and `namespace` limits the watch. The watch runs until the returned future is dropped.
    pub fn new(
        access: Access,
        store: &Store,
        watching: Client,
        namespace: Option<&str>,
        explain: Arc<dyn Explain>,
    ) -> (Self, BoxFuture<'static, ()>) {
        let options = WatchOptions {
            namespace: namespace.map(Into::into),
            // A person waits for the view.
            longest_wait: Duration::from_secs(3),
            jitter: Jitter::seeded(0),
            ..WatchOptions::default()
        };
        let (handle, watch) = watch::<Hpas, _>(watching, options, store.clone());
        let shared = Shared { access, store: store.clone(), handle, explain };
        (Self { shared: Arc::new(shared) }, watch)
    }

    /// Serves the page until `stop`. Open connections then end at once, because the page connects again.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => {
                    // A connection above the limit is closed. Browsers try again.
                    let Ok(permit) = Arc::clone(&free).try_acquire_owned() else { continue };
                    let connection = self.clone().connection(stream, client);
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        stop.run_until_cancelled(connection).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection of the console");
                    stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn connection(self, stream: TcpStream, client: SocketAddr) {
        let service = service_fn(move |request| {
            let console = self.clone();
            async move { Ok::<_, Infallible>(console.respond(request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%client, %error, "connection of the console ended");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let shared = &self.shared;
        let path = request.uri().path();
        let mut response = match shared.access.check(request.method(), path, request.headers()) {
            Ok(rest) => self.route(rest).await,
            Err(refusal) => text(refusal.status(), refusal.text()),
        };
        headers::protect(response.headers_mut());
        response
    }

    async fn route(&self, path: &str) -> Response<Body> {
        if let Some(asset) = assets::find(path) {
            return response(StatusCode::OK, asset.kind, asset.body);
        }
        if path == "figure.css" {
            return response(StatusCode::OK, "text/css; charset=utf-8", self.shared.explain.style());
        }
        if path == "stream" {
            let events = stream::events(&self.shared.store, &self.shared.handle);
            let body = StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync();
            return typed(StatusCode::OK, "text/event-stream", body);
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            ["hpas", namespace, name] => match (decoded(namespace), decoded(name)) {
                (Some(namespace), Some(name)) => self.explanation(namespace, name).await,
                _ => text(StatusCode::BAD_REQUEST, "the name is not UTF-8\n"),
            },
            _ => text(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    async fn explanation(&self, namespace: String, name: String) -> Response<Body> {
        let history = self.shared.store.history(&namespace, &name);
        let subject = Subject { namespace, name, history };
        match timeout(EXPLAIN_WITHIN, self.shared.explain.explain(subject)).await {
            Ok(Ok(document)) => response(StatusCode::OK, "application/json", document),
            Ok(Err(error)) => text(StatusCode::BAD_GATEWAY, error),
            Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "the cluster did not respond within 30 s\n"),
        }
    }
}

fn decoded(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    response(status, "text/plain; charset=utf-8", text)
}

fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    typed(status, kind, Full::new(body.into()).boxed_unsync())
}

fn typed(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
