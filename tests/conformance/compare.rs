//! Compares the recorded outcome of a sync with the actual outcome.

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// The outcome of a sync, in the form of a recording's `expect`.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Scale writes as `[{path, replicas, code}]`.
    pub(crate) scale_writes: Vec<Value>,
    /// Number of accepted status PUTs.
    pub(crate) status_writes: usize,
    /// `status` in the store after the sync.
    pub(crate) status: Value,
    /// Events as `[{type, reason, message, object, verb, count}]`.
    pub(crate) events: Vec<Value>,
    /// Labels, annotations, owner references and finalizers of the HPA before and after the sync.
    pub(crate) metadata: (Value, Value),
}

/// Returns the differences between two outcomes as text, with one paragraph per differing part.
///
/// With `any_count`, verbs and counts of events may differ, because a text of the scenario names a random
/// pod.
pub(crate) fn difference(expect: &Value, got: &Outcome, any_count: bool) -> Option<String> {
    let mut text = String::new();
    let mut part = |name: &str, expected: &Value, got: &Value| {
        if !matches(expected, got) {
            let _ = write!(text, "\n  {name}\n    expected {expected}\n    got      {got}");
        }
    };
    part("scale writes", &list(&expect["scaleWrites"]), &Value::Array(got.scale_writes.clone()));
    let is_random = expect["statusWrites"] == -1;
    if !is_random {
        part("status writes", &expect["statusWrites"], &json!(got.status_writes));
    }
    part("status", &without_defaults(expect["status"].clone()), &without_defaults(got.status.clone()));
    let expected = events(&list(&expect["events"]), any_count, is_random);
    part("events", &expected, &events(&Value::Array(got.events.clone()), any_count, is_random));
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

/// Removes the parts of events that may differ. If a text names a random pod, chance decides whether the reference
/// writes the status, and thus whether the write fails.
fn events(events: &Value, any_count: bool, is_random: bool) -> Value {
    let events = events.as_array().unwrap().iter();
    let kept = events.filter(|event| !(is_random && event["reason"] == "FailedUpdateStatus"));
    let compared = kept.map(|event| {
        let mut event = event.as_object().unwrap().clone();
        if any_count {
            event.remove("verb");
            event.remove("count");
        }
        Value::Object(event)
    });
    compared.collect()
}

/// Fields that the reference omits when they are 0. The reference writes all other fields even if they are 0.
const OMITTED_ZEROS: [&str; 2] = ["desiredReplicas", "currentReplicas"];

/// Removes values that JSON may omit: nulls, empty lists, and [`OMITTED_ZEROS`] that are 0.
fn without_defaults(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let tidied = fields.into_iter().map(|(name, value)| (name, without_defaults(value)));
            let present = tidied.filter(|(name, value)| {
                let is_omitted = OMITTED_ZEROS.contains(&name.as_str()) && *value == json!(0);
                !is_omitted && !value.is_null() && *value != json!([])
            });
            Value::Object(present.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_defaults).collect()),
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

/// Compares a field. If the verb or the count of an event varies between runs of the reference, the recording has an
/// empty verb or the count 0.
fn field(name: &str, expected: &Value, got: &Value) -> bool {
    match name {
        "verb" if expected == "" => true,
        "count" if expected == 0 => true,
        _ => matches(expected, got),
    }
}

/// Compares a text. In `expected`, ` Pod *` matches any pod. A text of only `*` replaces a quantity and matches any
/// text.
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
