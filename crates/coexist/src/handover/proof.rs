//! Checks whether the guard's objects in the cluster refuse the writes of the built-in controller.
//!
//! An object proves the guard if its fields match those of [`objects`](super::objects). Values that do not weaken the
//! guard may differ: names, labels, messages, defaults that the API server adds, and further webhooks. While no replica
//! answers, each write in scope waits for the time limit, so it may be shorter than in the manifests, but not longer.
//!
//! A failure policy other than `Ignore` is a defect, although the guard then refuses even more writes. If no replica
//! responds, or an expression fails, the API server refuses every write of the built-in controller. This includes HPAs
//! out of scope, so nothing scales. Concertina takes charge of no HPA under such a guard.

#![allow(
    clippy::indexing_slicing,
    reason = "indexes JSON only, where a missing field is null instead of a panic"
)]

use http::Uri;
use http::uri::Scheme;
use serde_json::Value;

use super::objects::{GuardObjects, PATH, service_name};

/// Fields that [`compare`] ignores: they do not weaken the guard, or are checked separately (`clientConfig`).
const FREE: [&str; 6] =
    ["message", "messageExpression", "reason", "name", "auditAnnotations", "clientConfig"];
/// The time limit of a webhook, in seconds. The API server's default is 10.
const TIMEOUT: &str = "timeoutSeconds";
/// The field that determines whether writes are refused if the guard fails. The API server's default is `Fail`.
const FAILURE_POLICY: &str = "failurePolicy";
/// The default values that the API server adds, by field.
const DEFAULTS: [(&str, &str); 4] =
    [("matchPolicy", "Equivalent"), ("scope", "*"), ("namespaceSelector", "{}"), ("objectSelector", "{}")];
/// Maximum length of a value in a message.
const LONGEST: usize = 200;

/// The reason why an object does not prove the guard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The object does not exist.
    #[error("{object} does not exist: apply the manifests of the guard")]
    Missing {
        /// Kind and name of the object.
        object: String,
    },
    /// A field differs, so writes of the built-in controller may pass.
    #[error("{object}: {field} is {actual}, not {expected}: apply the manifests of the guard")]
    Differs {
        /// Kind and name of the object.
        object: String,
        /// The path of the field, such as `webhooks[0].rules`.
        field: String,
        /// The value in the cluster, as shortened JSON.
        actual: String,
        /// The value in the manifests, as shortened JSON.
        expected: String,
    },
    /// A failure of the guard refuses every write of the built-in controller.
    #[error(
        "{object}: {field} is {actual}, not \"Ignore\", so a failure of the guard stops the built-in controller for all \
         HPAs, in scope or not: apply the manifests of the guard"
    )]
    FailsClosed {
        /// Kind and name of the object.
        object: String,
        /// The path of the field, such as `webhooks[0].failurePolicy`.
        field: String,
        /// The value in the cluster, as shortened JSON.
        actual: String,
    },
    /// The API server rejects the certificate that this replica serves.
    #[error(
        "{object}: {field} does not trust the certificate of the webhook for {host}: let the leader write the field, \
         which needs the verbs get and update on this object, or renew the files of --handover-webhook-cert-file"
    )]
    Untrusted {
        /// Kind and name of the object.
        object: String,
        /// The path of the field, such as `webhooks[0].clientConfig.caBundle`.
        field: String,
        /// The DNS name or IP address to which the API server connects.
        host: String,
    },
}

/// Checks `actual`, the ValidatingWebhookConfiguration of the cluster, or `None` if it does not exist. `trusts` returns
/// whether a `caBundle` (first argument), in base64 as in the object, verifies the certificate that this replica serves
/// for a DNS name or an IP address (second argument).
///
/// # Errors
/// Returns the first [`Defect`].
pub fn webhook(
    objects: &GuardObjects,
    actual: Option<&Value>,
    trusts: &dyn Fn(&str, &str) -> bool,
) -> Result<(), Defect> {
    let expected = objects.webhook();
    let object = object_of(&expected);
    let Some(actual) = actual else { return Err(Defect::Missing { object }) };
    let webhooks = actual["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    for wanted in expected["webhooks"].as_array().into_iter().flatten() {
        let found = webhooks.iter().enumerate().find(|(_, webhook)| webhook["name"] == wanted["name"]);
        let Some((index, webhook)) = found else {
            let names: Vec<_> = webhooks.iter().map(|webhook| webhook["name"].clone()).collect();
            return Err(differs(&object, "webhooks[*].name", &names.into(), &wanted["name"]));
        };
        let path = format!("webhooks[{index}]");
        compare(&object, &path, wanted, webhook)?;
        let client = &webhook["clientConfig"];
        // A URL replaces the Service for API servers that do not resolve Services.
        let host = if let Some(host) = client["url"].as_str().and_then(host_of) {
            host
        } else {
            let service = &wanted["clientConfig"]["service"];
            let path = format!("{path}.clientConfig.service");
            compare(&object, &path, service, &with_port(&client["service"]))?;
            service_name(&objects.namespace, &objects.name())
        };
        if !trusts(client["caBundle"].as_str().unwrap_or_default(), &host) {
            return Err(Defect::Untrusted { object, field: format!("{path}.clientConfig.caBundle"), host });
        }
    }
    Ok(())
}

