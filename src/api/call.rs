//! One request as data: method, path, what error texts call it, and its limits.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

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
    pub(super) resource: Arc<str>,
    /// `scale` or `status`; empty if the request is about the object itself.
    subresource: &'static str,
    /// What it is counted as in metrics instead of the resource.
    counted_as: Option<&'static str>,
    /// The object's name in an error text; empty if the request has none.
    pub(super) name: String,
    pub(super) body: Bytes,
    pub(super) content_type: &'static str,
    /// How long it may take; the client's own limit if unset.
    pub(super) timeout: Option<Duration>,
    pub(super) limit: usize,
    pub(super) sent: Sent,
}

/// When a request was sent: what it tells is no older. Clones tell of the same request.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<OnceLock<Instant>>);

impl Sent {
    /// Takes in that it is sent now; of several times the first counts.
    pub(super) fn now(&self) {
        let _ = self.0.set(Instant::now());
    }

    /// When it was sent, if it was.
    pub(super) fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
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
            resource: Arc::default(),
            subresource: "",
            counted_as: None,
            name: String::new(),
            body: Bytes::new(),
            content_type: "",
            timeout: None,
            limit: DEFAULT_LIMIT,
            sent: Sent::default(),
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
    pub fn about(mut self, resource: impl Into<Arc<str>>, name: &str) -> Self {
        self.resource = resource.into();
        name.clone_into(&mut self.name);
        self
    }

    /// Says which subresource it is about; error texts leave that out, metrics do not.
    #[must_use]
    pub fn subresource(mut self, subresource: &'static str) -> Self {
        self.subresource = subresource;
        self
    }

    /// Counts it in metrics as this instead of its resource, whose name anybody could choose.
    #[must_use]
    pub fn counted_as(mut self, resource: &'static str) -> Self {
        self.counted_as = Some(resource);
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

    /// Says when it is sent, after all that it has to wait for on this side.
    #[must_use]
    pub(super) fn telling(mut self, sent: &Sent) -> Self {
        self.sent = sent.clone();
        self
    }

    /// Path and query as sent.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The HTTP method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The verb that a role must allow: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub fn verb(&self) -> &'static str {
        match self.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if self.is_watch() => "watch",
            _ if self.name.is_empty() && !self.resource.is_empty() => "list",
            _ => "get",
        }
    }

    /// Whether it asks for changes as they come.
    pub fn is_watch(&self) -> bool {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|parameter| parameter == "watch=true")
    }

    /// The resource that a role must name, in bounded variety: for metrics.
    pub fn counted(&self) -> Counted {
        match self.counted_as {
            Some(name) => Counted::As(name),
            None if self.resource.is_empty() => Counted::As(self.root()),
            None => Counted::Resource(Arc::clone(&self.resource), self.subresource),
        }
    }

    /// Where a path begins that is about no resource.
    fn root(&self) -> &'static str {
        let path = self.path.split_once('?').map_or(&*self.path, |(path, _)| path);
        let root = path.split('/').nth(1).unwrap_or_default();
        ["/api", "/apis", "/version", "/livez", "/readyz", "/healthz", "/openapi"]
            .into_iter()
            .find(|known| known.strip_prefix('/') == Some(root))
            .unwrap_or("/")
    }
}

/// What a request is counted as in metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Counted {
    /// A resource as error texts name it, and its subresource: `deployments/scale`.
    Resource(Arc<str>, &'static str),
    /// What stands for many (`*.external.metrics.k8s.io`), or a path about no resource (`/apis`).
    As(&'static str),
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(name, "") => f.write_str(name),
            Self::Resource(name, subresource) => write!(f, "{name}/{subresource}"),
            Self::As(name) => f.write_str(name),
        }
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

    #[test]
    fn a_request_is_counted_as_a_role_would_name_it() {
        let scale = ["apis", "apps", "v1", "namespaces", "shop", "deployments", "web", "scale"];
        let get = |segments: &[&str]| Call::get(segments.to_vec());
        let put = Call::send(Method::PUT, scale, "application/json", Vec::new());
        let cases = [
            (get(&scale).about("deployments", "web").subresource("scale"), "get", "deployments/scale"),
            (put.about("deployments", "web").subresource("scale"), "update", "deployments/scale"),
            (get(&["api", "v1", "pods"]).about("pods", ""), "list", "pods"),
            (get(&["api", "v1", "pods"]).query("watch", "true").about("pods", ""), "watch", "pods"),
            (
                get(&["apis", "external.metrics.k8s.io", "v1beta1", "namespaces", "shop", "secret"])
                    .about("secret.external.metrics.k8s.io", "")
                    .counted_as("*.external.metrics.k8s.io"),
                "list",
                "*.external.metrics.k8s.io",
            ),
            (get(&["apis", "apps", "v1"]), "get", "/apis"),
            (get(&["version"]).query("timeout", "5s"), "get", "/version"),
            (get(&["anything"]), "get", "/"),
        ];
        for (call, verb, resource) in cases {
            assert_eq!((call.verb(), &*call.counted().to_string()), (verb, resource), "{}", call.path());
        }
    }
}
