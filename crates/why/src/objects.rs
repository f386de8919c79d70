//! Reads the objects of the cluster: lists of HPAs, pods and events, the target, and the owners of its pods.
//!
//! HPAs and pods fill the stores of a controller through its intakes, like objects from a watch. [`ExtraMetadata`]
//! contains the metadata that a controller does not store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Pod;
use autoscaling::selector::{Labels, Selector};
use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;

use super::responses::{self, Meta};
use super::situation::{InCharge, Owner, RecentEvent, Target, TargetObject};
use super::targets::ListedTargets;
use super::{Scope, WhyError};
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::decode::{self, DecodeError, HpaObject};
use cluster::error::ApiError;
use cluster::mapper::{Mapper, Mapping};
use cluster::watch::{Collection, Sink, each};
use coexist::handover::scope::LABEL;
use engine::reconcile::{Controller, HpaIntake, PodIntake};
use engine::store::Key;
use terminal::namespaces;

const GROUP: &str = "autoscaling";
const VERSION: &str = "v2";
const RESOURCE: &str = "horizontalpodautoscalers";
/// Maximum length of an owner chain: a ReplicaSet, a Deployment, and two more owners for targets that create
/// Deployments.
const DEEPEST: usize = 4;
/// Maximum number of owners to read per HPA. The pods of a target usually share a few owners.
const LOOKUPS: usize = 24;
/// The label in which the Deployment controller writes the hash of the pod template. The hash is also the end of the name
/// of the pod's ReplicaSet.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Fills the stores of a controller without watches.
#[derive(Debug)]
pub(super) struct Lists {
    clients: Clients,
    hpas: HpaIntake,
    pods: PodIntake,
}

/// Metadata that a controller does not store.
#[derive(Debug, Default)]
pub(super) struct ExtraMetadata {
    /// The `metadata` of the HPAs.
    pub(super) hpas: BTreeMap<Key, Meta>,
    /// The value of the label `concertina.dev/controller` by namespace. Empty if namespaces cannot be read.
    namespace_labels: BTreeMap<String, String>,
    /// The managing controller of each pod. Pods without a controller have no entry.
    pub(super) pod_owners: BTreeMap<Key, Owner>,
    /// The events about each HPA, oldest first, each with the UID of the HPA. An empty UID matches every HPA
    /// of that name.
    events: BTreeMap<Key, Vec<(String, RecentEvent)>>,
}

impl Lists {
    pub(super) fn new(clients: Clients, controller: &Arc<Controller>) -> Self {
        Self {
            clients,
            hpas: HpaIntake::new(Arc::clone(controller), None),
            pods: PodIntake::new(Arc::clone(&controller.stores.pods), None),
        }
    }

    /// Reads the HPAs, pods and events again. If the list of pods or of events is forbidden, it is empty, and the
    /// observer of the clients collects the refused read.
    pub(super) async fn read(&mut self, scope: &Scope) -> Result<ExtraMetadata, WhyError> {
        let Self { clients, hpas, pods } = self;
        // A refused read of namespaces does not affect the decision, so this client has no observer.
        let unobserved = clients.core.unobserved();
        let (hpas, pod_owners, events, namespace_labels) = futures::join!(
            read_hpas(clients, hpas, scope),
            read_pods(clients, pods, scope),
            read_events(clients, scope),
            namespaces::labels(&unobserved, scope.namespace.as_deref())
        );
        let namespace_labels = namespace_labels.unwrap_or_default();
        Ok(ExtraMetadata { hpas: hpas?, namespace_labels, pod_owners: pod_owners?, events })
    }
}

impl ExtraMetadata {
    /// Returns the controller in charge of an HPA.
    pub(super) fn in_charge(&self, key: &Key) -> Option<InCharge> {
        let meta = self.hpas.get(key)?;
        let namespace = self.namespace_labels.get(&*key.namespace).map(String::as_str);
        InCharge::new(meta.label(LABEL), namespace, meta.status_writer().as_ref())
    }

    /// Returns whether a selector matches the labels of an HPA.
    pub(super) fn selected(&self, key: &Key, selector: &Selector) -> bool {
        self.hpas.get(key).is_some_and(|meta| selector.matches(meta))
    }

    /// Returns the events about an HPA.
    pub(super) fn events(&self, key: &Key, uid: &str) -> Vec<RecentEvent> {
        let about = self.events.get(key).into_iter().flatten();
        let about = about.filter(|(hpa, _)| hpa.is_empty() || hpa == uid);
        about.map(|(_, event)| event.clone()).collect()
    }
}

/// Returns the names of the HPAs in a namespace.
pub(super) async fn names(clients: &Clients, namespace: &str) -> Result<Vec<String>, WhyError> {
    let namespace = Some(namespace);
    let collection = Collection { group: GROUP, version: VERSION, namespace, resource: RESOURCE, fields: "" };
    let mut names = Vec::new();
    let listed = each(&clients.core, collection, |object| {
        names.push(responses::meta(object)?.name);
        Ok(())
    });
    listed.await.map_err(|error| WhyError::Unreadable { what: "HPAs", error: Box::new(error) })?;
    Ok(names)
}

