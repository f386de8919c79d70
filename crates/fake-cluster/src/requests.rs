//! The log of requests to the API server.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;

/// The default number of retained requests. Older requests are dropped.
const KEPT: usize = 20_000;

/// One request and its status code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The time of arrival, by the cluster's clock.
    pub at: Timestamp,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The path, not decoded, without the query.
    pub path: String,
    /// The query, not decoded, without the question mark.
    pub query: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The body, if bodies are retained ([`RequestLog::keep_bodies`]). Empty otherwise.
    pub body: Bytes,
    /// HTTP status code. `None` until the response is sent, and permanently if a fault withholds the
    /// response.
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

/// The newest requests to a cluster, oldest first. A handle: clones show the same log.
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

    /// Whether no request is retained.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Retains the bodies of later requests. By default, bodies are dropped, which keeps a log of many large
    /// writes small.
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
