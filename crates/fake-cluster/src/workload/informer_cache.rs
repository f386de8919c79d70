//! The cache of the workload controllers. A feed of changes updates it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::model::WorkloadModel;
use super::pods::{
    Counts, HASH_LABEL, Id, Kind, Owner, Pod, PodPhase, REVISION_LABEL, controller, is_ready, is_terminating,
    name, namespace, seconds, template_hash, wanted_replicas,
};
use crate::Cluster;
use crate::object::{at, int, text};
use crate::store::StoredObject;
use crate::watch::{Feed, FeedEvent};

/// All owners and pods, and the queues of owners and pods to reconcile.
#[derive(Debug)]
pub(super) struct InformerCache {
    /// Whether kubelets start owned pods that are running but not ready. Set after a restore of the cluster, because a
    /// restored pod has no life cycle on its node. Without a restore, such a pod gets its status from another client.
    starts_unready: bool,
    owner_feeds: Vec<(Kind, Feed)>,
    pod_feed: Feed,
    pub(super) owners: BTreeMap<Id, Owner>,
    pub(super) pods: BTreeMap<Id, Pod>,
    ids: BTreeMap<Box<str>, Id>,
    /// Owners without a parent, by namespace and name.
    workloads: BTreeMap<(String, String), Id>,
    next_id: Id,
    /// Owners to reconcile after a change.
    changed_owners: BTreeSet<(Kind, Id)>,
    /// Pods to reconcile after a change.
    changed_pods: BTreeSet<Id>,
    owners_due: BTreeSet<(Duration, Id)>,
    pods_due: BTreeSet<(Duration, Id)>,
}

impl InformerCache {
    /// Creates a cache that follows a cluster. `starts_unready` must be set after a restore of the cluster.
    pub(super) fn open(cluster: &Cluster, starts_unready: bool) -> Self {
        Self {
            starts_unready,
            owner_feeds: Kind::ALL.map(|kind| (kind, Feed::open(cluster, kind.resource()))).into(),
            pod_feed: Feed::open(cluster, "pods"),
            owners: BTreeMap::new(),
            pods: BTreeMap::new(),
            ids: BTreeMap::new(),
            workloads: BTreeMap::new(),
            next_id: 0,
            changed_owners: BTreeSet::new(),
            changed_pods: BTreeSet::new(),
            owners_due: BTreeSet::new(),
            pods_due: BTreeSet::new(),
        }
    }

    /// Returns whether the cluster has ended the feeds, as a restore does.
    pub(super) fn is_closed(&self) -> bool {
        self.pod_feed.is_closed()
    }

    /// Processes the cluster's changes and queues the objects that are due.
    pub(super) fn update(&mut self, now: Duration) {
        for index in 0..self.owner_feeds.len() {
            let Some((kind, feed)) = self.owner_feeds.get_mut(index) else { continue };
            let kind = *kind;
            for event in feed.drain().collect::<Vec<_>>() {
                match event {
                    FeedEvent::Present(stored) => self.apply_owner(kind, &stored),
                    FeedEvent::Deleted(stored) => self.remove_owner(&stored.uid),
                }
            }
        }
        for event in self.pod_feed.drain().collect::<Vec<_>>() {
            match event {
                FeedEvent::Present(stored) => self.apply_pod(stored, now),
                FeedEvent::Deleted(stored) => self.remove_pod(&stored.uid),
            }
        }
        while let Some((_, id)) = self.owners_due.first().copied().filter(|(due, _)| *due <= now) {
            self.schedule_owner(id, None);
            self.queue_owner(id);
        }
        while let Some((_, id)) = self.pods_due.first().copied().filter(|(due, _)| *due <= now) {
            self.schedule_pod(id, None);
            self.changed_pods.insert(id);
        }
    }

    /// Removes the next owner from the queue and returns it. Deployments come first, and among owners of one kind the
    /// oldest comes first.
    pub(super) fn next_owner(&mut self) -> Option<Id> {
        self.changed_owners.pop_first().map(|(_, id)| id)
    }

    /// Returns whether a kubelet must start the life cycle of a pod.
    pub(super) fn is_unstarted(&self, pod: &Pod) -> bool {
        let restarts = self.starts_unready && pod.phase == PodPhase::Running && pod.owner.is_some();
        pod.lifecycle.is_none() && (pod.phase == PodPhase::Pending || (restarts && !pod.is_ready()))
    }

