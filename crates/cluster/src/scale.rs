//! The scale subresource of any resource (GET and PUT, never PATCH) in autoscaling/v1 and three earlier versions, and
//! its projection from watched objects. The conversions are those of client-go, `scale/client.go` (`convertToScale`,
//! `Update`) and `scale/scheme`.

mod projection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::failure;
use autoscaling::selector::{LabelSelector, Selector, SelectorError};
use autoscaling::settings::Version;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::projection::{Scalable, ScalePaths, Shape, WireScale, WireTarget, has_projection};
use super::call::Call;
use super::client::{Client, RatePermit};
use super::decode::{DecodeError, meta_of};
use super::error::ApiError;
use super::mapper::Mapping;

/// The `apiVersion` of the Scales of all built-in resources and of custom resources.
const SCALE_VERSION: &str = "autoscaling/v1";
/// The versions of Scale before autoscaling/v1, whose status has a map of labels and a text as selectors.
const LEGACY_VERSIONS: [&str; 3] = ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"];
/// The writer of `spec.replicas` in `metadata.managedFields`. With the name of the built-in controller, an existing field
/// keeps its owner, and the exceptions of GitOps tools for this name stay valid.
const FIELD_MANAGER: &str = "kube-controller-manager";
/// The name of client-go's scheme of Scales in Go's error texts.
const SCHEME: &str = "pkg/runtime/scheme.go:111";
/// Timeout of reading a Scale after the response to a write was lost. The timeout is short, because the caller occupies
/// a worker.
const READ_BACK: Duration = Duration::from_secs(5);

/// Reads and writes Scales.
#[derive(Debug, Clone)]
pub struct Scales {
    client: Client,
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
    /// `status.selector` in text form. Empty if absent.
    pub selector: String,
    /// `metadata` as received, for the PUT.
    pub metadata: Box<RawValue>,
}

impl Scales {
    /// Creates a client for Scales.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Waits until one more request is permitted. Namespaces take turns.
    pub async fn turn(&self, namespace: &str) -> RatePermit {
        self.client.turn(namespace).await
    }

    /// Reads the Scale of an object.
    pub async fn get(
        &self,
        turn: RatePermit,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleObject, ApiError> {
        Ok(decode(&self.client.bytes_in(turn, &get_call(mapping, namespace, name)).await?)?)
    }

    /// Reads the Scale of an object after the response to a write was lost, with a short timeout.
    pub async fn read_back(
        &self,
        turn: RatePermit,
        mapping: &Mapping,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleObject, ApiError> {
        let call = get_call(mapping, namespace, name).within(READ_BACK);
        Ok(decode(&self.client.bytes_in(turn, &call).await?)?)
    }

    /// Writes `scale`, a Scale from an earlier read with a changed `spec_replicas`, in the `scale_version` of
    /// `mapping`. Returns the stored Scale.
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
            .query("fieldManager", FIELD_MANAGER)
            .about(mapping.resource.as_str(), name)
            .subresource("scale");
        Ok(decode(&self.client.bytes_in(turn, &call).await?)?)
    }
}

fn get_call(mapping: &Mapping, namespace: &str, name: &str) -> Call {
    // Upstream's scale client names the resource without its group.
    Call::get(path(mapping, namespace, name)).about(mapping.resource.as_str(), name).subresource("scale")
}

fn path<'a>(mapping: &'a Mapping, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    mapping.path(namespace, name).chain(["scale"])
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TypeMeta {
    kind: String,
    api_version: String,
}

#[derive(Deserialize)]
struct Wire<'a, S> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default = "Option::default")]
    spec: Option<Spec>,
    #[serde(default = "Option::default")]
    status: Option<S>,
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

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct LegacyStatus {
    replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<BTreeMap<String, Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_selector: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a, S> {
    kind: &'static str,
    api_version: &'a str,
    metadata: &'a RawValue,
    spec: Spec,
    status: S,
}

/// Decodes a response of a scale subresource.
fn decode(body: &[u8]) -> Result<ScaleObject, DecodeError> {
    let TypeMeta { kind, api_version } = serde_json::from_slice(body)?;
    if kind == "Scale" && api_version == SCALE_VERSION {
        let wire: Wire<'_, Status> = serde_json::from_slice(body)?;
        let status = wire.status.unwrap_or_default();
        return object(wire.metadata, wire.spec, status.replicas, status.selector);
    }
    if kind == "Scale" && LEGACY_VERSIONS.contains(&api_version.as_str()) {
        let wire: Wire<'_, LegacyStatus> = serde_json::from_slice(body)?;
        let status = wire.status.unwrap_or_default();
        let replicas = status.replicas;
        return object(wire.metadata, wire.spec, replicas, legacy_selector(status)?);
    }
    if kind.is_empty() {
        return Err(DecodeError::missing("Kind", body));
    }
    if api_version.is_empty() {
        return Err(DecodeError::missing("apiVersion", body));
    }
    Err(DecodeError::new(not_registered(&kind, &api_version)))
}

fn object(
    metadata: &RawValue,
    spec: Option<Spec>,
    status_replicas: i32,
    selector: String,
) -> Result<ScaleObject, DecodeError> {
    let meta = meta_of(metadata)?;
    Ok(ScaleObject {
        resource_version: meta.resource_version,
        uid: meta.uid,
        spec_replicas: spec.unwrap_or_default().replicas,
        status_replicas,
        selector,
        metadata: metadata.to_owned(),
    })
}

/// Returns the text form of a legacy selector. As in Go, the text takes precedence over the map.
fn legacy_selector(status: LegacyStatus) -> Result<String, DecodeError> {
    if let Some(text) = status.target_selector.filter(|text| !text.is_empty()) {
        return Ok(text);
    }
    let labels = status.selector.unwrap_or_default();
    let labels = labels.into_iter().map(|(label, value)| (label, value.unwrap_or_default())).collect();
    let selector = LabelSelector { match_labels: Some(labels), match_expressions: None };
    let selector = Selector::from_label_selector(Some(&selector)).map_err(|error| {
        DecodeError::new(format!(
            "received an object from a /scale endpoint which was not convertible to autoscaling Scale: \
             invalid label selector: {error}"
        ))
    })?;
    Ok(selector.to_string())
}

fn not_registered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme {}",
        failure::quote(kind),
        failure::quote(api_version),
        failure::quote(SCHEME)
    )
}

