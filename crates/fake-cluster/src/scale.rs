//! The scale subresource of workloads, and of bare targets.

use std::collections::BTreeMap;

use autoscaling::selector::{LabelSelector, Selector};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object;
use super::registry::{ResourceType, ScaleSelector};
use super::status::{FieldError, Status};
use super::store::{BareScale, ScalePath, State, StoredObject};
use super::write::{self, Write};

/// Returns the JSON of the Scale at a path, from a bare target or from a workload.
pub(crate) fn get(state: &State, path: &ScalePath) -> Result<Vec<u8>, Status> {
    if let Some((scale, version)) = state.scale(path) {
        return Ok(encode_bare(path, scale, *version));
    }
    let (ty, rule) = scalable(path)?;
    let stored = state.get(ty, &path.namespace, &path.name).ok_or_else(|| not_found(path))?;
    Ok(encode_workload(stored, ty, rule))
}

/// Handles a PUT of a Scale.
pub(crate) fn update(
    state: &mut State,
    path: &ScalePath,
    body: &Value,
    write: &Write<'_>,
) -> Result<Vec<u8>, Status> {
    let replicas = object::int(body, &["spec", "replicas"]).unwrap_or(0);
    let (kind, version) = (object::text(body, &["kind"]), object::text(body, &["apiVersion"]));
    let expected = version_of(path);
    if !kind.is_empty() && (kind != "Scale" || version != expected) {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let name = object::meta(body, "name");
    if !name.is_empty() && name != path.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            path.name
        )));
    }
    let requested_version = object::meta(body, "resourceVersion");
    let conflict = || Status::conflict(&path.group, &path.resource, &path.name);
    let negative = || {
        let cause =
            FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        Status::invalid("autoscaling", "Scale", &path.name, &[cause])
    };
    if let Some((scale, version)) = state.scale(path) {
        if !requested_version.is_empty() && requested_version != version.to_string() {
            return Err(conflict());
        }
        if replicas < 0 {
            return Err(negative());
        }
        let scale = BareScale { spec_replicas: replicas, ..scale.clone() };
        let version = if write.dry_run { *version } else { state.set_scale(path.clone(), scale.clone()) };
        return Ok(encode_bare(path, &scale, version));
    }
    let (ty, rule) = scalable(path)?;
    let stored = state.get(ty, &path.namespace, &path.name).ok_or_else(|| not_found(path))?.clone();
    if !requested_version.is_empty() && requested_version != stored.resource_version.to_string() {
        return Err(conflict());
    }
    if replicas < 0 {
        return Err(negative());
    }
    let mut workload = stored.value();
    object::section(&mut workload, "spec").insert("replicas".to_owned(), replicas.into());
    let write = Write { subresource: "scale", ..write.clone() };
    let stored = write::update(state, ty, &path.namespace, &path.name, workload, &write)?;
    Ok(encode_workload(&stored, ty, rule))
}

/// Returns the `apiVersion` of the Scales at a path.
fn version_of(path: &ScalePath) -> &'static str {
    let ty = ResourceType::at(&path.group, &path.version, &path.resource);
    ty.map_or("autoscaling/v1", |ty| ty.scale_version)
}

/// Returns the type at a path and its scale rule. For a built-in type without a scale subresource, the error is that of
/// an unknown resource. For any other such path, the error names the object.
fn scalable(path: &ScalePath) -> Result<(&'static ResourceType, ScaleSelector), Status> {
    let ty = ResourceType::at(&path.group, &path.version, &path.resource);
    match ty.map(|ty| (ty, ty.scale)) {
        Some((ty, Some(rule))) => Ok((ty, rule)),
        Some((ty, None)) if !ty.custom => Err(Status::unknown_resource()),
        _ => Err(not_found(path)),
    }
}

fn not_found(path: &ScalePath) -> Status {
    Status::not_found(&path.group, &path.resource, &path.name)
}

/// A Scale as Go encodes it. A `spec.replicas` of 0, an empty selector, and the fields that a bare target lacks are
/// omitted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Scale<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Replicas,
    status: ScaleStatus<'a>,
}

/// `status.selector`, which is text in autoscaling/v1 and a map of labels in earlier versions.
#[derive(Serialize)]
#[serde(untagged)]
enum StatusSelector<'a> {
    Text(&'a str),
    Labels(BTreeMap<&'a str, &'a str>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a str>,
    name: &'a str,
    namespace: &'a str,
    resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Serialize)]
struct Replicas {
    #[serde(skip_serializing_if = "is_zero")]
    replicas: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScaleStatus<'a> {
    replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<StatusSelector<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_selector: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn encode_bare(path: &ScalePath, scale: &BareScale, version: u64) -> Vec<u8> {
    let metadata = Metadata {
        creation_timestamp: None,
        name: &path.name,
        namespace: &path.namespace,
        resource_version: version.to_string(),
        uid: None,
    };
    encode(version_of(path), metadata, [scale.spec_replicas, scale.status_replicas], &scale.selector)
}

/// The fields of a workload that a Scale shows. Each field may have any JSON type. A value of an unexpected type is
/// handled as absent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Workload {
    metadata: WorkloadMetadata,
    spec: WorkloadPart,
    status: WorkloadPart,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WorkloadMetadata {
    creation_timestamp: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WorkloadPart {
    replicas: Value,
    selector: Value,
}

fn encode_workload(stored: &StoredObject, ty: &ResourceType, rule: ScaleSelector) -> Vec<u8> {
    let workload: Workload = stored.read();
    let selector = match rule {
        ScaleSelector::Structured => selector_text(&workload.spec.selector),
        ScaleSelector::Map => labels_text(&workload.spec.selector),
        ScaleSelector::Text => workload.status.selector.as_str().unwrap_or("").to_owned(),
    };
    let metadata = Metadata {
        creation_timestamp: Some(workload.metadata.creation_timestamp.as_str().unwrap_or("")),
        name: stored.name(),
        namespace: stored.namespace(),
        resource_version: stored.resource_version.to_string(),
        uid: Some(&stored.uid),
    };
    let replicas = |part: &WorkloadPart| part.replicas.as_i64().unwrap_or(0);
    encode(ty.scale_version, metadata, [&workload.spec, &workload.status].map(replicas), &selector)
}

fn encode(
    api_version: &'static str,
    metadata: Metadata<'_>,
    [spec, replicas]: [i64; 2],
    selector: &str,
) -> Vec<u8> {
    let text = Some(selector).filter(|text| !text.is_empty());
    let status = if api_version == "autoscaling/v1" {
        ScaleStatus { replicas, selector: text.map(StatusSelector::Text), target_selector: None }
    } else {
        let pairs = text.and_then(|text| text.split(',').map(|pair| pair.split_once('=')).collect());
        ScaleStatus { replicas, selector: pairs.map(StatusSelector::Labels), target_selector: text }
    };
    object::encode(&Scale { api_version, kind: "Scale", metadata, spec: Replicas { replicas: spec }, status })
}

/// Formats a map of labels as the text of a selector.
pub(crate) fn labels_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    pairs.collect::<Vec<_>>().join(",")
}

/// Formats a structured LabelSelector as Kubernetes does. Empty for an absent or invalid selector.
pub(crate) fn selector_text(selector: &Value) -> String {
    let selector = LabelSelector::deserialize(selector).ok();
    let parsed = selector.and_then(|selector| Selector::from_label_selector(Some(&selector)).ok());
    parsed.map(|selector| selector.to_string()).unwrap_or_default()
}
