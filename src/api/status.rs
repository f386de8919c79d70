//! The status of an HPA: one PUT, with everything else exactly as it was received.
//!
//! The server keeps the stored spec and takes metadata from the request (labels, annotations, owners and finalizers
//! that are left out are deleted), so metadata goes back byte for byte.

use std::time::Duration;

use autoscaling::status::Status;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Call;
use super::client::{Client, Turn};
use super::decode::{HpaObject, hpa, meta};
use super::error::ApiError;
use super::limit::status_rate;

/// How long reading one HPA may take. Whoever waits for it has lost an answer already, or is to act soon.
const READ: Duration = Duration::from_secs(5);

/// Writes statuses.
#[derive(Debug, Clone)]
pub struct Statuses {
    client: Client,
    field_manager: String,
    following: Option<Following>,
}

/// How the limit follows the number of HPAs.
#[derive(Debug, Clone, Copy)]
pub struct Following {
    /// How often each HPA is synced.
    pub period: Duration,
    /// Statuses per second that may be written at least.
    pub at_least: f64,
}

/// The HPA whose status is written, as it was received.
#[derive(Debug, Clone, Copy)]
pub struct StatusTarget<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata`, with the resourceVersion against which the server checks.
    pub metadata: &'a RawValue,
    /// `spec`.
    pub spec: &'a RawValue,
}

/// What stands in front of the metadata.
const HEAD: &str = r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":"#;
/// Room for a status with two metrics; a larger one makes the buffer grow.
const STATUS_ROOM: usize = 1536;

impl StatusTarget<'_> {
    /// What is sent to write a status: written once, into one buffer.
    pub fn body(&self, status: &Status) -> Result<Vec<u8>, ApiError> {
        let (metadata, spec) = (self.metadata.get(), self.spec.get());
        let mut body = Vec::with_capacity(HEAD.len() + metadata.len() + spec.len() + STATUS_ROOM);
        for part in [HEAD, metadata, r#","spec":"#, spec, r#","status":"#] {
            body.extend_from_slice(part.as_bytes());
        }
        serde_json::to_writer(&mut body, status).map_err(|error| ApiError::Request(error.to_string()))?;
        body.push(b'}');
        Ok(body)
    }
}

impl Statuses {
    /// `field_manager` is recorded by the server as the one who wrote the status.
    pub fn new(client: Client, field_manager: impl Into<String>) -> Self {
        Self { client, field_manager: field_manager.into(), following: None }
    }

    /// The same, of which more may go the more HPAs there are.
    #[must_use]
    pub fn following(self, following: Option<Following>) -> Self {
        Self { following, ..self }
    }

    /// So many HPAs there are now.
    pub fn expect(&self, hpas: usize) {
        if let Some(Following { period, at_least }) = self.following {
            self.client.set_rate(status_rate(hpas, period, at_least));
        }
    }

    /// Waits until one more status may be written.
    pub async fn turn(&self) -> Turn {
        self.client.turn().await
    }

    /// Writes a status; `metadata.resourceVersion` of the HPA since.
    pub async fn put(
        &self,
        turn: Turn,
        target: StatusTarget<'_>,
        status: &Status,
    ) -> Result<String, ApiError> {
        let body = target.body(status)?;
        let path = [
            "apis",
            "autoscaling",
            "v2",
            "namespaces",
            target.namespace,
            "horizontalpodautoscalers",
            target.name,
            "status",
        ];
        let call = Call::send(Method::PUT, path, "application/json", body)
            .query("fieldManager", &self.field_manager)
            .about("horizontalpodautoscalers.autoscaling", target.name)
            .subresource("status");
        let answer = self.client.bytes_in(turn, &call).await?;
        Ok(meta(&answer).map_err(ApiError::Decode)?.resource_version)
    }

    /// Reads an HPA as it is now, after a write of its status that failed or may have; `None` if it is gone.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<Option<HpaObject>, ApiError> {
        read(&self.client, namespace, name).await
    }
}

/// One HPA as it is now. By a list, because to list is all that the role allows besides to watch.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<HpaObject>, ApiError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow, default)]
        items: Vec<&'a RawValue>,
    }
    let path = ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers"];
    let call = Call::get(path)
        .query("fieldSelector", &format!("metadata.name={name}"))
        .about("horizontalpodautoscalers.autoscaling", "")
        .within(READ);
    let bytes = client.bytes(&call).await?;
    let list: List<'_> = serde_json::from_slice(&bytes).map_err(|error| ApiError::Decode(error.into()))?;
    let first = list.items.first().map(|item| hpa(item.get().as_bytes()));
    first.transpose().map_err(ApiError::Decode)
}