/// A Scale cannot be encoded in the version that discovery states, or discovery states no version. Nothing was sent.
#[derive(Debug, thiserror::Error)]
enum EncodeError {
    #[error(
        "could not find proper group-version for scale subresource of {resource}: could not find scale subresource \
         for {resource} in discovery information"
    )]
    NoScale { resource: String },
    #[error("could not convert scale update to external Scale: {}", not_registered("Scale", version))]
    UnknownVersion { version: String },
    #[error(
        "could not convert scale update to external Scale: scheme.Scale is not suitable for converting to {} in \
         scheme {}",
        failure::quote(version),
        failure::quote(SCHEME)
    )]
    UnknownGroup { version: String },
    #[error("could not convert scale update to external Scale: failed to parse target selector: {0}")]
    Selector(#[from] SelectorError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Encodes a Scale in the version that discovery states for the scale subresource of a resource.
fn encode(mapping: &Mapping, scale: &ScaleObject) -> Result<Vec<u8>, ApiError> {
    write(mapping, scale).map_err(|error| ApiError::Request(error.to_string()))
}

fn write(mapping: &Mapping, scale: &ScaleObject) -> Result<Vec<u8>, EncodeError> {
    let Some(version) = mapping.scale_version.as_deref() else {
        return Err(EncodeError::NoScale { resource: mapping.group_version_resource() });
    };
    let replicas = scale.status_replicas;
    if version == SCALE_VERSION {
        let status = Status { replicas, selector: scale.selector.clone() };
        return Ok(body(version, scale, status)?);
    }
    if LEGACY_VERSIONS.contains(&version) {
        return Ok(body(version, scale, legacy_status(replicas, &scale.selector)?)?);
    }
    let version = version.to_owned();
    Err(match version.split_once('/') {
        Some(("autoscaling" | "extensions" | "apps", _)) => EncodeError::UnknownVersion { version },
        _ => EncodeError::UnknownGroup { version },
    })
}

fn legacy_status(replicas: i32, selector: &str) -> Result<LegacyStatus, SelectorError> {
    // The decision has accepted this selector, so the newest rules apply.
    let structured = LabelSelector::parse(selector, Version::V1_38)?;
    let text = Selector::from_label_selector(Some(&structured))?.to_string();
    let labels = structured.match_labels.filter(|_| structured.match_expressions.is_none());
    Ok(LegacyStatus {
        replicas,
        selector: labels
            .map(|labels| labels.into_iter().map(|(label, value)| (label, Some(value))).collect()),
        target_selector: Some(text).filter(|text| !text.is_empty()),
    })
}

fn body(version: &str, scale: &ScaleObject, status: impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Body {
        kind: "Scale",
        api_version: version,
        metadata: &scale.metadata,
        spec: Spec { replicas: scale.spec_replicas },
        status,
    })
}
