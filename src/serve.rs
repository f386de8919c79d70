//! Health and metrics over HTTP/1.1.
//!
//! Meant for a loopback address: there is neither TLS nor a check of who asks. What a stranger can do all the same is
//! bounded: connections, header size, and the time to send a header.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | `ok` as long as the process works |
//! | `/readyz` | `ok` once the caches are filled and the API server answers |
//! | `/metrics` | Prometheus' text format |
//!
//! The health paths take `?verbose` and `?exclude=name`, and have a page per check (`/readyz/ping`), in the format of
//! Kubernetes' components. Unlike there, a failed check names its reason.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::{self, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
}

/// The named health checks, in the order in which they were added. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Vec<Check>>>);

struct Check {
    name: String,
    scope: Scope,
    state: Box<dyn Fn() -> Result<(), String> + Send>,
}

/// Which question a check belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Does the process work? If not, it should be restarted. Counts for `/livez`, `/healthz` and `/readyz`.
    Live,
    /// Does it do its work now? Counts for `/readyz` only.
    Ready,
}

/// A health check whose state is told rather than asked for. Clones are the same check.
#[derive(Debug, Clone)]
pub struct Condition(Arc<Mutex<Result<(), String>>>);

impl Health {
    /// No checks but `ping`, which holds if anyone answers at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that is asked at every request; an error says why it does not hold. Must not block.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        self.lock().push(Check { name: name.into(), scope, state: Box::new(state) });
    }

    /// Adds a check that is told when it holds; until then it fails with this reason.
    pub fn condition(&self, name: impl Into<String>, scope: Scope, reason: impl Into<String>) -> Condition {
        let condition = Condition(Arc::new(Mutex::new(Err(reason.into()))));
        let state = condition.clone();
        self.add(name, scope, move || state.lock().clone());
        condition
    }

    /// The names of the checks that fail, with the reason.
    pub fn failing(&self, scope: Scope) -> Vec<(String, String)> {
        let failing = |check: &Check| Some((check.name.clone(), (check.state)().err()?));
        self.lock().iter().filter(|check| check.counts_for(scope)).filter_map(failing).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Check>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and state of everything that counts.
    fn states(&self, scope: Scope) -> Vec<(String, Result<(), String>)> {
        let mut states = vec![("ping".to_owned(), Ok(()))];
        let checks = self.lock();
        let counting = checks.iter().filter(|check| check.counts_for(scope));
        states.extend(counting.map(|check| (check.name.clone(), (check.state)())));
        states
    }
}

impl Condition {
    /// It holds.
    pub fn holds(&self) {
        *self.lock() = Ok(());
    }

    /// It does not hold.
    pub fn fails(&self, reason: impl Into<String>) {
        *self.lock() = Err(reason.into());
    }

    fn lock(&self) -> MutexGuard<'_, Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    fn counts_for(&self, scope: Scope) -> bool {
        self.scope == Scope::Live || scope == Scope::Ready
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} check {}", self.scope, self.name)
    }
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
                tracing::warn!(%error, "cannot accept a connection for health and metrics");
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
        tracing::debug!(%error, "a connection for health and metrics broke");
    }
}

