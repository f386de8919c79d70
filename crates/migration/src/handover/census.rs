//! The HPAs of the cluster as the API shows them: labels, targets, and the writers of their status.

use std::collections::BTreeMap;

use autoscaling::status::CrossVersionObjectReference;
use jiff::Timestamp;
use serde::Deserialize;

use super::HandoverError;
use cluster::client::Clients;
use cluster::decode::DecodeError;
use cluster::watch::{Collection, each};
use coexist::handover::scope::{self, By, ControllerName, LABEL, Membership};
use engine::store::Key;
use terminal::namespaces::labels;

/// The field manager of Concertina: the first part of its `User-Agent`.
pub(super) const OWN_MANAGER: &str = "concertina";

/// The HPAs and the labels of namespaces.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The HPAs, by namespace and name.
    pub(super) hpas: BTreeMap<Key, Hpa>,
    /// The values of the label by namespace. Namespaces without the label have no entry.
    namespaces: BTreeMap<String, String>,
    /// The reason why the labels of namespaces are unknown, as a note.
    pub(super) unknown_namespaces: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Hpa {
    /// The value of the label `concertina.dev/controller`.
    pub(super) label: Option<String>,
    pub(super) target: CrossVersionObjectReference,
    /// The writers of the status, each with the time of its last change.
    pub(super) writers: Vec<StatusWriter>,
    /// Kind and name of the owner with `controller: true`.
    pub(super) owner: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StatusWriter {
    pub(super) manager: String,
    pub(super) at: Option<Timestamp>,
}

impl Hpa {
    /// Returns the last writer of the status.
    pub(super) fn last_writer(&self) -> Option<&StatusWriter> {
        self.writers.iter().max_by_key(|writer| writer.at)
    }

    /// Returns the last writer of the status other than Concertina.
    pub(super) fn last_foreign_writer(&self) -> Option<&StatusWriter> {
        self.writers.iter().filter(|writer| writer.manager != OWN_MANAGER).max_by_key(|writer| writer.at)
    }
}

impl Census {
    /// Reads the HPAs of one namespace or of all namespaces, and the labels of the namespaces.
    pub(super) async fn read(clients: &Clients, namespace: Option<&str>) -> Result<Self, HandoverError> {
        let mut census = Self::default();
        let collection = Collection {
            group: "autoscaling",
            version: "v2",
            namespace,
            resource: "horizontalpodautoscalers",
            fields: "",
        };
        let hpas = &mut census.hpas;
        let listed = each(&clients.core, collection, |object| {
            let Object { metadata, spec } = serde_json::from_slice(object).map_err(DecodeError::from)?;
            let key = Key::new(metadata.namespace.as_str(), metadata.name.as_str());
            hpas.insert(key, hpa(metadata, spec));
            Ok(())
        });
        listed.await.map_err(|error| HandoverError::Unreadable { what: "HPAs", error: Box::new(error) })?;
        match labels(&clients.core, namespace).await {
            Ok(namespaces) => census.namespaces = namespaces,
            Err(error) => {
                census.unknown_namespaces = Some(format!("cannot read the labels of namespaces: {error}"));
            }
        }
        Ok(census)
    }

    /// Returns whether an HPA is in scope, by its label and the label of its namespace.
    pub(super) fn membership(&self, key: &Key, name: &ControllerName) -> Membership {
        let label = self.hpas.get(key).and_then(|hpa| hpa.label.as_deref());
        scope::membership(label, self.namespace_label(&key.namespace), name)
    }

    /// Returns the HPAs in scope, each with the kind of the object that has the label.
    pub(super) fn in_scope<'a>(
        &'a self,
        name: &'a ControllerName,
    ) -> impl Iterator<Item = (&'a Key, &'a Hpa, By)> + 'a {
        self.hpas.iter().filter_map(|(key, hpa)| match self.membership(key, name) {
            Membership::In(by) => Some((key, hpa, by)),
            Membership::Out(_) => None,
        })
    }

    /// Returns the value of the label of a namespace.
    pub(super) fn namespace_label(&self, namespace: &str) -> Option<&str> {
        self.namespaces.get(namespace).map(String::as_str)
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    namespace: String,
    name: String,
    pub(super) resource_version: String,
    pub(super) labels: Option<BTreeMap<String, String>>,
    managed_fields: Option<Vec<ManagedFields>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scale_target_ref: CrossVersionObjectReference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    manager: String,
    subresource: String,
    time: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
    controller: Option<bool>,
}

fn hpa(metadata: Metadata, spec: Spec) -> Hpa {
    let Metadata { labels, managed_fields, owner_references, .. } = metadata;
    let entries = managed_fields.into_iter().flatten().filter(|entry| entry.subresource == "status");
    let owners = owner_references.into_iter().flatten();
    Hpa {
        label: labels.and_then(|mut labels| labels.remove(LABEL)),
        target: spec.scale_target_ref,
        writers: entries.map(|entry| StatusWriter { manager: entry.manager, at: entry.time }).collect(),
        owner: owners
            .filter(|owner| owner.controller == Some(true))
            .map(|owner| (owner.kind, owner.name))
            .next(),
    }
}
