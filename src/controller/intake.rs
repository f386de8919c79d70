//! From the watches into the stores and the queue.

use std::sync::Arc;

use autoscaling::history::History;

use super::Controller;
use crate::api::decode::{HpaObject, Known, WireContainer, WirePod};
use crate::api::watch::{Deleted, KnownHpas, Sink};
use crate::store::{Change, ContainerInput, HpaRecord, Hpas, Key, PodInput, Pods, StatusWriter, Update};

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
        if let Some(update) = self.hpas.heal(&seen.uid, HpaRecord::from(object)) {
            self.changed(&update);
        }
    }

    fn changed(&self, update: &Update) {
        if let Some(new) = &update.new {
            let old = update.old.as_deref().filter(|old| old.uid == new.uid);
            for observer in &self.observers {
                observer.seen(old, new);
            }
            if matches!(update.change, Change::New | Change::Recreated { .. }) {
                self.take_past(new);
            }
        }
        let Some(key) = update.new.as_ref().or(update.old.as_ref()).map(|record| &record.key) else {
            return;
        };
        match &update.change {
            Change::New => {
                self.phases.add(key);
                self.queue.add(key);
            }
            Change::SpecChanged => self.queue.add(key),
            Change::Recreated { old_uid } => {
                self.forget(key, old_uid);
                self.overlap.release(key, &self.pods);
                self.queue.add(key);
            }
            Change::Deleted { uid } => {
                self.phases.remove(key);
                self.forget(key, uid);
                self.forget_key(key);
            }
            Change::StatusOnly | Change::Unchanged => {}
        }
        self.count();
    }

    /// How many HPAs there are, for who shows it and who writes as many statuses.
    fn count(&self) {
        let hpas = self.hpas.len();
        self.telemetry.hpas(hpas);
        self.statuses.expect(hpas);
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
            spec: object.spec,
            status: object.status,
            status_writers: object.status_writers.into_iter().map(StatusWriter::from).collect(),
        }
    }
}

impl Sink<HpaObject> for HpaIntake {
    fn start(&mut self) {
        self.controller.hpas.begin(self.namespace.as_deref());
    }

    fn apply(&mut self, object: HpaObject) {
        if let Some(update) = self.controller.hpas.apply(HpaRecord::from(object)) {
            self.controller.changed(&update);
        }
    }

    fn delete(&mut self, object: Deleted) {
        let key = Key::new(object.namespace, object.name);
        if let Some(record) = self.controller.hpas.delete(&key, &object.uid) {
            let change = Change::Deleted { uid: Arc::clone(&record.uid) };
            self.controller.changed(&Update { change, old: Some(record), new: None });
        }
    }

    fn done(&mut self) {
        for update in self.controller.hpas.finish(self.namespace.as_deref()) {
            self.controller.changed(&update);
        }
        self.controller.count();
    }
}

impl KnownHpas for Hpas {
    fn known(&self, namespace: &str, name: &str) -> Option<Known> {
        let (record, status) = self.known(&Key::new(namespace, name))?;
        Some(Known { spec_raw: Arc::clone(&record.spec_raw), spec: Arc::clone(&record.spec), status })
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
