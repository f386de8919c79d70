//! The manifests of a scenario, inline or in files: HPAs, scaling policies, and the workloads of the files with HPAs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use autoscaling::spec::Spec;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::document::{self, Content, Node, Step};
use super::{CLUSTER, Location, Problem, fields};
use clock::SystemClock;
use engine::store::Key;
use fake_cluster::{Cluster, Status};
use terminal::words::suggestion;

/// The annotation that contains the policy of an HPA.
const ANNOTATION: &str = "concertina.dev/policy";
/// The API group of policy objects, with a slash.
const GROUP: &str = "autoscaling.concertina.dev/";

/// An HPA of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct HpaPlan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The manifest to create: with a namespace, and without the fields that only the API server sets.
    pub(crate) manifest: Value,
    /// The spec with the API server's defaults.
    pub(crate) spec: Arc<Spec>,
}

impl HpaPlan {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.as_str(), self.name.as_str())
    }
}

/// Replaces `file: web.yaml` with the HPAs of that file, and adds the workloads of the file that an HPA scales.
pub(super) fn inline_hpas(document: &mut Node) -> Result<(), Problem> {
    let Some(hpas) = document.get_mut("hpas") else { return Ok(()) };
    let (mut inlined, mut files) = (Vec::new(), Vec::new());
    for (index, item) in hpas.items().iter().enumerate() {
        let Some(file) = item.get("file") else {
            inlined.push(item.clone());
            continue;
        };
        let field = format!("hpas[{index}].file");
        only(item, &["file"], &field)?;
        let (path, text) = read_file(&file.location, &field, file.text(&[]))?;
        let manifests = read(&path, &text)?;
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

/// Refuses an item that has other fields than its `file`.
fn only(item: &Node, valid: &[&str], field: &str) -> Result<(), Problem> {
    let Content::Map(entries) = &item.content else { return Ok(()) };
    match entries.iter().find(|(key, _)| !valid.contains(&key.name.as_str())) {
        Some((key, _)) => {
            let message = format!("unknown field {} next to it{}", key.name, suggestion(&key.name, valid));
            Err(Problem::new(key.location.clone(), field, message))
        }
        None => Ok(()),
    }
}

/// Reads the file that a field names. Returns its path and text. `name` is relative to the folder of the file that
/// contains the field. `None` means that the value of the field is not a text.
pub(super) fn read_file(
    location: &Location,
    field: &str,
    name: Option<&str>,
) -> Result<(PathBuf, String), Problem> {
    let wrong = |message: String| Problem::new(location.clone(), field, message);
    let name = name.ok_or_else(|| wrong("expected the path of a file".to_owned()))?;
    let folder = Some(Path::new(&*location.source)).filter(|_| location.line > 0).and_then(Path::parent);
    let path = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))?;
    Ok((path, text))
}

