//! HTTP/1.1 for one connection: in process over a pipe, or over TCP, by the same code.

use std::convert::Infallible;
use std::io;

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
use tokio::io::{AsyncRead, AsyncWrite};

use super::Cluster;
use super::faults::FaultAction;
use super::object;
use super::requests::LoggedRequest;
use super::rest::{self, Call, Reply};
use super::route::{Query, Route};
use super::status::Status;

/// The largest body that is taken, as in Kubernetes.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A fault closes the connection.
#[derive(Debug, thiserror::Error)]
#[error("connection closed by a fault rule")]
struct Closed;

/// Serves a connection until either side ends it.
pub(crate) async fn serve_connection(
    cluster: Cluster,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let service = service_fn(move |request| handle(cluster.clone(), request));
    // How a connection ends is the client's business: it sees the same end, and there is nobody else to tell.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn handle(cluster: Cluster, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
    let (head, body) = request.into_parts();
    let query_text = head.uri.query().unwrap_or("");
    let query = Query::new(query_text);
    let route = Route::new(head.method.as_str(), head.uri.path(), &query);
    let user_agent = text(&head.headers, &USER_AGENT);
    let subject = route.subject(&user_agent);
    let requests = cluster.requests();
    let number = requests.add(|| LoggedRequest {
        at: cluster.now(),
        verb: route.verb,
        path: route.path.clone(),
        query: query_text.to_owned(),
        user_agent: user_agent.clone(),
        body: Bytes::new(),
        code: None,
    });
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let reply = Reply::Failure(Status::too_large(BODY_LIMIT));
            requests.answered(number, reply.code());
            return Ok(respond(reply, None, cluster.now()));
        }
        Err(_) => return Err(Closed),
    };
    requests.received(number, &body);
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
            FaultAction::Close => return Err(Closed),
            FaultAction::Status(status) => early = Some(Reply::Failure(status)),
            FaultAction::Text { code, body } => early = Some(Reply::Text(code, body)),
            FaultAction::Body(body) => early = Some(Reply::Json(200, body.into())),
            FaultAction::RetryAfter { code, seconds } => {
                let mut status = Status::too_many_requests(seconds);
                if code != 429 {
                    let message = "the server is currently unable to handle the request";
                    status = Status {
                        retry_after: Some(seconds),
                        ..Status::new(code, "ServiceUnavailable", message)
                    };
                }
                early = Some(Reply::Failure(status));
            }
            other => after = Some(other),
        }
        break;
    }
    let reply = early.unwrap_or_else(|| {
        let accept = text(&head.headers, &ACCEPT);
        let content_type = text(&head.headers, &CONTENT_TYPE);
        rest::answer(&cluster, &Call { route, query, accept, content_type, user_agent, body })
    });
    let mut cut = None;
    match after {
        Some(FaultAction::DelayAnswer(delay)) => tokio::time::sleep(delay).await,
        Some(FaultAction::SilenceAfterApplying) => return std::future::pending().await,
        Some(FaultAction::CloseAfterApplying) => return Err(Closed),
        Some(FaultAction::Truncate(length)) => cut = Some(length),
        _ => {}
    }
    requests.answered(number, reply.code());
    Ok(respond(reply, cut, cluster.now()))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn respond(reply: Reply, cut: Option<usize>, now: Timestamp) -> Response<Body> {
    let code = StatusCode::from_u16(reply.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut retry_after = None;
    let (content_type, body) = match reply {
        Reply::Json(_, bytes) => ("application/json", whole_or_cut(bytes, cut)),
        Reply::Text(_, text) => ("text/plain; charset=utf-8", whole_or_cut(text.into(), cut)),
        Reply::Failure(status) => {
            retry_after = status.retry_after;
            ("application/json", whole_or_cut(object::encode(&status.to_json()).into(), cut))
        }
        Reply::Watch(watcher) => {
            let pieces = stream::unfold(watcher, |mut watcher| async move {
                let piece = watcher.next().await?;
                Some((Ok(Frame::data(piece)), watcher))
            });
            ("application/json", (None, StreamBody::new(pieces).boxed_unsync()))
        }
    };
    let (length, body) = body;
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // By the cluster's clock: hyper would take the system's.
    if let Some(date) = date(now) {
        headers.insert(DATE, date);
    }
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let Some(length) = length {
        headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    response
}

/// `Tue, 01 Jan 2030 00:00:07 GMT`; none for a year that the format does not have.
fn date(now: Timestamp) -> Option<HeaderValue> {
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()?;
    HeaderValue::from_str(&text).ok()
}

/// A body, and its length where it must be announced because less than that will come.
fn whole_or_cut(bytes: Bytes, cut: Option<usize>) -> (Option<usize>, Body) {
    let Some(cut) = cut.filter(|cut| *cut < bytes.len()) else {
        return (None, Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync());
    };
    let length = bytes.len();
    let ended = io::Error::new(io::ErrorKind::ConnectionAborted, Closed);
    let pieces = stream::iter([Ok(Frame::data(bytes.slice(..cut)))]).chain(stream::iter([Err(ended)]));
    (Some(length), StreamBody::new(pieces).boxed_unsync())
}
