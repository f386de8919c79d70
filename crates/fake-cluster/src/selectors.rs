//! Label and field selectors of list and watch requests.

use autoscaling::selector::{Labels, Selector};
use serde_json::Value;

use super::status::Status;
use super::store::StoredObject;
use super::{object, registry::ResourceType};

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
    /// Parses both selectors. Fails with 400 if one is invalid.
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
        self.fields.push(FieldTerm {
            field: "metadata.name".to_owned(),
            value: name.to_owned(),
            equal: true,
        });
    }

    /// Whether the filter matches every object.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty()
    }

    fn fields_match(&self, stored: &StoredObject) -> bool {
        if self.fields.is_empty() {
            return true;
        }
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
