//! Applies the objects from the watches to the stores and the queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use autoscaling::history::History;

use super::Controller;
use crate::store::{
    Addresses, Change, ContainerInput, HpaRecord, Hpas, Key, PodInput, Pods, StatusWriter, Update,
};
use cluster::decode::{CachedHpa, HpaObject, WireContainer, WirePod};
use cluster::watch::{DeletedObject, HpaCache, Sink};

/// Applies HPAs. New HPAs and HPAs with a changed spec are due at once. Deleted HPAs are dropped.
#[derive(Debug)]
pub struct HpaIntake {
    controller: Arc<Controller>,
    namespace: Option<Arc<str>>,
}

impl HpaIntake {
    /// Creates the intake for the HPAs of one namespace, or of all namespaces with `None`. The watch must cover the
    /// same namespaces.
    pub fn new(controller: Arc<Controller>, namespace: Option<Arc<str>>) -> Self {
        Self { controller, namespace }
    }
}

impl Controller {
    /// Applies an HPA that was read after a failed status write, or after a write that the watch has not delivered. The
    /// read replaces lost and late events, and detects writes that the server has lost.
    pub(super) fn apply_fresh(&self, stale: &HpaRecord, object: HpaObject) {
        self.guests.scope.refresh(self, HpaRecord::from(object), &|record| {
            let Some(update) = self.stores.hpas.apply_fresh(&stale.uid, record) else { return };
            if update.lost_write {
                tracing::warn!(
                    hpa = %stale.key,
                    "the API server has lost the last status write, as after a restore of etcd; replacing the \
                     cached HPA with the one from the API server"
                );
            }
            self.changed(&update);
        });
    }

    /// Applies the deletion of an HPA.
    pub fn deleted(&self, key: &Key, uid: &str) {
        if let Some(record) = self.stores.hpas.delete(key, uid) {
            let change = Change::Deleted { uid: Arc::clone(&record.uid) };
            self.changed(&Update { change, old: Some(record), new: None, lost_write: false });
        }
    }

    /// Ends a list. Returns its updates.
    pub fn listed(&self, namespace: Option<&str>) -> Vec<Update> {
        let updates = self.stores.hpas.finish(namespace);
        let lost = updates.iter().filter(|update| update.lost_write).count();
        if lost > 0 {
            tracing::warn!(
                hpas = lost,
                "the API server has lost status writes, as after a restore of etcd; replacing the cached HPAs with \
                 those from the API server"
            );
        }
        updates
    }

    /// Reacts to an update of the store.
    pub fn changed(&self, update: &Update) {
        if let Some(new) = &update.new {
            let old = update.old.as_deref().filter(|old| old.uid == new.uid);
            for observer in &self.guests.observers {
                observer.seen(old, new);
            }
            if matches!(update.change, Change::New | Change::Recreated { .. }) {
                self.inherit_last_rescale(new);
            }
        }
        let Some(key) = update.new.as_ref().or(update.old.as_ref()).map(|record| &record.key) else {
            return;
        };
        let has_new_rules =
            update.new.as_deref().is_some_and(|new| self.guests.rules.seen(new, &update.change));
        match &update.change {
            Change::StatusOnly if has_new_rules => self.runtime.queue.add_changed(key),
            Change::New => {
                self.runtime.phases.add(key);
                self.runtime.queue.add_changed(key);
                // At the start, the slots depend on HPAs that are not known yet.
                if self.runtime.queue.has_begun() {
                    self.add_at_slot(key);
                }
            }
            Change::SpecChanged => self.runtime.queue.add_changed(key),
            Change::Recreated { old_uid } => {
                self.forget(key, old_uid);
                self.stores.overlap.release(key, &self.stores.pods);
                self.runtime.queue.add_changed(key);
            }
            Change::Deleted { uid } => {
                self.runtime.phases.remove(key);
                self.forget(key, uid);
                self.forget_key(key);
            }
            Change::StatusOnly | Change::Unchanged => {}
        }
        self.count();
    }

    /// Publishes the number of HPAs to metrics and to the rate limit of status writes.
    pub fn count(&self) {
        let hpas = self.stores.hpas.len();
        self.telemetry.hpas(hpas);
        self.clients.statuses.expect(hpas);
    }

