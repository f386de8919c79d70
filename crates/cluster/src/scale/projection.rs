//! The projection of watched objects to their Scale.
//!
//! The projection follows the rules of the API server's scale subresources. An object that violates the rules has no
//! [`WireScale`]. Its Scale must be read from the server, which then returns the error.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::selector::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::decode::{DecodeError, Text};
use crate::error::ApiError;
use crate::mapper::Mapping;
use crate::scale::SCALE_VERSION;
use crate::watch::Watched;

/// A scalable resource to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalable {
    /// The watched resource.
    pub mapping: Mapping,
    /// The location of the Scale's fields in the resource's objects.
    pub shape: Shape,
}

/// The location of the Scale's fields in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// `spec.selector` is a LabelSelector, as in a Deployment, ReplicaSet or StatefulSet.
    Structured,
    /// `spec.selector` is a map of labels, as in a ReplicationController.
    Labels,
    /// The fields are at the paths of a CustomResourceDefinition.
    Custom(ScalePaths),
}

/// The scale subresource of one version of a CustomResourceDefinition. Each path is a list of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`, such as `spec` and `replicas`.
    pub replicas: Vec<String>,
    /// `statusReplicasPath`, such as `status` and `replicas`.
    pub status_replicas: Vec<String>,
    /// `labelSelectorPath`: the path of a selector in text form.
    pub selector: Option<Vec<String>>,
}

/// The identity and the Scale of a scalable object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireTarget<'a> {
    /// `metadata.namespace`.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.resourceVersion` of the object and of its Scale.
    pub resource_version: Cow<'a, str>,
    /// The projected Scale. `None` if only the server can compute it.
    pub scale: Option<WireScale>,
}

/// The fields of a Scale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WireScale {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`. 0 if absent.
    pub status_replicas: i32,
    /// `status.selector` in text form. Empty if absent.
    pub selector: String,
}

impl Shape {
    /// Returns the shape of a built-in resource. `None` for any other resource.
    pub fn built_in(group: &str, resource: &str) -> Option<Self> {
        match (group, resource) {
            ("apps", "deployments" | "replicasets" | "statefulsets") => Some(Self::Structured),
            ("", "replicationcontrollers") => Some(Self::Labels),
            _ => None,
        }
    }

    /// Returns the shape of a resource. Reads the CustomResourceDefinition of a custom resource. `None` if no definition
    /// contains the paths of the replica counts.
    pub async fn read(client: &Client, mapping: &Mapping) -> Result<Option<Self>, ApiError> {
        match Self::built_in(&mapping.group, &mapping.resource) {
            Some(shape) => Ok(Some(shape)),
            None => Ok(scale_paths(client, mapping).await?.map(Self::Custom)),
        }
    }
}

/// Returns whether the objects of a resource may contain their Scales. Only aggregated servers have Scales of another
/// kind, and they compute Scales by their own rules.
pub fn has_projection(mapping: &Mapping) -> bool {
    mapping.namespaced && mapping.scale_version.as_deref() == Some(SCALE_VERSION)
}

impl Watched for Scalable {
    type Object<'a> = WireTarget<'a>;

    fn path(&self) -> Vec<&str> {
        let Mapping { group, version, resource, .. } = &self.mapping;
        if group.is_empty() { vec!["api", version, resource] } else { vec!["apis", group, version, resource] }
    }

    fn name(&self) -> Arc<str> {
        self.mapping.group_resource().into()
    }

    /// Fails only if the metadata is unreadable or has no name. After any other error, the object has no Scale, so that
    /// no stale Scale is used.
    fn decode<'a>(&self, object: &'a [u8]) -> Result<WireTarget<'a>, DecodeError> {
        let target = match &self.shape {
            Shape::Structured => built_in::<LabelSelector>(object),
            Shape::Labels => built_in::<Labels>(object),
            Shape::Custom(paths) => custom(object, paths),
        };
        let target = target.or_else(|_| unreadable(object))?;
        if target.name.is_empty() {
            return Err(DecodeError::new("a scalable object without metadata.name"));
        }
        Ok(target)
    }

    fn resource_version<'a>(object: &'a WireTarget<'_>) -> &'a str {
        &object.resource_version
    }
}

#[derive(Deserialize)]
struct Object<'a, S> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    spec: Option<Spec<S>>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
}

#[derive(Deserialize)]
struct Spec<S> {
    replicas: Option<i32>,
    selector: Option<S>,
}

#[derive(Deserialize)]
struct Status {
    replicas: Option<i32>,
}

/// `spec.selector` of a ReplicationController.
#[derive(Deserialize)]
#[serde(transparent)]
struct Labels(BTreeMap<String, String>);

impl From<Labels> for LabelSelector {
    fn from(labels: Labels) -> Self {
        Self { match_labels: Some(labels.0), match_expressions: None }
    }
}

