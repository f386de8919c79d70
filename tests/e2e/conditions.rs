//! Conditions as texts.

use serde_json::Value;

/// The conditions as lines of text, in their order.
pub(crate) fn conditions(hpa: &Value) -> Vec<String> {
    let all = hpa.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .map(|condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            format!("{}={} {}: {}", text("type"), text("status"), text("reason"), text("message"))
        })
        .collect()
}
