//! What metrics.k8s.io told of the pods of a namespace, in compact form, and which of them a selector wants.
//!
//! A pod costs its name and some 90 bytes. Labels are kept as the server wrote them, once for all pods that carry the
//! same, and only where something is to be selected.

mod decode;
mod plain;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{ContainerUsage, PodUsage};
use autoscaling::selector::{self, Selector};
use jiff::Timestamp;

pub(super) use self::decode::Reader;
use super::{resource, wire};
use crate::api::decode::{Pairs, Text};
use crate::api::error::ApiError;
use crate::api::items::ItemScanner;

/// Fixed keys: the same answer gives the same snapshot in every run. A crafted collision costs comparisons.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The usage of pods, as one answer told it.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The names of the pods, one after the other.
    names: String,
    pods: Vec<Pod>,
    samplings: Vec<Sampling>,
    containers: Vec<Container>,
    amounts: Vec<Amount>,
    /// Names of containers and resources.
    words: Vec<Arc<str>>,
    label_sets: Vec<Box<str>>,
    /// Which label sets have a label, by the label's hash; sorted.
    by_label: Vec<(u64, u32)>,
    /// Length of the items, in bytes.
    bytes: usize,
}

/// One PodMetrics. What belongs to it begins where that of the pod before ends.
#[derive(Debug, Clone, Copy)]
struct Pod {
    name_end: u32,
    containers_end: u32,
    labels: u32,
    sampling: u32,
}

/// When samples were taken: pods of one scrape have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sampling {
    timestamp: Option<Timestamp>,
    window_nanos: i64,
}

#[derive(Debug, Clone, Copy)]
struct Container {
    name: u32,
    amounts_end: u32,
}

#[derive(Debug, Clone, Copy)]
struct Amount {
    resource: u32,
    format: Format,
    /// Rounded away from zero, which is what every use of it does first.
    milli: i64,
}

impl Snapshot {
    /// A PodMetricsList as it arrives, in pieces, with the labels of its pods.
    pub fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, ApiError> {
        let (mut scanner, mut reader) = (ItemScanner::default(), Reader::with_labels());
        for piece in pieces {
            scanner.push(piece, |item| reader.item(item)).map_err(ApiError::Decode)?;
        }
        wire::of_kind(scanner.finish().map_err(ApiError::Decode)?, resource::KIND)?;
        Ok(reader.finish())
    }

    /// How many pods it tells of.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether it tells of no pod.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// How long its items were, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How long items like these are, so many of them, in bytes.
    pub(super) fn bytes_of(&self, pods: usize) -> usize {
        self.bytes.checked_div(self.len()).unwrap_or(0).saturating_mul(pods)
    }

    /// Whether any pod came with labels. A server that omits them writes none at all.
    pub(super) fn has_labels(&self) -> bool {
        !self.by_label.is_empty()
    }

    /// The pods that a selector matches, in the order of the answer.
    pub fn select(&self, selector: &Selector) -> Arc<[PodUsage]> {
        let mut matched = vec![false; self.label_sets.len()];
        let mut consider = |id: u32| {
            let set = self.label_sets.get(index(id));
            if let (Some(set), Some(matched)) = (set, matched.get_mut(index(id))) {
                *matched = selector.matches(&Labels::read(set));
            }
        };
        match selector.required_label() {
            Some((key, value)) => {
                let hash = label_hash(key, value);
                let from = self.by_label.partition_point(|(known, _)| *known < hash);
                let candidates = self.by_label.get(from..).unwrap_or_default().iter();
                candidates.take_while(|(known, _)| *known == hash).for_each(|(_, id)| consider(*id));
            }
            None => (0..self.label_sets.len()).for_each(|id| consider(compact(id))),
        }
        self.collect(|pod| matched.get(index(pod.labels)).copied().unwrap_or(false))
    }

    /// All pods, in the order of the answer.
    pub fn all(&self) -> Arc<[PodUsage]> {
        self.collect(|_| true)
    }

    fn collect(&self, wanted: impl Fn(&Pod) -> bool) -> Arc<[PodUsage]> {
        let mut found = Vec::new();
        let (mut name, mut containers) = (0, 0);
        for pod in &self.pods {
            if wanted(pod) {
                found.push(self.usage(pod, name, containers));
            }
            (name, containers) = (pod.name_end, pod.containers_end);
        }
        found.into()
    }

    fn usage(&self, pod: &Pod, name: u32, containers: u32) -> PodUsage {
        let sampling = self.samplings.get(index(pod.sampling));
        let first = containers.checked_sub(1).and_then(|before| self.containers.get(index(before)));
        let mut amounts = first.map_or(0, |before| before.amounts_end);
        let of_pod = self.containers.get(index(containers)..index(pod.containers_end)).unwrap_or_default();
        let containers = of_pod.iter().map(|container| {
            let from = std::mem::replace(&mut amounts, container.amounts_end);
            let used = self.amounts.get(index(from)..index(container.amounts_end)).unwrap_or_default();
            let usage = used.iter().map(|amount| {
                (self.word(amount.resource), Quantity::from_milli(amount.milli, amount.format))
            });
            ContainerUsage { name: self.word(container.name), usage: ResourceList::new(usage) }
        });
        PodUsage {
            pod: self.names.get(index(name)..index(pod.name_end)).unwrap_or_default().into(),
            timestamp: sampling.and_then(|sampling| sampling.timestamp),
            window_nanos: sampling.map_or(0, |sampling| sampling.window_nanos),
            containers: containers.collect(),
        }
    }

    fn word(&self, id: u32) -> Arc<str> {
        self.words.get(index(id)).cloned().unwrap_or_default()
    }
}

/// The labels of one set.
struct Labels<'a>(Pairs<'a, Text<'a>>);

impl<'a> Labels<'a> {
    /// From what [`Reader`] found sound; nothing at all has no labels.
    fn read(text: &'a str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }
}

impl selector::Labels for Labels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        // Of equal keys the last counts, as in Go.
        self.0.0.iter().rev().find(|(known, _)| **known == *key).map(|(_, value)| &**value)
    }
}

fn label_hash(key: &str, value: &str) -> u64 {
    FixedHasher::default().hash_one((key, value))
}

/// A place in one answer, which has far fewer than 2³² bytes; what lies beyond is not found again.
fn compact(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

fn index(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