fn answer(endpoints: &Endpoints, method: &Method, uri: &http::Uri) -> Response<Full<Bytes>> {
    let path = uri.path();
    let page = path.trim_start_matches('/');
    let (group, check) = page.split_once('/').unwrap_or((page, ""));
    let scope = match group {
        "healthz" | "livez" => Some(Scope::Live),
        "readyz" => Some(Scope::Ready),
        _ => None,
    };
    if scope.is_none() && path != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response =
            plain(StatusCode::METHOD_NOT_ALLOWED, "405 only GET and HEAD are answered\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match scope {
        None => {
            let mut response = plain(StatusCode::OK, endpoints.metrics.render());
            let content_type = HeaderValue::from_static(exposition::CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Some(scope) if check.is_empty() => all_checks(group, &endpoints.health.states(scope), uri.query()),
        Some(scope) => one_check(check, endpoints.health.states(scope)),
    }
}

fn one_check(name: &str, states: Vec<(String, Result<(), String>)>) -> Response<Full<Bytes>> {
    match states.into_iter().find(|(other, _)| *other == name) {
        None => plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        Some((_, Ok(()))) => plain(StatusCode::OK, "ok".to_owned()),
        Some((_, Err(reason))) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
    }
}

fn all_checks(
    group: &str,
    states: &[(String, Result<(), String>)],
    query: Option<&str>,
) -> Response<Full<Bytes>> {
    let query: Vec<_> =
        query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let mut excluded: BTreeSet<&str> =
        query.iter().filter(|(key, _)| *key == "exclude").map(|(_, name)| *name).collect();
    let (mut text, mut failed) = (String::new(), false);
    for (name, state) in states {
        // Writing to a string cannot fail.
        let _ = match state {
            _ if excluded.remove(name.as_str()) => writeln!(text, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(reason) => {
                failed = true;
                writeln!(text, "[-]{name} failed: {reason}")
            }
        };
    }
    if !excluded.is_empty() {
        let names: Vec<_> = excluded.iter().map(|name| format!("\"{}\"", name.escape_debug())).collect();
        let names = names.join(",");
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    if failed {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{group} check failed\n"));
    }
    if query.iter().any(|(key, _)| *key == "verbose") {
        return plain(StatusCode::OK, format!("{text}{group} check passed\n"));
    }
    plain(StatusCode::OK, "ok".to_owned())
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    fn endpoints() -> Endpoints {
        Endpoints { health: Health::new(), metrics: Metrics::new() }
    }

    /// Status line's code, header text and body of one request on a connection of its own.
    async fn ask(endpoints: &Endpoints, request_line: &str) -> (u16, String, String) {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let server = tokio::spawn(serve_connection(server, endpoints.clone(), CancellationToken::new()));
        let request = format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        server.await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    #[tokio::test]
    async fn a_process_is_live_before_it_is_ready() {
        let endpoints = endpoints();
        let informer = endpoints.health.condition("hpa-informer", Scope::Ready, "no list yet");
        for path in ["/healthz", "/livez"] {
            let (status, _, body) = ask(&endpoints, &format!("GET {path}")).await;
            assert_eq!((status, body.as_str()), (200, "ok"));
        }
        let (status, _, body) = ask(&endpoints, "GET /readyz").await;
        assert_eq!(status, 500);
        assert_eq!(body, "[+]ping ok\n[-]hpa-informer failed: no list yet\nreadyz check failed\n");
        assert_eq!(endpoints.health.failing(Scope::Ready), [("hpa-informer".into(), "no list yet".into())]);

        informer.holds();
        let (status, head, body) = ask(&endpoints, "GET /readyz").await;
        assert_eq!((status, body.as_str()), (200, "ok"));
        assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
        assert!(endpoints.health.failing(Scope::Ready).is_empty());

        informer.fails("watch ended");
        assert_eq!(ask(&endpoints, "GET /readyz").await.0, 500);
    }

    #[tokio::test]
    async fn a_dead_process_is_not_ready_either() {
        let endpoints = endpoints();
        endpoints.health.add("workers", Scope::Live, || Err("stuck".into()));
        assert_eq!(ask(&endpoints, "GET /livez").await.0, 500);
        let (status, _, body) = ask(&endpoints, "GET /readyz?verbose").await;
        assert_eq!(
            (status, body.as_str()),
            (500, "[+]ping ok\n[-]workers failed: stuck\nreadyz check failed\n")
        );
    }

    #[tokio::test]
    async fn checks_can_be_listed_excluded_and_asked_one_by_one() {
        let endpoints = endpoints();
        endpoints.health.condition("permissions", Scope::Ready, "cannot list pods");
        let (status, _, body) = ask(&endpoints, "GET /readyz?verbose&exclude=permissions&exclude=x").await;
        assert_eq!(status, 200);
        let expected = "[+]ping ok\n[+]permissions excluded: ok\n\
                        warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n";
        assert_eq!(body, expected);
        assert_eq!(ask(&endpoints, "GET /livez?verbose").await.2, "[+]ping ok\nlivez check passed\n");
        assert_eq!(ask(&endpoints, "GET /readyz/ping").await.2, "ok");
        let (status, _, body) = ask(&endpoints, "GET /readyz/permissions").await;
        assert_eq!((status, body.as_str()), (500, "internal server error: cannot list pods\n"));
        assert_eq!(ask(&endpoints, "GET /livez/permissions").await.0, 404);
    }

    #[tokio::test]
    async fn metrics_are_served_in_the_text_format() {
        let (status, head, body) = ask(&endpoints(), "GET /metrics").await;
        assert_eq!(status, 200);
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(body.contains("# TYPE concertina_build_info gauge\n"), "{body}");
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        let endpoints = endpoints();
        for path in ["/", "/metric", "/metrics/x", "/readyzz", "/debug/pprof"] {
            assert_eq!(ask(&endpoints, &format!("GET {path}")).await.0, 404, "{path}");
        }
        let (status, head, _) = ask(&endpoints, "POST /metrics").await;
        assert!(status == 405 && head.contains("allow: get, head"), "{head}");
        let (status, _, body) = ask(&endpoints, "HEAD /livez").await;
        assert_eq!((status, body.as_str()), (200, ""));
        let long = format!("GET /livez?{}", "x".repeat(16 * 1024));
        assert!(matches!(ask(&endpoints, &long).await.0, 414 | 431));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_finishes_its_header_is_cut_off() {
        let (mut client, server) = tokio::io::duplex(1024);
        let server = tokio::spawn(serve_connection(server, endpoints(), CancellationToken::new()));
        client.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
        let start = tokio::time::Instant::now();
        server.await.unwrap();
        assert_eq!(start.elapsed(), HEADER_TIMEOUT);
    }

    #[tokio::test]
    async fn a_port_is_served_until_the_stop_and_then_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, endpoints(), stop.clone()));
        // Left open and idle: it must not hold up the stop.
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        stop.cancel();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
