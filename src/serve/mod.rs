//! Health, metrics and decisions over HTTP/1.1.
//!
//! Meant for a loopback address: there is neither TLS nor a check of who asks. What a stranger can do all the same is
//! bounded: connections, header size, and the time to send a header.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | `ok` as long as the process works |
//! | `/readyz` | `ok` once the caches are filled and the API server answers |
//! | `/metrics` | Prometheus' text format |
//! | `/decisions`, `/decisions/{namespace}/{name}` | the record of decisions, as JSON (`docs/decisions.md`) |
//! | `/parity` | what a dry run has compared, as JSON (`docs/shadow.md`) |
//!
//! The health paths take `?verbose` and `?exclude=name`, and have a page per check (`/readyz/ping`), in the format of
//! Kubernetes' components. Unlike there, a failed check names its reason.

mod health;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::health::{Condition, Health, Scope};
use self::health::{all_checks, one_check};
use crate::record::{Answer, Decisions};
use crate::shadow::Parity;
use crate::telemetry::exposition;
use crate::telemetry::metrics::Metrics;

/// A client that has not sent its header by then is gone or means no good. Also ends idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// hyper's least buffer; a scrape's header is a tenth of it.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;
/// Scrapers and probes keep one or two each.
const MAX_CONNECTIONS: usize = 64;
/// How long requests under way may take after the stop.
const DRAIN: Duration = Duration::from_secs(5);
/// Before accepting again when that failed, which out of file descriptors it does at once and again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// What is served. Clones are the same.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// The checks behind the health paths.
    pub health: Health,
    /// The metrics behind `/metrics`.
    pub metrics: Metrics,
    /// The record behind `/decisions`; `None` if none is kept.
    pub decisions: Option<Decisions>,
    /// The comparison behind `/parity`; `None` if this is no dry run.
    pub parity: Option<Parity>,
}

/// Serves connections until `stop`; then ends after the requests under way, or five seconds.
pub async fn serve(listener: TcpListener, endpoints: Endpoints, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped at the end, which ends what was not drained.
    let abort = CancellationToken::new();
    let _abort = abort.clone().drop_guard();
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (endpoints, stop, abort) = (endpoints.clone(), stop.clone(), abort.clone());
                connections.spawn(async move {
                    abort.run_until_cancelled(serve_connection(stream, endpoints, stop)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for health, metrics and decisions");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    connections.close();
    // Nothing to do about those that do not end.
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

/// Serves one connection until its other side ends it, or after `stop` until the request under way is answered.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    endpoints: Endpoints,
    stop: CancellationToken,
) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = answer(&endpoints, request.method(), request.uri());
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for health, metrics and decisions broke");
    }
}

/// What a path names.
#[derive(Debug, Clone, Copy)]
enum Page<'a> {
    /// All health checks of a group, or one of them.
    Health {
        scope: Scope,
        group: &'a str,
        check: &'a str,
    },
    Metrics,
    /// What follows `/decisions`.
    Decisions(&'a str),
    Parity,
}

impl<'a> Page<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let page = path.strip_prefix('/')?;
        let (group, check) = page.split_once('/').unwrap_or((page, ""));
        match group {
            "healthz" | "livez" => Some(Self::Health { scope: Scope::Live, group, check }),
            "readyz" => Some(Self::Health { scope: Scope::Ready, group, check }),
            "metrics" if page == group => Some(Self::Metrics),
            "parity" if page == group => Some(Self::Parity),
            "decisions" => page.strip_prefix(group).map(Self::Decisions),
            _ => None,
        }
    }
}

fn answer(endpoints: &Endpoints, method: &Method, uri: &http::Uri) -> Response<Full<Bytes>> {
    let Some(page) = Page::of(uri.path()) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let (status, message) = (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        let mut response = match page {
            Page::Decisions(_) | Page::Parity => json(Answer::failure(status, message.to_owned())),
            Page::Health { .. } | Page::Metrics => plain(status, format!("405 {message}\n")),
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match page {
        Page::Metrics => typed(StatusCode::OK, exposition::CONTENT_TYPE, endpoints.metrics.render()),
        Page::Health { scope, group, check: "" } => {
            all_checks(group, &endpoints.health.states(scope), uri.query())
        }
        Page::Health { scope, check, .. } => one_check(check, endpoints.health.states(scope)),
        Page::Parity => json(endpoints.parity.as_ref().map_or_else(
            || {
                let message = "nothing is compared: this controller was started without --dry-run";
                Answer::failure(StatusCode::NOT_FOUND, message.to_owned())
            },
            Parity::answer,
        )),
        Page::Decisions(rest) => json(endpoints.decisions.as_ref().map_or_else(
            || {
                let message = "no decisions are recorded: --decisions-per-hpa is 0";
                Answer::failure(StatusCode::NOT_FOUND, message.to_owned())
            },
            |decisions| decisions.answer(rest, uri.query()),
        )),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", text)
}

fn json(answer: Answer) -> Response<Full<Bytes>> {
    typed(answer.status, "application/json", answer.json)
}

fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
