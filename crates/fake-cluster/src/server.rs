//! Serves HTTP/1.1 on one connection, which is a pipe within the process or a TCP connection. Also contains the reads
//! and writes without HTTP for callers within the process.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Cluster;
use super::faults::FaultAction;
use super::object::{self, meta};
use super::ports::Handshake;
use super::registry::ResourceType;
use super::requests::{Answer, Exchange, Link, LoggedRequest, Server, Whole};
use super::rest;
use super::route::{Call, Filter, Query, Route};
use super::status::Status;
use super::store::{BareScale, ScalePath};
use super::write::{self, DeleteOptions, Write};

/// The maximum request body in bytes, as in Kubernetes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The error of a connection that a fault closes.
#[derive(Debug, thiserror::Error)]
#[error("connection closed by a fault rule")]
struct Closed;

/// Serves a connection until it is closed.
pub(crate) async fn serve_connection(
    cluster: Cluster,
    link: Option<Arc<dyn Link>>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let service = service_fn(move |request| handle(cluster.clone(), link.clone(), request));
    // The error is ignored, because the client also observes that the connection has closed.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn handle(
    cluster: Cluster,
    link: Option<Arc<dyn Link>>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Closed> {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or("").to_owned());
    let parameters = Query::new(&query);
    let route = Route::new(request.method().as_str(), &path, &parameters);
    let handshake = Handshake::of(&mut request, &route, &parameters);
    let (head, body) = request.into_parts();
    let mut exchange = Exchange {
        verb: route.verb,
        path,
        query,
        user_agent: text(&head.headers, &USER_AGENT),
        impersonated: text(&head.headers, &IMPERSONATE_USER),
        accept: text(&head.headers, &ACCEPT),
        content_type: text(&head.headers, &CONTENT_TYPE),
        method: head.method,
        body: Bytes::new(),
    };
    exchange.body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let status = Status::too_large(BODY_LIMIT);
            let number = log(&cluster, &exchange);
            cluster.requests().answered(number, status.code);
            return respond(Answer::status(&status), cluster.now());
        }
        Err(_) => return Err(Closed),
    };
    let answer = match link {
        Some(link) => link.carry(exchange, Server::new(cluster.clone())).await,
        None => answer(&cluster, exchange).await,
    };
    if answer.code() == Some(101) {
        let accepted = match handshake {
            Some(handshake) => handshake.accept(&cluster),
            None => Err(Status::bad_request("Upgrade request required")),
        };
        return accepted.or_else(|status| respond(status.into(), cluster.now()));
    }
    respond(answer, cluster.now())
}

fn log(cluster: &Cluster, exchange: &Exchange) -> u64 {
    cluster.requests().add(|| LoggedRequest {
        at: cluster.now(),
        verb: exchange.verb,
        path: exchange.path.clone(),
        query: exchange.query.clone(),
        user_agent: exchange.user_agent.clone(),
        body: Bytes::new(),
        code: None,
    })
}

impl Server {
    /// Returns the cluster's response to a request. The cluster logs the request and applies its fault rules. A link
    /// may send a request several times, even after the client has cancelled it.
    pub async fn answer(&self, exchange: Exchange) -> Answer {
        answer(self.cluster(), exchange).await
    }
}

/// Returns the cluster's response to a complete request, after the latencies of both.
async fn answer(cluster: &Cluster, exchange: Exchange) -> Answer {
    let path = exchange.path.clone();
    cluster.travel(&path).await;
    let answer = answer_now(cluster, exchange).await;
    cluster.travel(&path).await;
    cluster.delayed(answer)
}

