//! Values in JSON objects by their pointers, such as `/spec/maxReplicas`.

use autoscaling::quantity::Quantity;
use serde_json::Value;

/// Returns the value at a pointer. Null if the value is absent.
pub(crate) fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns the items of the list at a pointer. Empty for any other value.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the string at a pointer. Empty for any other value.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).as_str().unwrap_or_default()
}

/// Parses a quantity from a string or a number.
pub(crate) fn quantity(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::as_f64),
        number => number.as_f64(),
    }
}
