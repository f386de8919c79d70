//! The HPAs and policies of a check, from the cluster and from the files. Objects of the files take precedence.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::selector::Selector;
use policies::merge::Source;
use policies::spec::{Level, Parsed};
use serde::Deserialize;
use serde_json::Value;

use super::PolicyError;
use super::document::{self, Document, PolicyObject};
use super::import::FileObject;
use cluster::client::Clients;
use cluster::decode::DecodeError;
use cluster::watch::{Collection, Watched, each};
use rulebook::{GROUP, Kind, VERSION, read_object};
use terminal::namespaces;

/// The HPAs, policies and namespaces of a check.
#[derive(Debug, Default)]
pub(super) struct World {
    /// The HPAs by namespace and name.
    pub(super) hpas: BTreeMap<(String, String), Hpa>,
    /// The policy objects by namespace and name. The namespace of a ClusterScalingPolicy is empty.
    policies: BTreeMap<(String, String), Entry>,
    /// The labels of namespaces. `None` if they are unknown.
    namespaces: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// Notes about objects that could not be read.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Hpa {
    labels: BTreeMap<String, String>,
    /// The policy of the HPA's annotation.
    annotation: Option<Arc<Parsed>>,
    pub(super) min: i32,
    pub(super) max: i32,
    is_in_files: bool,
}

/// A policy object, from the cluster or a file.
#[derive(Debug)]
struct Entry {
    source: Source,
    selector: Option<Selector>,
    namespace_selector: Option<Selector>,
    is_in_files: bool,
}

/// The policies that apply to an HPA.
#[derive(Debug)]
pub(super) struct Applicable {
    pub(super) sources: Vec<Source>,
    /// Whether one of the policies is in a file.
    pub(super) is_checked: bool,
}

