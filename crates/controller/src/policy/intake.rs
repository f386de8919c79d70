//! Feeds policy objects and the labels of namespaces from their watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects::{Kind, PolicyName, PolicyObject};
use super::store::AT_ONCE;
use crate::reconcile::Controller;
use cluster::decode::{DecodeError, meta_of};
use cluster::watch::{Deleted, Sink, Watched};

/// Applies the policy objects of one kind.
#[derive(Debug)]
pub(super) struct PolicyIntake {
    pub(super) controller: Weak<Controller>,
    pub(super) kind: Kind,
    pub(super) namespace: Option<Arc<str>>,
    /// The names of the list in progress.
    pub(super) listed: Option<BTreeSet<PolicyName>>,
}

impl PolicyIntake {
    fn name(&self, namespace: String, name: String) -> PolicyName {
        let namespace = (self.kind == Kind::Namespaced).then(|| namespace.into());
        PolicyName { namespace, name: name.into() }
    }
}

impl Sink<PolicyObject> for PolicyIntake {
    fn start(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: PolicyObject) {
        let Some(controller) = self.controller.upgrade() else { return };
        let name = object.name.clone();
        if controller.policies.apply_object(object) {
            controller.policy_changed(name.namespace.as_deref());
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(name);
        }
    }

    fn delete(&mut self, object: Deleted) {
        let Some(controller) = self.controller.upgrade() else { return };
        let name = self.name(object.namespace, object.name);
        if controller.policies.delete_object(&name) {
            controller.policy_changed(name.namespace.as_deref());
        }
        if let Some(listed) = &mut self.listed {
            listed.remove(&name);
        }
    }

    fn done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        let Some(controller) = self.controller.upgrade() else { return };
        if controller.policies.retain_objects(self.kind, self.namespace.as_deref(), &listed) {
            controller.policy_changed(self.namespace.as_deref());
        }
    }
}

impl Controller {
    /// Syncs the HPAs that a changed policy may concern: at once if they are few. Otherwise their periodic syncs
    /// apply the change within a period, so that no other HPA waits.
    pub(super) fn policy_changed(&self, namespace: Option<&str>) {
        let keys: Vec<_> = match namespace {
            Some(namespace) => {
                self.hpas.in_namespace(namespace).iter().map(|record| record.key.clone()).collect()
            }
            None if self.hpas.len() > AT_ONCE => return,
            None => self.hpas.keys(),
        };
        if keys.len() <= AT_ONCE {
            for key in keys {
                self.queue.add_changed(&key);
            }
        }
    }
}

/// `namespaces`, for the selectors of cluster-wide policies.
#[derive(Debug, Default)]
pub(super) struct Namespaces;

#[derive(Debug)]
pub(super) struct NamespaceLabels {
    name: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
}

impl Watched for Namespaces {
    type Object<'a> = NamespaceLabels;

    fn path(&self) -> Vec<&str> {
        vec!["api", "v1", "namespaces"]
    }

    fn name(&self) -> Arc<str> {
        "namespaces".into()
    }

    fn decode(&self, object: &[u8]) -> Result<NamespaceLabels, DecodeError> {
        #[derive(Deserialize)]
        struct Namespace<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: Option<BTreeMap<String, String>>,
        }
        let Namespace { metadata } = serde_json::from_slice(object)?;
        let meta = meta_of(metadata)?;
        if meta.name.is_empty() {
            return Err(DecodeError::new("a namespace without metadata.name"));
        }
        let Metadata { labels } = serde_json::from_str(metadata.get())?;
        let (name, resource_version) = (meta.name, meta.resource_version);
        Ok(NamespaceLabels { name, resource_version, labels: labels.unwrap_or_default() })
    }

    fn resource_version(object: &NamespaceLabels) -> &str {
        &object.resource_version
    }
}

/// Applies the labels of namespaces.
#[derive(Debug)]
pub(super) struct NamespaceIntake(pub(super) Weak<Controller>, pub(super) Option<BTreeSet<String>>);

impl NamespaceIntake {
    fn set(&self, namespace: &str, labels: Option<BTreeMap<String, String>>) {
        if let Some(controller) = self.0.upgrade()
            && controller.policies.label_namespace(namespace, labels)
        {
            controller.policy_changed(Some(namespace));
        }
    }
}

impl Sink<NamespaceLabels> for NamespaceIntake {
    fn start(&mut self) {
        self.1 = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: NamespaceLabels) {
        self.set(&object.name, Some(object.labels));
        if let Some(listed) = &mut self.1 {
            listed.insert(object.name);
        }
    }

    fn delete(&mut self, object: Deleted) {
        self.set(&object.name, None);
        if let Some(listed) = &mut self.1 {
            listed.remove(&object.name);
        }
    }

    fn done(&mut self) {
        let listed = self.1.take().unwrap_or_default();
        let Some(controller) = self.0.upgrade() else { return };
        for namespace in controller.policies.namespaces() {
            if !listed.contains(&*namespace) {
                self.set(&namespace, None);
            }
        }
    }
}
