//! What a recording expects of a sync, what happened, and how to show where they part.

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// What a sync did, in the form of a recording's `expect`.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `[{path, replicas, code}]`
    pub(crate) scale_writes: Vec<Value>,
    /// Accepted status PUTs.
    pub(crate) status_writes: usize,
    /// `status` in the store after the sync.
    pub(crate) status: Value,
    /// `[{type, reason, message, object, verb, count}]`
    pub(crate) events: Vec<Value>,
    /// `metadata` before and after: labels, annotations, owners, finalizers.
    pub(crate) metadata: (Value, Value),
}

/// Compares a sync; the difference as text, one line for each part that differs.
///
/// `any_count`: verbs and counts of events need not match, because a text of the scenario names a random pod.
pub(crate) fn difference(expect: &Value, got: &Outcome, any_count: bool) -> Option<String> {
    let mut text = String::new();
    let mut part = |name: &str, expected: &Value, got: &Value| {
        if !matches(expected, got) {
            let _ = write!(text, "\n  {name}\n    expected {expected}\n    got      {got}");
        }
    };
    part("scale writes", &list(&expect["scaleWrites"]), &Value::Array(got.scale_writes.clone()));
    let by_chance = expect["statusWrites"] == -1;
    if !by_chance {
        part("status writes", &expect["statusWrites"], &json!(got.status_writes));
    }
    part("status", &tidy(expect["status"].clone()), &tidy(got.status.clone()));
    let expected = events(&list(&expect["events"]), any_count, by_chance);
    part("events", &expected, &events(&Value::Array(got.events.clone()), any_count, by_chance));
    part("metadata", &got.metadata.0, &got.metadata.1);
    (!text.is_empty()).then_some(text)
}

/// Whether any text of a recording names a random pod.
pub(crate) fn names_a_random_pod(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(" Pod *"),
        Value::Array(items) => items.iter().any(names_a_random_pod),
        Value::Object(fields) => fields.values().any(names_a_random_pod),
        _ => false,
    }
}

fn list(value: &Value) -> Value {
    if value.is_null() { json!([]) } else { value.clone() }
}

/// Where the reference's text names a random pod it writes a status by chance, and meets a status fault by chance.
fn events(events: &Value, any_count: bool, by_chance: bool) -> Value {
    let events = events.as_array().unwrap().iter();
    let kept = events.filter(|event| !(by_chance && event["reason"] == "FailedUpdateStatus"));
    let told = kept.map(|event| {
        let mut told = event.as_object().unwrap().clone();
        if any_count {
            told.remove("verb");
            told.remove("count");
        }
        Value::Object(told)
    });
    told.collect()
}

/// Leaves out what the wire may leave out: nulls, zeros, empty lists.
fn tidy(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let tidied = fields.into_iter().map(|(name, value)| (name, tidy(value)));
            let said =
                tidied.filter(|(_, value)| !value.is_null() && *value != json!(0) && *value != json!([]));
            Value::Object(said.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(tidy).collect()),
        other => other,
    }
}

fn matches(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            expected.len() == got.len()
                && expected
                    .iter()
                    .all(|(name, value)| got.get(name).is_some_and(|got| field(name, value, got)))
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len()
                && expected.iter().zip(got).all(|(expected, got)| matches(expected, got))
        }
        (Value::String(expected), Value::String(got)) => text_matches(expected, got),
        _ => expected == got,
    }
}

/// Verb and count of an event are empty where the reference varies.
fn field(name: &str, expected: &Value, got: &Value) -> bool {
    match name {
        "verb" if expected == "" => true,
        "count" if expected == 0 => true,
        _ => matches(expected, got),
    }
}

/// ` Pod *` stands for any pod, the lone `*` for any quantity.
fn text_matches(expected: &str, got: &str) -> bool {
    if expected == "*" {
        return true;
    }
    match expected.split_once(" Pod *") {
        Some((before, after)) => {
            got.strip_prefix(before).is_some_and(|rest| rest.starts_with(" Pod ") && rest.ends_with(after))
        }
        None => expected == got,
    }
}
