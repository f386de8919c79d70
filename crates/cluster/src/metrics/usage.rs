//! The pod usage of a namespace from metrics.k8s.io in compact form, and the selection of pods from it. Also a fast
//! decoder of items in Go's output form.
//!
//! A pod takes about 90 bytes in addition to its name. Labels are kept in their JSON form, once for all pods with equal
//! labels. Only snapshots from which pods are selected keep labels.

mod decode;

use std::cmp::Ordering;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{ContainerUsage, PodUsage};
use autoscaling::selector::{self, Selector};
use jiff::Timestamp;

pub(super) use self::decode::Reader;
use super::apis::{FetchError, Inner};
use super::values;
use crate::call::{Call, SentTime};
use crate::decode::{ItemScanner, Pairs, Text, end_of_plain};
use crate::error::ApiError;

/// A hasher with fixed keys, which give equal snapshots for equal responses in every run. Crafted collisions cost only
/// comparisons.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The pod usage of one response.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The concatenated names of the pods.
    names: String,
    pods: Vec<Pod>,
    samplings: Vec<Sampling>,
    containers: Vec<Container>,
    amounts: Vec<Amount>,
    /// The names of containers and resources.
    words: Vec<Arc<str>>,
    label_sets: Vec<Box<str>>,
    /// Sorted pairs of the hash of a label and the index of a label set that contains the label.
    by_label: Vec<(u64, u32)>,
    /// The indexes of the pods, by label set. Empty without labels.
    by_set: Vec<u32>,
    /// The total length of the items, in bytes.
    bytes: usize,
}

/// A PodMetrics. Its name and containers start where those of the previous pod end.
#[derive(Debug, Clone, Copy)]
struct Pod {
    name_end: u32,
    containers_end: u32,
    labels: u32,
    sampling: u32,
}

/// Time and window of samples. Pods of one scrape share them.
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
    /// The amount in milli-units, rounded away from zero. No use of the amount needs a higher precision.
    milli: i64,
}

impl Snapshot {
    /// Decodes a PodMetricsList from its pieces, with labels.
    pub fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, ApiError> {
        let (mut scanner, mut reader) = (ItemScanner::default(), Reader::with_labels());
        for piece in pieces {
            scanner.push(piece, |item| reader.item(item))?;
        }
        values::check_kind(scanner.finish()?, KIND)?;
        Ok(reader.finish())
    }

    /// Returns the number of pods.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Returns whether the snapshot has no pods.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Returns the total length of the items, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the expected length of `pods` items, in bytes.
    pub(super) fn bytes_of(&self, pods: usize) -> usize {
        self.bytes.checked_div(self.len()).unwrap_or(0).saturating_mul(pods)
    }

    /// Returns whether any pod has labels. A server that omits labels omits them for all pods.
    pub(super) fn has_labels(&self) -> bool {
        !self.by_label.is_empty()
    }

    /// Returns the usage of the pods that a selector matches, in the order of the response.
    pub fn select(&self, selector: &Selector) -> Arc<[PodUsage]> {
        let with_label = selector.required_labels().map(|(key, value)| {
            let hash = label_hash(key, value);
            equal_range(&self.by_label, |(other, _)| other.cmp(&hash))
        });
        let mut pods = Vec::new();
        let mut consider = |id: u32| {
            let set = self.label_sets.get(index(id));
            if set.is_some_and(|set| selector.matches(&Labels::read(set))) {
                pods.extend_from_slice(self.pods_of(id));
            }
        };
        match with_label.min_by_key(|sets| sets.len()) {
            Some(sets) => sets.iter().for_each(|(_, id)| consider(*id)),
            None => (0..self.label_sets.len()).for_each(|id| consider(compact(id))),
        }
        pods.sort_unstable();
        pods.iter().filter_map(|at| self.usage(index(*at))).collect()
    }

    /// Returns the usage of all pods, in the order of the response.
    pub fn all(&self) -> Arc<[PodUsage]> {
        (0..self.pods.len()).filter_map(|at| self.usage(at)).collect()
    }

