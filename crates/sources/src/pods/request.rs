//! Requests for pages of pods.
//!
//! Without a request in flight, a connection consists of its socket alone. hyper's buffers, 40 KiB for each connection,
//! exist only during a request, so their number depends on the requests in flight, not on the pods.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::poll_fn;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::pages::PageKey;
use crate::dial::{Dial, Io};
use crate::http::{IDLE, RequestError, USER, chain};

/// Size of the read buffer in bytes. It is larger than most pages, and limits the size of the headers.
const BUFFER: usize = 32 << 10;
/// The formats that the parser reads. The simpler format is preferred, because it needs no `# EOF`.
const FORMATS: HeaderValue = HeaderValue::from_static(
    "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5",
);

/// A connection without a request in flight.
pub(super) struct IdleConnection {
    io: Box<dyn Io>,
    /// The [`Dial`] that opened the connection. Only requests with the same [`Dial`] reuse it.
    dial: Arc<dyn Dial>,
    since: Instant,
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnection").field("since", &self.since).finish_non_exhaustive()
    }
}

/// A response whose body is read in pieces.
pub(super) struct Response {
    pub(super) status: StatusCode,
    /// `Content-Type`, or empty.
    pub(super) content_type: String,
    body: Incoming,
    exchange: Exchange,
    dial: Arc<dyn Dial>,
}

/// A connection with one request.
struct Exchange {
    connection: Connection<TokioIo<Box<dyn Io>>, Empty<Bytes>>,
    /// Kept alive, because the connection closes after the response if the sender is dropped.
    sender: SendRequest<Empty<Bytes>>,
    has_ended: bool,
}

/// Sends a GET request over the idle connection, if that connection is usable, otherwise over a new connection. Returns
/// once the response headers have arrived. A redirect is an error.
pub(super) async fn get(
    dial: Arc<dyn Dial>,
    idle: Option<IdleConnection>,
    page: &PageKey,
    token: Option<&HeaderValue>,
) -> Result<Response, RequestError> {
    let known = idle.filter(|idle| Arc::ptr_eq(&idle.dial, &dial) && idle.since.elapsed() < IDLE);
    if let Some(idle) = known {
        // The pod may have closed the connection. A GET request can be retried.
        if let Ok(response) = send(idle.io, &dial, request(page, token)?).await {
            return Ok(response);
        }
    }
    // The scheme is `http` even for a page over TLS, because the `Dial` of a transport adds TLS.
    let to = Uri::builder().scheme("http").authority(page.address.to_string()).path_and_query("/").build();
    let to = to.map_err(|error| RequestError::Invalid(error.to_string()))?;
    let io = dial.dial(to).await.map_err(|error| RequestError::Connection(chain(&error)))?;
    send(io, &dial, request(page, token)?).await
}

fn request(page: &PageKey, token: Option<&HeaderValue>) -> Result<Request<Empty<Bytes>>, RequestError> {
    let mut request = Request::get(&*page.path)
        .header(HOST, page.address.to_string())
        .header(ACCEPT, FORMATS)
        .header(USER_AGENT, USER);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    request.body(Empty::new()).map_err(|error| RequestError::Invalid(error.to_string()))
}

async fn send(
    io: Box<dyn Io>,
    dial: &Arc<dyn Dial>,
    request: Request<Empty<Bytes>>,
) -> Result<Response, RequestError> {
    let failed = |error: hyper::Error| RequestError::Connection(chain(&error));
    let (sender, connection) =
        Builder::new().read_buf_exact_size(Some(BUFFER)).handshake(TokioIo::new(io)).await.map_err(failed)?;
    let mut exchange = Exchange { connection, sender, has_ended: false };
    let mut sending = pin!(exchange.sender.send_request(request));
    let (connection, has_ended) = (&mut exchange.connection, &mut exchange.has_ended);
    let response = poll_fn(|cx| {
        // A read before the request is sent detects that the pod has closed an idle connection.
        drive(connection, has_ended, cx);
        sending.as_mut().poll(cx)
    });
    let (parts, body) = response.await.map_err(failed)?.into_parts();
    if parts.status.is_redirection() {
        return Err(RequestError::Redirect(parts.status));
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(Response {
        status: parts.status,
        content_type: content_type.unwrap_or_default().to_owned(),
        body,
        exchange,
        dial: Arc::clone(dial),
    })
}

/// Reads and writes without waiting. If the connection fails, the request or the body returns the error.
fn drive(
    connection: &mut Connection<TokioIo<Box<dyn Io>>, Empty<Bytes>>,
    has_ended: &mut bool,
    cx: &mut Context<'_>,
) {
    *has_ended = *has_ended || connection.poll_without_shutdown(cx).is_ready();
}

impl Response {
    /// Returns the next piece of the body. `None` at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            match poll_fn(|cx| self.poll_frame(cx)).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(RequestError::Connection(chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut body = Pin::new(&mut self.body);
        // The connection reads only what the body has requested.
        if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.exchange.connection, &mut self.exchange.has_ended, cx);
        body.poll_frame(cx)
    }

    /// Returns the connection for the next request, unless the pod closes it. The whole body must have been read.
    pub(super) async fn into_idle(self) -> Option<IdleConnection> {
        let Self { mut exchange, dial, .. } = self;
        poll_fn(|cx| {
            drive(&mut exchange.connection, &mut exchange.has_ended, cx);
            Poll::Ready(())
        })
        .await;
        if exchange.has_ended {
            return None;
        }
        let parts = exchange.connection.into_parts();
        let io = parts.io.into_inner();
        parts.read_buf.is_empty().then(|| IdleConnection { io, dial, since: Instant::now() })
    }
}
