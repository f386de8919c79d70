//! One request with the expected properties of its response, and the notation for requests and expectations.
//!
//! Texts in a step may contain `{names}` of values that an earlier step saved. `{ns}` is the namespace
//! of the section. A pointer into a response is a path of keys and indexes, `/items/0/metadata/name`. A
//! key in brackets finds an element of an array, `/resources/[name=deployments/scale]/kind`. A slash
//! inside brackets is part of the value.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use crate::outcome::{Context, Failure, Outcome, ensure};
use crate::rest::{Rest, media};

/// An expectation for the value at a pointer.
#[derive(Clone, Debug)]
enum Expectation {
    Is(Value),
    /// A text that contains the given text.
    Contains(String),
    Present,
    Absent,
    /// A value that differs from the value that an earlier step saved under the given name.
    Other(String),
    /// An array or object of the given size.
    Size(usize),
}

/// One request and the expectations for its response.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Value>,
    code: u16,
    /// Whether the response is a stream with one object per line. The test reads the stream as one array.
    stream: bool,
    wants: Vec<(String, Expectation)>,
    saves: Vec<(&'static str, &'static str)>,
}

/// Values that later steps of a section use.
pub(crate) type SavedValues = BTreeMap<String, String>;

fn step(method: Method, path: &str) -> Step {
    Step {
        method,
        path: path.to_owned(),
        headers: Vec::new(),
        body: None,
        code: 200,
        stream: false,
        wants: Vec::new(),
        saves: Vec::new(),
    }
}

pub(crate) fn get(path: &str) -> Step {
    step(Method::GET, path)
}

pub(crate) fn delete(path: &str) -> Step {
    step(Method::DELETE, path)
}

/// Expects 201.
pub(crate) fn post(path: &str, body: Value) -> Step {
    step(Method::POST, path).body(media::JSON, body).code(201)
}

pub(crate) fn put(path: &str, body: Value) -> Step {
    step(Method::PUT, path).body(media::JSON, body)
}

pub(crate) fn patch(media: &'static str, path: &str, body: Value) -> Step {
    step(Method::PATCH, path).body(media, body)
}

/// A watch. The path must have a timeout, so that the response is complete.
pub(crate) fn watch(path: &str) -> Step {
    let mut step = step(Method::GET, path);
    step.stream = true;
    step
}

impl Step {
    fn body(mut self, media: &'static str, body: Value) -> Self {
        self.headers.push(("content-type", media));
        self.body = Some(body);
        self
    }

    pub(crate) fn accept(mut self, media: &'static str) -> Self {
        self.headers.push(("accept", media));
        self
    }

    pub(crate) fn code(mut self, code: u16) -> Self {
        self.code = code;
        self
    }

    fn want(mut self, pointer: &str, want: Expectation) -> Self {
        self.wants.push((pointer.to_owned(), want));
        self
    }

    pub(crate) fn is(self, pointer: &str, value: impl Into<Value>) -> Self {
        self.want(pointer, Expectation::Is(value.into()))
    }

    pub(crate) fn contains(self, pointer: &str, text: &str) -> Self {
        self.want(pointer, Expectation::Contains(text.to_owned()))
    }

    pub(crate) fn present(self, pointer: &str) -> Self {
        self.want(pointer, Expectation::Present)
    }

    pub(crate) fn absent(self, pointer: &str) -> Self {
        self.want(pointer, Expectation::Absent)
    }

    pub(crate) fn other(self, pointer: &str, saved: &str) -> Self {
        self.want(pointer, Expectation::Other(saved.to_owned()))
    }

    pub(crate) fn size(self, pointer: &str, size: usize) -> Self {
        self.want(pointer, Expectation::Size(size))
    }

    /// Saves the value at a pointer under a name.
    pub(crate) fn save(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.saves.push((name, pointer));
        self
    }

    /// Expects a failure Status, in the form that clients parse.
    pub(crate) fn fails(self, code: u16, reason: &str, message: &str) -> Self {
        self.code(code)
            .is("/kind", "Status")
            .is("/apiVersion", "v1")
            .is("/status", "Failure")
            .is("/code", code)
            .is("/reason", reason)
            .is("/message", message)
    }

