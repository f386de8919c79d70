//! Reads lists page by page and item by item. Memory contains one item at a time, not the whole list.

use super::call::Call;
use super::client::Client;
use super::decode::DecodeError;
use super::error::ApiError;
use super::watch::{MAX_PAGE, PAGE, PAGE_TIMEOUT};

/// A collection of objects.
#[derive(Debug, Clone, Copy)]
pub struct Collection<'a> {
    /// The API group. Empty for the core group.
    pub group: &'a str,
    /// The version of the API group.
    pub version: &'a str,
    /// The namespace. `None` reads all namespaces.
    pub namespace: Option<&'a str>,
    /// The plural name of the resource.
    pub resource: &'a str,
    /// A field selector. The empty selector selects all objects.
    pub fields: &'a str,
}

impl Collection<'_> {
    fn call(&self, labels: &str, next: &str, limit: &str) -> Call {
        let root: &[&str] = if self.group.is_empty() { &["api"] } else { &["apis", self.group] };
        let namespace = self.namespace.map(|namespace| ["namespaces", namespace]);
        let path = root.iter().copied().chain([self.version]).chain(namespace.into_iter().flatten());
        let about = if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        };
        Call::get(path.chain([self.resource]))
            .query("continue", next)
            .query("fieldSelector", self.fields)
            .query("labelSelector", labels)
            .query("limit", limit)
            .about(about, "")
            .within(PAGE_TIMEOUT)
            .at_most(MAX_PAGE)
    }
}

/// Passes every item of a collection to `item`. If the list expires between two pages, the whole list is read again
/// without pages, as in client-go. Items may then be repeated.
pub async fn each(
    client: &Client,
    collection: Collection<'_>,
    item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    each_labelled(client, collection, "", item).await
}

/// Like [`each`], but only for the items that a label selector matches.
pub async fn each_labelled(
    client: &Client,
    collection: Collection<'_>,
    labels: &str,
    mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    let mut next = String::new();
    let mut limit = PAGE;
    loop {
        match client.items(&collection.call(labels, &next, limit), &mut item).await {
            Ok(envelope) if envelope.metadata.resource_version.is_empty() => {
                let wrong = format!("{} is not a list of {}", envelope.kind, collection.resource);
                return Err(ApiError::Decode(DecodeError::new(wrong)));
            }
            Ok(envelope) if envelope.metadata.r#continue.is_empty() => return Ok(()),
            Ok(envelope) => next = envelope.metadata.r#continue,
            Err(error) if error.is_gone() && !next.is_empty() => {
                next.clear();
                limit = "";
            }
            Err(error) => return Err(error),
        }
    }
}
