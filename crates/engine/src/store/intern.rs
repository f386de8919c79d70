//! Tables of shared values with reference counts, and the forms in which the parts of a received pod are compared with
//! the shared values.
//!
//! A table counts the stored objects that use a value, and not the clones of its `Arc`. The size of the table therefore
//! does not depend on readers that still hold a value.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use autoscaling::pod::{ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList};
use autoscaling::quantity::Quantity;
use jiff::Timestamp;

use super::{FixedHasher, shrink};

/// Interned strings with the number of their users: label keys and values, and names of containers and resources.
#[derive(Debug, Default)]
pub(super) struct Strings {
    users: HashMap<Arc<str>, usize, FixedHasher>,
}

impl Strings {
    /// Returns the shared copy of a string. Adds one user.
    pub(super) fn acquire(&mut self, text: &str) -> Arc<str> {
        let shared =
            self.users.get_key_value(text).map_or_else(|| text.into(), |(shared, _)| Arc::clone(shared));
        *self.users.entry(Arc::clone(&shared)).or_default() += 1;
        shared
    }

    /// Removes one user.
    pub(super) fn release(&mut self, text: &str) {
        let Some(users) = self.users.get_mut(text) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.users.remove(text);
            shrink(&mut self.users);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.users.len()
    }
}

/// Identifies a value of a [`Table`] while it has users.
pub(super) type Id = u32;

/// Values by a digest of their content.
#[derive(Debug, Default)]
pub(super) struct Table<T> {
    values: BTreeMap<Id, Shared<T>>,
    by_digest: HashMap<u64, Vec<Id>, FixedHasher>,
    last: Id,
}

#[derive(Debug)]
struct Shared<T> {
    value: Arc<T>,
    digest: u64,
    users: usize,
}

impl<T> Table<T> {
    /// Returns the id of an equal value. Adds one user.
    pub(super) fn acquire(&mut self, digest: u64, same: impl Fn(&T) -> bool) -> Option<Id> {
        let ids = self.by_digest.get(&digest)?;
        let id = *ids.iter().find(|id| self.values.get(id).is_some_and(|shared| same(&shared.value)))?;
        self.retain(id);
        Some(id)
    }

