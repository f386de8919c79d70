//! Reads single objects: the target, and the owners of its pods up to the target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Pod;
use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;

use super::lists::ExtraMetadata;
use super::situation::{Owner, Target, TargetObject};
use super::wire::{self, Meta};
use cluster::call::Call;
use cluster::client::Client;
use cluster::mapper::Mapper;
use controller::store::Key;

/// Maximum length of an owner chain. The chain consists of a ReplicaSet, a Deployment, and two more owners
/// for targets that create Deployments.
const DEEPEST: usize = 4;
/// Maximum number of owners to read per HPA. The pods of a target have one or two owners.
const LOOKUPS: usize = 24;

#[derive(Debug, Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) client: &'a Client,
    pub(super) mapper: &'a Mapper,
}

impl Objects<'_> {
    /// Reads the `metadata` of an object. Returns `None` if the object does not exist or cannot be read.
    async fn meta(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Meta> {
        let reference = CrossVersionObjectReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            api_version: api_version.to_owned(),
        };
        let mappings = self.mapper.mappings(target_group(&reference).ok()?, kind).await.ok()?;
        let mapping = mappings.iter().find(|mapping| mapping.namespaced)?;
        let call = Call::get(mapping.path(namespace, name)).about(mapping.group_resource(), name);
        match self.client.bytes(&call).await {
            Ok(object) => wire::meta(&object).ok(),
            Err(error) => {
                tracing::debug!(kind, namespace, name, %error, "failed to read an object");
                None
            }
        }
    }

    /// Reads the target of an HPA.
    pub(super) async fn target(&self, namespace: &str, reference: &CrossVersionObjectReference) -> Target {
        let CrossVersionObjectReference { api_version, kind, name } = reference;
        let meta = self.meta(api_version, kind, namespace, name).await;
        Target {
            api_version: api_version.clone(),
            kind: kind.clone(),
            name: name.clone(),
            object: meta.map(|meta| TargetObject {
                owners: meta.owners(),
                replicas_owners: meta.replicas_owners(),
                uid: meta.uid,
            }),
        }
    }

    /// Reads the owner chains of pods. Each chain starts with the nearest owner. It ends with the target, with the last
    /// readable owner, or after [`DEEPEST`] owners.
    pub(super) async fn owners(
        &self,
        namespace: &Arc<str>,
        pods: &[Arc<Pod>],
        extras: &ExtraMetadata,
        target: &Target,
    ) -> BTreeMap<Arc<str>, Vec<Owner>> {
        let target = target.object.as_ref().map(|object| object.uid.as_str());
        let mut walk = Walk { above: BTreeMap::new(), closed: BTreeSet::new(), lookups: 0 };
        let mut found = BTreeMap::new();
        for pod in pods {
            let key = Key::new(Arc::clone(namespace), Arc::clone(&pod.name));
            let mut next = extras.pod_owners.get(&key).cloned();
            let mut chain = Vec::new();
            while let Some(owner) = next.take() {
                let ends = target == Some(owner.uid.as_str()) || chain.len() + 1 == DEEPEST;
                if !ends {
                    next = walk.above(self, namespace, &owner).await;
                }
                chain.push(owner);
            }
            found.insert(Arc::clone(&pod.name), chain);
        }
        found
    }
}

/// The owners that have been read.
struct Walk {
    /// The controller of each owner, by the owner's UID.
    above: BTreeMap<String, Option<Owner>>,
    /// The kinds with an object that could not be read. Further objects of such a kind most likely cannot be
    /// read either.
    closed: BTreeSet<(String, String)>,
    lookups: usize,
}

impl Walk {
    async fn above(&mut self, objects: &Objects<'_>, namespace: &str, owner: &Owner) -> Option<Owner> {
        if let Some(above) = self.above.get(&owner.uid) {
            return above.clone();
        }
        let kind = (owner.api_version.clone(), owner.kind.clone());
        if self.closed.contains(&kind) || self.lookups == LOOKUPS {
            return None;
        }
        self.lookups += 1;
        let meta = objects.meta(&owner.api_version, &owner.kind, namespace, &owner.name).await;
        if meta.is_none() {
            self.closed.insert(kind);
        }
        // An object that was recreated under the same name is a different owner.
        let above = meta.filter(|meta| meta.uid == owner.uid).and_then(|meta| meta.controller());
        self.above.insert(owner.uid.clone(), above.clone());
        above
    }
}
