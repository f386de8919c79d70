//! The kubelets: pods pull their image, start, become ready, fail, and end.

use serde_json::Value;

use super::life::Life;
use super::model::{Failure, ImagePull, WorkloadModel};
use super::objects::{name, namespace, set, uid};
use super::pods::status;
use super::records::{Id, Standing};
use super::replicas::model_key;
use super::seed::Seed;
use super::{Pass, RETRY};
use crate::embedded::object::{list, text};

impl Pass<'_> {
    /// Looks after one pod: begins its life, moves it on, or lets the pod go.
    pub(super) fn tend(&mut self, id: Id) {
        let Some(pod) = self.state.book.pods.get_mut(&id) else { return };
        if pod.standing == Standing::Ending {
            let gone_at = pod.gone_at.unwrap_or_else(|| self.now.at.saturating_add(pod.grace));
            pod.gone_at = Some(gone_at);
            if gone_at > self.now.at {
                self.state.book.wake_pod(id, Some(gone_at));
            } else {
                // Gone already is as good.
                let _ = self.cluster.delete_now("pods", pod.stored.namespace(), pod.stored.name());
            }
            return;
        }
        let Some(life) = &mut pod.life else {
            if pod.standing == Standing::Pending {
                let object = pod.stored.value();
                self.start(id, &object);
            }
            return;
        };
        let is_to_write = life.advance(self.now.at) || pod.is_unwritten;
        let next = life.due();
        let object = is_to_write.then(|| pod.stored.value());
        self.state.book.wake_pod(id, next);
        if let Some(object) = object {
            self.write_status(id, object);
        }
    }

    /// Begins the life of a pod on its node.
    fn start(&mut self, id: Id, object: &Value) {
        let Some(owner) = self.state.book.pods.get(&id).map(|pod| pod.owner) else { return };
        let owner = owner.and_then(|id| self.state.book.owners.get(&id));
        let parent = owner.and_then(|owner| self.state.book.owners.get(&owner.parent?));
        let key = owner.map(|owner| model_key(&owner.object, parent.map(|parent| &*parent.object)));
        let key = key.unwrap_or_else(|| (namespace(object).to_owned(), name(object).to_owned()));
        let model = self.state.models.get(&key).cloned().unwrap_or_default();
        let seed = self.state.seed.of(&key.0).of(&key.1);
        let ordinal = self.state.ordinals.entry(key).or_default();
        let seed = seed.nth(*ordinal);
        *ordinal += 1;
        let life = self.life(&model, seed, object);
        let next = life.due();
        if let Some(pod) = self.state.book.pods.get_mut(&id) {
            (pod.life, pod.grace) = (Some(life), model.grace);
        }
        self.state.book.wake_pod(id, next);
        self.write_status(id, object.clone());
    }

    fn life(&mut self, model: &WorkloadModel, seed: Seed, pod: &Value) -> Life {
        let now = self.now.at;
        let node = text(pod, &["spec", "nodeName"]);
        let image = list(pod, &["spec", "containers"]).first().map_or("", |first| text(first, &["image"]));
        let slow = model.failures.iter().find_map(|failure| match failure {
            Failure::SlowPull { created, pull } if created.contains(now) => Some(pull),
            _ => None,
        });
        let (pull, each) = match (slow, &model.image_pull) {
            _ if self.state.is_warming_up => (None, false),
            (Some(pull), _) | (None, ImagePull::EveryPod(pull)) => (Some(pull), true),
            (None, ImagePull::FirstOnNode(pull)) => (Some(pull), false),
            (None, ImagePull::None) => (None, true),
        };
        let draw = || pull.map(|pull| pull.draw(seed.of("pull"))).unwrap_or_default();
        let there_at = if each {
            now.saturating_add(draw())
        } else {
            self.state.images.there_at(node, image, now, draw)
        };
        if self.state.is_warming_up {
            Life::warm(model, seed, now)
        } else {
            Life::new(model, seed, now, there_at)
        }
    }

    fn write_status(&mut self, id: Id, mut object: Value) {
        let Some(pod) = self.state.book.pods.get_mut(&id) else { return };
        let Some(life) = &pod.life else { return };
        let status = status(&object, life, id, self.now);
        set(&mut object, &["status"], status);
        let uid = uid(&object).to_owned();
        pod.is_unwritten = false;
        if self.cluster.update_status(object).is_err() {
            // Changed meanwhile, which is on its way here, or gone.
            self.state.book.update(self.now.at);
            if let Some(pod) = self.state.book.id(&uid).and_then(|id| self.state.book.pods.get_mut(&id)) {
                pod.is_unwritten = true;
                let retry = self.now.at.saturating_add(RETRY);
                let due = pod.life.as_ref().and_then(Life::due).map_or(retry, |due| due.min(retry));
                self.state.book.wake_pod(id, Some(due));
            }
        }
    }
}