    /// Adds a value that [`Self::acquire`] did not find, with one user.
    pub(super) fn insert(&mut self, digest: u64, value: T) -> Id {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.values.contains_key(&self.last) {
                break;
            }
        }
        self.values.insert(self.last, Shared { value: Arc::new(value), digest, users: 1 });
        self.by_digest.entry(digest).or_default().push(self.last);
        self.last
    }

    /// Adds one user.
    pub(super) fn retain(&mut self, id: Id) {
        if let Some(shared) = self.values.get_mut(&id) {
            shared.users += 1;
        }
    }

    /// Removes one user. Returns the value if this was its last user.
    pub(super) fn release(&mut self, id: Id) -> Option<Arc<T>> {
        let shared = self.values.get_mut(&id)?;
        shared.users -= 1;
        if shared.users > 0 {
            return None;
        }
        let shared = self.values.remove(&id)?;
        if let Some(ids) = self.by_digest.get_mut(&shared.digest) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_digest.remove(&shared.digest);
                shrink(&mut self.by_digest);
            }
        }
        Some(shared.value)
    }

    /// Returns the value with the given id.
    pub(super) fn get(&self, id: Id) -> Option<&Arc<T>> {
        self.values.get(&id).map(|shared| &shared.value)
    }

    /// Returns all values, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &Arc<T>)> {
        self.values.iter().map(|(id, shared)| (*id, &shared.value))
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// The parts of a pod that the store uses. The store copies names and shares label sets.
#[derive(Debug, Clone, Copy)]
pub struct PodInput<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.labels`, in any order.
    pub labels: &'a [(Cow<'a, str>, Cow<'a, str>)],
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
    /// The condition of type `Ready`.
    pub ready: Option<ReadyCondition>,
    /// `spec.containers`, in order.
    pub containers: &'a [ContainerInput<'a>],
    /// `spec.initContainers`, in order.
    pub init_containers: &'a [ContainerInput<'a>],
    /// `spec.resources.requests`, in any order.
    pub pod_level: &'a [(Cow<'a, str>, Quantity)],
}

/// One container of a [`PodInput`].
#[derive(Debug, Clone, Copy)]
pub struct ContainerInput<'a> {
    /// `name`.
    pub name: &'a str,
    /// Whether `restartPolicy` is `Always`.
    pub restartable: bool,
    /// `resources.requests`, in any order.
    pub requests: &'a [(Cow<'a, str>, Quantity)],
}

/// The labels of a received pod, sorted by key, with one value per key.
pub(super) struct Labels<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Labels<'a> {
    pub(super) fn new(input: &PodInput<'a>) -> Self {
        Self(canonical(input.labels.iter().map(|(key, value)| (&**key, &**value))))
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn same(&self, set: &LabelSet) -> bool {
        set.iter().eq(self.0.iter().copied())
    }

    pub(super) fn intern(&self, strings: &mut Strings) -> LabelSet {
        LabelSet::new(self.0.iter().map(|(key, value)| (strings.acquire(key), strings.acquire(value))))
    }

    /// Releases the strings that [`Self::intern`] acquired.
    pub(super) fn release(set: &LabelSet, strings: &mut Strings) {
        for (key, value) in set.iter() {
            strings.release(key);
            strings.release(value);
        }
    }
}

/// The requests of a received pod, with the resources of each container sorted by name.
pub(super) struct Requests<'a> {
    containers: Vec<Container<'a>>,
    init_containers: Vec<Container<'a>>,
    pod_level: Vec<(&'a str, Quantity)>,
}

struct Container<'a> {
    name: &'a str,
    restartable: bool,
    requests: Vec<(&'a str, Quantity)>,
}

impl<'a> Requests<'a> {
    pub(super) fn new(input: &PodInput<'a>) -> Self {
        Self {
            containers: input.containers.iter().map(Container::new).collect(),
            init_containers: input.init_containers.iter().map(Container::new).collect(),
            pod_level: resources(input.pod_level),
        }
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for group in [&self.containers, &self.init_containers] {
            group.len().hash(&mut hasher);
            for container in group {
                (container.name, container.restartable).hash(&mut hasher);
                feed(&container.requests, &mut hasher);
            }
        }
        feed(&self.pod_level, &mut hasher);
        hasher.finish()
    }

    pub(super) fn same(&self, requests: &PodRequests) -> bool {
        same_containers(&self.containers, &requests.containers)
            && same_containers(&self.init_containers, &requests.init_containers)
            && same_resources(&self.pod_level, &requests.pod_level)
    }

    pub(super) fn intern(&self, strings: &mut Strings) -> PodRequests {
        let mut containers = |group: &[Container<'_>]| {
            group
                .iter()
                .map(|container| ContainerRequests {
                    name: strings.acquire(container.name),
                    restartable: container.restartable,
                    requests: intern_resources(&container.requests, strings),
                })
                .collect()
        };
        let (init_containers, containers) = (containers(&self.init_containers), containers(&self.containers));
        PodRequests { containers, init_containers, pod_level: intern_resources(&self.pod_level, strings) }
    }

    /// Releases the strings that [`Self::intern`] acquired.
    pub(super) fn release(requests: &PodRequests, strings: &mut Strings) {
        for container in requests.containers.iter().chain(&requests.init_containers) {
            strings.release(&container.name);
            container.requests.iter().for_each(|(name, _)| strings.release(name));
        }
        requests.pod_level.iter().for_each(|(name, _)| strings.release(name));
    }
}

impl<'a> Container<'a> {
    fn new(input: &ContainerInput<'a>) -> Self {
        Self { name: input.name, restartable: input.restartable, requests: resources(input.requests) }
    }
}

/// Creates the record of a pod, with shared labels and requests.
pub(super) fn record(
    input: &PodInput<'_>,
    name: Arc<str>,
    labels: Arc<LabelSet>,
    requests: Arc<PodRequests>,
) -> Pod {
    Pod {
        name,
        labels,
        requests,
        phase: input.phase,
        terminating: input.terminating,
        ready: input.ready,
        start_time: input.start_time,
    }
}

/// Returns whether a record equals the input in everything except name, labels and requests.
pub(super) fn same_state(input: &PodInput<'_>, pod: &Pod) -> bool {
    pod.phase == input.phase
        && pod.terminating == input.terminating
        && pod.ready == input.ready
        && pod.start_time == input.start_time
}

fn same_containers(input: &[Container<'_>], containers: &[ContainerRequests]) -> bool {
    input.len() == containers.len()
        && input.iter().zip(containers).all(|(one, other)| {
            *one.name == *other.name
                && one.restartable == other.restartable
                && same_resources(&one.requests, &other.requests)
        })
}

fn same_resources(input: &[(&str, Quantity)], list: &ResourceList) -> bool {
    list.iter().eq(input.iter().copied())
}

fn resources<'a>(input: &'a [(Cow<'a, str>, Quantity)]) -> Vec<(&'a str, Quantity)> {
    canonical(input.iter().map(|(name, quantity)| (&**name, *quantity)))
}

fn intern_resources(entries: &[(&str, Quantity)], strings: &mut Strings) -> ResourceList {
    ResourceList::new(entries.iter().map(|(name, quantity)| (strings.acquire(name), *quantity)))
}

fn feed(entries: &[(&str, Quantity)], hasher: &mut DefaultHasher) {
    entries.len().hash(hasher);
    for (name, quantity) in entries {
        (name, quantity.milli_value()).hash(hasher);
    }
}

/// Sorts entries by key. The last of several entries with the same key wins.
fn canonical<'a, V>(entries: impl Iterator<Item = (&'a str, V)>) -> Vec<(&'a str, V)> {
    let entries: Vec<_> = entries.collect();
    // The API server sends maps sorted by key.
    if entries.is_sorted_by(|(one, _), (next, _)| one < next) {
        return entries;
    }
    entries.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_is_stored_once_and_removed_with_its_last_user() {
        let mut strings = Strings::default();
        let first = strings.acquire("app");
        let second = strings.acquire("app");
        assert!(Arc::ptr_eq(&first, &second));
        strings.release("app");
        assert_eq!(strings.len(), 1);
        strings.release("app");
        assert_eq!(strings.len(), 0);
        strings.release("app");
        assert_eq!(strings.len(), 0);
    }

    #[test]
    fn values_with_equal_digests_stay_distinct() {
        let mut table = Table::<&str>::default();
        assert_eq!(table.acquire(7, |value| *value == "a"), None);
        let a = table.insert(7, "a");
        let b = table.insert(7, "b");
        assert_eq!(table.acquire(7, |value| *value == "b"), Some(b));
        assert_eq!(table.release(b), None);
        assert_eq!(table.release(b).as_deref(), Some(&"b"));
        assert_eq!(table.acquire(7, |value| *value == "b"), None);
        assert_eq!(table.get(a).map(|value| **value), Some("a"));
        assert!(table.release(a).is_some());
        assert_eq!(table.len(), 0);
        assert!(table.by_digest.is_empty());
    }

    #[test]
    fn ids_in_use_are_not_reused() {
        let mut table = Table::<u8>::default();
        let first = table.insert(1, 1);
        table.last = first.wrapping_sub(1);
        assert_ne!(table.insert(2, 2), first);
    }
}
