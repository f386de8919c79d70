//! A pod as the watch delivers it: borrowed, in the order of the wire.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use autoscaling::pod::{ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList};
use autoscaling::quantity::Quantity;
use jiff::Timestamp;

use super::intern::Strings;

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

/// Labels by key with one value each, in the form for comparison.
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

/// Requests by container and resource, in the form for comparison.
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

/// Whether a record equals the input, except for labels and requests.
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
