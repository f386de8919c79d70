//! A request as data: its method, path, name in error texts, and limits.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

/// The characters that are encoded in a path segment. Unlike Go's set, this set excludes `*`, which occurs in paths of
/// custom metrics.
pub(super) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
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

/// The characters that are percent-encoded in a query. As in Go's `url.QueryEscape`, a space becomes `+` instead.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// The default size limit of a response, in bytes. An object in etcd has at most 1.5 MiB.
pub const DEFAULT_LIMIT: usize = 4 << 20;

/// A request to the API server.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) method: Method,
    /// The encoded path and query.
    pub(super) path: String,
    /// The resource in error texts, such as `pods.metrics.k8s.io`. Empty for a request without a resource.
    pub(super) resource: Arc<str>,
    /// `scale` or `status`. Empty for the object itself.
    subresource: &'static str,
    /// The name in metrics, if it differs from the resource.
    counted_as: Option<Arc<str>>,
    /// The object's name in error texts. Empty for a request without a name.
    pub(super) name: String,
    pub(super) body: Bytes,
    pub(super) content_type: &'static str,
    /// The time limit. `None` means the time limit of the client.
    pub(super) timeout: Option<Duration>,
    pub(super) limit: usize,
    pub(super) sent: SentTime,
    /// `.` or `..`, if the path contains such a segment. The request must not be sent, because a proxy may
    /// resolve the segment and request another path.
    pub(super) dots: Option<&'static str>,
}

/// The time at which a request was sent. The response shows the state of the server at this time or later. Clones share
/// the time.
#[derive(Debug, Clone, Default)]
pub struct SentTime(Arc<OnceLock<Instant>>);

impl SentTime {
    /// Records the current time as the send time. Only the first call has an effect.
    pub fn now(&self) {
        let _ = self.0.set(Instant::now());
    }

    /// Returns the time at which the request was sent. `None` if it has not been sent yet.
    pub fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl Call {
    /// Creates a GET request. The path segments are encoded.
    pub fn get<'a>(segments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::GET, segments)
    }

    /// Creates a request with a body of type `content_type`. The path segments are encoded.
    pub fn send<'a>(
        method: Method,
        segments: impl IntoIterator<Item = &'a str>,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Self {
        Self { body: body.into(), content_type, ..Self::new(method, segments) }
    }

    /// Creates the request of a typed client. The path determines the resource and the object's name in error texts and
    /// metrics.
    pub(super) fn from_request(method: Method, uri: &Uri, body: Bytes) -> Self {
        let content_type = if body.is_empty() { "" } else { "application/json" };
        // kube starts each query string with an empty parameter.
        let path = uri.to_string().replacen("?&", "?", 1).trim_end_matches('?').to_owned();
        let call = Self { body, content_type, ..Self::on(method, path) };
        match ObjectPath::parse(uri.path()) {
            Some(ObjectPath { group: "", resource, name, .. }) => call.about(resource, name),
            Some(ObjectPath { group, resource, name, .. }) => call.about(format!("{resource}.{group}"), name),
            None => call,
        }
    }

    fn new<'a>(method: Method, segments: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut path, mut dots) = (String::with_capacity(96), None);
        for segment in segments {
            dots = dots.or_else(|| [".", ".."].into_iter().find(|dots| *dots == segment));
            path.push('/');
            path.extend(utf8_percent_encode(segment, SEGMENT));
        }
        Self { dots, ..Self::on(method, path) }
    }

    fn on(method: Method, path: String) -> Self {
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
            sent: SentTime::default(),
            dots: None,
        }
    }

    /// Adds a query parameter unless its value is empty. Go sorts parameters by key, so callers must add parameters in
    /// the order of their keys.
    #[must_use]
    pub fn query(mut self, key: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(key);
        self.path.push('=');
        for piece in utf8_percent_encode(value, QUERY) {
            // An encoded piece never contains a space, so only spaces of the value are replaced.
            if piece.contains(' ') {
                self.path.push_str(&piece.replace(' ', "+"));
            } else {
                self.path.push_str(piece);
            }
        }
        self
    }

    /// Sets the name in error texts: the resource with its group, and the name of the object, which may be empty.
    #[must_use]
    pub fn about(mut self, resource: impl Into<Arc<str>>, name: &str) -> Self {
        self.resource = resource.into();
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the subresource, which appears in metrics but not in error texts.
    #[must_use]
    pub fn subresource(mut self, subresource: &'static str) -> Self {
        self.subresource = subresource;
        self
    }

    /// Sets the name in metrics. Resources that users can name share such a name, because the number of label values
    /// would otherwise be unbounded.
    #[must_use]
    pub fn counted_as(mut self, resource: impl Into<Arc<str>>) -> Self {
        self.counted_as = Some(resource.into());
        self
    }

    /// Sets the time limit, from sending the request to the end of the response.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the size limit of the response, in bytes.
    #[must_use]
    pub fn at_most(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Makes the client record the send time in `sent`, after the wait for a token.
    #[must_use]
    pub(super) fn recording(mut self, sent: &SentTime) -> Self {
        self.sent = sent.clone();
        self
    }

    /// Returns the encoded path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the namespace of the request, as encoded in the path. Empty for a request without a namespace.
    pub fn namespace(&self) -> &str {
        let path = self.path.split_once('?').map_or(&*self.path, |(path, _)| path);
        let rest = path.split_once("/namespaces/").map_or("", |(_, rest)| rest);
        rest.split_once('/').map_or(rest, |(namespace, _)| namespace)
    }

    /// Returns the HTTP method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the RBAC verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
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

    /// Returns whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|parameter| parameter == "watch=true")
    }

    /// Returns the name of the request in metrics. The number of such names is bounded.
    pub fn counted(&self) -> RequestName {
        match &self.counted_as {
            Some(name) => RequestName::Resource(Arc::clone(name), ""),
            None if self.resource.is_empty() => RequestName::As(self.root()),
            None => RequestName::Resource(Arc::clone(&self.resource), self.subresource),
        }
    }

    /// Returns the first segment of a path without a resource, or `/` for an unknown segment.
    fn root(&self) -> &'static str {
        let path = self.path.split_once('?').map_or(&*self.path, |(path, _)| path);
        let root = path.split('/').nth(1).unwrap_or_default();
        ["/api", "/apis", "/version", "/livez", "/readyz", "/healthz", "/openapi"]
            .into_iter()
            .find(|prefix| prefix.strip_prefix('/') == Some(root))
            .unwrap_or("/")
    }
}

