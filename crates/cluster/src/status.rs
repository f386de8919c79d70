//! Writes the status of an HPA with a PUT that also contains metadata and spec as received.
//!
//! The server keeps the stored spec and takes metadata from the request. Metadata is sent back unchanged, except for
//! managedFields, because the server deletes omitted labels, annotations, owners and finalizers.

use std::time::Duration;

use autoscaling::status::Status;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Call;
use super::client::{Client, RatePermit};
use super::decode::{HpaObject, hpa, meta};
use super::error::ApiError;
use super::limit::status_rate;

/// Timeout of reading one HPA. The timeout is short, because the caller has lost a response or must act soon.
const READ: Duration = Duration::from_secs(5);

/// Writes the statuses of HPAs.
#[derive(Debug, Clone)]
pub struct Statuses {
    client: Client,
    field_manager: String,
    following: Option<Following>,
}

/// Options of a rate limit that follows the number of HPAs.
#[derive(Debug, Clone, Copy)]
pub struct Following {
    /// The sync period of each HPA.
    pub period: Duration,
    /// The minimum rate, in status writes per second.
    pub at_least: f64,
}

/// The HPA of a status write, as received.
#[derive(Debug, Clone, Copy)]
pub struct StatusTarget<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata`, with the resourceVersion that the server compares.
    pub metadata: &'a RawValue,
    /// `spec`.
    pub spec: &'a RawValue,
}

/// The start of the body, up to the metadata.
const HEAD: &str = r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":"#;
/// The initial buffer space for a status without its metrics, in bytes.
const STATUS_ROOM: usize = 1280;
const METRIC_ROOM: usize = 128;

impl StatusTarget<'_> {
    /// Returns the body of a status write, built in one buffer.
    pub fn body(&self, status: &Status) -> Result<Vec<u8>, ApiError> {
        let (metadata, spec) = (self.metadata.get(), self.spec.get());
        let room = STATUS_ROOM + METRIC_ROOM * status.current_metrics.len();
        let mut body = Vec::with_capacity(HEAD.len() + metadata.len() + spec.len() + room);
        for part in [HEAD, metadata, r#","spec":"#, spec, r#","status":"#] {
            body.extend_from_slice(part.as_bytes());
        }
        serde_json::to_writer(&mut body, status).map_err(|error| ApiError::Request(error.to_string()))?;
        body.push(b'}');
        Ok(body)
    }
}

impl Statuses {
    /// Creates a client for statuses. The server records `field_manager` as the writer of the status.
    pub fn new(client: Client, field_manager: impl Into<String>) -> Self {
        Self { client, field_manager: field_manager.into(), following: None }
    }

    /// Returns the field manager of the status writes.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Returns the same client with a rate that follows the number of HPAs. `None` keeps the rate.
    #[must_use]
    pub fn following(self, following: Option<Following>) -> Self {
        Self { following, ..self }
    }

    /// Sets the rate for the current number of HPAs, if the rate follows the number of HPAs.
    pub fn expect(&self, hpas: usize) {
        if let Some(Following { period, at_least }) = self.following {
            self.client.set_rate(status_rate(hpas, period, at_least));
        }
    }

    /// Waits until one more status write is permitted. Namespaces take turns.
    pub async fn turn(&self, namespace: &str) -> RatePermit {
        self.client.turn(namespace).await
    }

    /// Writes a status. Returns the HPA's new `metadata.resourceVersion`.
    pub async fn put(
        &self,
        turn: RatePermit,
        target: StatusTarget<'_>,
        status: &Status,
    ) -> Result<String, ApiError> {
        let body = target.body(status)?;
        let path = collection(target.namespace).into_iter().chain([target.name, "status"]);
        let call = Call::send(Method::PUT, path, "application/json", body)
            .query("fieldManager", &self.field_manager)
            .about("horizontalpodautoscalers.autoscaling", target.name)
            .subresource("status");
        let answer = self.client.bytes_in(turn, &call).await?;
        Ok(meta(&answer)?.resource_version)
    }

    /// Reads the current HPA after a status write that failed or has an unknown outcome. `None` if the HPA was deleted.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<HpaObject>, ApiError> {
        read(&self.client, namespace, name).await
    }
}

/// Reads one HPA. `None` if the HPA does not exist. The request is a list, because the role permits only list and
/// watch.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<HpaObject>, ApiError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow, default)]
        items: Vec<&'a RawValue>,
    }
    let call = Call::get(collection(namespace))
        .query("fieldSelector", &format!("metadata.name={name}"))
        .about("horizontalpodautoscalers.autoscaling", "")
        .within(READ);
    let bytes = client.bytes(&call).await?;
    let list: List<'_> = serde_json::from_slice(&bytes).map_err(|error| ApiError::Decode(error.into()))?;
    let first = list.items.first().map(|item| hpa(item.get().as_bytes()));
    Ok(first.transpose()?)
}

fn collection(namespace: &str) -> [&str; 6] {
    ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers"]
}