/// Validates every HPA with an embedded API server, which also sets the defaults.
pub(super) fn read_hpas(document: &Node) -> Result<Vec<HpaPlan>, Problem> {
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
    let Some(entries) = manifest.as_object_mut() else {
        return Err(wrong("expected the manifest of an HPA, or file: web.yaml".to_owned()));
    };
    entries.remove("status");
    entries.entry("apiVersion").or_insert_with(|| json!("autoscaling/v2"));
    entries.entry("kind").or_insert_with(|| json!("HorizontalPodAutoscaler"));
    let (version, kind) = (item.text(&["apiVersion"]), item.text(&["kind"]));
    if version.is_some_and(|version| version != "autoscaling/v2")
        || kind.is_some_and(|kind| kind != "HorizontalPodAutoscaler")
    {
        let kind = kind.unwrap_or("HorizontalPodAutoscaler");
        let version = version.unwrap_or("autoscaling/v2");
        let name = item.text(&["metadata", "name"]).unwrap_or("NAME");
        let hint = if kind == "HorizontalPodAutoscaler" && version.starts_with("autoscaling/") {
            format!(
                "; kubectl get hpa.v2.autoscaling {name} -o yaml prints it as v2, and --from-cluster reads it from the cluster"
            )
        } else {
            String::new()
        };
        return Err(wrong(format!(
            "expected a HorizontalPodAutoscaler of autoscaling/v2, found {kind} of {version}{hint}"
        )));
    }
    // The API server of a cluster can be newer than the types, and has checked its objects.
    let is_trusted = |location: &Location| &*location.source == CLUSTER;
    fields::check::<HorizontalPodAutoscaler>(&called(item), item, &is_trusted)?;
    if let Some(metadata) = entries.get_mut("metadata").and_then(Value::as_object_mut) {
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

/// Returns the kind and the name of an HPA, for errors.
fn called(item: &Node) -> String {
    let name = item.text(&["metadata", "name"]).unwrap_or_default();
    let namespace = item.text(&["metadata", "namespace"]).map(|namespace| format!("{namespace}/"));
    format!("HorizontalPodAutoscaler {}{name}", namespace.unwrap_or_default()).trim_end().to_owned()
}

/// Returns the API server's error about an HPA, at the line of the first field that the error names.
fn refused(field: &str, item: &Node, status: &Status) -> Problem {
    let cause = status.details.as_ref().and_then(|details| details.pointer("/causes/0/field"));
    let steps = cause.and_then(Value::as_str).map(document::steps).unwrap_or_default();
    Problem::new(item.locate(&steps), field, status.message.clone())
}

/// The content of a manifest file.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    /// The HPAs, as in the file.
    pub(crate) hpas: Vec<Node>,
    /// The workloads, in the format of a scenario file.
    workloads: Vec<Node>,
}

/// Reads the HPAs and workloads of a file, including the items of lists. Other kinds of objects are ignored.
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
    /// Adds to the document each workload of the file that an HPA of the document names. A workload that the document
    /// already describes is not added.
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

/// Returns the name, requests and limits of a container.
fn container(container: &Value) -> Value {
    let fields = [("name", "/name"), ("requests", "/resources/requests"), ("limits", "/resources/limits")];
    let field =
        |(field, pointer): (&str, &str)| Some((field.to_owned(), container.pointer(pointer)?.clone()));
    Value::Object(fields.into_iter().filter_map(field).collect())
}

/// A scaling policy, as a manifest or in a file.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used: the controller's own rules read a policy")]
#[schemars(rename = "Policy")]
pub(crate) enum PolicySchema {
    /// A file with policies.
    File {
        /// The path of the file, relative to the folder of the scenario.
        file: String,
        /// The name of the HPA that gets the annotation, if the file has no policy objects; every HPA by default.
        hpa: Option<String>,
    },
    /// A manifest of a ScalingPolicy or ClusterScalingPolicy.
    Manifest(serde_json::Map<String, serde_json::Value>),
}

/// Replaces `file: policy.yaml` with the policy objects of that file. The text of a file without policy objects becomes
/// the annotation of HPAs.
pub(super) fn inline_policies(document: &mut Node) -> Result<(), Problem> {
    let Some(policies) = document.get("policies") else { return Ok(()) };
    let (mut inlined, mut annotations) = (Vec::new(), Vec::new());
    for (index, item) in policies.items().iter().enumerate() {
        let Some(file) = item.get("file") else {
            inlined.push(item.clone());
            continue;
        };
        let field = format!("policies[{index}].file");
        only(item, &["file", "hpa"], &field)?;
        let (path, text) = read_file(&file.location, &field, file.text(&[]))?;
        let documents = Node::read_all(&path.display().to_string().into(), &text)?;
        if documents.iter().any(is_policy) {
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

/// Returns whether a document is a policy object.
fn is_policy(document: &Node) -> bool {
    document.text(&["apiVersion"]).is_some_and(|version| version.starts_with(GROUP))
}

/// Sets the annotation of the HPA named `name`, or of every HPA. Returns whether such an HPA exists.
fn annotate(document: &mut Node, name: Option<&str>, value: &Node) -> bool {
    let mut any = false;
    for hpa in hpas(document) {
        if name.is_some_and(|name| hpa.text(&["metadata", "name"]) != Some(name)) {
            continue;
        }
        any = true;
        let empty = || Node { location: value.location.clone(), content: Content::Map(Vec::new()) };
        if hpa.get("metadata").is_none() {
            hpa.put("metadata", empty());
        }
        let Some(metadata) = hpa.get_mut("metadata") else { continue };
        if metadata.get("annotations").is_none() {
            metadata.put("annotations", empty());
        }
        if let Some(annotations) = metadata.get_mut("annotations") {
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

/// Returns the document without policies. `None` if the document has no policies.
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

/// Reads the policy objects. Invalid fields of a valid object are not an error here, because the controller reports
/// them in an event.
pub(super) fn read_policies(document: &Node) -> Result<Vec<Value>, Problem> {
    let items = document.get("policies").map(Node::items).unwrap_or_default();
    let server = Cluster::new(Arc::new(SystemClock));
    let mut objects = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let wrong =
            |message: String| Problem::new(item.location.clone(), format!("policies[{index}]"), message);
        if !is_policy(item) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_field_is_refused_except_in_an_hpa_of_a_cluster() {
        let text = "hpas:
- metadata: {name: web, namespace: shop}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    maxReplicas: 3
    behaviour: {scaleDown: {stabilizationWindowSeconds: 0}}
";
        let mut document = Node::read("a.yaml", text).unwrap();
        assert_eq!(
            read_hpas(&document).unwrap_err().to_string(),
            "a.yaml:6: HorizontalPodAutoscaler shop/web: unknown field spec.behaviour; did you mean spec.behavior?"
        );
        document.set_location(&Location { source: CLUSTER.into(), line: 0 });
        assert_eq!(read_hpas(&document).unwrap().len(), 1);
    }

    #[test]
    fn reference_to_a_file_has_no_other_field() {
        for (text, expected) in [
            (
                "hpas: [{file: web.yaml, spec: {}}]",
                "a.yaml:1: hpas[0].file: unknown field spec next to it; valid names are file",
            ),
            (
                "policies: [{file: web.yaml, hpas: web}]",
                "a.yaml:1: policies[0].file: unknown field hpas next to it; did you mean \"hpa\"?",
            ),
        ] {
            let mut document = Node::read("a.yaml", text).unwrap();
            let inlined = inline_hpas(&mut document).and_then(|()| inline_policies(&mut document));
            assert_eq!(inlined.unwrap_err().to_string(), expected);
        }
    }

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