/// Checks the policies and their bindings. `actual` returns an object by kind and name.
///
/// # Errors
/// Returns the first [`Defect`].
pub fn policies<'a>(
    objects: &GuardObjects,
    actual: &dyn Fn(&str, &str) -> Option<&'a Value>,
) -> Result<(), Defect> {
    for expected in objects.policies().iter().chain(&objects.bindings()) {
        let object = object_of(expected);
        let [kind, name] =
            [&expected["kind"], &expected["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
        let Some(actual) = actual(kind, name) else { return Err(Defect::Missing { object }) };
        compare(&object, "spec", &expected["spec"], &actual["spec"])?;
    }
    Ok(())
}

/// Returns kind and name, such as `ValidatingWebhookConfiguration concertina-handover`.
fn object_of(expected: &Value) -> String {
    let [kind, name] =
        [&expected["kind"], &expected["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
    format!("{kind} {name}")
}

/// Returns the host of an HTTPS URL with the path of the webhook, without the brackets of an IPv6 address.
fn host_of(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    if url.scheme() != Some(&Scheme::HTTPS) || url.path() != PATH || url.query().is_some() {
        return None;
    }
    Some(url.host()?.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// Returns a service reference with the default port, if it has no port.
fn with_port(service: &Value) -> Value {
    let mut service = service.clone();
    if let Some(fields) = service.as_object_mut() {
        fields.entry("port").or_insert_with(|| 443.into());
    }
    service
}

/// Compares two values: objects by field, lists by element in their order, and strings by word.
fn compare(object: &str, path: &str, expected: &Value, actual: &Value) -> Result<(), Defect> {
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(fields)) => {
            for (name, value) in wanted.iter().filter(|(name, _)| !is_free(name, path)) {
                let field = fields.get(name).unwrap_or(&Value::Null);
                if name == FAILURE_POLICY && field != value {
                    return Err(fails_closed(object, &format!("{path}.{name}"), field));
                }
                let is_stronger = is_default(name, field) && is_namespaced_scope(name, value)
                    || name == TIMEOUT && is_shorter(field, value);
                if !is_stronger {
                    compare(object, &format!("{path}.{name}"), value, field)?;
                }
            }
            let added = fields.iter().find(|(name, value)| {
                !wanted.contains_key(*name)
                    && !is_free(name, path)
                    && !is_empty(value)
                    && !is_default(name, value)
            });
            match added {
                Some((name, value)) => Err(differs(object, &format!("{path}.{name}"), value, &Value::Null)),
                None => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
            let mut pairs = wanted.iter().zip(items).enumerate();
            pairs.try_for_each(|(index, (wanted, item))| {
                compare(object, &format!("{path}[{index}]"), wanted, item)
            })
        }
        (Value::String(wanted), Value::String(text)) if words(wanted).eq(words(text)) => Ok(()),
        _ if expected == actual => Ok(()),
        _ => Err(differs(object, path, actual, expected)),
    }
}

/// Returns whether a field may differ without weakening the guard. The name of a Service must not differ.
fn is_free(name: &str, path: &str) -> bool {
    FREE.contains(&name) && !(name == "name" && path.ends_with(".service"))
}

/// Returns whether a time limit is at most the expected limit.
fn is_shorter(actual: &Value, expected: &Value) -> bool {
    actual.as_u64().zip(expected.as_u64()).is_some_and(|(actual, expected)| actual <= expected)
}

/// Returns whether a rule for namespaced objects is expected. A rule for all objects includes them.
fn is_namespaced_scope(name: &str, expected: &Value) -> bool {
    name == "scope" && expected == "Namespaced"
}

fn is_default(name: &str, value: &Value) -> bool {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    DEFAULTS.iter().any(|(field, default)| *field == name && *default == text)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns the words of an expression, because a formatter may have wrapped its lines.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

fn fails_closed(object: &str, field: &str, actual: &Value) -> Defect {
    Defect::FailsClosed { object: object.to_owned(), field: field.to_owned(), actual: short(actual) }
}

fn short(value: &Value) -> String {
    let text = if value.is_null() { "unset".to_owned() } else { value.to_string() };
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain(['…']).collect() }
}

fn differs(object: &str, field: &str, actual: &Value, expected: &Value) -> Defect {
    Defect::Differs {
        object: object.to_owned(),
        field: field.to_owned(),
        actual: short(actual),
        expected: short(expected),
    }
}

#[cfg(test)]
mod tests;