async fn read_hpas(
    clients: &Clients,
    intake: &mut HpaIntake,
    scope: &Scope,
) -> Result<BTreeMap<Key, Meta>, WhyError> {
    let collection = Collection {
        group: GROUP,
        version: VERSION,
        namespace: scope.namespace.as_deref(),
        resource: RESOURCE,
        fields: "",
    };
    let mut extras = BTreeMap::new();
    intake.start();
    let mut take = |object: &[u8]| -> Result<(), DecodeError> {
        let meta = responses::meta(object)?;
        let key = Key::new(meta.namespace.as_str(), meta.name.as_str());
        match decode::hpa(object) {
            Ok(object) => Sink::<HpaObject>::apply(intake, object),
            // An invalid HPA other than the requested HPA is skipped.
            Err(error) if scope.name.as_deref() == Some(&*key.name) => return Err(error),
            Err(error) => tracing::warn!(hpa = %key, %error, "failed to decode an HPA, skipping it"),
        }
        extras.insert(key, meta);
        Ok(())
    };
    let listed = each(&clients.core, collection, &mut take).await;
    match (listed, &scope.namespace, &scope.name) {
        (Err(error), Some(namespace), Some(name)) if error.is_forbidden() => {
            // A single HPA may be readable although the list is forbidden.
            let call = Call::get(["apis", GROUP, VERSION, "namespaces", namespace, RESOURCE, name])
                .about(format!("{RESOURCE}.{GROUP}"), name);
            match clients.core.bytes(&call).await {
                Ok(object) => take(&object).map_err(ApiError::Decode),
                Err(error) if error.is_not_found() => Ok(()),
                Err(error) => Err(error),
            }
        }
        (listed, ..) => listed,
    }
    .map_err(|error| WhyError::Unreadable { what: "HPAs", error: Box::new(error) })?;
    intake.done();
    Ok(extras)
}

/// Reads the pods, and returns the managing controller of each pod. Pods without a controller have no entry.
async fn read_pods(
    clients: &Clients,
    intake: &mut PodIntake,
    scope: &Scope,
) -> Result<BTreeMap<Key, Owner>, WhyError> {
    let collection = Collection {
        group: "",
        version: "v1",
        namespace: scope.namespace.as_deref(),
        resource: "pods",
        fields: "",
    };
    let mut owners = BTreeMap::new();
    Sink::<decode::WirePod<'static>>::start(intake);
    let listed = each(&clients.core, collection, |object| {
        match decode::pod(object).and_then(|pod| Ok((pod, responses::meta(object)?))) {
            Ok((pod, meta)) => {
                if let Some(owner) = meta.controller() {
                    owners.insert(Key::new(meta.namespace, meta.name), owner);
                }
                intake.apply(pod);
            }
            Err(error) => tracing::warn!(%error, "failed to decode a pod, skipping it"),
        }
        Ok(())
    });
    let listed = listed.await;
    Sink::<decode::WirePod<'static>>::done(intake);
    match listed {
        Err(error) if !error.is_forbidden() => {
            Err(WhyError::Unreadable { what: "pods", error: Box::new(error) })
        }
        _ => Ok(owners),
    }
}

/// Reads the events about HPAs. Events are optional, so errors are only logged.
async fn read_events(clients: &Clients, scope: &Scope) -> BTreeMap<Key, Vec<(String, RecentEvent)>> {
    let mut fields = "involvedObject.kind=HorizontalPodAutoscaler".to_owned();
    if let Some(name) = &scope.name {
        fields.push_str(",involvedObject.name=");
        fields.push_str(name);
    }
    let collection = Collection {
        group: "",
        version: "v1",
        namespace: scope.namespace.as_deref(),
        resource: "events",
        fields: &fields,
    };
    let mut events: BTreeMap<Key, Vec<(String, RecentEvent)>> = BTreeMap::new();
    let listed = each(&clients.core, collection, |object| {
        match responses::event(object) {
            Ok(Some(about)) => {
                let key = Key::new(about.namespace, about.name);
                events.entry(key).or_default().push((about.uid, about.event));
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "failed to decode an event, skipping it"),
        }
        Ok(())
    });
    if let Err(error) = listed.await {
        tracing::debug!(%error, "failed to list events");
    }
    for events in events.values_mut() {
        events.sort_by_key(|(_, event)| (event.last, event.first));
        events.dedup();
    }
    events
}

/// Reads single objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) client: &'a Client,
    pub(super) mapper: &'a Mapper,
    /// The targets that need not be read.
    pub(super) listed: &'a ListedTargets,
}

