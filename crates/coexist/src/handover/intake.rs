//! Applies the HPAs from the watch to a controller with `--scope=labelled`.

use std::collections::BTreeSet;
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;

use super::charges::{Charges, Placement};
use super::machine::State;
use super::moves::Moves;
use cluster::decode::HpaObject;
use cluster::watch::{DeletedObject, Sink};
use engine::reconcile::{Controller, Scope};
use engine::store::{Change, HpaRecord, Key};
use engine::telemetry::metrics::Metrics as Telemetry;

/// Applies HPAs in scope like [`HpaIntake`](engine::reconcile::HpaIntake), and moves HPAs in and out of scope.
#[derive(Debug)]
pub struct ScopedIntake {
    controller: Arc<Controller>,
    charges: Arc<Charges>,
    namespace: Option<Arc<str>>,
    /// HPAs out of scope in the list in progress. `None` between lists.
    outside: Option<BTreeSet<Key>>,
}

impl ScopedIntake {
    /// Creates the intake for the HPAs of one namespace, or of all namespaces with `None`. The watch must cover the
    /// same namespaces.
    pub fn new(controller: Arc<Controller>, charges: Arc<Charges>, namespace: Option<Arc<str>>) -> Self {
        Self { controller, charges, namespace, outside: None }
    }
}

impl Sink<HpaObject> for ScopedIntake {
    fn start(&mut self) {
        self.controller.stores.hpas.begin(self.namespace.as_deref());
        self.outside = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: HpaObject) {
        let controller = &self.controller;
        let record = HpaRecord::from(object);
        let _moving = self.charges.moving();
        let moves = Moves { controller, charges: &self.charges };
        let placement = moves.sort(&record, self.outside.is_some());
        let Placement::Store { is_new } = placement else {
            if let Some(outside) = &mut self.outside {
                outside.insert(record.key);
            }
            return;
        };
        let key = is_new.then(|| record.key.clone());
        if let Some(update) = controller.stores.hpas.apply(record) {
            controller.changed(&update);
            if let Some(key) = key {
                controller.runtime.queue.add(&key);
            }
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        let key = Key::new(object.namespace, object.name);
        let _moving = self.charges.moving();
        self.charges.delete(&key, &object.uid);
        if let Some(outside) = &mut self.outside {
            outside.remove(&key);
        }
        self.controller.deleted(&key, &object.uid);
    }

    fn done(&mut self) {
        let _moving = self.charges.moving();
        let moves = Moves { controller: &self.controller, charges: &self.charges };
        for update in self.controller.listed(self.namespace.as_deref()) {
            if let (Change::Deleted { uid }, Some(old)) = (&update.change, &update.old) {
                if self.charges.is_outside(&old.key) {
                    moves.left_scope(&old.key, &update);
                    continue;
                }
                self.charges.delete(&old.key, uid);
            }
            self.controller.changed(&update);
        }
        if let Some(outside) = self.outside.take() {
            self.charges.retain_outside(self.namespace.as_deref(), &outside);
            moves.claim_neighbours(None);
        }
        self.controller.count();
    }
}

impl Scope for Charges {
    fn refresh(&self, controller: &Controller, hpa: HpaRecord, apply: &dyn Fn(HpaRecord)) {
        let _moving = self.moving();
        let is_stored = controller.stores.hpas.get(&hpa.key).is_some_and(|stored| stored.uid == hpa.uid);
        let moves = Moves { controller, charges: self };
        if is_stored && moves.sort(&hpa, false) != Placement::Outside {
            apply(hpa);
        }
    }

    fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference> {
        Self::neighbour(self, key)
    }

    fn state(&self, key: &Key) -> Option<&'static str> {
        Self::state(self, key).map(State::as_str)
    }

    fn publish(&self, telemetry: &Telemetry) {
        telemetry.handover(self.counts().by_state(), self.last_proof());
    }
}
