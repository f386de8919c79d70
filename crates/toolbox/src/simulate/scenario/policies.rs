//! The scaling policies of a scenario: annotations of its HPAs, and policy objects.

use std::sync::Arc;

use clock::SystemClock;
use fake_cluster::Cluster;
use schemars::JsonSchema;
use serde_json::Value;

use super::document::{Content, Node};
use super::hpas::sibling_path;
use super::problem::Problem;

/// The annotation that contains the policy of an HPA.
const ANNOTATION: &str = "concertina.dev/policy";
const GROUP: &str = "autoscaling.concertina.dev/";

/// A scaling policy.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used: the controller's own rules read a policy")]
#[schemars(rename = "Policy")]
pub(crate) enum PolicySchema {
    /// A file with policies.
    File {
        /// The path of the file, relative to the folder of the scenario.
        file: String,
        /// The name of the HPA that the annotation belongs to; every HPA by default.
        hpa: Option<String>,
    },
    /// A manifest of a ScalingPolicy or ClusterScalingPolicy.
    Manifest(serde_json::Map<String, serde_json::Value>),
}

/// Replaces `file: policy.yaml` with the policies of that file: objects become manifests in the list. The text of a
/// file without objects becomes the annotation of HPAs.
pub(super) fn inline_files(document: &mut Node) -> Result<(), Problem> {
    let Some(policies) = document.get("policies") else { return Ok(()) };
    let (mut inlined, mut annotations) = (Vec::new(), Vec::new());
    for (index, item) in policies.items().iter().enumerate() {
        let Some(file) = item.get("file") else {
            inlined.push(item.clone());
            continue;
        };
        let field = format!("policies[{index}].file");
        let wrong = |message: String| Problem::new(file.location.clone(), field.clone(), message);
        let Content::Text(name) = &file.content else {
            return Err(wrong("expected the path of a file".to_owned()));
        };
        let path = sibling_path(&file.location, name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))?;
        let documents = Node::read_all(&path.display().to_string().into(), &text)?;
        if documents.iter().any(is_object) {
            inlined.extend(documents);
        } else {
            annotations.push((item.text(&["hpa"]).map(str::to_owned), file.location.clone(), field, text));
        }
    }
    for (hpa, location, field, text) in annotations {
        let value = Node { location: location.clone(), content: Content::Text(text) };
        if !annotate(document, hpa.as_deref(), &value) {
            let message = format!("the scenario has no HPA {}", hpa.unwrap_or_default());
            return Err(Problem::new(location, field, message.trim_end().to_owned()));
        }
    }
    if let Some(list) = document.get_mut("policies") {
        list.content = Content::List(inlined);
    }
    Ok(())
}

fn is_object(document: &Node) -> bool {
    document.text(&["apiVersion"]).is_some_and(|version| version.starts_with(GROUP))
}

/// Sets the annotation of the HPA with the name, or of every HPA. Returns whether such an HPA exists.
fn annotate(document: &mut Node, name: Option<&str>, value: &Node) -> bool {
    let mut any = false;
    for hpa in hpas(document) {
        if name.is_some_and(|name| hpa.text(&["metadata", "name"]) != Some(name)) {
            continue;
        }
        any = true;
        for field in ["metadata", "annotations"] {
            // The annotations are a map in the metadata.
            let parent = if field == "metadata" { Some(&mut *hpa) } else { hpa.get_mut("metadata") };
            if let Some(parent) = parent.filter(|parent| parent.get(field).is_none()) {
                let empty = Node { location: value.location.clone(), content: Content::Map(Vec::new()) };
                parent.put(field, empty);
            }
        }
        if let Some(annotations) =
            hpa.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
        {
            annotations.put(ANNOTATION, value.clone());
        }
    }
    any
}

fn hpas(document: &mut Node) -> &mut [Node] {
    match document.get_mut("hpas").map(|hpas| &mut hpas.content) {
        Some(Content::List(items)) => items,
        _ => &mut [],
    }
}

/// The document without policies. `None` if the document has no policies.
pub(in super::super) fn without_policies(document: &Node) -> Option<Node> {
    let mut without = document.clone();
    let mut any = document.get("policies").is_some_and(|policies| !policies.items().is_empty());
    if let Some(Content::List(items)) = without.get_mut("policies").map(|list| &mut list.content) {
        items.clear();
    }
    for hpa in hpas(&mut without) {
        let annotations = hpa.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
        if let Some(Content::Map(fields)) = annotations.map(|annotations| &mut annotations.content) {
            let before = fields.len();
            fields.retain(|(key, _)| key.name != ANNOTATION);
            any |= fields.len() < before;
        }
    }
    any.then_some(without)
}

/// Reads the policy objects. Fields without effect are left to the controller, which reports them as an event.
pub(super) fn read(document: &Node) -> Result<Vec<Value>, Problem> {
    let items = document.get("policies").map(Node::items).unwrap_or_default();
    let server = Cluster::new(Arc::new(SystemClock));
    let mut objects = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let wrong =
            |message: String| Problem::new(item.location.clone(), format!("policies[{index}]"), message);
        if !is_object(item) {
            return Err(wrong(format!(
                "expected a ScalingPolicy or ClusterScalingPolicy of {GROUP}v1alpha1, or file: policy.yaml"
            )));
        }
        let manifest = item.json();
        server.create(manifest.clone()).map_err(|status| wrong(status.message))?;
        objects.push(manifest);
    }
    Ok(objects)
}
