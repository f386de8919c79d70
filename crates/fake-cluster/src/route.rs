//! A request: its path, its query parameters, and its label and field selectors.

use std::borrow::Cow;

use autoscaling::selector::{Labels, Selector};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::faults::FaultSubject;
use super::object;
use super::registry::ResourceType;
use super::status::Status;
use super::store::{ScalePath, StoredObject};

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

/// The path of a request, with the verb and the resource that result from it.
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
        // `namespaces/x` and its subresources refer to the namespace. Longer paths refer to resources in the namespace.
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

    /// Returns the namespace and the name. An absent value is empty.
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

/// The objects of a collection that a list or watch includes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    labels: Option<Selector>,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl Filter {
    /// Parses a label selector and a field selector. Fails with 400 if one of them is invalid.
    pub(crate) fn parse(ty: &ResourceType, labels: &str, fields: &str) -> Result<Self, Status> {
        let fields = parse_fields(fields)?;
        for term in &fields {
            let supported = matches!(term.field.as_str(), "metadata.name" | "metadata.namespace")
                || ty.fields.contains(&term.field.as_str());
            if !supported {
                return Err(Status::bad_request(format!("field label not supported: {}", term.field)));
            }
        }
        Ok(Self { labels: parse_labels(labels)?, fields })
    }

    /// Creates a filter by labels only.
    pub(crate) fn by_labels(text: &str) -> Result<Self, Status> {
        Ok(Self { labels: parse_labels(text)?, fields: Vec::new() })
    }

    pub(crate) fn matches(&self, stored: &StoredObject) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches(stored)) && self.fields_match(stored)
    }

    /// Restricts the filter to one name.
    pub(crate) fn only(&mut self, name: &str) {
        let (field, value) = ("metadata.name".to_owned(), name.to_owned());
        self.fields.push(FieldTerm { field, value, equal: true });
    }

    /// Returns whether the filter matches every object.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty()
    }

    fn fields_match(&self, stored: &StoredObject) -> bool {
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|term| {
            let equal = match term.field.as_str() {
                "metadata.name" => stored.name() == term.value,
                "metadata.namespace" => stored.namespace() == term.value,
                field => {
                    let object = parsed.get_or_insert_with(|| stored.value());
                    field_text(object, field) == term.value
                }
            };
            equal == term.equal
        })
    }
}

fn field_text(object: &Value, field: &str) -> String {
    let path: Vec<&str> = match field {
        "reportingComponent" => vec!["reportingComponent"],
        "source" => vec!["source", "component"],
        other => other.split('.').collect(),
    };
    match object::at(object, &path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        None if field == "status.replicas" => "0".to_owned(),
        _ => String::new(),
    }
}

impl Labels for StoredObject {
    fn value(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}

fn parse_labels(text: &str) -> Result<Option<Selector>, Status> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    Selector::parse(text).map(Some).map_err(|error| Status::bad_request(error.to_string()))
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, Status> {
    let mut terms = Vec::new();
    for term in split_unescaped(text) {
        if term.is_empty() {
            continue;
        }
        let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = term.split_once("==") {
            (field, value, true)
        } else if let Some((field, value)) = term.split_once('=') {
            (field, value, true)
        } else {
            return Err(Status::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        terms.push(FieldTerm { field: field.trim().to_owned(), value: unescape(value), equal });
    }
    Ok(terms)
}

/// Splits at commas without a preceding backslash.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, letter) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if letter == '\\' {
            escaped = true;
        } else if letter == ',' {
            parts.push(text.get(start..index).unwrap_or(""));
            start = index + 1;
        }
    }
    parts.push(text.get(start..).unwrap_or(""));
    parts
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    plain
}