/// The parts of the path of an object or a collection, such as `/apis/apps/v1/namespaces/shop/deployments/web/scale`.
pub(super) struct ObjectPath<'a> {
    /// The API group. Empty for the core group.
    pub(super) group: &'a str,
    /// The plural name of the resource.
    pub(super) resource: &'a str,
    /// The name of the object. Empty for a collection.
    pub(super) name: &'a str,
    /// The subresource. Empty for the object itself.
    pub(super) subresource: &'a str,
}

impl<'a> ObjectPath<'a> {
    /// Parses a path. `None` for other paths, such as those of discovery.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let mut segments = path.trim_matches('/').split('/');
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        segments.next()?;
        let rest: Vec<_> = segments.collect();
        let (["namespaces", _, resource, object @ ..] | [resource, object @ ..]) = rest.as_slice() else {
            return None;
        };
        let part = |at: usize| object.get(at).copied().unwrap_or_default();
        Some(Self { group, resource, name: part(0), subresource: part(1) })
    }
}

/// The name of a request in metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestName {
    /// A resource as in error texts, and its subresource, such as `deployments/scale`. The name can cover many
    /// resources, such as `*.external.metrics.k8s.io`.
    Resource(Arc<str>, &'static str),
    /// The first segment of a path without a resource, such as `/apis`. An unknown segment becomes `/`.
    As(&'static str),
}

impl fmt::Display for RequestName {
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
    fn segments_and_queries_are_encoded_as_in_go() {
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
    fn request_of_a_typed_client_has_no_empty_query() {
        let call = |uri: &str| Call::from_request(Method::GET, &uri.parse().unwrap(), Bytes::new());
        assert_eq!(call("/api/v1/namespaces/shop/pods?").path(), "/api/v1/namespaces/shop/pods");
        let watch = call("/apis/coordination.k8s.io/v1/namespaces/a/leases?&watch=true&timeoutSeconds=1");
        assert!(watch.path().ends_with("/leases?watch=true&timeoutSeconds=1"), "{}", watch.path());
        assert_eq!((watch.verb(), &*watch.resource), ("watch", "leases.coordination.k8s.io"));
        let token = call("/api/v1/namespaces/a/serviceaccounts/hpa/token");
        assert_eq!((&*token.resource, token.name.as_str()), ("serviceaccounts", "hpa"));
    }

    #[test]
    fn namespace_of_a_request_is_that_of_its_path() {
        let namespace = |segments: &[&str]| Call::get(segments.to_vec()).namespace().to_owned();
        assert_eq!(namespace(&["api", "v1", "namespaces", "shop", "pods", "namespaces"]), "shop");
        assert_eq!(namespace(&["api", "v1", "namespaces", "shop"]), "shop");
        assert_eq!(namespace(&["api", "v1", "pods"]), "");
        let call = Call::get(["api", "v1", "pods"]).query("fieldSelector", "a/namespaces/b");
        assert_eq!(call.namespace(), "");
    }

    #[test]
    fn request_is_counted_by_its_rbac_name() {
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
