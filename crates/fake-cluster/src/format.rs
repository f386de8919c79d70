//! The form of objects in responses: whole, metadata only, or rows of a table.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::list::ListPage;
use super::object::{append, partial};
use super::registry::ResourceType;
use super::route::Call;
use super::store::StoredObject;
use super::table::{Include, table};

/// The form that a request selects with its `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The whole object.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// Rows of a table.
    Table {
        /// The part of the object that each row contains in addition to its cells.
        include: Include,
        /// Whether the columns have been sent. A watch sends them once.
        headed: bool,
    },
}

impl Format {
    /// Returns the first supported form in the `Accept` header.
    pub(crate) fn from_call(call: &Call) -> Self {
        for wanted in call.accept.split(',') {
            let parameter = |name: &str| {
                wanted.split(';').map(str::trim).find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            };
            match (parameter("as"), parameter("v")) {
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
                    return Self::Metadata;
                }
                (Some("Table"), Some("v1")) => {
                    let include = Include::from_parameter(call.query.get("includeObject"));
                    return Self::Table { include, headed: false };
                }
                (None, _) if wanted.trim().starts_with("application/json") => return Self::Whole,
                _ => {}
            }
        }
        Self::Whole
    }

    pub(crate) fn object(self, stored: &StoredObject, now: Timestamp, out: &mut Vec<u8>) {
        match self {
            Self::Whole => stored.write(out),
            Self::Metadata => append(&partial(&stored.value()), out),
            Self::Table { include, headed } => {
                let metadata = json!({ "resourceVersion": stored.resource_version.to_string() });
                let rows = std::iter::once(stored);
                append(&table(stored.ty, &metadata, rows, include, !headed, now), out);
            }
        }
    }

    pub(crate) fn list(self, ty: &ResourceType, listed: &ListPage, now: Timestamp, out: &mut Vec<u8>) {
        let metadata = list_metadata(listed);
        let (kind, version) = match self {
            Self::Whole => (format!("{}List", ty.kind), ty.api_version()),
            Self::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Self::Table { include, headed } => {
                let rows = listed.items.iter().map(|stored| &**stored);
                return append(&table(ty, &metadata, rows, include, !headed, now), out);
            }
        };
        out.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":").as_bytes(),
        );
        append(&metadata, out);
        out.extend_from_slice(b",\"items\":[");
        for (index, stored) in listed.items.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if self == Self::Whole {
                stored.write_item(out);
            } else {
                self.object(stored, now, out);
            }
        }
        out.extend_from_slice(b"]}");
    }

    /// Appends one event of a watch.
    pub(crate) fn event(&mut self, kind: &str, stored: &StoredObject, now: Timestamp, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        self.object(stored, now, out);
        out.extend_from_slice(b"}\n");
        if let Self::Table { headed, .. } = self {
            *headed = true;
        }
    }

    pub(crate) fn bookmark(ty: &ResourceType, version: u64, initial_end: bool, out: &mut Vec<u8>) {
        let mut metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        if initial_end {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            super::object::map(&mut metadata).insert("annotations".to_owned(), annotations);
        }
        let object = json!({ "kind": ty.kind, "apiVersion": ty.api_version(), "metadata": metadata });
        append(&json!({ "type": "BOOKMARK", "object": object }), out);
        out.push(b'\n');
    }
}

/// Returns the `metadata` of a list.
fn list_metadata(listed: &ListPage) -> Value {
    let mut metadata = json!({ "resourceVersion": listed.version.to_string() });
    let fields = super::object::map(&mut metadata);
    if let Some(next) = &listed.next {
        fields.insert("continue".to_owned(), next.as_str().into());
    }
    if let Some(remaining) = listed.remaining {
        fields.insert("remainingItemCount".to_owned(), remaining.into());
    }
    metadata
}
