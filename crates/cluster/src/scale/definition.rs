//! The scale subresource of a CustomResourceDefinition.

use serde::Deserialize;

use super::projection::ScalePaths;
use crate::call::Call;
use crate::client::Client;
use crate::error::ApiError;
use crate::mapper::Mapping;

#[derive(Deserialize)]
struct Definition {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
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

/// Reads the paths of the Scale's fields in a custom resource. `None` if no definition contains the paths,
/// for example because another server serves the resource.
pub async fn scale_paths(client: &Client, mapping: &Mapping) -> Result<Option<ScalePaths>, ApiError> {
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

/// The fields of a path such as `.spec.replicas`, split as the API server does.
fn fields(path: &str) -> Vec<String> {
    path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
}