/// Decodes a built-in object. The server always sets a count, so an object without a count gets no Scale.
fn built_in<'a, S>(object: &'a [u8]) -> Result<WireTarget<'a>, DecodeError>
where
    S: Deserialize<'a> + Into<LabelSelector>,
{
    let Object { metadata, spec, status } = serde_json::from_slice::<Object<'a, S>>(object)?;
    let scale = spec.and_then(|spec| {
        // A missing selector selects nothing and has an empty text form.
        let selector = spec.selector.map(|selector| Selector::from_label_selector(Some(&selector.into())));
        Some(WireScale {
            replicas: spec.replicas?,
            status_replicas: status.and_then(|status| status.replicas).unwrap_or(0),
            selector: selector.transpose().ok()?.map_or_else(String::new, |selector| selector.to_string()),
        })
    });
    Ok(WireTarget {
        namespace: metadata.namespace.0,
        name: metadata.name.0,
        resource_version: metadata.resource_version.0,
        scale,
    })
}

fn custom<'a>(object: &'a [u8], paths: &ScalePaths) -> Result<WireTarget<'a>, DecodeError> {
    let value: Value = serde_json::from_slice(object)?;
    Ok(WireTarget { scale: custom_scale(&value, paths), ..unreadable(object)? })
}

/// Returns the Scale of a custom resource. `None` if `spec.replicas` is missing, or if a count or the selector has an
/// unexpected type, because the server then responds with an error.
fn custom_scale(object: &Value, paths: &ScalePaths) -> Option<WireScale> {
    let count = |value: &Value| i32::try_from(value.as_i64()?).ok();
    let selector = match paths.selector.as_deref().map(|path| at(object, path)) {
        None | Some(Lookup::Missing) => "",
        Some(Lookup::Value(value)) => value.as_str()?,
        Some(Lookup::Obstructed) => return None,
    };
    Some(WireScale {
        replicas: match at(object, &paths.replicas) {
            Lookup::Value(value) => count(value)?,
            Lookup::Missing | Lookup::Obstructed => return None,
        },
        status_replicas: match at(object, &paths.status_replicas) {
            Lookup::Value(value) => count(value)?,
            Lookup::Missing => 0,
            Lookup::Obstructed => return None,
        },
        selector: selector.to_owned(),
    })
}

/// The result of a path lookup.
enum Lookup<'a> {
    Value(&'a Value),
    Missing,
    /// A value on the path is not an object.
    Obstructed,
}

fn at<'a>(object: &'a Value, path: &[String]) -> Lookup<'a> {
    let mut value = object;
    for field in path {
        match value {
            Value::Null => return Lookup::Missing,
            Value::Object(fields) => match fields.get(field) {
                Some(found) => value = found,
                None => return Lookup::Missing,
            },
            _ => return Lookup::Obstructed,
        }
    }
    Lookup::Value(value)
}

/// Decodes only the identity of an object. The result has no Scale.
fn unreadable(object: &[u8]) -> Result<WireTarget<'_>, DecodeError> {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    let Identified { metadata } = serde_json::from_slice(object)?;
    Ok(WireTarget {
        namespace: metadata.namespace.0,
        name: metadata.name.0,
        resource_version: metadata.resource_version.0,
        scale: None,
    })
}

/// A CustomResourceDefinition, of which only the paths of the scale subresource are decoded.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    subresources: Option<Subresources>,
}

#[derive(Deserialize)]
struct Subresources {
    scale: Option<Paths>,
}

#[derive(Deserialize)]
struct Paths {
    #[serde(rename = "specReplicasPath")]
    replicas: String,
    #[serde(rename = "statusReplicasPath")]
    status_replicas: String,
    #[serde(rename = "labelSelectorPath")]
    selector: Option<String>,
}

/// Reads the paths of the Scale's fields in a custom resource. `None` if no definition contains the paths, for example
/// because an aggregated API server serves the resource.
async fn scale_paths(client: &Client, mapping: &Mapping) -> Result<Option<ScalePaths>, ApiError> {
    let name = format!("{}.{}", mapping.resource, mapping.group);
    let path = ["apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", &name];
    let call = Call::get(path).about("customresourcedefinitions.apiextensions.k8s.io", &name);
    let definition: Definition = match client.json(&call).await {
        Err(error) if error.is_not_found() => return Ok(None),
        read => read?,
    };
    let version = definition.spec.versions.into_iter().find(|version| version.name == mapping.version);
    let scale = version.and_then(|version| version.subresources?.scale);
    Ok(scale.map(|paths| ScalePaths {
        replicas: fields(&paths.replicas),
        status_replicas: fields(&paths.status_replicas),
        selector: paths.selector.filter(|path| !path.is_empty()).map(|path| fields(&path)),
    }))
}

/// Splits a path such as `.spec.replicas` into its fields, as the API server does.
fn fields(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
}
