//! What lies between a client and the cluster: whoever sits there sees every request, decoded, and every answer.
//!
//! A [`Link`] may delay a request or an answer, alter it, lose it before or after the cluster has seen it, send it twice,
//! break the connection. It belongs to the connections that are made through it ([`Cluster::dial_through`]), so that each
//! client of a cluster can have a way of its own. [`Faults`](super::Faults) lie behind it, at the cluster itself.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use tokio::io::DuplexStream;

use super::status::Status;
use super::{Cluster, PIPE, object, server};

/// A request on its way.
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
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// The pieces of an answer that has no end yet. An error breaks the connection.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What comes back.
pub enum Answer {
    /// An answer with its whole body.
    Whole(Whole),
    /// The beginning of an answer of which more was announced; then the connection breaks.
    Cut(Whole, usize),
    /// A watch.
    Pieces(Pieces),
    /// The connection breaks without an answer.
    Broken,
}

/// An answer with its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// HTTP status code.
    pub code: u16,
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// The header `Retry-After`, in seconds.
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

impl Answer {
    /// A JSON text.
    pub fn json(code: u16, body: impl Into<Bytes>) -> Self {
        Self::Whole(Whole { code, content_type: "application/json", retry_after: None, body: body.into() })
    }

    /// A plain text.
    pub fn text(code: u16, body: impl Into<Bytes>) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self::Whole(Whole { code, content_type, retry_after: None, body: body.into() })
    }

    /// A Status, with its `Retry-After`.
    pub fn status(status: &Status) -> Self {
        Self::Whole(Whole {
            code: status.code,
            content_type: "application/json",
            retry_after: status.retry_after,
            body: object::encode(&status.to_json()).into(),
        })
    }

    /// The HTTP status code; absent if the connection broke. A watch has begun with 200.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Whole(whole) | Self::Cut(whole, _) => Some(whole.code),
            Self::Pieces(_) => Some(200),
            Self::Broken => None,
        }
    }
}

/// The way between a client and the cluster.
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Carries a request to the server and its answer back. Dropped if the client gives the request up.
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer>;
}

/// The far end of a link.
#[derive(Debug, Clone)]
pub struct Server {
    cluster: Cluster,
}

impl Server {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// The cluster's answer to a request, which is logged there and meets the cluster's fault rules. A request can be asked
    /// any number of times, and by whoever outlives the client.
    pub async fn answer(&self, exchange: Exchange) -> Answer {
        server::answer(&self.cluster, exchange).await
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Cluster {
    /// Connects from within the process by way of a link.
    pub fn dial_through(&self, link: Arc<dyn Link>) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        tokio::spawn(server::serve_connection(self.clone(), Some(link), server));
        client
    }
}