    /// Removes the oldest pod from the queue and returns it.
    pub(super) fn next_pod(&mut self) -> Option<Id> {
        self.changed_pods.pop_first()
    }

    /// Returns the next time at which an object is due, if nothing changes until then.
    pub(super) fn due(&self) -> Option<Duration> {
        [self.owners_due.first(), self.pods_due.first()].into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// Schedules the next reconciliation of an owner, or cancels it.
    pub(super) fn schedule_owner(&mut self, id: Id, due: Option<Duration>) {
        if let Some(owner) = self.owners.get_mut(&id) {
            reschedule(&mut self.owners_due, id, &mut owner.due, due);
        }
    }

    /// Schedules the next reconciliation of a pod, or cancels it.
    pub(super) fn schedule_pod(&mut self, id: Id, due: Option<Duration>) {
        if let Some(pod) = self.pods.get_mut(&id) {
            reschedule(&mut self.pods_due, id, &mut pod.due, due);
        }
    }

    /// Returns the id of an object by its uid.
    pub(super) fn id(&self, uid: &str) -> Option<Id> {
        self.ids.get(uid).copied()
    }

    /// Returns the pods of an owner, the oldest first.
    pub(super) fn pods_of(&self, owner: &Owner) -> impl Iterator<Item = (Id, &Pod)> {
        owner.pods.iter().filter_map(|id| Some((*id, self.pods.get(id)?)))
    }

    /// Counts the pods of an owner, including the pods of its ReplicaSets.
    pub(super) fn count(&self, owner: &Owner, now: Duration) -> Counts {
        let none = Counts { wanted: owner.wanted, ..Counts::default() };
        let direct = self.pods_of(owner).fold(none, |mut counts, (_, pod)| {
            if pod.is_active() {
                counts.active += 1;
                counts.pending += usize::from(pod.phase == PodPhase::Pending);
                counts.ready += usize::from(pod.is_ready());
                let available = |since| now >= available_at(since, owner.min_ready);
                counts.available += usize::from(pod.ready_since.is_some_and(available));
            }
            counts.ending += usize::from(pod.phase == PodPhase::Terminating);
            counts
        });
        let sets = owner.sets.iter().filter_map(|id| self.owners.get(id));
        sets.fold(direct, |counts, set| counts.plus(self.count(set, now)))
    }

    /// Returns the time at which the next ready pod of an owner becomes available.
    pub(super) fn next_available(&self, owner: &Owner, now: Duration) -> Option<Duration> {
        let at = |(_, pod): (Id, &Pod)| Some(available_at(pod.ready_since?, owner.min_ready));
        self.pods_of(owner).filter_map(at).filter(|at| *at > now).min()
    }

    /// Returns a workload without a parent, such as a Deployment that a user created.
    pub(super) fn workload(&self, namespace: &str, name: &str) -> Option<&Owner> {
        let id = self.workloads.get(&(namespace.to_owned(), name.to_owned()))?;
        self.owners.get(id)
    }

    fn apply_owner(&mut self, kind: Kind, stored: &StoredObject) {
        let object = Arc::new(stored.value());
        let id = self.id_of(&stored.uid);
        let parent = controller(&object).filter(|_| kind == Kind::ReplicaSet);
        let parent = parent.and_then(|owner| self.id(text(owner, &["uid"])));
        let generation = int(&object, &["metadata", "generation"]);
        let is_ending = is_terminating(&object);
        let wanted = if is_ending { 0 } else { wanted_replicas(&object) };
        let hash = match kind {
            Kind::ReplicaSet => text(&object, &["metadata", "labels", HASH_LABEL]).to_owned(),
            _ => template_hash(at(&object, &["spec", "template"]).unwrap_or(&Value::Null)),
        };
        let min_ready = seconds(&object, &["spec", "minReadySeconds"]);
        let before = self.owners.remove(&id);
        // A status write requires no reconciliation. The controllers send most status writes.
        let needs_reconcile = before.as_ref().is_none_or(|before| {
            generation.is_none()
                || before.generation != generation
                || is_terminating(&before.object) != is_ending
        });
        let mut owner = before.unwrap_or_else(|| Owner {
            kind,
            object: Arc::clone(&object),
            parent,
            wanted,
            hash: String::new(),
            min_ready,
            pods: BTreeSet::new(),
            sets: BTreeSet::new(),
            created: 0,
            sized_for: None,
            generation,
            due: None,
        });
        (owner.object, owner.parent, owner.generation) = (object, parent, generation);
        (owner.wanted, owner.hash, owner.min_ready) = (wanted, hash, min_ready);
        self.owners.insert(id, owner);
        if let Some(parent) = parent.and_then(|parent| self.owners.get_mut(&parent)) {
            parent.sets.insert(id);
        } else {
            self.workloads.insert((stored.namespace().to_owned(), stored.name().to_owned()), id);
        }
        if needs_reconcile {
            self.queue_owner(id);
        }
    }

    fn remove_owner(&mut self, uid: &str) {
        let Some(id) = self.ids.remove(uid) else { return };
        self.queue_owner(id);
        self.schedule_owner(id, None);
        if let Some(owner) = self.owners.remove(&id) {
            self.changed_owners.remove(&(owner.kind, id));
            if let Some(parent) = owner.parent.and_then(|parent| self.owners.get_mut(&parent)) {
                parent.sets.remove(&id);
            }
            let key = (namespace(&owner.object).to_owned(), name(&owner.object).to_owned());
            if self.workloads.get(&key) == Some(&id) {
                self.workloads.remove(&key);
            }
        }
    }

    fn apply_pod(&mut self, stored: Arc<StoredObject>, now: Duration) {
        let object = stored.value();
        let id = self.id_of(&stored.uid);
        let is_ready = is_ready(&object);
        let before = self.pods.remove(&id);
        let needs_reconcile = before.as_ref().is_none_or(|before| before.is_ready() != is_ready);
        let owner = controller(&object).and_then(|owner| self.id(text(owner, &["uid"])));
        let mut pod = before.unwrap_or_else(|| Pod {
            stored: Arc::clone(&stored),
            owner,
            revision: text(&object, &["metadata", "labels", REVISION_LABEL]).to_owned(),
            phase: PodPhase::Pending,
            ready_since: None,
            lifecycle: None,
            has_unwritten_status: false,
            grace: WorkloadModel::default().grace,
            removal_at: None,
            due: None,
        });
        let phase = PodPhase::from_pod(&object);
        let before = std::mem::replace(&mut pod.phase, phase);
        pod.stored = stored;
        pod.ready_since = is_ready.then(|| pod.ready_since.unwrap_or(now));
        let needs_kubelet = pod.has_unwritten_status
            || self.is_unstarted(&pod)
            || (phase == PodPhase::Terminating && before != phase);
        let needs_owner = needs_reconcile || phase != before;
        self.pods.insert(id, pod);
        if needs_kubelet {
            self.changed_pods.insert(id);
        }
        if let Some(owner) = owner {
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.pods.insert(id);
            }
            if needs_owner {
                self.queue_owner(owner);
            }
        }
    }

