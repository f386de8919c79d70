//! The link between a client and the cluster, which carries decoded requests and responses.
//!
//! A [`Link`] may delay or change a request or a response, or send it twice. A link may also drop a request
//! before the cluster processes it, drop the response, or break the connection. A link applies to the
//! connections that are opened through it ([`Cluster::dial_through`]), so each client of a cluster can
//! have its own link. [`Faults`](super::Faults) apply after the link, in the cluster.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;

use super::status::Status;
use super::{Cluster, object};

/// A request in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The HTTP method.
    pub method: http::Method,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The path, not decoded, without the query.
    pub path: String,
    /// The query, not decoded, without the question mark.
    pub query: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The `Impersonate-User` header.
    pub impersonated: String,
    /// The `Accept` header.
    pub accept: String,
    /// The `Content-Type` header.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// The chunks of an unbounded response, such as a watch. An error breaks the connection.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The response to an exchange.
pub enum Answer {
    /// A response with its complete body.
    Whole(Whole),
    /// The first bytes of a response that announced a longer body. The connection breaks after them.
    Cut(Whole, usize),
    /// A watch.
    Pieces(Pieces),
    /// The connection breaks without a response.
    Broken,
}

/// A response with its complete body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// HTTP status code.
    pub code: u16,
    /// The `Content-Type` header.
    pub content_type: &'static str,
    /// The `Retry-After` header, in seconds.
    pub retry_after: Option<u32>,
    /// The body.
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => write!(f, "Whole({}, {} bytes)", whole.code, whole.body.len()),
            Self::Cut(whole, length) => write!(f, "Cut({}, {length} bytes)", whole.code),
            Self::Pieces(_) => f.write_str("Pieces"),
            Self::Broken => f.write_str("Broken"),
        }
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::status(&status)
    }
}

impl Answer {
    /// Creates a response with JSON text.
    pub fn json(code: u16, body: impl Into<Bytes>) -> Self {
        Self::Whole(Whole { code, content_type: "application/json", retry_after: None, body: body.into() })
    }

    /// Creates a response with plain text.
    pub fn text(code: u16, body: impl Into<Bytes>) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self::Whole(Whole { code, content_type, retry_after: None, body: body.into() })
    }

    /// Creates a response from a Status, with its `Retry-After`.
    pub fn status(status: &Status) -> Self {
        Self::Whole(Whole {
            code: status.code,
            content_type: "application/json",
            retry_after: status.retry_after,
            body: object::encode(&status.to_json()).into(),
        })
    }

    /// Returns the HTTP status code: `None` if the connection broke, 200 for a watch.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Whole(whole) | Self::Cut(whole, _) => Some(whole.code),
            Self::Pieces(_) => Some(200),
            Self::Broken => None,
        }
    }
}

/// The connection between a client and the cluster.
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Carries a request to the server and returns the response. The future is dropped if the client cancels
    /// the request.
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer>;
}

/// The server's end of a link.
#[derive(Debug, Clone)]
pub struct Server {
    cluster: Cluster,
}

impl Server {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
