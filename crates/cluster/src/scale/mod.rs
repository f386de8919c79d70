//! The scale subresource of any resource (GET and PUT, never PATCH), and its projection from watched objects.

mod definition;
mod projection;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::definition::scale_paths;
pub use self::projection::{Scalable, ScalePaths, Shape, WireScale, WireTarget};
use super::call::Call;
use super::client::Client;
use super::decode::DecodeError;
use super::error::ApiError;
use super::mapper::Mapping;

/// Timeout of reading a scale back. The caller has already lost one response and occupies a worker.
const READ_BACK: Duration = Duration::from_secs(5);

/// Reads and writes scales.
#[derive(Debug, Clone)]
pub struct Scales {
    client: Client,
    field_manager: String,
}

/// A Scale of autoscaling/v1 as received, with all data that a PUT needs.
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
    /// `status.selector` in text form, empty if absent.
    pub selector: String,
    /// `metadata` as received, for the PUT.
    pub metadata: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Spec {
    #[serde(skip_serializing_if = "is_zero")]
    replicas: i32,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Status {
    replicas: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    selector: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a RawValue,
    spec: Spec,
    status: Status,
}

impl Scales {
    /// Creates a client for scales. The server records `field_manager` as the writer of `spec.replicas`.
    pub fn new(client: Client, field_manager: impl Into<String>) -> Self {
        Self { client, field_manager: field_manager.into() }
    }

    /// Reads the scale of an object.
    pub async fn get(&self, mapping: &Mapping, namespace: &str, name: &str) -> Result<ScaleObject, ApiError> {
        decode(&self.client.bytes(&read(mapping, namespace, name)).await?)
    }

    /// Reads the scale of an object after the response to a write was lost. The timeout is short.
    pub async fn read_back(
        &self,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleObject, ApiError> {
        decode(&self.client.bytes(&read(mapping, namespace, name).within(READ_BACK)).await?)
    }

    /// Writes `scale`, a scale from an earlier read with a changed `spec_replicas`. Returns the scale that
    /// the server stored.
    pub async fn put(
        &self,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
        scale: &ScaleObject,
    ) -> Result<ScaleObject, ApiError> {
        let body = Body {
            kind: "Scale",
            api_version: "autoscaling/v1",
            metadata: &scale.metadata,
            spec: Spec { replicas: scale.spec_replicas },
            status: Status { replicas: scale.status_replicas, selector: scale.selector.clone() },
        };
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::Request(error.to_string()))?;
        let call = Call::send(Method::PUT, path(mapping, namespace, name), "application/json", body)
            .query("fieldManager", &self.field_manager)
            .about(mapping.resource.as_str(), name)
            .subresource("scale");
        decode(&self.client.bytes(&call).await?)
    }
}

fn read(mapping: &Mapping, namespace: &str, name: &str) -> Call {
    // Upstream's scale client names the resource without its group.
    Call::get(path(mapping, namespace, name)).about(mapping.resource.as_str(), name).subresource("scale")
}

fn path<'a>(mapping: &'a Mapping, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    mapping.path(namespace, name).chain(["scale"])
}

fn decode(body: &[u8]) -> Result<ScaleObject, ApiError> {
    let wire: Wire<'_> = serde_json::from_slice(body).map_err(|error| ApiError::Decode(error.into()))?;
    if wire.kind != "Scale" || wire.api_version != "autoscaling/v1" {
        return Err(ApiError::Decode(DecodeError::new(format!(
            "received an object from a /scale endpoint which was not convertible to autoscaling Scale: \
             {}, Kind={}",
            wire.api_version, wire.kind
        ))));
    }
    let meta = super::decode::meta_of(wire.metadata).map_err(ApiError::Decode)?;
    let status = wire.status.unwrap_or_default();
    Ok(ScaleObject {
        resource_version: meta.resource_version,
        uid: meta.uid,
        spec_replicas: wire.spec.unwrap_or_default().replicas,
        status_replicas: status.replicas,
        selector: status.selector,
        metadata: wire.metadata.to_owned(),
    })
}
