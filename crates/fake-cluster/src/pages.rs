//! In-memory metrics servers: Prometheus' query API, and the metrics pages of pods.
//!
//! A [`PageServers`] is a network of addresses. A client dials an address and receives a byte stream with HTTP/1.1, as
//! over TCP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::DuplexStream;

/// Capacity of a connection in each direction, in bytes.
const PIPE: usize = 64 << 10;

/// A request to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The address that the client dialled, such as `10.0.0.1:8080`.
    pub address: String,
    /// The path and the query.
    pub path: String,
    /// The `Authorization` header; empty if absent.
    pub authorization: String,
    /// The form field `query`, decoded; empty if absent.
    pub query: String,
    /// The other form fields as sent, in order.
    pub fields: Vec<(String, String)>,
}

/// A response of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageResponse {
    /// The HTTP status code.
    pub status: u16,
    /// The `Content-Type` header.
    pub content_type: String,
    /// The `Location` header; empty if the response has none.
    pub location: String,
    /// The body.
    pub body: Bytes,
    /// The pause before each byte of the body. Zero sends the body at once.
    pub drip: Duration,
}

impl PageResponse {
    /// Creates a page in Prometheus' text format.
    pub fn page(text: impl Into<Bytes>) -> Self {
        let content_type = "text/plain; version=0.0.4; charset=utf-8".to_owned();
        Self { status: 200, content_type, location: String::new(), body: text.into(), drip: Duration::ZERO }
    }

    /// Creates Prometheus' response to an instant query: values with their labels.
    pub fn vector(samples: &[(&[(&str, &str)], f64)]) -> Self {
        let result: Vec<serde_json::Value> = samples
            .iter()
            .map(|(labels, value)| {
                let metric: BTreeMap<_, _> = labels.iter().copied().collect();
                serde_json::json!({"metric": metric, "value": [0, value.to_string()]})
            })
            .collect();
        let data = serde_json::json!({"resultType": "vector", "result": result});
        Self::json(200, &serde_json::json!({"status": "success", "data": data}))
    }

    /// Creates Prometheus' response to a range query: the labels of each series, and its values by second.
    pub fn matrix(series: &[Series<'_>]) -> Self {
        let result: Vec<serde_json::Value> = series
            .iter()
            .map(|(labels, values)| {
                let metric: BTreeMap<_, _> = labels.iter().copied().collect();
                let values: Vec<_> = values.iter().map(|(at, value)| (*at, value.to_string())).collect();
                serde_json::json!({"metric": metric, "values": values})
            })
            .collect();
        let data = serde_json::json!({"resultType": "matrix", "result": result});
        Self::json(200, &serde_json::json!({"status": "success", "data": data}))
    }

    /// Creates a response with JSON.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, content_type: "application/json".to_owned(), ..Self::page(body.to_string()) }
    }
}

/// The labels of a series, and its values by second.
pub type Series<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

type Answer = dyn Fn(&PageRequest) -> PageResponse + Send + Sync;

/// Servers by address, and the requests that they received. Clones share the servers.
#[derive(Clone, Default)]
pub struct PageServers {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    servers: BTreeMap<String, Arc<Answer>>,
    requests: Vec<PageRequest>,
    connections: usize,
    /// Whether requests are discarded instead of recorded.
    discards_requests: bool,
}

impl fmt::Debug for PageServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageServers").field("addresses", &self.inner.lock().servers.keys()).finish()
    }
}

impl PageServers {
    /// Creates servers that record no requests, for long-running processes.
    pub fn without_requests() -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { discards_requests: true, ..Inner::default() })) }
    }

    /// Adds or replaces the server at an address.
    pub fn serve(
        &self,
        address: impl Into<String>,
        answer: impl Fn(&PageRequest) -> PageResponse + Send + Sync + 'static,
    ) {
        self.inner.lock().servers.insert(address.into(), Arc::new(answer));
    }

    /// Removes a server. Its address then refuses connections.
    pub fn remove(&self, address: &str) {
        self.inner.lock().servers.remove(address);
    }

    /// Returns the requests so far, in order.
    pub fn requests(&self) -> Vec<PageRequest> {
        self.inner.lock().requests.clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.inner.lock().connections
    }

    /// Connects to an address. Fails with `ConnectionRefused` if no server has the address.
    pub fn dial(&self, address: &str) -> io::Result<DuplexStream> {
        let mut inner = self.inner.lock();
        if !inner.servers.contains_key(address) {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused"));
        }
        inner.connections += 1;
        let (client, server) = tokio::io::duplex(PIPE);
        let (servers, address) = (self.clone(), address.to_owned());
        tokio::spawn(async move {
            let service = service_fn(|request| servers.clone().answer(address.clone(), request));
            let io = TokioIo::new(server);
            // The error is ignored. It means that the client dropped the connection.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(io, service)
                .await;
        });
        Ok(client)
    }

    async fn answer(
        self,
        address: String,
        request: Request<Incoming>,
    ) -> Result<Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>, hyper::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let form = String::from_utf8_lossy(&body).into_owned();
        let query = form.split('&').find_map(|field| field.strip_prefix("query=")).unwrap_or_default();
        let fields =
            form.split('&').filter_map(|field| field.split_once('=')).filter(|(name, _)| *name != "query");
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let request = PageRequest {
            path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            authorization: authorization.unwrap_or_default().to_owned(),
            query: percent_encoding::percent_decode_str(query).decode_utf8_lossy().into_owned(),
            fields,
            address,
        };
        let server = {
            let mut inner = self.inner.lock();
            if !inner.discards_requests {
                inner.requests.push(request.clone());
            }
            inner.servers.get(&request.address).cloned()
        };
        let response = server.map_or_else(
            || PageResponse { status: 503, ..PageResponse::page("") },
            |server| server(&request),
        );
        let body = if response.drip.is_zero() {
            Full::new(response.body).boxed_unsync()
        } else {
            let drip = response.drip;
            let bytes = futures::stream::unfold((response.body, 0), move |(body, at)| async move {
                let byte = (at < body.len()).then(|| body.slice(at..=at))?;
                tokio::time::sleep(drip).await;
                Some((Ok::<_, Infallible>(Frame::data(byte)), (body, at + 1)))
            });
            StreamBody::new(bytes).boxed_unsync()
        };
        let mut built = Response::new(body);
        *built.status_mut() = http::StatusCode::from_u16(response.status).unwrap_or_default();
        for (name, value) in [("content-type", response.content_type), ("location", response.location)] {
            if let Ok(value) = http::HeaderValue::try_from(value)
                && !value.is_empty()
            {
                built.headers_mut().insert(name, value);
            }
        }
        Ok(built)
    }
}
