//! What the workload side knows of the cluster's objects: kept up to date from their changes, so that nobody has to look
//! for what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::feed::{Feed, Seen};
use super::model::WorkloadModel;
use super::names::template_hash;
use super::objects::{controller, controller_uid, is_terminating, name, namespace, seconds, wanted_replicas};
use super::pods::is_ready;
use super::records::{Counts, Id, Kind, Owner, Pod, Standing};
use crate::embedded::Cluster;
use crate::embedded::object::{at, int, text};
use crate::embedded::store::Stored;

/// All owners and pods, and who of them needs to be looked after, when.
#[derive(Debug)]
pub(super) struct Book {
    owner_feeds: Vec<(Kind, Feed)>,
    pod_feed: Feed,
    pub(super) owners: BTreeMap<Id, Owner>,
    pub(super) pods: BTreeMap<Id, Pod>,
    ids: BTreeMap<Box<str>, Id>,
    /// Owners that belong to nobody else, by namespace and name.
    workloads: BTreeMap<(String, String), Id>,
    next_id: Id,
    /// Owners of which something has changed.
    changed_owners: BTreeSet<(Kind, Id)>,
    /// Pods of which something has changed.
    changed_pods: BTreeSet<Id>,
    owners_due: BTreeSet<(Duration, Id)>,
    pods_due: BTreeSet<(Duration, Id)>,
}

