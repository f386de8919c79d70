//! What is read of the cluster by lists: HPAs, pods, events. It goes into the stores of a controller by the same way as
//! what a controller watches, and what a controller has no use for is kept beside.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::situation::{Owner, RecentEvent};
use super::wire::{self, Meta};
use super::{Scope, WhyError};
use crate::api::call::Call;
use crate::api::client::Clients;
use crate::api::decode::{self, DecodeError, HpaObject};
use crate::api::error::ApiError;
use crate::api::list::{self, Collection};
use crate::api::watch::Sink;
use crate::controller::{Controller, HpaIntake, PodIntake};
use crate::store::Key;

const GROUP: &str = "autoscaling";
const VERSION: &str = "v2";
const RESOURCE: &str = "horizontalpodautoscalers";

/// Fills the stores of a controller, which has no watches.
#[derive(Debug)]
pub(super) struct Lists {
    clients: Clients,
    hpas: HpaIntake,
    pods: PodIntake,
}

/// What was read beside.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// `metadata` of the HPAs.
    pub(super) hpas: BTreeMap<Key, Meta>,
    /// The managing controllers of the pods that have one.
    pub(super) pod_owners: BTreeMap<Key, Owner>,
    /// Events, each about the HPA of this UID, or of this key where it names no UID; oldest first.
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

    /// Reads everything anew. Pods and events that may not be read are as good as absent: the refusals know of them.
    pub(super) async fn read(&mut self, scope: &Scope) -> Result<Beside, WhyError> {
        let Self { clients, hpas, pods } = self;
        let (hpas, pod_owners, events) = futures::join!(
            read_hpas(clients, hpas, scope),
            read_pods(clients, pods, scope),
            read_events(clients, scope)
        );
        Ok(Beside { hpas: hpas?, pod_owners: pod_owners?, events })
    }
}

impl Beside {
    /// The events about an HPA.
    pub(super) fn events(&self, key: &Key, uid: &str) -> Vec<RecentEvent> {
        let about = self.events.get(key).into_iter().flatten();
        let about = about.filter(|(of, _)| of.is_empty() || of == uid);
        about.map(|(_, event)| event.clone()).collect()
    }
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
    let mut beside = BTreeMap::new();
    intake.start();
    let mut take = |object: &[u8]| -> Result<(), DecodeError> {
        let meta = wire::meta(object)?;
        let key = Key::new(meta.namespace.as_str(), meta.name.as_str());
        match decode::hpa(object) {
            Ok(object) => Sink::<HpaObject>::apply(intake, object),
            // One that nobody asked for takes nothing from the others.
            Err(error) if scope.name.as_deref() == Some(&*key.name) => return Err(error),
            Err(error) => tracing::warn!(hpa = %key, %error, "an HPA cannot be decoded and is skipped"),
        }
        beside.insert(key, meta);
        Ok(())
    };
    let listed = list::each(&clients.core, collection, &mut take).await;
    match (listed, &scope.namespace, &scope.name) {
        (Err(error), Some(namespace), Some(name)) if error.is_forbidden() => {
            // One may be readable where not all are.
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
    Ok(beside)
}

/// Reads the pods, and who owns them.
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
            Err(error) => tracing::warn!(%error, "a pod cannot be decoded and is skipped"),
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

/// Reads the events about HPAs. They only add to the story: what goes wrong is logged.
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
            Err(error) => tracing::warn!(%error, "an event cannot be decoded and is skipped"),
        }
        Ok(())
    });
    if let Err(error) = listed.await {
        tracing::debug!(%error, "events cannot be listed");
    }
    for events in events.values_mut() {
        events.sort_by_key(|(_, event)| (event.last, event.first));
        events.dedup();
    }
    events
}