    /// Returns the indexes of the pods of a label set.
    fn pods_of(&self, set: u32) -> &[u32] {
        equal_range(&self.by_set, |at| self.pods.get(index(*at)).map(|pod| pod.labels).cmp(&Some(set)))
    }

    fn usage(&self, at: usize) -> Option<PodUsage> {
        let pod = self.pods.get(at)?;
        let previous = at.checked_sub(1).and_then(|at| self.pods.get(at));
        let (name, containers) = previous.map_or((0, 0), |pod| (pod.name_end, pod.containers_end));
        let sampling = self.samplings.get(index(pod.sampling));
        let first = containers.checked_sub(1).and_then(|before| self.containers.get(index(before)));
        let mut amounts = first.map_or(0, |before| before.amounts_end);
        let own_containers =
            self.containers.get(index(containers)..index(pod.containers_end)).unwrap_or_default();
        let containers = own_containers.iter().map(|container| {
            let from = std::mem::replace(&mut amounts, container.amounts_end);
            let used = self.amounts.get(index(from)..index(container.amounts_end)).unwrap_or_default();
            let usage = used.iter().map(|amount| {
                (self.word(amount.resource), Quantity::from_milli(amount.milli, amount.format))
            });
            ContainerUsage { name: self.word(container.name), usage: ResourceList::new(usage) }
        });
        Some(PodUsage {
            pod: self.names.get(index(name)..index(pod.name_end)).unwrap_or_default().into(),
            timestamp: sampling.and_then(|sampling| sampling.timestamp),
            window_nanos: sampling.map_or(0, |sampling| sampling.window_nanos),
            containers: containers.collect(),
        })
    }

    fn word(&self, id: u32) -> Arc<str> {
        self.words.get(index(id)).cloned().unwrap_or_default()
    }
}

/// The labels of one set.
struct Labels<'a>(Pairs<'a, Text<'a>>);

impl<'a> Labels<'a> {
    /// Parses a text that [`Reader`] has validated.
    fn read(text: &'a str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }
}

impl selector::Labels for Labels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        // As in Go, the last of several equal keys wins.
        self.0.0.iter().rev().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }
}

/// Returns the elements of a sorted slice that `order` finds equal.
fn equal_range<T>(sorted: &[T], order: impl Fn(&T) -> Ordering) -> &[T] {
    let from = sorted.partition_point(|element| order(element).is_lt());
    let rest = sorted.get(from..).unwrap_or_default();
    rest.get(..rest.partition_point(|element| order(element).is_eq())).unwrap_or_default()
}

fn label_hash(key: &str, value: &str) -> u64 {
    FixedHasher::default().hash_one((key, value))
}

/// Converts an index within one response, which has far fewer than 2³² bytes. A larger index becomes `u32::MAX`, which
/// does not exist.
fn compact(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn index(position: u32) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// The unread part of an item. Accepts only Go's output form, with no spaces between tokens and no escapes in strings.
struct Cursor<'a> {
    rest: &'a str,
}

/// The decoded fields of an item, without its containers, which are already in the reader.
#[derive(Default)]
struct Item<'a> {
    name: &'a str,
    labels: Option<&'a str>,
    timestamp: Option<&'a str>,
    window: Option<&'a str>,
}

/// Reads an item in Go's output form in a third of the time of the general decoder. `None` if the item has another
/// form. Some containers of the item may then already be in the reader. Accepts no item that the general decoder would
/// reject.
fn plain_item<'a>(text: &'a str, reader: &mut Reader) -> Option<Item<'a>> {
    let mut cursor = Cursor { rest: text };
    let mut item = Item::default();
    let (mut metadata, mut containers) = (false, false);
    cursor.object(|key, cursor| {
        match key {
            "metadata" if !metadata => {
                metadata = true;
                cursor.object(|key, cursor| {
                    match key {
                        "name" => item.name = cursor.string()?,
                        "labels" => item.labels = Some(cursor.strings()?),
                        _ => cursor.skip()?,
                    }
                    Some(())
                })?;
            }
            "timestamp" => item.timestamp = Some(cursor.string()?),
            "window" => item.window = Some(cursor.string()?),
            "containers" if !containers => {
                containers = true;
                cursor.sequence(*b"[]", |cursor| container(cursor, reader))?;
            }
            "metadata" | "containers" => return None,
            _ => cursor.skip()?,
        }
        Some(())
    })?;
    cursor.rest.is_empty().then_some(item)
}

