//! JSON patch (RFC 6902).

use serde_json::Value;

use crate::object;
use crate::status::Status;

/// Applies the operations in order. Fails with 422 if an operation cannot be applied.
pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), Status> {
    let operations =
        patch.as_array().ok_or_else(|| Status::bad_request("the JSON patch is not a list of operations"))?;
    for operation in operations {
        let applied = step(target, operation);
        applied.ok_or_else(|| {
            let message =
                format!("the server rejected our request due to an error in our request: {operation}");
            Status::new(422, "Invalid", message)
        })?;
    }
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Option<()> {
    let path = object::text(operation, &["path"]);
    let from = object::text(operation, &["from"]);
    let value = || operation.get("value").cloned();
    match object::text(operation, &["op"]) {
        "add" => add(target, path, value()?),
        "replace" => {
            *target.pointer_mut(path)? = value()?;
            Some(())
        }
        "remove" => remove(target, path).map(|_| ()),
        "move" => {
            let moved = remove(target, from)?;
            add(target, path, moved)
        }
        "copy" => {
            let copied = target.pointer(from)?.clone();
            add(target, path, copied)
        }
        "test" => (target.pointer(path)? == operation.get("value")?).then_some(()),
        _ => None,
    }
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = last.parse().ok().filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(items) => {
            let index = last.parse().ok().filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}
