//! Label and field selectors of list and watch requests.

use serde_json::Value;

use super::status::Status;
use super::store::Stored;
use super::{object, registry::ResourceType};

/// What a list or watch shows of its collection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl Filter {
    /// Parses both selectors; a 400 in case of error.
    pub(crate) fn parse(ty: &ResourceType, labels: &str, fields: &str) -> Result<Self, Status> {
        let fields = parse_fields(fields)?;
        for term in &fields {
            let known = matches!(term.field.as_str(), "metadata.name" | "metadata.namespace")
                || ty.fields.contains(&term.field.as_str());
            if !known {
                return Err(Status::bad_request(format!(
                    "field label not supported: {}",
                    term.field
                )));
            }
        }
        Ok(Self {
            labels: parse_labels(labels).map_err(Status::bad_request)?,
            fields,
        })
    }

    /// A filter by labels alone.
    pub(crate) fn by_labels(text: &str) -> Result<Self, Status> {
        Ok(Self {
            labels: parse_labels(text).map_err(Status::bad_request)?,
            fields: Vec::new(),
        })
    }

    /// Whether an object passes.
    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(stored)) && self.fields_match(stored)
    }

    /// Lets this name alone pass, besides the rest.
    pub(crate) fn only(&mut self, name: &str) {
        self.fields.push(FieldTerm {
            field: "metadata.name".to_owned(),
            value: name.to_owned(),
            equal: true,
        });
    }

    /// Whether everything passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    fn fields_match(&self, stored: &Stored) -> bool {
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

impl Requirement {
    fn matches(&self, stored: &Stored) -> bool {
        let value = stored.label(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|other| other == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Cuts at commas outside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let mut start = 0;
    let mut found = Vec::new();
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(text.get(start..index).unwrap_or(""));
                start = index + 1;
            }
            _ => {}
        }
    }
    found.push(text.get(start..).unwrap_or(""));
    found
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    terms(text)
        .into_iter()
        .map(|term| parse_requirement(term.trim(), text))
        .collect()
}

fn parse_requirement(term: &str, whole: &str) -> Result<Requirement, String> {
    let wrong = |why: &str| format!("unable to parse requirement: {why} in {whole:?}");
    let requirement = |key: &str, operator| {
        let key = key.trim();
        let letters =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
        if key.is_empty() || !key.chars().all(letters) {
            return Err(wrong(&format!("invalid label key {key:?}")));
        }
        Ok(Requirement {
            key: key.to_owned(),
            operator,
        })
    };
    let number = |text: &str| {
        text.trim()
            .parse::<i64>()
            .map_err(|_| wrong("the value must be an integer"))
    };
    if let Some(key) = term.strip_prefix('!') {
        return requirement(key, Operator::DoesNotExist);
    }
    if let Some((head, values)) = term.split_once('(') {
        let values = values
            .trim()
            .strip_suffix(')')
            .ok_or_else(|| wrong("expected: ')'"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => requirement(key, Operator::In(values)),
            [key, "notin"] => requirement(key, Operator::NotIn(values)),
            _ => Err(wrong("expected: in, notin")),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return requirement(key, Operator::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = term.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return requirement(key, Operator::In(vec![value.trim().to_owned()]));
    }
    if let Some((key, bound)) = term.split_once('>') {
        return requirement(key, Operator::GreaterThan(number(bound)?));
    }
    if let Some((key, bound)) = term.split_once('<') {
        return requirement(key, Operator::LessThan(number(bound)?));
    }
    requirement(term, Operator::Exists)
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, Status> {
    let mut found = Vec::new();
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
        found.push(FieldTerm {
            field: field.trim().to_owned(),
            value: unescape(value),
            equal,
        });
    }
    Ok(found)
}

/// Cuts at commas that no backslash precedes.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, letter) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if letter == '\\' {
            escaped = true;
        } else if letter == ',' {
            found.push(text.get(start..index).unwrap_or(""));
            start = index + 1;
        }
    }
    found.push(text.get(start..).unwrap_or(""));
    found
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' {
            letters.next().unwrap_or('\\')
        } else {
            letter
        });
    }
    plain
}