    /// Derives a history for an HPA with `behavior` that was scaled before and appears after the restore of histories
    /// has started. The size of its last rescale is unknown, so its rates count as used up at that time. A new HPA has
    /// no `lastScaleTime`.
    fn inherit_last_rescale(&self, new: &HpaRecord) {
        if self.stores.histories.has_past()
            && new.spec.behavior.is_some()
            && new.status.last_scale_time.is_some()
        {
            let history = History::rebuilt(&new.status, &[], self.period, self.clock.now());
            self.stores.histories.inherit(&new.uid, history);
        }
    }
}

impl From<HpaObject> for HpaRecord {
    fn from(object: HpaObject) -> Self {
        let mut status_writers: Vec<_> = object.status_writers.into_iter().map(StatusWriter::from).collect();
        // The list reuses the space of the decoded one, which has room for four writers.
        status_writers.shrink_to_fit();
        Self {
            key: Key::new(object.namespace, object.name),
            uid: object.uid.into(),
            generation: object.generation,
            resource_version: object.resource_version,
            metadata: object.metadata,
            spec_raw: object.spec_raw,
            spec: object.spec,
            status: object.status,
            status_writers,
        }
    }
}

impl Sink<HpaObject> for HpaIntake {
    fn start(&mut self) {
        self.controller.stores.hpas.begin(self.namespace.as_deref());
    }

    fn apply(&mut self, object: HpaObject) {
        if let Some(update) = self.controller.stores.hpas.apply(HpaRecord::from(object)) {
            self.controller.changed(&update);
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        self.controller.deleted(&Key::new(object.namespace, object.name), &object.uid);
    }

    fn done(&mut self) {
        for update in self.controller.listed(self.namespace.as_deref()) {
            self.controller.changed(&update);
        }
        self.controller.count();
    }
}

impl HpaCache for Hpas {
    fn known(&self, namespace: &str, name: &str) -> Option<CachedHpa> {
        let (record, status) = self.known(&Key::new(namespace, name))?;
        Some(CachedHpa { spec_raw: Arc::clone(&record.spec_raw), spec: Arc::clone(&record.spec), status })
    }
}

/// Applies pods from the wire bytes to the store, without an owned copy in between.
#[derive(Debug)]
pub struct PodIntake {
    pods: Arc<Pods>,
    namespace: Option<Arc<str>>,
    addresses: Option<Arc<Addresses>>,
    /// The pods of the list in progress, if their addresses are kept.
    listed: Option<BTreeSet<(Arc<str>, Arc<str>)>>,
}

impl PodIntake {
    /// Creates the intake for the pods of one namespace, or of all namespaces with `None`. The watch must cover the
    /// same namespaces.
    pub fn new(pods: Arc<Pods>, namespace: Option<Arc<str>>) -> Self {
        Self { pods, namespace, addresses: None, listed: None }
    }

    /// Also applies the pods to `addresses`, if given.
    #[must_use]
    pub fn with_addresses(self, addresses: Option<Arc<Addresses>>) -> Self {
        Self { addresses, ..self }
    }
}

impl Sink<WirePod<'_>> for PodIntake {
    fn start(&mut self) {
        self.pods.begin(self.namespace.as_deref());
        self.listed = self.addresses.as_ref().map(|_| BTreeSet::new());
    }

    fn apply(&mut self, pod: WirePod<'_>) {
        if let Some(addresses) = &self.addresses {
            addresses.apply(&pod);
            if let Some(listed) = &mut self.listed {
                listed.insert(((&*pod.namespace).into(), (&*pod.name).into()));
            }
        }
        self.pods.apply(&PodInput {
            namespace: &pod.namespace,
            name: &pod.name,
            labels: &pod.labels,
            terminating: pod.terminating,
            phase: pod.phase,
            start_time: pod.start_time,
            ready: pod.ready,
            containers: &inputs(&pod.containers),
            init_containers: &inputs(&pod.init_containers),
            pod_level: &pod.requests,
        });
    }

    fn delete(&mut self, object: DeletedObject) {
        self.pods.delete(&object.namespace, &object.name);
        if let Some(addresses) = &self.addresses {
            addresses.delete(&object.namespace, &object.name);
        }
    }

    fn done(&mut self) {
        self.pods.finish(self.namespace.as_deref());
        if let (Some(addresses), Some(listed)) = (&self.addresses, self.listed.take()) {
            addresses.retain(self.namespace.as_deref(), &listed);
        }
    }
}

fn inputs<'a>(containers: &'a [WireContainer<'_>]) -> Vec<ContainerInput<'a>> {
    let inputs = containers.iter().map(|container| ContainerInput {
        name: &container.name,
        restartable: container.restartable,
        requests: &container.requests,
    });
    inputs.collect()
}
