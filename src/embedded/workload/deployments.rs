//! The deployment controller: one ReplicaSet for each pod template that a Deployment has had.

use std::time::Duration;

use serde_json::{Value, json};

use super::book::Book;
use super::objects::{name, namespace, owned_by, set, uid};
use super::records::{Id, Owner};
use super::rollout::{self, Set, Strategy, Wish};
use super::{Pass, RETRY};
use crate::embedded::object::{at, int, text};

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// How many ReplicaSets of old templates are kept, unless the Deployment says otherwise.
const HISTORY: i64 = 10;

/// How a Deployment wants its pods.
pub(super) fn wish(deployment: &Owner) -> Wish {
    let replicas = i64::try_from(deployment.wanted).unwrap_or(i64::MAX);
    let object = &deployment.object;
    let strategy = if text(object, &["spec", "strategy", "type"]) == "Recreate" {
        Strategy::Recreate
    } else {
        let part = |field: &str, rounding: fn(i64, i64) -> i64| {
            let given = at(object, &["spec", "strategy", "rollingUpdate", field]);
            given.map_or_else(|| rounding(25, replicas), |given| part_of(given, replicas, rounding))
        };
        let (surge, unavailable) = (part("maxSurge", rounded_up), part("maxUnavailable", rounded_down));
        // Both zero would let no rollout begin: then one may be missing.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Strategy::RollingUpdate { surge, unavailable: unavailable.min(replicas) }
    };
    Wish { replicas, strategy, is_paused: at(object, &["spec", "paused"]) == Some(&Value::Bool(true)) }
}

/// A count, or a percentage of the replicas.
fn part_of(given: &Value, replicas: i64, rounding: fn(i64, i64) -> i64) -> i64 {
    match given {
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            percent.map_or(0, |percent: i64| rounding(percent.clamp(0, 10_000), replicas))
        }
        given => given.as_i64().unwrap_or(0).max(0),
    }
}

fn rounded_up(percent: i64, replicas: i64) -> i64 {
    percent.saturating_mul(replicas).saturating_add(99) / 100
}

fn rounded_down(percent: i64, replicas: i64) -> i64 {
    percent.saturating_mul(replicas) / 100
}

/// What is to be done about a Deployment.
struct Plan {
    wish: Wish,
    /// The set of the present template that has to be made.
    missing: Option<Value>,
    /// What size each set is to have.
    sizes: Vec<(Id, i64)>,
    /// Empty sets of old templates, beyond those that are kept: namespace and name.
    forgotten: Vec<(String, String)>,
}

impl Plan {
    fn of(book: &Book, deployment: &Owner, now: Duration) -> Self {
        let sets: Vec<_> =
            deployment.sets.iter().filter_map(|id| Some((*id, book.owners.get(id)?))).collect();
        let wish = wish(deployment);
        let figures = |set: &Owner| {
            let available = whole(book.count(set, now).available);
            Set { size: whole(set.wanted), available, pods: whole(set.pods.len()), sized_for: set.sized_for }
        };
        let new = sets.iter().find(|(_, set)| set.hash == deployment.hash);
        let old: Vec<_> = sets.iter().filter(|(_, set)| set.hash != deployment.hash).collect();
        let old_figures: Vec<_> = old.iter().map(|(_, set)| figures(set)).collect();
        let step = rollout::step(&wish, new.map(|(_, set)| figures(set)), &old_figures);

        let missing = step.new.filter(|_| new.is_none());
        let missing = missing.map(|size| replica_set_of(&deployment.object, &deployment.hash, size));
        let new_size = new.map(|(id, _)| *id).into_iter().zip(step.new);
        let sizes = new_size.chain(old.iter().map(|(id, _)| *id).zip(step.old)).collect();
        let kept = int(&deployment.object, &["spec", "revisionHistoryLimit"]).unwrap_or(HISTORY);
        let empty: Vec<_> = old.iter().filter(|(_, set)| set.wanted == 0 && set.pods.is_empty()).collect();
        let too_many = empty.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
        let path = |set: &Owner| (namespace(&set.object).to_owned(), name(&set.object).to_owned());
        let forgotten = empty.iter().take(too_many).map(|(_, set)| path(set)).collect();
        Self { wish, missing, sizes, forgotten }
    }
}

impl Pass<'_> {
    /// One step of a Deployment; whether anything was to be done.
    pub(super) fn roll_out(&mut self, id: Id) -> bool {
        let Some(deployment) = self.state.book.owners.get(&id) else { return false };
        let plan = Plan::of(&self.state.book, deployment, self.now.at);
        for (namespace, name) in &plan.forgotten {
            // Gone already is as good.
            let _ = self.cluster.delete("apps/replicasets", namespace, name);
        }
        let is_made = plan.missing.is_some_and(|set| self.create_set(set, &plan.wish));
        plan.sizes.into_iter().fold(is_made, |any, (id, size)| self.resize(id, size, &plan.wish) || any)
    }

    fn create_set(&mut self, set: Value, wish: &Wish) -> bool {
        // A conflict of names means that somebody else owns the name: nothing that could be mended here.
        let Ok(created) = self.cluster.create(set) else { return false };
        self.state.book.update(self.now.at);
        let id = self.state.book.id(uid(&created));
        if let Some(set) = id.and_then(|id| self.state.book.owners.get_mut(&id)) {
            set.sized_for = Some((wish.replicas, wish.most()));
        }
        true
    }

    /// Gives a set its size; whether it had another one.
    fn resize(&mut self, id: Id, size: i64, wish: &Wish) -> bool {
        let Some(replica_set) = self.state.book.owners.get_mut(&id) else { return false };
        replica_set.sized_for = Some((wish.replicas, wish.most()));
        if whole(replica_set.wanted) == size {
            return false;
        }
        let mut resized = Value::clone(&replica_set.object);
        set(&mut resized, &["spec", "replicas"], size);
        let is_written = self.cluster.update(resized).is_ok();
        if !is_written {
            // Changed meanwhile, or gone.
            self.state.book.wake_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
        is_written
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn replica_set_of(deployment: &Value, hash: &str, replicas: i64) -> Value {
    let mut template = at(deployment, &["spec", "template"]).cloned().unwrap_or_default();
    set(&mut template, &["metadata", "labels", HASH_LABEL], hash);
    let mut selector = at(deployment, &["spec", "selector"]).cloned().unwrap_or_default();
    set(&mut selector, &["matchLabels", HASH_LABEL], hash);
    let mut spec = json!({"replicas": replicas, "selector": selector, "template": template});
    if let Some(min_ready) = at(deployment, &["spec", "minReadySeconds"]) {
        set(&mut spec, &["minReadySeconds"], min_ready.clone());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)),
            "namespace": namespace(deployment),
            "labels": at(&template, &["metadata", "labels"]),
            "ownerReferences": [owned_by(deployment)],
        },
        "spec": spec,
    })
}