impl Objects<'_> {
    async fn mapping(&self, api_version: &str, kind: &str) -> Option<Mapping> {
        let reference = CrossVersionObjectReference {
            kind: kind.to_owned(),
            name: String::new(),
            api_version: api_version.to_owned(),
        };
        let mappings = self.mapper.mappings(target_group(&reference).ok()?, kind).await.ok()?;
        mappings.iter().find(|mapping| mapping.namespaced).cloned()
    }

    /// Reads the `metadata` of an object. Returns `None` if the object does not exist or cannot be read.
    async fn meta(&self, mapping: &Mapping, namespace: &str, name: &str) -> Option<Meta> {
        let call = Call::get(mapping.path(namespace, name)).about(mapping.group_resource(), name);
        match self.client.bytes(&call).await {
            Ok(object) => responses::meta(&object).ok(),
            Err(error) => {
                let resource = mapping.group_resource();
                tracing::debug!(%resource, namespace, name, %error, "failed to read an object");
                None
            }
        }
    }

    /// Reads the target of an HPA.
    pub(super) async fn target(&self, namespace: &str, reference: &CrossVersionObjectReference) -> Target {
        let CrossVersionObjectReference { api_version, kind, name } = reference;
        let object = match self.mapping(api_version, kind).await {
            Some(mapping) => match self.listed.object(&mapping, namespace, name) {
                Some(object) => Some(object),
                None => self.meta(&mapping, namespace, name).await.map(TargetObject::from),
            },
            None => None,
        };
        let mut others = Vec::new();
        if object.is_none() {
            // The decision does not depend on these reads, so this client has no observer.
            let objects = Objects { client: &self.client.unobserved(), ..*self };
            for other in ["Deployment", "StatefulSet"].into_iter().filter(|other| other != kind) {
                let Some(mapping) = self.mapping("apps/v1", other).await else { continue };
                if objects.meta(&mapping, namespace, name).await.is_some() {
                    others.push(format!("{other}/{name}"));
                }
            }
        }
        Target { api_version: api_version.clone(), kind: kind.clone(), name: name.clone(), object, others }
    }

    /// Reads the owner chains of pods. Each chain starts with the nearest owner. It ends with the target, with an owner
    /// that has no controller or cannot be read, or after [`DEEPEST`] owners.
    ///
    /// The ReplicaSets of listed targets are not read: they are recognized by their names.
    pub(super) async fn owners(
        &self,
        namespace: &Arc<str>,
        pods: &[Arc<Pod>],
        extras: &ExtraMetadata,
        target: &Target,
    ) -> BTreeMap<Arc<str>, Vec<Owner>> {
        let above_named = self.above_named(namespace, target).await;
        let target_uid = target.object.as_ref().map(|object| object.uid.as_str());
        let mut walk = Walk { above: BTreeMap::new(), closed: BTreeSet::new(), lookups: 0 };
        let mut found = BTreeMap::new();
        for pod in pods {
            let key = Key::new(Arc::clone(namespace), Arc::clone(&pod.name));
            let mut next = extras.pod_owners.get(&key).cloned();
            let mut chain = Vec::new();
            while let Some(owner) = next.take() {
                let ends = target_uid == Some(owner.uid.as_str()) || chain.len() + 1 == DEEPEST;
                if !ends {
                    next = match &above_named {
                        Some(above) if is_named_by(&above.name, &owner, pod) => Some(above.clone()),
                        _ => walk.above(self, namespace, &owner).await,
                    };
                }
                chain.push(owner);
            }
            found.insert(Arc::clone(&pod.name), chain);
        }
        found
    }

    /// Returns the target as an owner of ReplicaSets, if it is a Deployment from a list.
    async fn above_named(&self, namespace: &str, target: &Target) -> Option<Owner> {
        let Target { api_version, kind, name, .. } = target;
        let mapping = self.mapping(api_version, kind).await?;
        let object = self.listed.object(&mapping, namespace, name)?;
        (mapping.group_resource() == "deployments.apps").then(|| Owner {
            api_version: api_version.clone(),
            kind: kind.clone(),
            name: name.clone(),
            uid: object.uid,
            controller: Some(true),
        })
    }
}

/// Returns whether a pod's owner is the ReplicaSet that the Deployment of a name has created for the pod's template.
fn is_named_by(deployment: &str, owner: &Owner, pod: &Pod) -> bool {
    let hash = owner.name.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    owner.kind == "ReplicaSet" && hash.is_some() && pod.labels.value(TEMPLATE_HASH) == hash
}

/// The owners that have been read for the pods of one HPA.
struct Walk {
    /// The controller of each owner, by the owner's UID.
    above: BTreeMap<String, Option<Owner>>,
    /// The API versions and kinds of which an object could not be read. Other objects of these kinds are not requested.
    closed: BTreeSet<(String, String)>,
    /// The number of requests.
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
        let meta = match objects.mapping(&owner.api_version, &owner.kind).await {
            Some(mapping) => objects.meta(&mapping, namespace, &owner.name).await,
            None => None,
        };
        if meta.is_none() {
            self.closed.insert(kind);
        }
        // An object that was recreated under the same name is a different owner.
        let above = meta.filter(|meta| meta.uid == owner.uid).and_then(|meta| meta.controller());
        self.above.insert(owner.uid.clone(), above.clone());
        above
    }
}