async fn answer_now(cluster: &Cluster, exchange: Exchange) -> Answer {
    let query = Query::new(&exchange.query);
    let route = Route::new(exchange.method.as_str(), &exchange.path, &query);
    let subject = route.subject(&exchange.user_agent, &exchange.impersonated);
    let requests = cluster.requests();
    let number = log(cluster, &exchange);
    requests.received(number, &exchange.body);
    let mut passed = Vec::new();
    let mut after = None;
    let mut early = None;
    while let Some(action) = cluster.faults().for_request(&subject, &mut passed) {
        match action {
            FaultAction::Delay(delay) => {
                tokio::time::sleep(delay).await;
                continue;
            }
            FaultAction::Silence => return std::future::pending().await,
            FaultAction::Close => return Answer::Broken,
            FaultAction::Status(status) => early = Some(Answer::status(&status)),
            FaultAction::Text { code, body } => early = Some(Answer::text(code, body)),
            FaultAction::Body(body) => early = Some(Answer::json(200, body)),
            FaultAction::RetryAfter { code, seconds } => {
                let mut status = Status::too_many_requests(seconds);
                if code != 429 {
                    let message = "the server is currently unable to handle the request";
                    status = Status {
                        retry_after: Some(seconds),
                        ..Status::new(code, "ServiceUnavailable", message)
                    };
                }
                early = Some(Answer::status(&status));
            }
            other => after = Some(other),
        }
        break;
    }
    let answer = early.unwrap_or_else(|| {
        let Exchange { accept, content_type, user_agent, body, .. } = exchange;
        rest::answer(cluster, &Call { route, query, accept, content_type, user_agent, body })
    });
    let mut cut = None;
    match after {
        Some(FaultAction::DelayAnswer(delay)) => tokio::time::sleep(delay).await,
        Some(FaultAction::SilenceAfterApplying) => return std::future::pending().await,
        Some(FaultAction::CloseAfterApplying) => return Answer::Broken,
        Some(FaultAction::Truncate(length)) => cut = Some(length),
        _ => {}
    }
    if let Some(code) = answer.code() {
        requests.answered(number, code);
    }
    match (answer, cut) {
        (Answer::Whole(whole), Some(length)) if length < whole.body.len() => Answer::Cut(whole, length),
        (answer, _) => answer,
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn respond(answer: Answer, now: Timestamp) -> Result<Response<Body>, Closed> {
    let (code, content_type, retry_after, length, body) = match answer {
        Answer::Whole(Whole { code, content_type, retry_after, body }) => {
            let body = Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync();
            (code, content_type, retry_after, None, body)
        }
        Answer::Cut(Whole { code, content_type, retry_after, body }, length) => {
            let announced = body.len();
            let sent = stream::iter([Ok(Frame::data(body.slice(..length.min(announced))))]);
            let ended = stream::once(async {
                // hyper flushes buffered data, including the headers, only while the body is pending.
                tokio::task::yield_now().await;
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, Closed))
            });
            let body = StreamBody::new(sent.chain(ended)).boxed_unsync();
            (code, content_type, retry_after, Some(announced), body)
        }
        Answer::Pieces(pieces) => {
            let body = StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync();
            (200, "application/json", None, None, body)
        }
        Answer::Broken => return Err(Closed),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // The date comes from the cluster's clock, because hyper would use the system's clock.
    if let Some(date) = date(now) {
        headers.insert(DATE, date);
    }
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let Some(length) = length {
        headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

/// Formats a time such as `Tue, 01 Jan 2030 00:00:07 GMT`. Returns `None` if the format cannot represent the year.
fn date(now: Timestamp) -> Option<HeaderValue> {
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()?;
    HeaderValue::from_str(&text).ok()
}

impl Cluster {
    /// Creates an object by the rules of a POST. Unlike a POST, it first creates a missing namespace.
    pub fn create(&self, object: Value) -> Result<Value, Status> {
        let ty = type_of(&object)?;
        let namespace = namespace_of(ty, &object);
        let mut state = self.lock();
        write::ensure_namespace(&mut state, &namespace, self.now());
        let stored = write::create(&mut state, ty, &namespace, object, &self.write())?;
        drop(state);
        Ok(stored.value())
    }

    /// Updates an object, by the rules of a PUT.
    pub fn update(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), meta(&object, "name").to_owned());
        write::update(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Updates the status of an object, by the rules of a PUT of the status subresource.
    pub fn update_status(&self, object: Value) -> Result<(), Status> {
        let ty = type_of(&object)?;
        let (namespace, name) = (namespace_of(ty, &object), meta(&object, "name").to_owned());
        write::update_status(&mut self.lock(), ty, &namespace, &name, object, &self.write())?;
        Ok(())
    }

    /// Returns an object. `resource` is `group/resource`, or the resource alone in the core group: `apps/deployments`,
    /// `pods`. `namespace` is empty for cluster-scoped types.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let ty = ResourceType::named(resource)?;
        let stored = self.lock().get(ty, namespace, name).cloned();
        stored.map(|stored| stored.value())
    }

    /// Lists the objects of a resource in one namespace or in all, ordered by namespace and name.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value> {
        self.select(resource, namespace, "").unwrap_or_default()
    }

    /// Lists the objects of a resource with labels that match a selector in text form, ordered by namespace and name.
    pub fn select(
        &self,
        resource: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, Status> {
        let Some(ty) = ResourceType::named(resource) else {
            return Ok(Vec::new());
        };
        let filter = Filter::by_labels(labels)?;
        let matching: Vec<_> = {
            let state = self.lock();
            state.list(ty, namespace, None).filter(|stored| filter.matches(stored)).cloned().collect()
        };
        Ok(matching.iter().map(|stored| stored.value()).collect())
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, resource: &str) -> usize {
        ResourceType::named(resource).map_or(0, |ty| self.lock().count(ty))
    }

    /// Deletes an object by the rules of a DELETE without options and returns its last state. Pods on a node get a
    /// deletionTimestamp and remain until [`Cluster::delete_now`] deletes them.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        self.delete_with(resource, namespace, name, &DeleteOptions::default())
    }

    /// Deletes an object without a grace period, as the kubelet does when a pod has ended.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
        let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
        self.delete_with(resource, namespace, name, &options)
    }

    /// Stores an object without defaulting and validation, and notifies watches. Missing required fields are filled in:
    /// uid, creationTimestamp, generation and the namespace.
    ///
    /// An object of an unregistered kind is not stored and is returned unchanged.
    pub fn put_raw(&self, object: Value) -> Value {
        let Ok(ty) = type_of(&object) else { return object };
        write::put_raw(&mut self.lock(), ty, object, self.now()).value()
    }

    /// Creates or changes an object of a namespaced type from the JSON text of its spec, without defaulting and
    /// validation. The text is copied and not parsed, so a spec of several megabytes is cheap. An unregistered resource
    /// is ignored.
    pub fn put_spec(&self, resource: &str, namespace: &str, name: &str, spec: &str) {
        if let Some(ty) = ResourceType::named(resource) {
            write::put_spec(&mut self.lock(), ty, namespace, name, spec, self.now());
        }
    }

    /// Adds a scale target without a workload object. The target serves GET, PUT and PATCH of its path and takes
    /// precedence over a workload of the same name. The selector may be any text.
    pub fn put_scale(&self, path: &ScalePath, scale: BareScale) {
        self.lock().set_scale(path.clone(), scale);
    }

    /// Returns the current state of a bare scale target.
    pub fn scale(&self, path: &ScalePath) -> Option<BareScale> {
        self.lock().scale(path).map(|(scale, _)| scale.clone())
    }

    /// Removes a bare scale target.
    pub fn remove_scale(&self, path: &ScalePath) {
        self.lock().remove_scale(path);
    }

    fn delete_with(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value, Status> {
        let ty = ResourceType::named(resource).ok_or_else(Status::unknown_resource)?;
        let (stored, _) = write::delete(&mut self.lock(), ty, namespace, name, options, &self.write())?;
        Ok(stored.value())
    }

    fn write(&self) -> Write<'static> {
        Write { now: self.now(), dry_run: false, manager: None, subresource: "" }
    }
}

fn type_of(object: &Value) -> Result<&'static ResourceType, Status> {
    let (version, kind) = (object::text(object, &["apiVersion"]), object::text(object, &["kind"]));
    ResourceType::for_kind(version, kind)
        .ok_or_else(|| Status::bad_request(format!("no kind {kind:?} is registered for version {version:?}")))
}

/// Returns the namespace for a write from within the process: `default` if the object has none.
fn namespace_of(ty: &ResourceType, object: &Value) -> String {
    match meta(object, "namespace") {
        "" if ty.namespaced => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}
