//! The kubelets, which pull images and start, probe, restart and stop containers.

use serde_json::Value;

use super::model::{Failure, ImagePull, Seed, WorkloadModel};
use super::pod_lifecycle::PodLifecycle;
use super::pod_state::{Id, PodPhase};
use super::pods::{name, namespace, set, status, uid};
use super::replicas::model_key;
use super::{Pass, RETRY};
use crate::object::{list, text};

impl Pass<'_> {
    /// Reconciles one pod: starts it, advances its life cycle, or deletes it.
    pub(super) fn sync_pod(&mut self, id: Id) {
        let cache = &mut self.state.cache;
        let is_unstarted = cache.pods.get(&id).is_some_and(|pod| cache.is_unstarted(pod));
        let Some(pod) = cache.pods.get_mut(&id) else { return };
        if pod.phase == PodPhase::Terminating {
            let removal_at = pod.removal_at.unwrap_or_else(|| self.now.at.saturating_add(pod.grace));
            pod.removal_at = Some(removal_at);
            if removal_at > self.now.at {
                self.state.cache.schedule_pod(id, Some(removal_at));
            } else {
                // The pod may already be deleted.
                let _ = self.cluster.delete_now("pods", pod.stored.namespace(), pod.stored.name());
            }
            return;
        }
        let Some(lifecycle) = &mut pod.lifecycle else {
            if is_unstarted {
                let object = pod.stored.value();
                self.start(id, &object);
            }
            return;
        };
        let needs_write = lifecycle.advance(self.now.at) || pod.has_unwritten_status;
        let next = lifecycle.due();
        let object = needs_write.then(|| pod.stored.value());
        self.state.cache.schedule_pod(id, next);
        if let Some(object) = object {
            self.write_status(id, object);
        }
    }

    /// Starts the life cycle of a pod on its node.
    fn start(&mut self, id: Id, object: &Value) {
        let Some(owner) = self.state.cache.pods.get(&id).map(|pod| pod.owner) else { return };
        let owner = owner.and_then(|id| self.state.cache.owners.get(&id));
        let parent = owner.and_then(|owner| self.state.cache.owners.get(&owner.parent?));
        let key = owner.map(|owner| model_key(&owner.object, parent.map(|parent| &*parent.object)));
        let key = key.unwrap_or_else(|| (namespace(object).to_owned(), name(object).to_owned()));
        let model = self.state.models.get(&key).cloned().unwrap_or_default();
        let seed = self.state.seed.for_name(&key.0).for_name(&key.1);
        let ordinal = self.state.ordinals.entry(key).or_default();
        let seed = seed.nth(*ordinal);
        *ordinal += 1;
        let lifecycle = self.lifecycle(&model, seed, object);
        let next = lifecycle.due();
        if let Some(pod) = self.state.cache.pods.get_mut(&id) {
            (pod.lifecycle, pod.grace) = (Some(lifecycle), model.grace);
        }
        self.state.cache.schedule_pod(id, next);
        self.write_status(id, object.clone());
    }

    fn lifecycle(&mut self, model: &WorkloadModel, seed: Seed, pod: &Value) -> PodLifecycle {
        let now = self.now.at;
        let node = text(pod, &["spec", "nodeName"]);
        let image = list(pod, &["spec", "containers"]).first().map_or("", |first| text(first, &["image"]));
        let slow = model.failures.iter().find_map(|failure| match failure {
            Failure::SlowPull { created, pull: wait } | Failure::Unschedulable { created, wait }
                if created.contains(now) =>
            {
                Some(wait)
            }
            _ => None,
        });
        let (pull, each) = match (slow, &model.image_pull) {
            _ if self.state.is_warming_up => (None, false),
            (Some(pull), _) | (None, ImagePull::EveryPod(pull)) => (Some(pull), true),
            (None, ImagePull::FirstOnNode(pull)) => (Some(pull), false),
            (None, ImagePull::None) => (None, true),
        };
        let draw = || pull.map(|pull| pull.draw(seed.for_name("pull"))).unwrap_or_default();
        let image_at = if each {
            now.saturating_add(draw())
        } else {
            let key = (node.to_owned(), image.to_owned());
            *self.state.images.entry(key).or_insert_with(|| now.saturating_add(draw()))
        };
        if self.state.is_warming_up {
            PodLifecycle::warm(model, seed, now)
        } else {
            PodLifecycle::new(model, seed, now, image_at)
        }
    }

    fn write_status(&mut self, id: Id, mut object: Value) {
        let Some(pod) = self.state.cache.pods.get_mut(&id) else { return };
        let Some(lifecycle) = &pod.lifecycle else { return };
        let status = status(&object, lifecycle, id, self.now);
        set(&mut object, &["status"], status);
        let uid = uid(&object).to_owned();
        pod.has_unwritten_status = false;
        if self.cluster.update_status(object).is_err() {
            // Another client has changed or deleted the pod. The feed contains the change.
            self.state.cache.update(self.now.at);
            if let Some(pod) = self.state.cache.id(&uid).and_then(|id| self.state.cache.pods.get_mut(&id)) {
                pod.has_unwritten_status = true;
                let retry = self.now.at.saturating_add(RETRY);
                let due =
                    pod.lifecycle.as_ref().and_then(PodLifecycle::due).map_or(retry, |due| due.min(retry));
                self.state.cache.schedule_pod(id, Some(due));
            }
        }
    }
}
