//! The published JSON schemas of the answers, generated from their types. Unit tests of the crates of commands include
//! this file.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A time in RFC 3339.
pub(crate) struct Time;

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// An object of another crate, without its fields.
pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

/// Compares the schema of a document with the published file.
pub(crate) fn check<T: JsonSchema>(name: &str) {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(format!("{name}.json"));
    if std::env::var_os("WRITE_SCHEMAS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is stale; WRITE_SCHEMAS=1 regenerates it", path.display());
}
