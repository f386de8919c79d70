//! From the watches into the stores and the queue.

use std::sync::Arc;

use autoscaling::history::History;

use super::Controller;
use crate::api::decode::{HpaObject, WireContainer, WirePod};
use crate::api::watch::{Deleted, Sink};
use crate::store::{Change, ContainerInput, HpaRecord, Key, PodInput, Pods, StatusWriter};

/// Takes in HPAs: a new one and a changed spec are due at once, one that is gone is forgotten.
#[derive(Debug)]
pub struct HpaIntake {
    controller: Arc<Controller>,
    namespace: Option<Arc<str>>,
}

impl HpaIntake {
    /// Feeds a controller with the HPAs of a namespace, or of all: that is what its lists are taken to be of.
    pub fn new(controller: Arc<Controller>, namespace: Option<Arc<str>>) -> Self {
        Self { controller, namespace }
    }
}

impl Controller {
    /// Takes in an HPA that was read to learn why its status could not be written, if it is newer than what the watch has
    /// shown: an event that was lost, or is late, heals itself.
    pub(super) fn heal(&self, seen: &HpaRecord, object: HpaObject) {
        let record = HpaRecord::from(object);
        let key = record.key.clone();
        if let Some(change) = self.hpas.heal(&seen.uid, record) {
            self.changed(&key, &change, Some(seen));
        }
    }

    fn changed(&self, key: &Key, change: &Change, old: Option<&HpaRecord>) {
        if let Some(new) = self.hpas.get(key) {
            let old = old.filter(|old| old.uid == new.uid);
            for observer in &self.observers {
                observer.seen(old, &new);
            }
            if matches!(change, Change::New | Change::Recreated { .. }) {
                self.take_past(&new);
            }
        }
        match change {
            Change::New | Change::SpecChanged => self.queue.add(key),
            Change::Recreated { old_uid } => {
                self.forget(key, old_uid);
                self.overlap.release(key, &self.pods);
                self.queue.add(key);
            }
            Change::Deleted { uid } => {
                self.forget(key, uid);
                self.forget_key(key);
            }
            Change::StatusOnly | Change::Unchanged => {}
        }
        self.telemetry.hpas(self.hpas.len());
    }

    /// An HPA that is seen for the first time when this process leads already, and yet was scaled before: a list may have
    /// lacked it. By how much is not known, so its rates count as used up at that time. One that is created has no past.
    fn take_past(&self, new: &HpaRecord) {
        if self.histories.has_past() && new.spec.behavior.is_some() && new.status.last_scale_time.is_some() {
            let history = History::rebuilt(&new.status, &[], self.period, self.clock.now());
            self.histories.inherit(&new.uid, history);
        }
    }
}

impl From<HpaObject> for HpaRecord {
    fn from(object: HpaObject) -> Self {
        Self {
            key: Key::new(object.namespace, object.name),
            uid: object.uid.into(),
            generation: object.generation,
            resource_version: object.resource_version,
            metadata: object.metadata,
            spec_raw: object.spec_raw,
            spec: Arc::new(object.spec),
            status: Arc::new(object.status),
            status_writers: object.status_writers.into_iter().map(StatusWriter::from).collect(),
        }
    }
}

impl Sink<HpaObject> for HpaIntake {
    fn start(&mut self) {
        self.controller.hpas.begin(self.namespace.as_deref());
    }

    fn apply(&mut self, object: HpaObject) {
        let record = HpaRecord::from(object);
        let key = record.key.clone();
        let old = self.controller.hpas.get(&key);
        if let Some(change) = self.controller.hpas.apply(record) {
            self.controller.changed(&key, &change, old.as_deref());
        }
    }

    fn delete(&mut self, object: Deleted) {
        let key = Key::new(object.namespace, object.name);
        if let Some(record) = self.controller.hpas.delete(&key, &object.uid) {
            self.controller.changed(&key, &Change::Deleted { uid: Arc::clone(&record.uid) }, None);
        }
    }

    fn done(&mut self) {
        let before = self.controller.hpas.all();
        for (key, change) in self.controller.hpas.finish(self.namespace.as_deref()) {
            self.controller.changed(&key, &change, before.get(&key).map(AsRef::as_ref));
        }
        self.controller.telemetry.hpas(self.controller.hpas.len());
    }
}

/// Takes in pods: from the wire bytes straight into the store, no owned copy in between.
#[derive(Debug)]
pub struct PodIntake {
    pods: Arc<Pods>,
    namespace: Option<Arc<str>>,
}

impl PodIntake {
    /// Feeds a store with the pods of a namespace, or of all: that is what its lists are taken to be of.
    pub fn new(pods: Arc<Pods>, namespace: Option<Arc<str>>) -> Self {
        Self { pods, namespace }
    }
}

impl Sink<WirePod<'_>> for PodIntake {
    fn start(&mut self) {
        self.pods.begin(self.namespace.as_deref());
    }

    fn apply(&mut self, pod: WirePod<'_>) {
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

    fn delete(&mut self, object: Deleted) {
        self.pods.delete(&object.namespace, &object.name);
    }

    fn done(&mut self) {
        self.pods.finish(self.namespace.as_deref());
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
