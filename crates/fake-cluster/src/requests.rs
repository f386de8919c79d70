//! Requests and responses, the link between a client and the cluster, and the log of requests.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::status::Status;
use super::{Cluster, object};

/// The default number of retained requests. Older requests are dropped.
const KEPT: usize = 20_000;

/// A request in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The HTTP method.
    pub method: http::Method,
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
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
    /// A response that announces its complete body, but sends only the given number of bytes. Then the connection
    /// breaks.
    Cut(Whole, usize),
    /// A watch.
    Pieces(Pieces),
    /// The connection breaks without a response.
    Broken,
}

/// A response with its complete body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// The HTTP status code.
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

/// The link between a client and the cluster, which carries decoded requests and responses.
///
/// A link may delay, change, repeat or drop a request or a response, or break the connection. It applies to the
/// connections that are opened through it ([`Cluster::dial_through`]), so each client can have a separate link.
/// [`Faults`](super::Faults) apply after the link, in the cluster.
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Carries a request to the server and returns the response. The future is dropped if the client cancels the
    /// request.
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

/// One request and its status code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The time of arrival, by the cluster's clock.
    pub at: Timestamp,
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The path, not decoded, without the query.
    pub path: String,
    /// The query, not decoded, without the question mark.
    pub query: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The body, if bodies are retained ([`RequestLog::keep_bodies`]). Empty otherwise.
    pub body: Bytes,
    /// The HTTP status code. `None` until the response is sent, and permanently if a fault withholds the response.
    pub code: Option<u16>,
}

#[derive(Debug)]
struct Entries {
    kept: VecDeque<LoggedRequest>,
    limit: usize,
    /// The number of the first retained request, counted from the start of the cluster.
    first: u64,
    keeps_bodies: bool,
}

impl Default for Entries {
    fn default() -> Self {
        Self { kept: VecDeque::new(), limit: KEPT, first: 0, keeps_bodies: false }
    }
}

/// The newest requests to a cluster, oldest first. Clones share the log.
#[derive(Debug, Clone, Default)]
pub struct RequestLog {
    entries: Arc<Mutex<Entries>>,
}

impl RequestLog {
    /// Returns the retained requests, oldest first.
    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.entries.lock().kept.iter().cloned().collect()
    }

    /// Counts the retained requests that satisfy a predicate.
    pub fn count(&self, predicate: impl Fn(&LoggedRequest) -> bool) -> usize {
        self.entries.lock().kept.iter().filter(|request| predicate(request)).count()
    }

    /// Returns the number of retained requests.
    pub fn len(&self) -> usize {
        self.entries.lock().kept.len()
    }

    /// Returns whether no request is retained.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Retains the bodies of later requests. By default, bodies are dropped, which keeps a log of many large writes
    /// small.
    pub fn keep_bodies(&self) {
        self.entries.lock().keeps_bodies = true;
    }

    /// Retains only the newest `limit` requests. 0 suits long runs without assertions on requests.
    pub fn keep(&self, limit: usize) {
        let mut entries = self.entries.lock();
        entries.limit = limit;
        entries.drop_oldest();
    }

    /// Drops all requests so far.
    pub fn clear(&self) {
        let mut entries = self.entries.lock();
        entries.first += u64::try_from(entries.kept.len()).unwrap_or(u64::MAX);
        entries.kept.clear();
    }

    /// Adds a request and returns its number, which identifies the request in later calls.
    pub(crate) fn add(&self, request: impl FnOnce() -> LoggedRequest) -> u64 {
        let mut entries = self.entries.lock();
        let number = entries.first + u64::try_from(entries.kept.len()).unwrap_or(u64::MAX);
        if entries.limit == 0 {
            entries.first += 1;
        } else {
            entries.kept.push_back(request());
            entries.drop_oldest();
        }
        number
    }

    pub(crate) fn received(&self, number: u64, body: &Bytes) {
        let mut entries = self.entries.lock();
        if entries.keeps_bodies
            && let Some(request) = entries.numbered(number)
        {
            request.body = body.clone();
        }
    }

    pub(crate) fn answered(&self, number: u64, code: u16) {
        if let Some(request) = self.entries.lock().numbered(number) {
            request.code = Some(code);
        }
    }
}

impl Entries {
    fn drop_oldest(&mut self) {
        while self.kept.len() > self.limit {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    fn numbered(&mut self, number: u64) -> Option<&mut LoggedRequest> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.kept.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str) -> LoggedRequest {
        LoggedRequest {
            at: Timestamp::UNIX_EPOCH,
            verb: "get",
            path: path.to_owned(),
            query: String::new(),
            user_agent: String::new(),
            body: Bytes::new(),
            code: None,
        }
    }

    #[test]
    fn log_keeps_the_newest_requests_and_matches_responses() {
        let log = RequestLog::default();
        log.keep(2);
        let numbers = ["/a", "/b", "/c"].map(|path| log.add(|| request(path)));
        for number in numbers {
            log.answered(number, 200);
        }
        let kept: Vec<_> = log.entries().into_iter().map(|request| (request.path, request.code)).collect();
        assert_eq!(kept, [("/b".to_owned(), Some(200)), ("/c".to_owned(), Some(200))]);
        log.keep(0);
        let dropped = log.add(|| request("/d"));
        assert!(log.is_empty());
        log.keep(1);
        let kept = log.add(|| request("/e"));
        log.answered(dropped, 500);
        log.answered(kept, 201);
        assert_eq!(log.entries()[0].code, Some(201));
    }
}
