//! One request and what its answer must show, and the small language in which
//! the two are written.
//!
//! Texts in a step may hold `{names}` of values that an earlier step saved;
//! `{ns}` is the namespace of the chapter. A place in an answer is a path of
//! keys and indexes, `/items/0/metadata/name`; a key in brackets finds an
//! element of an array, `/resources/[name=deployments/scale]/kind` (a slash
//! inside brackets is part of the value).

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use crate::outcome::{Context, Failure, Outcome, ensure};
use crate::rest::{Rest, media};

/// What must be found at a place.
#[derive(Clone, Debug)]
enum Want {
    Is(Value),
    /// A text with this inside.
    Contains(String),
    Present,
    Absent,
    /// Not what an earlier step saved under the name.
    Other(String),
    /// An array or object of this size.
    Size(usize),
}

/// One request and the expectations of its answer.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Value>,
    code: u16,
    /// The answer is a stream of objects, one per line; it is read to its end as one array.
    stream: bool,
    wants: Vec<(String, Want)>,
    saves: Vec<(&'static str, &'static str)>,
}

/// Values that later steps of a chapter use.
pub(crate) type Saved = BTreeMap<String, String>;

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

/// A watch that ends by itself, so that its answer is complete.
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

    fn want(mut self, place: &str, want: Want) -> Self {
        self.wants.push((place.to_owned(), want));
        self
    }

    pub(crate) fn is(self, place: &str, value: impl Into<Value>) -> Self {
        self.want(place, Want::Is(value.into()))
    }

    pub(crate) fn contains(self, place: &str, text: &str) -> Self {
        self.want(place, Want::Contains(text.to_owned()))
    }

    pub(crate) fn present(self, place: &str) -> Self {
        self.want(place, Want::Present)
    }

    pub(crate) fn absent(self, place: &str) -> Self {
        self.want(place, Want::Absent)
    }

    pub(crate) fn other(self, place: &str, saved: &str) -> Self {
        self.want(place, Want::Other(saved.to_owned()))
    }

    pub(crate) fn size(self, place: &str, size: usize) -> Self {
        self.want(place, Want::Size(size))
    }

    /// Keeps what stands at a place under a name.
    pub(crate) fn save(mut self, name: &'static str, place: &'static str) -> Self {
        self.saves.push((name, place));
        self
    }

    /// A Status that tells of a failure, in the form that clients parse.
    pub(crate) fn fails(self, code: u16, reason: &str, message: &str) -> Self {
        self.code(code)
            .is("/kind", "Status")
            .is("/apiVersion", "v1")
            .is("/status", "Failure")
            .is("/code", code)
            .is("/reason", reason)
            .is("/message", message)
    }

    /// Sends the request and checks the answer; the text names all that is wrong with it.
    pub(crate) async fn play(&self, api: &Rest, saved: &mut Saved, show: bool) -> Outcome {
        let path = fill(&self.path, saved);
        let body = self.body.as_ref().map(|body| fill_all(body, saved));
        let title = format!("{} {path}", self.method);
        let answer = api.send(self.method.clone(), &path, &self.headers, body.as_ref()).await?;
        let json =
            if self.stream && answer.code == 200 { Value::Array(answer.lines()) } else { answer.json() };
        if show {
            eprintln!("\n{title}\n{} {json}", answer.code);
        }
        let mut wrong = Vec::new();
        if answer.code != self.code {
            wrong.push(format!("code is {}, not {}", answer.code, self.code));
        }
        for (place, want) in &self.wants {
            let place = fill(place, saved);
            if let Err(Failure(text)) = check(&json, &place, want, saved) {
                wrong.push(format!("{place} {text}"));
            }
        }
        for (name, place) in &self.saves {
            match find(&json, &fill(place, saved)) {
                Some(value) => {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    saved.insert((*name).to_owned(), text);
                }
                None => wrong.push(format!("{place} is absent, it was to be kept")),
            }
        }
        let mut whole = json.to_string();
        whole.truncate(whole.floor_char_boundary(1500));
        ensure(wrong.is_empty(), || format!("{}\n    answer: {whole}", wrong.join("\n    "))).context(title)
    }
}

fn check(answer: &Value, place: &str, want: &Want, saved: &Saved) -> Outcome {
    let found = find(answer, place);
    let shown = || found.map_or_else(|| "absent".to_owned(), Value::to_string);
    match want {
        Want::Is(value) => {
            let value = fill_all(value, saved);
            ensure(found == Some(&value), || format!("is {}, not {value}", shown()))
        }
        Want::Contains(text) => {
            let text = fill(text, saved);
            let holds = found.and_then(Value::as_str).is_some_and(|found| found.contains(&text));
            ensure(holds, || format!("is {}, without \"{text}\"", shown()))
        }
        Want::Present => ensure(found.is_some(), || "is absent".to_owned()),
        Want::Absent => ensure(found.is_none(), || format!("is {}, not absent", shown())),
        Want::Other(name) => {
            let before = saved.get(name).cloned().unwrap_or_default();
            let differs = found.is_some_and(|found| found.as_str() != Some(before.as_str()));
            ensure(differs, || format!("is {}, as before", shown()))
        }
        Want::Size(size) => {
            let count = match found {
                Some(Value::Array(items)) => Some(items.len()),
                Some(Value::Object(fields)) => Some(fields.len()),
                _ => None,
            };
            ensure(count == Some(*size), || format!("has {count:?} entries, not {size}"))
        }
    }
}

/// What stands at a place.
fn find<'a>(answer: &'a Value, place: &str) -> Option<&'a Value> {
    let mut value = answer;
    let mut rest = place;
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

fn fill(text: &str, saved: &Saved) -> String {
    saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn fill_all(value: &Value, saved: &Saved) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, saved)),
        Value::Array(items) => items.iter().map(|item| fill_all(item, saved)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), fill_all(value, saved))).collect())
        }
        other => other.clone(),
    }
}