fn container(cursor: &mut Cursor<'_>, reader: &mut Reader) -> Option<()> {
    let mut name = "";
    cursor.object(|key, cursor| {
        match key {
            "name" => name = cursor.string()?,
            "usage" => cursor.object(|resource, cursor| reader.plain_amount(resource, cursor.string()?))?,
            _ => cursor.skip()?,
        }
        Some(())
    })?;
    reader.container(name);
    Some(())
}

impl<'a> Cursor<'a> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        if self.rest.as_bytes().first() != Some(&byte) {
            return None;
        }
        self.rest = self.rest.get(1..)?;
        Some(())
    }

    /// Reads an object. Calls `member` with each key.
    fn object(&mut self, mut member: impl FnMut(&'a str, &mut Self) -> Option<()>) -> Option<()> {
        self.sequence(*b"{}", |cursor| {
            let key = cursor.string()?;
            cursor.eat(b':')?;
            member(key, cursor)
        })
    }

    /// Reads the parts of an object or a list, which are separated by commas.
    fn sequence(
        &mut self,
        [start, end]: [u8; 2],
        mut part: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.eat(start)?;
        if self.eat(end).is_some() {
            return Some(());
        }
        loop {
            part(self)?;
            if self.eat(b',').is_none() {
                return self.eat(end);
            }
        }
    }

    /// Reads a string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.eat(b'"')?;
        let end = end_of_plain(self.rest.as_bytes())?;
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        self.eat(b'"')?;
        Some(text)
    }

    /// Reads an object of strings. Returns its JSON form.
    fn strings(&mut self) -> Option<&'a str> {
        let before = self.rest;
        self.object(|_, cursor| cursor.string().map(|_| ()))?;
        before.get(..before.len() - self.rest.len())
    }

    /// Skips a string, an object of strings or `null`.
    fn skip(&mut self) -> Option<()> {
        match self.rest.as_bytes().first()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.strings().map(|_| ()),
            _ => {
                self.rest = self.rest.strip_prefix("null")?;
                Some(())
            }
        }
    }
}

/// `kind` of the response.
pub(super) const KIND: &str = "PodMetricsList";

/// Fetches the usage of the pods that a selector matches. The empty selector matches all pods of the
/// namespace. `sent` records the send time.
pub(super) async fn fetch(
    metrics: &Inner,
    namespace: &str,
    selector: &str,
    mut reader: Reader,
    sent: &SentTime,
) -> Result<Snapshot, FetchError> {
    let call = call(namespace, selector).recording(sent);
    values::read(&metrics.resource.client, &metrics.bounded(call), KIND, |item| reader.item(item)).await?;
    Ok(reader.finish())
}

fn call(namespace: &str, selector: &str) -> Call {
    Call::get(["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"])
        .query("labelSelector", selector)
        .about("pods.metrics.k8s.io", "")
}

/// Replaces the URL in an error text. The text is from a request for all pods of a namespace, and the result names the
/// URL of a request for the selected pods. `None` if the message does not start with the URL of the request.
pub(super) fn with_requested_url(message: &str, namespace: &str, selector: &str) -> Option<String> {
    let (all_pods, selected_pods) = (call(namespace, ""), call(namespace, selector));
    let (url, rest) = message.strip_prefix("Get \"")?.split_once('"')?;
    let server = url.strip_suffix(all_pods.path())?;
    Some(format!("Get \"{server}{}\"{rest}", selected_pods.path()))
}

#[cfg(test)]
mod tests;
