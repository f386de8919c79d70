//! LIST: the objects of a collection at a version, in pages, and the forms of objects in responses.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::{append, map, partial};
use super::registry::ResourceType;
use super::route::{Call, Filter};
use super::status::{FieldError, Status};
use super::store::{Key, State, StoredObject};
use super::table::{Include, table};

#[derive(Debug, Clone, Default)]
pub(crate) struct ListOptions {
    pub(crate) filter: Filter,
    /// Objects per page. 0 means all.
    pub(crate) limit: usize,
    pub(crate) next: String,
    pub(crate) version: String,
    pub(crate) version_match: String,
}

#[derive(Debug)]
pub(crate) struct ListPage {
    pub(crate) items: Vec<Arc<StoredObject>>,
    pub(crate) version: u64,
    /// The token of the next page, if any.
    pub(crate) next: Option<String>,
    /// The number of remaining objects. As in Kubernetes, the number is set only for lists without selectors.
    pub(crate) remaining: Option<usize>,
}

/// Lists a collection in its current state. A later page lists the state of the first page. A request with an exact
/// version lists the state at that version.
pub(crate) fn list(
    state: &State,
    ty: &'static ResourceType,
    namespace: Option<&str>,
    options: &ListOptions,
) -> Result<ListPage, Status> {
    let (version, after) = position(state, ty, options)?;
    if version == state.newest() {
        let objects = state.list(ty, namespace, after.as_ref());
        return Ok(page(objects.cloned(), version, options));
    }
    let objects = state.list_at(ty, namespace, after.as_ref(), version);
    Ok(page(objects.into_iter(), version, options))
}

fn page(objects: impl Iterator<Item = Arc<StoredObject>>, version: u64, options: &ListOptions) -> ListPage {
    let mut matching = objects.filter(|stored| options.filter.matches(stored));
    if options.limit == 0 {
        return ListPage { items: matching.collect(), version, next: None, remaining: None };
    }
    let items: Vec<_> = matching.by_ref().take(options.limit).collect();
    let left = matching.count();
    let next = items.last().filter(|_| left > 0).map(|last| token(version, last));
    let remaining = (left > 0 && options.filter.is_empty()).then_some(left);
    ListPage { items, version, next, remaining }
}

/// Returns the version of a list, and the key after which the page starts.
fn position(state: &State, ty: &ResourceType, options: &ListOptions) -> Result<(u64, Option<Key>), Status> {
    let newest = state.newest();
    if !options.next.is_empty() {
        if !matches!(options.version.as_str(), "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (version, key) =
            read_token(&options.next).ok_or_else(|| Status::bad_request("continue key is not valid"))?;
        if state.is_compacted(ty, version) {
            return Err(Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a \
                 new list without the continue parameter.",
            ));
        }
        return Ok((version, Some(key)));
    }
    if options.version.is_empty() {
        if !options.version_match.is_empty() {
            return Err(invalid_options(FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )));
        }
        return Ok((newest, None));
    }
    let requested = parse_version(&options.version)?;
    match options.version_match.as_str() {
        "" | "NotOlderThan" if requested > newest => {
            Err(Status::resource_version_too_large(requested, newest))
        }
        "" | "NotOlderThan" => Ok((newest, None)),
        "Exact" if requested == 0 => Err(invalid_options(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ))),
        "Exact" if requested > newest => Err(Status::resource_version_too_large(requested, newest)),
        "Exact" if !state.is_compacted(ty, requested) => Ok((requested, None)),
        "Exact" => {
            Err(Status::expired(format!("The resourceVersion for the provided list is too old: {requested}")))
        }
        other => Err(invalid_options(FieldError::unsupported(
            "resourceVersionMatch",
            &other.into(),
            &["Exact", "NotOlderThan", ""],
        ))),
    }
}

/// Parses a resourceVersion that a client sent.
pub(crate) fn parse_version(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| {
        invalid_options(FieldError::invalid("resourceVersion", &text.into(), "must be an unsigned integer"))
    })
}

/// Returns the error 422 for an invalid parameter of a list or watch.
pub(crate) fn invalid_options(cause: FieldError) -> Status {
    Status::invalid("meta.k8s.io", "ListOptions", "", &[cause])
}

fn token(version: u64, last: &StoredObject) -> String {
    format!("{version}/{}/{}", last.namespace(), last.name())
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let mut parts = token.splitn(3, '/');
    let version = parts.next()?.parse().ok()?;
    Some((version, Key::new(parts.next()?, parts.next()?)))
}

/// The form that a request selects with its `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The whole object.
    Whole,
    /// Only the metadata, as a `PartialObjectMetadata`.
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
            map(&mut metadata).insert("annotations".to_owned(), annotations);
        }
        let object = json!({ "kind": ty.kind, "apiVersion": ty.api_version(), "metadata": metadata });
        append(&json!({ "type": "BOOKMARK", "object": object }), out);
        out.push(b'\n');
    }
}

/// Returns the `metadata` of a list.
fn list_metadata(listed: &ListPage) -> Value {
    let mut metadata = json!({ "resourceVersion": listed.version.to_string() });
    let fields = map(&mut metadata);
    if let Some(next) = &listed.next {
        fields.insert("continue".to_owned(), next.as_str().into());
    }
    if let Some(remaining) = listed.remaining {
        fields.insert("remainingItemCount".to_owned(), remaining.into());
    }
    metadata
}
