//! Validation that all types share; that of HPAs is in `hpa::validation`.

use serde_json::Value;

use super::object;
use super::registry::ResourceType;
use super::status::FieldError;

/// What is wrong with an object that is to be created.
pub(crate) fn create(ty: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    metadata(object, &mut causes);
    spec(ty, object, &mut causes);
    causes
}

/// What is wrong with an object that is to be updated.
pub(crate) fn update(ty: &ResourceType, object: &Value, _old: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    spec(ty, object, &mut causes);
    causes
}

/// What is wrong with an object whose status is to be updated.
pub(crate) fn update_status(_ty: &ResourceType, _object: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

fn metadata(object: &Value, causes: &mut Vec<FieldError>) {
    if object::meta(object, "name").is_empty() {
        causes.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
}

fn spec(_ty: &ResourceType, _object: &Value, _causes: &mut Vec<FieldError>) {}