    fn remove_pod(&mut self, uid: &str) {
        let Some(id) = self.ids.remove(uid) else { return };
        self.schedule_pod(id, None);
        self.changed_pods.remove(&id);
        if let Some(owner) = self.pods.remove(&id).and_then(|pod| pod.owner) {
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.pods.remove(&id);
            }
            self.queue_owner(owner);
        }
    }

    /// Queues an owner and its parent for reconciliation.
    fn queue_owner(&mut self, id: Id) {
        let Some(owner) = self.owners.get(&id) else { return };
        self.changed_owners.insert((owner.kind, id));
        if let Some((parent_id, parent)) = owner.parent.and_then(|id| Some((id, self.owners.get(&id)?))) {
            self.changed_owners.insert((parent.kind, parent_id));
        }
    }

    fn id_of(&mut self, uid: &str) -> Id {
        if let Some(id) = self.ids.get(uid) {
            return *id;
        }
        self.next_id += 1;
        self.ids.insert(uid.into(), self.next_id);
        self.next_id
    }
}

fn available_at(ready_since: Duration, min_ready: Duration) -> Duration {
    ready_since.saturating_add(min_ready)
}

fn reschedule(
    queue: &mut BTreeSet<(Duration, Id)>,
    id: Id,
    slot: &mut Option<Duration>,
    due: Option<Duration>,
) {
    if let Some(before) = std::mem::replace(slot, due) {
        queue.remove(&(before, id));
    }
    if let Some(due) = due {
        queue.insert((due, id));
    }
}
