//! One request as data: method, path, what error texts call it, and its limits.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What Go leaves as it is in a path segment, and `*`, which custom metrics paths carry.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b'=')
    .remove(b'@')
    .remove(b'*');

/// What Go's `url.QueryEscape` leaves as it is, and the space, which becomes `+`.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// The largest answer unless its API has its own limit; an object in etcd has at most 1.5 MiB.
pub const DEFAULT_LIMIT: usize = 4 << 20;

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) method: Method,
    /// Path and query, encoded.
    pub(super) path: String,
    /// What an error text calls it: `pods.metrics.k8s.io`; empty if the request is about no resource.
    pub(super) resource: String,
    /// The object's name in an error text; empty if the request has none.
    pub(super) name: String,
    pub(super) body: Bytes,
    pub(super) content_type: &'static str,
    /// How long it may take; the client's own limit if unset.
    pub(super) timeout: Option<Duration>,
    pub(super) limit: usize,
}

impl Call {
    /// A GET of the path made of these segments, which are encoded.
    pub fn get<'a>(segments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::GET, segments)
    }

    /// A request that carries JSON.
    pub fn send<'a>(
        method: Method,
        segments: impl IntoIterator<Item = &'a str>,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Self {
        Self { body: body.into(), content_type, ..Self::new(method, segments) }
    }

    fn new<'a>(method: Method, segments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut path = String::with_capacity(96);
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, SEGMENT));
        }
        Self {
            method,
            path,
            resource: String::new(),
            name: String::new(),
            body: Bytes::new(),
            content_type: "",
            timeout: None,
            limit: DEFAULT_LIMIT,
        }
    }

    /// Adds a query parameter unless its value is empty. Go sorts by key: call in that order.
    #[must_use]
    pub fn query(mut self, key: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(key);
        self.path.push('=');
        for piece in utf8_percent_encode(value, QUERY) {
            // A space is never part of an encoded piece, so this touches only spaces of the value.
            if piece.contains(' ') {
                self.path.push_str(&piece.replace(' ', "+"));
            } else {
                self.path.push_str(piece);
            }
        }
        self
    }

    /// Says what an error text calls this request: resource with group, and the object's name or nothing.
    #[must_use]
    pub fn about(mut self, resource: impl Into<String>, name: &str) -> Self {
        self.resource = resource.into();
        name.clone_into(&mut self.name);
        self
    }

    /// Sets how long it may take, from the moment when it is sent to the end of the answer.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the largest answer in bytes.
    #[must_use]
    pub fn at_most(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Path and query as sent.
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_queries_are_encoded_as_go_does() {
        let call =
            Call::get(["apis", "custom.metrics.k8s.io", "v1beta2", "namespaces", "a b", "pods", "*", "x/y"])
                .query("labelSelector", "app=web,tier in (a,b)")
                .query("metricLabelSelector", "")
                .query("z", "~ü");
        assert_eq!(
            call.path(),
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a%20b/pods/*/x%2Fy\
             ?labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29&z=~%C3%BC"
        );
    }
}
