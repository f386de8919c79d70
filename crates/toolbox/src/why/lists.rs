//! Lists the HPAs, pods and events of the cluster. HPAs and pods fill the stores of a controller through its
//! intakes, like objects from a watch. [`ExtraMetadata`] contains the metadata that a controller does not
//! store.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::selector::Selector;

use super::situation::{InCharge, Owner, RecentEvent};
use super::wire::{self, Meta};
use super::{Scope, WhyError};
use crate::handover::census;
use cluster::call::Call;
use cluster::client::Clients;
use cluster::decode::{self, DecodeError, HpaObject};
use cluster::error::ApiError;
use cluster::list::{self, Collection};
use cluster::watch::Sink;
use controller::handover::scope::LABEL;
use controller::reconcile::{Controller, HpaIntake, PodIntake};
use controller::store::Key;

const GROUP: &str = "autoscaling";
const VERSION: &str = "v2";
const RESOURCE: &str = "horizontalpodautoscalers";

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
    /// The value of the label of the controller in charge, by namespace. Empty if unreadable.
    namespace_labels: BTreeMap<String, String>,
    /// The managing controllers of pods.
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
            pods: PodIntake::new(Arc::clone(&controller.pods), None),
        }
    }

    /// Reads everything again. Forbidden pods and events count as absent, and the observer of the clients collects the
    /// refused reads.
    pub(super) async fn read(&mut self, scope: &Scope) -> Result<ExtraMetadata, WhyError> {
        let Self { clients, hpas, pods } = self;
        // A refused read of namespaces does not affect the decision, so this client has no observer.
        let unobserved = clients.core.unobserved();
        let (hpas, pod_owners, events, namespace_labels) = futures::join!(
            read_hpas(clients, hpas, scope),
            read_pods(clients, pods, scope),
            read_events(clients, scope),
            census::labels(&unobserved, scope.namespace.as_deref())
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

    /// Returns whether the labels of an HPA match.
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
    let listed = list::each(&clients.core, collection, |object| {
        names.push(wire::meta(object)?.name);
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
        let meta = wire::meta(object)?;
        let key = Key::new(meta.namespace.as_str(), meta.name.as_str());
        match decode::hpa(object) {
            Ok(object) => Sink::<HpaObject>::apply(intake, object),
            // An invalid HPA that was not requested does not affect the others.
            Err(error) if scope.name.as_deref() == Some(&*key.name) => return Err(error),
            Err(error) => tracing::warn!(hpa = %key, %error, "failed to decode an HPA, skipping it"),
        }
        extras.insert(key, meta);
        Ok(())
    };
    let listed = list::each(&clients.core, collection, &mut take).await;
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

/// Reads the pods and their owners.
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
    let listed = list::each(&clients.core, collection, |object| {
        match decode::pod(object).and_then(|pod| Ok((pod, wire::meta(object)?))) {
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
    let listed = list::each(&clients.core, collection, |object| {
        match wire::event(object) {
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
