//! A request, and the meaning of its path and its method: the verb and the resource.

use std::borrow::Cow;

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::faults::FaultSubject;
use super::store::ScalePath;

/// One request with its complete body.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

/// The destination of a request.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// The raw path.
    pub(crate) path: String,
    /// The decoded segments of the path.
    pub(crate) segments: Vec<String>,
    pub(crate) verb: &'static str,
    pub(crate) resource: Option<ResourcePath>,
}

/// A path below a group and version.
#[derive(Debug, Clone)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The segments after the namespace, or after the version if the path has no namespace.
    pub(crate) rest: Vec<String>,
}

impl Route {
    pub(crate) fn new(method: &str, path: &str, query: &Query) -> Self {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let resource = ResourcePath::read(&segments);
        let named = resource.as_ref().is_some_and(|resource| resource.name.is_some());
        let watching = matches!(query.get("watch"), "true" | "1");
        let verb = match method {
            "GET" if watching && resource.is_some() => "watch",
            "GET" | "HEAD" if named || resource.is_none() => "get",
            "GET" | "HEAD" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if named => "delete",
            "DELETE" => "deletecollection",
            _ => "unknown",
        };
        Self { path: path.to_owned(), segments, verb, resource }
    }

    pub(crate) fn subject(&self, user_agent: &str, impersonated: &str) -> FaultSubject {
        let subresource = self.resource.as_ref().and_then(|resource| resource.subresource.clone());
        FaultSubject {
            verb: self.verb,
            path: self.path.clone(),
            subresource: subresource.unwrap_or_default(),
            user_agent: user_agent.to_owned(),
            impersonated: impersonated.to_owned(),
        }
    }
}

impl ResourcePath {
    fn read(segments: &[String]) -> Option<Self> {
        let mut rest = segments.iter().map(String::as_str);
        let (group, version) = match rest.next()? {
            "api" => ("", rest.next()?),
            "apis" => (rest.next()?, rest.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = rest.collect();
        // `namespaces/x` and its subresources are the namespace itself. Longer paths refer to resources in
        // the namespace.
        let namespace = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => None,
            ["namespaces", namespace, _, ..] => Some((*namespace).to_owned()),
            _ => None,
        };
        let path = if namespace.is_some() { rest.get(2..).unwrap_or_default() } else { rest.as_slice() };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            resource: (*path.first()?).to_owned(),
            name: path.get(1).map(|name| (*name).to_owned()),
            subresource: path.get(2).map(|subresource| (*subresource).to_owned()),
            rest: path.iter().map(|segment| (*segment).to_owned()).collect(),
        })
    }

    /// Returns the namespace and the name. A missing value is empty.
    pub(crate) fn names(&self) -> (&str, &str) {
        (self.namespace.as_deref().unwrap_or(""), self.name.as_deref().unwrap_or(""))
    }

    pub(crate) fn scale_path(&self) -> Option<ScalePath> {
        Some(ScalePath {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone()?,
            name: self.name.clone()?,
        })
    }
}

/// The decoded parameters of a query, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn new(text: &str) -> Self {
        let decode = |text: &str| {
            let spaced: Cow<'_, str> =
                if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        Self(
            text.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// Returns a parameter, or an empty text if it is absent.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(other, _)| other == key).map_or("", |(_, value)| value)
    }

    /// Returns a boolean parameter, if it is set.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            "" => None,
            value => Some(matches!(value, "true" | "1")),
        }
    }
}
