//! Watches the namespaces with the label. The server filters, so namespaces without the label cost nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::scope::{LABEL, label_of};
use crate::reconcile::Controller;
use cluster::decode::{DecodeError, meta_of};
use cluster::watch::{Deleted, Sink, Watched};

/// `namespaces` with the label.
#[derive(Debug, Default)]
pub struct Namespaces;

/// A namespace with the label.
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
    /// Namespaces of the list in progress.
    listed: Option<BTreeSet<String>>,
}

impl NamespaceIntake {
    /// Creates the intake of a controller.
    pub fn new(controller: Arc<Controller>) -> Self {
        Self { controller, listed: None }
    }

    fn set(&self, namespace: &str, label: Option<&str>) {
        if let Some(charges) = self.controller.hpas.charges() {
            self.controller.label_namespace(charges, namespace, label);
        }
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

    fn delete(&mut self, object: Deleted) {
        self.set(&object.name, None);
        if let Some(listed) = &mut self.listed {
            listed.remove(&object.name);
        }
    }

    fn done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        let Some(charges) = self.controller.hpas.charges() else { return };
        for namespace in charges.labelled_namespaces() {
            if !listed.contains(&*namespace) {
                self.controller.label_namespace(charges, &namespace, None);
            }
        }
    }
}
