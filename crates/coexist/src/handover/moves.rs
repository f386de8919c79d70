//! Moves HPAs in and out of scope, by the labels of HPAs and of namespaces. Without `--shadow-others`, the store
//! contains only the HPAs in scope.
//!
//! The store drops an HPA that leaves the scope. If other HPAs of its namespace are in scope, its selector is still
//! used for the detection of shared pods. A worker then reads the selector once a period, if possible from the watch of
//! targets.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::charges::{Charges, Placement};
use super::scope::{LABEL, label_of};
use cluster::client::Client;
use cluster::decode::{DecodeError, hpa, meta_of};
use cluster::error::ApiError;
use cluster::watch::{Collection, DeletedObject, Sink, Watched, each};
use engine::reconcile::Controller;
use engine::store::{Change, HpaRecord, Key, Update};

/// Moves HPAs in and out of the scope of a controller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves<'a> {
    pub(super) controller: &'a Controller,
    pub(super) charges: &'a Charges,
}

impl Moves<'_> {
    /// Puts an HPA in or out of scope according to its new version. The caller holds [`Charges::moving`], applies the
    /// version to the store if the result is [`Placement::Store`], and makes a new HPA due.
    pub(super) fn sort(&self, hpa: &HpaRecord, is_listed: bool) -> Placement {
        let placement = self.charges.sort(hpa, is_listed);
        match placement {
            Placement::Store { is_new: true } if !is_listed => {
                self.claim_neighbours(Some(&hpa.key.namespace));
            }
            Placement::Outside => self.take_out(&hpa.key, is_listed),
            Placement::Unchanged if !self.charges.is_outside(&hpa.key) => {
                return Placement::Store { is_new: false };
            }
            Placement::Store { .. } | Placement::Unchanged => {}
        }
        placement
    }

    /// Removes an HPA that is out of scope from the store.
    fn take_out(&self, key: &Key, is_listed: bool) {
        let stored = self.controller.stores.hpas.get(key);
        // If a list is in progress, the end of the list removes the HPA.
        let removed = stored.and_then(|stored| self.controller.stores.hpas.delete(key, &stored.uid));
        let had_selector = removed.is_some_and(|removed| {
            let change = Change::Deleted { uid: Arc::clone(&removed.uid) };
            let update = Update { change, old: Some(removed), new: None, lost_write: false };
            self.left_scope(key, &update)
        });
        if self.charges.neighbour(key).is_some() && (!is_listed || had_selector) {
            self.controller.runtime.queue.add(key);
        }
    }

    /// Drops the state of an HPA that has left the scope, except for a selector that the detection of shared pods
    /// needs. The selector is kept until a worker has read it again. Otherwise an HPA with the same pods could sync
    /// first, and would scale. Returns whether a selector is kept.
    pub(super) fn left_scope(&self, key: &Key, update: &Update) -> bool {
        let selector =
            self.controller.stores.overlap.selector(key).filter(|_| self.charges.neighbour(key).is_some());
        self.controller.changed(update);
        if let Some(selector) = &selector {
            self.controller.stores.overlap.claim(key, selector, &self.controller.stores.pods);
        }
        selector.is_some()
    }

    /// Makes HPAs out of scope due if the detection of shared pods needs their selectors. With `namespace`, does so
    /// only for the HPAs of that namespace.
    pub(super) fn claim_neighbours(&self, namespace: Option<&Arc<str>>) {
        for key in self.charges.neighbours(namespace) {
            if !self.controller.runtime.queue.has(&key) {
                self.controller.runtime.queue.add(&key);
            }
        }
    }

    /// Applies the label of a namespace, or its removal. HPAs that are not in the store are read later, by
    /// [`Self::adopt`].
    pub(super) fn label_namespace(&self, namespace: &str, label: Option<&str>) {
        let _moving = self.charges.moving();
        if !self.charges.label_namespace(namespace, label) {
            return;
        }
        for hpa in self.controller.stores.hpas.in_namespace(namespace) {
            if self.sort(&hpa, true) == (Placement::Store { is_new: true }) {
                self.controller.runtime.queue.add(&hpa.key);
            }
        }
        self.claim_neighbours(Some(&namespace.into()));
    }

    /// Reads the HPAs of a namespace that is new in scope into the store.
    ///
    /// # Errors
    /// Returns [`ApiError`] if the namespace cannot be listed. HPAs that were read before the failure are in the
    /// store.
    pub(super) async fn adopt(&self, client: &Client, namespace: &str) -> Result<(), ApiError> {
        let collection = Collection {
            group: "autoscaling",
            version: "v2",
            namespace: Some(namespace),
            resource: "horizontalpodautoscalers",
            fields: "",
        };
        let mut adopted = BTreeSet::new();
        each(client, collection, |item| {
            match hpa(item) {
                Ok(object) => {
                    let record = HpaRecord::from(object);
                    let key = record.key.clone();
                    if self.adopt_one(record) {
                        adopted.insert(key);
                    }
                }
                // The watch logs such an object.
                Err(error) => tracing::debug!(namespace, %error, "failed to decode an HPA"),
            }
            Ok(())
        })
        .await?;
        tracing::info!(namespace, hpas = adopted.len(), "namespace has the label {LABEL}");
        self.claim_neighbours(Some(&namespace.into()));
        Ok(())
    }

    /// Stores an HPA from a list, only if the watch has already delivered the HPA as out of scope. Otherwise a stale
    /// list could restore a deleted HPA. Returns whether the HPA is new in the store.
    fn adopt_one(&self, hpa: HpaRecord) -> bool {
        let _moving = self.charges.moving();
        let is_new = self.charges.is_outside(&hpa.key)
            && matches!(self.charges.sort(&hpa, false), Placement::Store { is_new: true });
        if is_new && let Some(update) = self.controller.stores.hpas.apply(hpa) {
            self.controller.changed(&update);
        }
        is_new
    }
}

