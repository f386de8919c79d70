//! Manifest files: HPAs, and the workloads that they scale.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::document::{Content, Node};
use super::problem::Problem;

/// The content of a manifest file.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    /// The HPAs, unchanged.
    pub(crate) hpas: Vec<Node>,
    /// The workloads, in the format of a scenario file.
    workloads: Vec<Node>,
}

/// Reads the documents of a file, including lists. Other kinds of objects are ignored.
pub(crate) fn read(path: &Path, text: &str) -> Result<Manifests, Problem> {
    let source: Arc<str> = path.display().to_string().into();
    let mut found = Manifests::default();
    for document in Node::read_all(&source, text)? {
        let items = match document.get("items") {
            Some(items) => items.items().to_vec(),
            None => vec![document],
        };
        for item in items {
            match item.text(&["kind"]) {
                Some("HorizontalPodAutoscaler") => found.hpas.push(item),
                Some("Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController") => {
                    found.workloads.push(workload(&item));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

impl Manifests {
    /// Adds the workloads that an HPA of the document names, unless the document already describes them.
    pub(crate) fn describe(&self, document: &mut Node) {
        for workload in &self.workloads {
            let is_in = |list: &str, keys: &[&str]| {
                let items = document.get(list).map(Node::items).unwrap_or_default();
                items
                    .iter()
                    .any(|item| item.text(keys).is_some() && item.text(keys) == workload.text(&["name"]))
            };
            if !is_in("hpas", &["spec", "scaleTargetRef", "name"]) || is_in("workloads", &["name"]) {
                continue;
            }
            let mut all = document.get("workloads").map(Node::items).unwrap_or_default().to_vec();
            all.push(workload.clone());
            document
                .put("workloads", Node { location: workload.location.clone(), content: Content::List(all) });
        }
    }
}

/// Converts a workload's manifest to the format of a scenario file.
fn workload(manifest: &Node) -> Node {
    let json = manifest.json();
    let at = |pointer: &str| json.pointer(pointer).cloned().unwrap_or_default();
    let mut fields = Map::new();
    for (field, pointer) in [
        ("name", "/metadata/name"),
        ("namespace", "/metadata/namespace"),
        ("kind", "/kind"),
        ("replicas", "/spec/replicas"),
        ("labels", "/spec/template/metadata/labels"),
        ("rollingUpdate", "/spec/strategy/rollingUpdate"),
    ] {
        fields.insert(field.to_owned(), at(pointer));
    }
    let containers = at("/spec/template/spec/containers");
    let containers = containers.as_array().map_or(&[][..], Vec::as_slice).iter().map(container);
    fields.insert("containers".to_owned(), containers.collect());
    fields.retain(|_, value| !value.is_null());
    let mut node = Node::from_json(&manifest.location.source, &Value::Object(fields));
    node.set_location(&manifest.location);
    node
}

/// The name, requests and limits of a container.
fn container(container: &Value) -> Value {
    let fields = [("name", "/name"), ("requests", "/resources/requests"), ("limits", "/resources/limits")];
    let field =
        |(field, pointer): (&str, &str)| Some((field.to_owned(), container.pointer(pointer)?.clone()));
    Value::Object(fields.into_iter().filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_with_deployment_and_hpa_describes_the_workload() {
        let text = "kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2}}
  template:
    metadata: {labels: {app: w}}
    spec:
      containers:
        - {name: app, image: x, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}
        - {name: side}
---
kind: Service
metadata: {name: web}
---
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {name: web}}
";
        let manifests = read(Path::new("web.yaml"), text).unwrap();
        let source: Arc<str> = "a test".into();
        let mut document = Node::from_json(&source, &Value::Object(Map::new()));
        document.put("hpas", Node::list(&source, manifests.hpas.clone()));
        manifests.describe(&mut document);
        assert_eq!(
            document.get("workloads").unwrap().json().to_string(),
            r#"[{"containers":[{"limits":{"cpu":1},"name":"app","requests":{"cpu":"100m"}},{"name":"side"}],"kind":"Deployment","labels":{"app":"w"},"name":"web","namespace":"shop","replicas":4,"rollingUpdate":{"maxSurge":2}}]"#
        );
        let before = document.clone();
        manifests.describe(&mut document);
        assert_eq!(document, before, "an existing description is kept");
    }
}