    /// Sends the request and checks the response. The failure lists every mismatch.
    pub(crate) async fn run(&self, api: &Rest, saved: &mut SavedValues, show: bool) -> Outcome {
        let path = fill(&self.path, saved);
        let body = self.body.as_ref().map(|body| fill_all(body, saved));
        let title = format!("{} {path}", self.method);
        let answer = api.send(self.method.clone(), &path, &self.headers, body.as_ref()).await?;
        let json =
            if self.stream && answer.code == 200 { Value::Array(answer.lines()) } else { answer.json() };
        if show {
            eprintln!("\n{title}\n{} {json}", answer.code);
        }
        let mut errors = Vec::new();
        if answer.code != self.code {
            errors.push(format!("code is {}, expected {}", answer.code, self.code));
        }
        for (pointer, want) in &self.wants {
            let pointer = fill(pointer, saved);
            if let Err(Failure(text)) = check(&json, &pointer, want, saved) {
                errors.push(format!("{pointer} {text}"));
            }
        }
        for (name, pointer) in &self.saves {
            match find(&json, &fill(pointer, saved)) {
                Some(value) => {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    saved.insert((*name).to_owned(), text);
                }
                None => errors.push(format!("{pointer} is absent and cannot be saved")),
            }
        }
        let mut whole = json.to_string();
        whole.truncate(whole.floor_char_boundary(1500));
        ensure(errors.is_empty(), || format!("{}\n    response: {whole}", errors.join("\n    ")))
            .context(title)
    }
}

fn check(answer: &Value, pointer: &str, want: &Expectation, saved: &SavedValues) -> Outcome {
    let found = find(answer, pointer);
    let shown = || found.map_or_else(|| "absent".to_owned(), Value::to_string);
    match want {
        Expectation::Is(value) => {
            let value = fill_all(value, saved);
            ensure(found == Some(&value), || format!("is {}, expected {value}", shown()))
        }
        Expectation::Contains(text) => {
            let text = fill(text, saved);
            let holds = found.and_then(Value::as_str).is_some_and(|found| found.contains(&text));
            ensure(holds, || format!("is {}, expected to contain \"{text}\"", shown()))
        }
        Expectation::Present => ensure(found.is_some(), || "is absent".to_owned()),
        Expectation::Absent => ensure(found.is_none(), || format!("is {}, expected to be absent", shown())),
        Expectation::Other(name) => {
            let before = saved.get(name).cloned().unwrap_or_default();
            let differs = found.is_some_and(|found| found.as_str() != Some(before.as_str()));
            ensure(differs, || format!("is {}, expected to change", shown()))
        }
        Expectation::Size(size) => {
            let count = match found {
                Some(Value::Array(items)) => Some(items.len()),
                Some(Value::Object(fields)) => Some(fields.len()),
                _ => None,
            };
            ensure(count == Some(*size), || format!("has {count:?} entries, expected {size}"))
        }
    }
}

/// The value at a pointer.
fn find<'a>(answer: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut value = answer;
    let mut rest = pointer;
    while let Some(after) = rest.strip_prefix('/') {
        if let Some(bracket) = after.strip_prefix('[') {
            let (condition, after) = bracket.split_once(']')?;
            let (key, text) = condition.split_once('=')?;
            value = value.as_array()?.iter().find(|item| item[key] == text)?;
            rest = after;
        } else {
            let (key, after) = after.find('/').map_or((after, ""), |end| after.split_at(end));
            let key = key.replace("~1", "/");
            value = match value {
                Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
                _ => value.get(&key)?,
            };
            rest = after;
        }
    }
    Some(value)
}

fn fill(text: &str, saved: &SavedValues) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn fill_all(value: &Value, saved: &SavedValues) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, saved)),
        Value::Array(items) => items.iter().map(|item| fill_all(item, saved)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), fill_all(value, saved))).collect())
        }
        other => other.clone(),
    }
}