impl Book {
    /// A book that follows a cluster.
    pub(super) fn open(cluster: &Cluster) -> Self {
        Self {
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

    /// Takes in what has changed in the cluster.
    pub(super) fn update(&mut self, now: Duration) {
        for place in 0..self.owner_feeds.len() {
            let Some((kind, feed)) = self.owner_feeds.get_mut(place) else { continue };
            let kind = *kind;
            for seen in feed.drain().collect::<Vec<_>>() {
                match seen {
                    Seen::Here(stored) => self.owner_is_here(kind, &stored),
                    Seen::Gone(stored) => self.owner_is_gone(&stored.uid),
                }
            }
        }
        for seen in self.pod_feed.drain().collect::<Vec<_>>() {
            match seen {
                Seen::Here(stored) => self.pod_is_here(stored, now),
                Seen::Gone(stored) => self.pod_is_gone(&stored.uid),
            }
        }
        while let Some((_, id)) = self.owners_due.first().copied().filter(|(due, _)| *due <= now) {
            self.wake_owner(id, None);
            self.owner_has_changed(id);
        }
        while let Some((_, id)) = self.pods_due.first().copied().filter(|(due, _)| *due <= now) {
            self.wake_pod(id, None);
            self.changed_pods.insert(id);
        }
    }

    /// The next owner to look after; Deployments first, the oldest first.
    pub(super) fn next_owner(&mut self) -> Option<Id> {
        self.changed_owners.pop_first().map(|(_, id)| id)
    }

    /// The next pod to look after; the oldest first.
    pub(super) fn next_pod(&mut self) -> Option<Id> {
        self.changed_pods.pop_first()
    }

    /// When somebody needs to be looked after if nothing changes.
    pub(super) fn due(&self) -> Option<Duration> {
        [self.owners_due.first(), self.pods_due.first()].into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// Sets when an owner is to be looked after again.
    pub(super) fn wake_owner(&mut self, id: Id, due: Option<Duration>) {
        if let Some(owner) = self.owners.get_mut(&id) {
            reschedule(&mut self.owners_due, id, &mut owner.due, due);
        }
    }

    /// Sets when a pod is to be looked after again.
    pub(super) fn wake_pod(&mut self, id: Id, due: Option<Duration>) {
        if let Some(pod) = self.pods.get_mut(&id) {
            reschedule(&mut self.pods_due, id, &mut pod.due, due);
        }
    }

    /// The id of an object by its uid.
    pub(super) fn id(&self, uid: &str) -> Option<Id> {
        self.ids.get(uid).copied()
    }

    /// The pods of an owner, the oldest first.
    pub(super) fn pods_of(&self, owner: &Owner) -> impl Iterator<Item = (Id, &Pod)> {
        owner.pods.iter().filter_map(|id| Some((*id, self.pods.get(id)?)))
    }

    /// Counts the pods of an owner, those of its sets included.
    pub(super) fn count(&self, owner: &Owner, now: Duration) -> Counts {
        let none = Counts { wanted: owner.wanted, ..Counts::default() };
        let own = self.pods_of(owner).fold(none, |mut counts, (_, pod)| {
            if pod.is_active() {
                counts.active += 1;
                counts.pending += usize::from(pod.standing == Standing::Pending);
                counts.ready += usize::from(pod.is_ready());
                let available = |since| now >= available_at(since, owner.min_ready);
                counts.available += usize::from(pod.ready_since.is_some_and(available));
            }
            counts.ending += usize::from(pod.standing == Standing::Ending);
            counts
        });
        let sets = owner.sets.iter().filter_map(|id| self.owners.get(id));
        sets.fold(own, |counts, set| counts.plus(self.count(set, now)))
    }

    /// When the next of an owner's pods becomes available that is ready already.
    pub(super) fn next_available(&self, owner: &Owner, now: Duration) -> Option<Duration> {
        let at = |(_, pod): (Id, &Pod)| Some(available_at(pod.ready_since?, owner.min_ready));
        self.pods_of(owner).filter_map(at).filter(|at| *at > now).min()
    }

    /// A workload that somebody has written, not made for another one.
    pub(super) fn workload(&self, wanted_namespace: &str, wanted_name: &str) -> Option<&Owner> {
        let id = self.workloads.get(&(wanted_namespace.to_owned(), wanted_name.to_owned()))?;
        self.owners.get(id)
    }

    fn owner_is_here(&mut self, kind: Kind, stored: &Stored) {
        let object = Arc::new(stored.value());
        let id = self.id_of(&stored.uid);
        let parent = self.id(controller_uid(&object)).filter(|_| kind == Kind::ReplicaSet);
        let generation = int(&object, &["metadata", "generation"]);
        let is_ending = is_terminating(&object);
        let wanted = if is_ending { 0 } else { wanted_replicas(&object) };
        let hash = match kind {
            Kind::ReplicaSet => {
                text(&object, &["metadata", "labels", super::deployments::HASH_LABEL]).to_owned()
            }
            _ => template_hash(at(&object, &["spec", "template"]).unwrap_or(&Value::Null)),
        };
        let min_ready = seconds(&object, &["spec", "minReadySeconds"]);
        let before = self.owners.remove(&id);
        // A status that somebody has written, ourselves most often, changes nothing.
        let is_news = before.as_ref().is_none_or(|before| {
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
        if is_news {
            self.owner_has_changed(id);
        }
    }

    fn owner_is_gone(&mut self, uid: &str) {
        let Some(id) = self.ids.remove(uid) else { return };
        self.owner_has_changed(id);
        self.wake_owner(id, None);
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

    fn pod_is_here(&mut self, stored: Arc<Stored>, now: Duration) {
        let object = stored.value();
        let id = self.id_of(&stored.uid);
        let is_ready = is_ready(&object);
        let before = self.pods.remove(&id);
        let is_news = before.as_ref().is_none_or(|before| before.is_ready() != is_ready);
        let owner = controller(&object).and_then(|owner| self.id(text(owner, &["uid"])));
        let mut pod = before.unwrap_or_else(|| Pod {
            stored: Arc::clone(&stored),
            owner,
            revision: text(&object, &["metadata", "labels", super::stateful::REVISION_LABEL]).to_owned(),
            standing: Standing::Pending,
            ready_since: None,
            life: None,
            is_unwritten: false,
            grace: WorkloadModel::default().grace,
            gone_at: None,
            due: None,
        });
        let standing = Standing::of(&object);
        let before = std::mem::replace(&mut pod.standing, standing);
        pod.stored = stored;
        pod.ready_since = is_ready.then(|| pod.ready_since.unwrap_or(now));
        let has_begun = pod.life.is_some() || standing != Standing::Pending;
        let needs_kubelet =
            pod.is_unwritten || !has_begun || (standing == Standing::Ending && before != standing);
        let needs_owner = is_news || standing != before;
        self.pods.insert(id, pod);
        if needs_kubelet {
            self.changed_pods.insert(id);
        }
        if let Some(owner) = owner {
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.pods.insert(id);
            }
            if needs_owner {
                self.owner_has_changed(owner);
            }
        }
    }

    fn pod_is_gone(&mut self, uid: &str) {
        let Some(id) = self.ids.remove(uid) else { return };
        self.wake_pod(id, None);
        self.changed_pods.remove(&id);
        if let Some(owner) = self.pods.remove(&id).and_then(|pod| pod.owner) {
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.pods.remove(&id);
            }
            self.owner_has_changed(owner);
        }
    }

    /// The owner, and the one that it belongs to, need to be looked after.
    fn owner_has_changed(&mut self, id: Id) {
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
