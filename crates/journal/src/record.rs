//! The record of decisions: the last decisions of each HPA, in a compact form, served as JSON.
//!
//! The record observes the same concluded syncs as metrics and log. Consecutive decisions that differ only in noise
//! (other ratios, but the same path and result for the same reason) share one entry. Every change is a new entry. A
//! record drops its oldest entries beyond its capacity or beyond 512 KiB per HPA. An entry takes at most 64 KiB.
//! Metrics that do not fit into an entry are only counted.
//!
//! Binary encodings are in the format of postcard: numbers are varints, and fields have no names.

mod convert;
mod pages;
mod ring;
mod steps;
#[cfg(test)]
mod tests;
pub mod wire;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postcard::ser_flavors::Flavor;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::pages::{Answer, Comparisons, Decisions, DecisionsRequest, JsonPage, Page};
use self::ring::{Entry, Ring, Scratch};
use self::wire::DecisionEntry;
use engine::reconcile::{ConcludedSync, Observer};
use engine::store::Key;

/// The last decisions of each HPA, by UID. An HPA that is recreated under its name starts with an empty record.
#[derive(Debug)]
pub struct Record {
    /// Maximum number of entries per HPA, at least one.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The rings are boxed, because the map has many unused slots.
    by_uid: HashMap<Arc<str>, Box<Ring>>,
    scratch: Scratch,
}

impl Record {
    /// Creates an empty record with at most `capacity` entries per HPA, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// Returns the decisions of an HPA, newest first.
    pub fn decisions(&self, uid: &str) -> Vec<DecisionEntry> {
        // Decode outside of the lock, because syncs wait for the lock.
        let copies = self.state.lock().by_uid.get(uid).map(|ring| ring.newest_first().cloned().collect());
        let entries: Vec<Entry> = copies.unwrap_or_default();
        entries.iter().filter_map(Entry::decision).collect()
    }

    /// Returns the last decision of an HPA.
    pub fn last(&self, uid: &str) -> Option<DecisionEntry> {
        let entry = self.state.lock().by_uid.get(uid).and_then(|ring| ring.last()).cloned();
        entry.as_ref().and_then(Entry::decision)
    }

    /// Returns the size of the decisions of an HPA, in bytes.
    pub fn bytes(&self, uid: &str) -> usize {
        self.state.lock().by_uid.get(uid).map_or(0, |ring| ring.bytes())
    }

    /// Returns the number of HPAs with decisions.
    pub fn len(&self) -> usize {
        self.state.lock().by_uid.len()
    }

    /// Returns whether there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Observer for Record {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let mut state = self.state.lock();
        let State { by_uid, scratch } = &mut *state;
        if let Some(ring) = by_uid.get_mut(&sync.hpa.uid) {
            ring.add(sync, self.capacity, scratch);
            return;
        }
        by_uid.entry(Arc::clone(&sync.hpa.uid)).or_default().add(sync, self.capacity, scratch);
    }

    fn forgotten(&self, _: &Key, uid: &str) {
        let mut state = self.state.lock();
        state.by_uid.remove(uid);
        // Free the memory after the deletion of most HPAs.
        if state.by_uid.len() < state.by_uid.capacity() / 4 {
            state.by_uid.shrink_to_fit();
        }
    }
}

/// Appends the encoding of a value to `to`.
pub(crate) fn append<T: Serialize>(value: &T, to: Vec<u8>) -> Vec<u8> {
    // Fails only for a sequence of unknown length, which no encoded type contains.
    postcard::serialize_with_flavor(value, Appended(to)).unwrap_or_default()
}

/// A serializer's output that copies slices as a whole.
struct Appended(Vec<u8>);

impl Flavor for Appended {
    type Output = Vec<u8>;

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Decodes a value from the start of `bytes`. Returns the value and the remaining bytes. The size of the input bounds
/// the memory, because a sequence reserves at most 1 MiB before its elements are read.
pub(crate) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), postcard::Error> {
    postcard::take_from_bytes(bytes)
}

/// Maximum bytes of a text in a record. Longer texts are cut, because messages of other servers must not fill the
/// memory.
const MAX_TEXT: usize = 1024;

/// Endings of the texts in most records, each encoded as one byte. The first ending is empty. The second ending marks a
/// cut text.
const ENDINGS: [&str; 12] = [
    "",
    "…",
    " resource utilization (percentage of request)",
    "Resource",
    "External",
    "Object",
    "Pods",
    "cpu",
    "memory",
    "SuccessfulRescale",
    "FailedGetResourceMetric",
    "FailedComputeMetricsReplicas",
];

/// A text, encoded as an index into [`ENDINGS`] and the bytes before that ending.
#[derive(Debug)]
struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a Arc<str>> for Text<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Self::from(&**text)
    }
}

impl From<Text<'_>> for String {
    fn from(text: Text<'_>) -> Self {
        text.0.into_owned()
    }
}

impl From<Text<'_>> for Arc<str> {
    fn from(text: Text<'_>) -> Self {
        text.0.into()
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let cut = self.0.get(..self.0.floor_char_boundary(MAX_TEXT)).unwrap_or(&self.0);
        let (ending, stem) = if cut.len() < self.0.len() {
            (1, cut)
        } else {
            let mut usual = ENDINGS.iter().enumerate().skip(2);
            usual.find_map(|(code, ending)| Some((code, cut.strip_suffix(ending)?))).unwrap_or((0, cut))
        };
        (ending, stem).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Text<'_> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (ending, stem) = <(usize, &str)>::deserialize(from)?;
        let ending = ENDINGS.get(ending).ok_or_else(|| D::Error::custom("unknown ending"))?;
        Ok(Self([stem, ending].concat().into()))
    }
}