impl World {
    /// Reads the cluster. Fails if HPAs cannot be read. If policies or the labels of namespaces cannot be read, adds a
    /// note with the reason.
    pub(super) async fn read(
        &mut self,
        clients: &Clients,
        namespace: Option<&str>,
    ) -> Result<(), PolicyError> {
        let collection = Collection {
            group: "autoscaling",
            version: "v2",
            namespace,
            resource: "horizontalpodautoscalers",
            fields: "",
        };
        let hpas = &mut self.hpas;
        let listed = each(&clients.core, collection, |object| {
            let (key, hpa) = hpa(&serde_json::from_slice(object)?)?;
            hpas.insert(key, hpa);
            Ok(())
        });
        listed.await.map_err(|error| PolicyError::Unreadable { what: "HPAs", error: Box::new(error) })?;
        for kind in Kind::ALL {
            let namespace = namespace.filter(|_| kind == Kind::Namespaced);
            let collection = Collection {
                group: GROUP,
                version: VERSION,
                namespace,
                resource: kind.resource(),
                fields: "",
            };
            let policies = &mut self.policies;
            let listed = each(&clients.core, collection, |object| {
                let object = kind.decode(object)?;
                let (key, entry) = entry(&object, Arc::new(read_object(&object)), false);
                policies.insert(key, entry);
                Ok(())
            });
            match listed.await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => self.notes.push(format!(
                    "the cluster has no {}: install deploy/kustomize/overlays/scaling-policies",
                    kind.resource()
                )),
                Err(error) => self.notes.push(format!("cannot read {}: {error}", kind.resource())),
            }
        }
        match namespaces::read(&clients.core, namespace, Some).await {
            Ok(namespaces) => self.namespaces = Some(namespaces),
            Err(error) => self.notes.push(format!("cannot read the labels of namespaces: {error}")),
        }
        Ok(())
    }

    /// Adds the HPAs and the policies of files. They replace objects of the cluster with the same names.
    pub(super) fn add_files(&mut self, read: &[FileObject], documents: &[Document], default_namespace: &str) {
        for value in read.iter().map(|read| &read.object.value) {
            if value.get("kind").is_none_or(|kind| kind != "HorizontalPodAutoscaler") {
                continue;
            }
            match hpa(value) {
                Ok(((namespace, name), hpa)) => {
                    let namespace =
                        if namespace.is_empty() { default_namespace.to_owned() } else { namespace };
                    self.hpas.insert((namespace, name), Hpa { is_in_files: true, ..hpa });
                }
                Err(error) => self.notes.push(format!("cannot read an HPA of the files: {error}")),
            }
        }
        for document in documents {
            let Some(object) = &document.object else { continue };
            let parsed = Arc::clone(&document.parsed);
            let (key, mut entry) = entry(object, parsed, true);
            // An update keeps the object's time of creation, which determines the precedence of policies.
            entry.source.created = self.policies.get(&key).and_then(|known| known.source.created);
            self.policies.insert(key, entry);
        }
        let selects =
            |entry: &Entry| entry.namespace_selector.as_ref().is_some_and(|selector| !selector.is_empty());
        if self.namespaces.is_none() && self.policies.values().any(selects) {
            self.notes.push(
                "the labels of namespaces are unknown: a policy with a namespaceSelector matches no HPA"
                    .to_owned(),
            );
        }
    }

    /// Returns the policies that apply to an HPA. `None` if no policy applies.
    pub(super) fn applicable(&self, namespace: &str, hpa: &Hpa) -> Option<Applicable> {
        let no_labels = BTreeMap::new();
        let labels =
            self.namespaces.as_ref().map(|namespaces| namespaces.get(namespace).unwrap_or(&no_labels));
        let in_namespace = |entry: &Entry| match &entry.namespace_selector {
            None => false,
            Some(selector) if selector.is_empty() => true,
            Some(selector) => labels.is_some_and(|labels| selector.matches(labels)),
        };
        let matching = self.policies.iter().filter(|((of, _), entry)| {
            let is_near = if of.is_empty() { in_namespace(entry) } else { of == namespace };
            is_near && entry.selector.as_ref().is_some_and(|selector| selector.matches(&hpa.labels))
        });
        let annotation = hpa.annotation.as_ref().map(|parsed| Source {
            level: Level::Annotation,
            name: "".into(),
            created: None,
            parsed: Arc::clone(parsed),
        });
        let mut is_checked = hpa.is_in_files && annotation.is_some();
        let mut sources: Vec<Source> = annotation.into_iter().collect();
        for (_, entry) in matching {
            is_checked |= entry.is_in_files;
            sources.push(entry.source.clone());
        }
        (!sources.is_empty()).then_some(Applicable { sources, is_checked })
    }

    /// Returns whether a source is a policy of a file.
    pub(super) fn is_in_files(&self, source: &Source, hpa: &Hpa) -> bool {
        match source.level {
            Level::Annotation => hpa.is_in_files,
            Level::Namespaced | Level::Cluster => {
                let mut entries = self.policies.values().filter(|entry| entry.is_in_files);
                entries.any(|entry| entry.source.level == source.level && entry.source.name == source.name)
            }
        }
    }
}

fn entry(object: &PolicyObject, parsed: Arc<Parsed>, is_in_files: bool) -> ((String, String), Entry) {
    let (namespace, name) = (&object.name.namespace, &object.name.name);
    let (level, full) = match namespace {
        Some(namespace) => (Level::Namespaced, format!("{namespace}/{name}").into()),
        None => (Level::Cluster, Arc::clone(name)),
    };
    let key = (namespace.as_deref().unwrap_or_default().to_owned(), name.to_string());
    let entry = Entry {
        source: Source { level, name: full, created: object.created, parsed },
        selector: object.selector.as_ref().ok().cloned(),
        namespace_selector: object.namespace_selector.as_ref().ok().cloned(),
        is_in_files,
    };
    (key, entry)
}

fn hpa(object: &Value) -> Result<((String, String), Hpa), DecodeError> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Metadata {
        namespace: String,
        name: String,
        labels: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        min_replicas: Option<i32>,
        max_replicas: i32,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        spec: Spec,
    }
    let Object { metadata, spec } = Object::deserialize(object)?;
    let text = document::annotation(object).and_then(Value::as_str);
    let hpa = Hpa {
        labels: metadata.labels.unwrap_or_default(),
        annotation: text.map(|text| Arc::new(policies::spec::parse(text, Level::Annotation))),
        min: spec.min_replicas.unwrap_or(1),
        max: spec.max_replicas,
        is_in_files: false,
    };
    Ok(((metadata.namespace, metadata.name), hpa))
}
