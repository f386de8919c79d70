//! The HPAs of a scenario: manifests, inline or in files, validated by the rules of the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use autoscaling::spec::Spec;
use serde_json::{Value, json};

use super::document::{self, Content, Location, Node, Step};
use super::manifests;
use super::problem::Problem;
use clock::SystemClock;
use fake_cluster::{Cluster, Status};

/// An HPA of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct HpaPlan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The manifest without server fields, and with its namespace.
    pub(crate) manifest: Value,
    /// The spec with the API server's defaults.
    pub(crate) spec: Arc<Spec>,
}

/// Replaces `file: web.yaml` with the HPAs of that file, and adds the workloads of the file.
pub(super) fn inline_files(document: &mut Node) -> Result<(), Problem> {
    let Some(hpas) = document.get_mut("hpas") else { return Ok(()) };
    let (mut inlined, mut files) = (Vec::new(), Vec::new());
    for (index, item) in hpas.items().iter().enumerate() {
        let Some(file) = item.get("file") else {
            inlined.push(item.clone());
            continue;
        };
        let field = format!("hpas[{index}].file");
        let Content::Text(name) = &file.content else {
            return Err(Problem::new(file.location.clone(), field, "expected the path of a file"));
        };
        let path = sibling_path(&file.location, name);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Problem::new(
                file.location.clone(),
                field.clone(),
                format!("{} cannot be read: {error}", path.display()),
            )
        })?;
        let manifests = manifests::read(&path, &text)?;
        if manifests.hpas.is_empty() {
            let message = format!("{} contains no HorizontalPodAutoscaler", path.display());
            return Err(Problem::new(file.location.clone(), field, message));
        }
        inlined.extend(manifests.hpas.iter().cloned());
        files.push(manifests);
    }
    if let Content::List(items) = &mut hpas.content {
        *items = inlined;
    }
    for manifests in files {
        manifests.describe(document);
    }
    Ok(())
}

/// Resolves a path relative to the folder of the file that names it.
pub(super) fn sibling_path(location: &Location, name: &str) -> PathBuf {
    let folder = if location.line > 0 { Path::new(&*location.source).parent() } else { None };
    folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

/// Validates and completes every manifest with an embedded API server.
pub(super) fn read(document: &Node) -> Result<Vec<HpaPlan>, Problem> {
    let server = Cluster::new(Arc::new(SystemClock));
    let items = document.get("hpas").map(Node::items).unwrap_or_default();
    if items.is_empty() {
        return Err(Problem::new(
            document.locate(&[Step::Key("hpas".to_owned())]),
            "hpas",
            "the scenario has no HPA; add one, as a manifest or as file: web.yaml",
        ));
    }
    let read = |(index, item): (usize, &Node)| hpa(&server, &format!("hpas[{index}]"), item);
    items.iter().enumerate().map(read).collect()
}

fn hpa(server: &Cluster, field: &str, item: &Node) -> Result<HpaPlan, Problem> {
    let wrong = |message: String| Problem::new(item.location.clone(), field, message);
    let mut manifest = item.json();
    let Some(fields) = manifest.as_object_mut() else {
        return Err(wrong("expected the manifest of an HPA, or file: web.yaml".to_owned()));
    };
    fields.remove("status");
    fields.entry("apiVersion").or_insert_with(|| json!("autoscaling/v2"));
    fields.entry("kind").or_insert_with(|| json!("HorizontalPodAutoscaler"));
    let (version, kind) = (item.text(&["apiVersion"]), item.text(&["kind"]));
    if version.is_some_and(|version| version != "autoscaling/v2")
        || kind.is_some_and(|kind| kind != "HorizontalPodAutoscaler")
    {
        return Err(wrong(format!(
            "expected a HorizontalPodAutoscaler of autoscaling/v2, found {} of {}",
            kind.unwrap_or("HorizontalPodAutoscaler"),
            version.unwrap_or("autoscaling/v2"),
        )));
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    let stored = server.create(manifest.clone()).map_err(|status| refused(field, item, &status))?;
    let text = |field: &str| stored.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let spec = stored.get("spec").cloned().unwrap_or_default();
    let spec: Spec = serde_json::from_value(spec).map_err(|error| wrong(error.to_string()))?;
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Ok(HpaPlan { namespace, name, manifest, spec: Arc::new(spec) })
}

/// The API server's error, at the line of the first field that it names.
fn refused(field: &str, item: &Node, status: &Status) -> Problem {
    let cause = status.details.as_ref().and_then(|details| details.pointer("/causes/0/field"));
    let steps = cause.and_then(Value::as_str).map(document::steps).unwrap_or_default();
    Problem::new(item.locate(&steps), field, status.message.clone())
}
