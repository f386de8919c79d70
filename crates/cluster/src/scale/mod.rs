//! The scale subresource of any resource (GET and PUT, never PATCH), and its projection from watched objects.

mod projection;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod version_tests;
mod wire;

use std::time::Duration;

use http::Method;
use serde_json::value::RawValue;

pub use self::projection::scale_paths;
pub use self::projection::{Scalable, ScalePaths, Shape, WireScale, WireTarget};
use super::call::Call;
use super::client::{Client, RatePermit};
use super::error::ApiError;
use super::mapper::Mapping;
use wire::{decode, encode};

/// The `apiVersion` of the Scales of all built-in resources and of custom resources.
pub const SCALE_VERSION: &str = "autoscaling/v1";
/// Timeout of reading a scale back. The caller has already lost one response and occupies a worker.
const READ_BACK: Duration = Duration::from_secs(5);

/// Reads and writes scales.
#[derive(Debug, Clone)]
pub struct Scales {
    client: Client,
    field_manager: String,
}

/// A Scale as received, with all data that a PUT needs.
#[derive(Debug, Clone)]
pub struct ScaleObject {
    /// `metadata.resourceVersion`. A PUT conflicts if the target has changed since the read.
    pub resource_version: String,
    /// `metadata.uid` of the target.
    pub uid: String,
    /// `spec.replicas`, 0 if absent. The caller sets the new value before a PUT.
    pub spec_replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// The selector of the status in text form, empty if absent.
    pub selector: String,
    /// `metadata` as received, for the PUT.
    pub metadata: Box<RawValue>,
}

impl Scales {
    /// Creates a client for scales. The server records `field_manager` as the writer of `spec.replicas`.
    pub fn new(client: Client, field_manager: impl Into<String>) -> Self {
        Self { client, field_manager: field_manager.into() }
    }

    /// Waits until one more request is permitted. Namespaces take turns.
    pub async fn turn(&self, namespace: &str) -> RatePermit {
        self.client.turn(namespace).await
    }

    /// Reads the scale of an object.
    pub async fn get(
        &self,
        turn: RatePermit,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleObject, ApiError> {
        decode(&self.client.bytes_in(turn, &read(mapping, namespace, name)).await?)
    }

    /// Reads the scale of an object after the response to a write was lost. The timeout is short.
    pub async fn read_back(
        &self,
        turn: RatePermit,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleObject, ApiError> {
        let call = read(mapping, namespace, name).within(READ_BACK);
        decode(&self.client.bytes_in(turn, &call).await?)
    }

    /// Writes `scale`, a scale from an earlier read with a changed `spec_replicas`, in the `scale_version` of
    /// `mapping`. Returns the scale that the server stored.
    pub async fn put(
        &self,
        turn: RatePermit,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
        scale: &ScaleObject,
    ) -> Result<ScaleObject, ApiError> {
        let body = encode(mapping, scale)?;
        let call = Call::send(Method::PUT, path(mapping, namespace, name), "application/json", body)
            .query("fieldManager", &self.field_manager)
            .about(mapping.resource.as_str(), name)
            .subresource("scale");
        decode(&self.client.bytes_in(turn, &call).await?)
    }
}

fn read(mapping: &Mapping, namespace: &str, name: &str) -> Call {
    // Upstream's scale client names the resource without its group.
    Call::get(path(mapping, namespace, name)).about(mapping.resource.as_str(), name).subresource("scale")
}

fn path<'a>(mapping: &'a Mapping, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    mapping.path(namespace, name).chain(["scale"])
}