/// The watch of the namespaces with the label. The server filters, so other namespaces need no memory.
#[derive(Debug, Default)]
pub struct Namespaces;

/// A namespace that the watch has delivered.
#[derive(Debug)]
pub struct LabelledNamespace {
    name: String,
    resource_version: String,
    label: Option<Box<str>>,
}

impl Watched for Namespaces {
    type Object<'a> = LabelledNamespace;

    fn path(&self) -> Vec<&str> {
        vec!["api", "v1", "namespaces"]
    }

    fn name(&self) -> Arc<str> {
        "namespaces".into()
    }

    fn labels(&self) -> &'static str {
        LABEL
    }

    fn decode(&self, object: &[u8]) -> Result<LabelledNamespace, DecodeError> {
        #[derive(serde::Deserialize)]
        struct Namespace<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        let Namespace { metadata } = serde_json::from_slice(object)?;
        let meta = meta_of(metadata)?;
        if meta.name.is_empty() {
            return Err(DecodeError::new("a namespace without metadata.name"));
        }
        let label = label_of(metadata);
        Ok(LabelledNamespace { name: meta.name, resource_version: meta.resource_version, label })
    }

    fn resource_version(object: &LabelledNamespace) -> &str {
        &object.resource_version
    }
}

/// Applies the labels of namespaces to a controller with `--scope=labelled`.
#[derive(Debug)]
pub struct NamespaceIntake {
    controller: Arc<Controller>,
    charges: Arc<Charges>,
    /// The namespaces of the list in progress.
    listed: Option<BTreeSet<String>>,
}

impl NamespaceIntake {
    /// Creates an intake for `controller`.
    pub fn new(controller: Arc<Controller>, charges: Arc<Charges>) -> Self {
        Self { controller, charges, listed: None }
    }

    fn set(&self, namespace: &str, label: Option<&str>) {
        Moves { controller: &self.controller, charges: &self.charges }.label_namespace(namespace, label);
    }
}

impl Sink<LabelledNamespace> for NamespaceIntake {
    fn start(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: LabelledNamespace) {
        self.set(&object.name, object.label.as_deref());
        if let Some(listed) = &mut self.listed {
            listed.insert(object.name);
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        self.set(&object.name, None);
        if let Some(listed) = &mut self.listed {
            listed.remove(&object.name);
        }
    }

    fn done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        for namespace in self.charges.labelled_namespaces() {
            if !listed.contains(&*namespace) {
                self.set(&namespace, None);
            }
        }
    }
}
