//! The scale subresource: of workloads, and of bare targets that no workload stands behind.

use std::fmt;

use autoscaling::selector::{LabelSelector, Selector};
use serde_json::{Value, json};

use super::object;
use super::registry::{ResourceType, ScaleSelector};
use super::status::{FieldError, Status};
use super::store::{State, Stored};
use super::write::{self, Write};

/// Where a scale target is: `…/{group}/{version}/namespaces/{namespace}/{resource}/{name}/scale`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScalePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, such as `deployments`.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ScalePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource, namespace, name } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        write!(f, "{root}/namespaces/{namespace}/{resource}/{name}/scale")
    }
}

/// A scale target by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BareScale {
    /// `spec.replicas`.
    pub spec_replicas: i64,
    /// `status.replicas`.
    pub status_replicas: i64,
    /// `status.selector`, free text.
    pub selector: String,
}

/// The Scale at a path, from a bare target or from the workload.
pub(crate) fn get(state: &State, path: &ScalePath) -> Result<Value, Status> {
    if let Some((scale, version)) = state.scale(path) {
        return Ok(bare_json(path, scale, *version));
    }
    let (ty, rule) = scalable(path)?;
    let stored = state.get(ty, &path.namespace, &path.name).ok_or_else(|| not_found(path))?;
    Ok(of_object(stored, rule))
}

/// PUT of a Scale.
pub(crate) fn update(
    state: &mut State,
    path: &ScalePath,
    body: &Value,
    write: &Write<'_>,
) -> Result<Value, Status> {
    let replicas = object::int(body, &["spec", "replicas"]).unwrap_or(0);
    if !object::text(body, &["kind"]).is_empty() && object::text(body, &["kind"]) != "Scale" {
        return Err(Status::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version (autoscaling/v1)",
            object::text(body, &["apiVersion"])
        )));
    }
    let name = object::meta(body, "name");
    if !name.is_empty() && name != path.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            path.name
        )));
    }
    let asked = object::meta(body, "resourceVersion");
    let conflict = || Status::conflict(&path.group, &path.resource, &path.name);
    let negative = || {
        let cause =
            FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        Status::invalid("autoscaling", "Scale", &path.name, &[cause])
    };
    if let Some((scale, version)) = state.scale(path) {
        if !asked.is_empty() && asked != version.to_string() {
            return Err(conflict());
        }
        if replicas < 0 {
            return Err(negative());
        }
        let scale = BareScale { spec_replicas: replicas, ..scale.clone() };
        let version = if write.dry_run { *version } else { state.set_scale(path.clone(), scale.clone()) };
        return Ok(bare_json(path, &scale, version));
    }
    let (ty, rule) = scalable(path)?;
    let stored = state.get(ty, &path.namespace, &path.name).ok_or_else(|| not_found(path))?.clone();
    if !asked.is_empty() && asked != stored.resource_version.to_string() {
        return Err(conflict());
    }
    if replicas < 0 {
        return Err(negative());
    }
    let mut workload = stored.value();
    object::section(&mut workload, "spec").insert("replicas".to_owned(), replicas.into());
    let write = Write { subresource: "scale", ..write.clone() };
    let stored = write::update(state, ty, &path.namespace, &path.name, workload, &write)?;
    Ok(of_object(&stored, rule))
}

/// The type behind a path and its scale rule. A custom resource without scale says that the object is not there, a
/// built-in one that the path is not.
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

fn bare_json(path: &ScalePath, scale: &BareScale, version: u64) -> Value {
    let metadata = json!({
        "name": path.name,
        "namespace": path.namespace,
        "resourceVersion": version.to_string(),
    });
    scale_json(&metadata, scale.spec_replicas, scale.status_replicas, &scale.selector)
}

fn of_object(stored: &Stored, rule: ScaleSelector) -> Value {
    let workload = stored.value();
    let metadata = json!({
        "name": stored.name(),
        "namespace": stored.namespace(),
        "uid": &*stored.uid,
        "resourceVersion": stored.resource_version.to_string(),
        "creationTimestamp": object::meta(&workload, "creationTimestamp"),
    });
    let selector = match rule {
        ScaleSelector::Structured => {
            object::at(&workload, &["spec", "selector"]).map(selector_text).unwrap_or_default()
        }
        ScaleSelector::Map => {
            object::at(&workload, &["spec", "selector"]).map(labels_text).unwrap_or_default()
        }
        ScaleSelector::Text => object::text(&workload, &["status", "selector"]).to_owned(),
    };
    scale_json(
        &metadata,
        object::int(&workload, &["spec", "replicas"]).unwrap_or(0),
        object::int(&workload, &["status", "replicas"]).unwrap_or(0),
        &selector,
    )
}

/// A Scale as Go encodes it: `spec.replicas` 0 and an empty selector are left out.
fn scale_json(metadata: &Value, spec: i64, status: i64, selector: &str) -> Value {
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": { "replicas": status },
    });
    if spec != 0 {
        object::section(&mut scale, "spec").insert("replicas".to_owned(), spec.into());
    }
    if !selector.is_empty() {
        object::section(&mut scale, "status").insert("selector".to_owned(), selector.into());
    }
    scale
}

/// A map of labels as text.
pub(crate) fn labels_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    pairs.collect::<Vec<_>>().join(",")
}

/// The text of a structured LabelSelector, as Kubernetes prints it.
pub(crate) fn selector_text(selector: &Value) -> String {
    let selector = serde_json::from_value::<LabelSelector>(selector.clone()).ok();
    let parsed = selector.and_then(|selector| Selector::from_label_selector(Some(&selector)).ok());
    parsed.map(|selector| selector.to_string()).unwrap_or_default()
}
