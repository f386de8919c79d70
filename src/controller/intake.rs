//! From the watches into the stores and the queue.

use std::borrow::Cow;
use std::sync::Arc;

use autoscaling::quantity::Quantity;

use super::Controller;
use crate::api::decode::{self, DecodeError, HpaObject, Text, WireContainer};
use crate::api::watch::{Deleted, Sink};
use crate::store::{Change, ContainerInput, HpaRecord, Key, PodInput, Pods};

/// Takes in HPAs: a new one and a changed spec are due at once, one that is gone is forgotten.
#[derive(Debug)]
pub struct HpaIntake {
    controller: Arc<Controller>,
}

impl HpaIntake {
    /// Feeds a controller.
    pub fn new(controller: Arc<Controller>) -> Self {
        Self { controller }
    }

    fn changed(&self, key: &Key, change: &Change) {
        let controller = &self.controller;
        match change {
            Change::New | Change::SpecChanged => controller.queue.add(key),
            Change::Recreated { old_uid } => {
                controller.histories.forget(old_uid);
                controller.overlap.release(key, &controller.pods);
                controller.queue.add(key);
            }
            Change::Deleted { uid } => {
                controller.histories.forget(uid);
                controller.forget_key(key);
            }
            Change::StatusOnly | Change::Unchanged => {}
        }
        controller.telemetry.hpas(controller.hpas.len());
    }
}

impl Sink<HpaObject> for HpaIntake {
    fn start(&mut self) {
        self.controller.hpas.begin();
    }

    fn apply(&mut self, object: HpaObject) {
        let key = Key::new(object.namespace, object.name);
        let record = HpaRecord {
            key: key.clone(),
            uid: object.uid.into(),
            generation: object.generation,
            resource_version: object.resource_version,
            metadata: object.metadata,
            spec_raw: object.spec_raw,
            spec: Arc::new(object.spec),
            status: Arc::new(object.status),
        };
        if let Some(change) = self.controller.hpas.apply(record) {
            self.changed(&key, &change);
        }
    }

    fn delete(&mut self, object: Deleted) {
        let key = Key::new(object.namespace, object.name);
        if let Some(record) = self.controller.hpas.delete(&key) {
            self.changed(&key, &Change::Deleted { uid: Arc::clone(&record.uid) });
        }
    }

    fn progress(&mut self, _resource_version: &str) {}

    fn done(&mut self, _resource_version: &str) {
        for (key, change) in self.controller.hpas.finish() {
            self.changed(&key, &change);
        }
        self.controller.telemetry.hpas(self.controller.hpas.len());
    }
}

/// Takes in pods: [`take_pod`] has put them into the store already, this tells the store of lists and deletions.
#[derive(Debug)]
pub struct PodIntake {
    pods: Arc<Pods>,
}

impl PodIntake {
    /// Feeds a store.
    pub fn new(pods: Arc<Pods>) -> Self {
        Self { pods }
    }
}

impl Sink<()> for PodIntake {
    fn start(&mut self) {
        self.pods.begin();
    }

    fn apply(&mut self, (): ()) {}

    fn delete(&mut self, object: Deleted) {
        self.pods.delete(&object.namespace, &object.name);
    }

    fn done(&mut self, _resource_version: &str) {
        self.pods.finish();
    }

    fn progress(&mut self, _resource_version: &str) {}
}

/// Decodes a pod straight into the store, so that no owned copy of it is ever made.
pub fn take_pod(pods: &Pods, object: &[u8]) -> Result<(), DecodeError> {
    let pod = decode::pod(object)?;
    let labels: Vec<_> = pod.labels.into_iter().map(|(key, value)| (key.0, value.0)).collect();
    let containers = requests_of(&pod.containers)?;
    let init_containers = requests_of(&pod.init_containers)?;
    let pod_level = quantities(&pod.requests)?;
    pods.apply(&PodInput {
        namespace: &pod.namespace,
        name: &pod.name,
        labels: &labels,
        terminating: pod.terminating,
        phase: pod.phase,
        start_time: pod.start_time,
        ready: pod.ready,
        containers: &inputs(&pod.containers, &containers),
        init_containers: &inputs(&pod.init_containers, &init_containers),
        pod_level: &pod_level,
    });
    Ok(())
}

type Requests<'a> = Vec<(Cow<'a, str>, Quantity)>;

fn requests_of<'a>(containers: &'a [WireContainer<'_>]) -> Result<Vec<Requests<'a>>, DecodeError> {
    containers.iter().map(|container| quantities(&container.requests)).collect()
}

fn quantities<'a>(requests: &'a [(Text<'_>, Text<'_>)]) -> Result<Requests<'a>, DecodeError> {
    let read = |(name, text): &'a (Text<'_>, Text<'_>)| {
        let quantity = text.parse::<Quantity>().map_err(|error| DecodeError::new(format!("request of {}: {error}", &**name)))?;
        Ok((Cow::Borrowed(&**name), quantity))
    };
    requests.iter().map(read).collect()
}

fn inputs<'a>(containers: &'a [WireContainer<'_>], requests: &'a [Requests<'a>]) -> Vec<ContainerInput<'a>> {
    let both = containers.iter().zip(requests);
    both.map(|(container, requests)| ContainerInput {
        name: &container.name,
        restartable: container.restartable,
        requests,
    })
    .collect()
}
