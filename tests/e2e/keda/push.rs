//! An external push scaler of KEDA: the gRPC service `externalscaler.ExternalScaler` with one metric.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::outcome::Outcome;

/// The value of the metric per replica.
pub(crate) const TARGET: u8 = 10;
const METRIC: &str = "mails";

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) struct PushScaler {
    pub(crate) port: u16,
    value: watch::Sender<u8>,
    task: JoinHandle<()>,
}

impl PushScaler {
    /// Starts the service with the value 0. Every other value is active.
    pub(crate) async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (value, values) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let values = values.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let response = respond(&request, values.clone());
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // KEDA closes connections, which is not an error.
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        Ok(Self { port, value, task })
    }

    /// Sets the value of the metric, and pushes whether it is active. The value is at most 127.
    pub(crate) fn set(&self, value: u8) {
        self.value.send_replace(value);
    }
}

impl Drop for PushScaler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn respond(request: &Request<Incoming>, values: watch::Receiver<u8>) -> Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default();
    let value = *values.borrow();
    let body = match method {
        "IsActive" => once(activity(value)),
        "StreamIsActive" => pushed(values),
        "GetMetricSpec" => once(metric(TARGET)),
        "GetMetrics" => once(metric(value)),
        _ => return response(stream::empty().boxed(), Some("12")),
    };
    response(body, None)
}

type Messages = stream::BoxStream<'static, Vec<u8>>;

fn once(message: Vec<u8>) -> Messages {
    stream::iter([message]).boxed()
}

/// The current activity, and the activity after each change.
fn pushed(mut values: watch::Receiver<u8>) -> Messages {
    values.mark_changed();
    stream::unfold(values, |mut values| async {
        values.changed().await.ok()?;
        let value = *values.borrow_and_update();
        Some((activity(value), values))
    })
    .boxed()
}

/// A response with messages and the status in its trailers, or only with a status.
fn response(messages: Messages, status: Option<&'static str>) -> Response<Body> {
    let frames = messages.map(|message| {
        let mut frame = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap_or(u8::MAX)];
        frame.extend(message);
        Frame::data(Bytes::from(frame))
    });
    let mut end = HeaderMap::new();
    end.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = frames.chain(stream::iter([Frame::trailers(end)])).map(Ok);
    let body = match status {
        None => StreamBody::new(frames).boxed_unsync(),
        Some(_) => http_body_util::Empty::new().boxed_unsync(),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(status) = status {
        response.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
    }
    response
}

/// An `IsActiveResponse`.
fn activity(value: u8) -> Vec<u8> {
    if value > 0 { vec![0x08, 1] } else { Vec::new() }
}

/// A `GetMetricSpecResponse` or a `GetMetricsResponse`: a list with a name and an integer.
fn metric(value: u8) -> Vec<u8> {
    let mut entry = bytes(METRIC.as_bytes());
    entry.extend([0x10, value]);
    bytes(&entry)
}

/// The first field of a message, with its length.
fn bytes(content: &[u8]) -> Vec<u8> {
    let mut field = vec![0x0a, u8::try_from(content.len()).unwrap_or(u8::MAX)];
    field.extend(content);
    field
}
