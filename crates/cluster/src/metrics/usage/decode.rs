//! Decodes the items of a PodMetricsList directly into a [`Snapshot`], without intermediate objects. Accepts items in
//! any field order and JSON form.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use autoscaling::quantity::Format;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Amount, Container, FixedHasher, Pod, Sampling, Snapshot, compact, label_hash, plain_item};
use crate::decode::{DecodeError, Pairs, Text};
use crate::metrics::values::{self, LastTime};
use autoscaling::duration::GoDuration;

/// Decodes the items of one response.
#[derive(Debug, Default)]
pub(in crate::metrics) struct Reader {
    snapshot: Snapshot,
    /// Whether labels are decoded and kept.
    labels: bool,
    words: HashMap<Arc<str>, u32, FixedHasher>,
    /// The words of the previous item, which the words of the current item overwrite one by one. `words_so_far` counts
    /// the words of the current item. Consecutive items usually have the same words.
    last_words: Vec<u32>,
    words_so_far: usize,
    label_sets: HashMap<Box<str>, u32, FixedHasher>,
    time: LastTime,
    window: (String, i64),
    /// The error of an amount, without the position that serde appends to errors.
    failed: Option<DecodeError>,
}

impl Reader {
    /// Creates a reader for responses whose pods are all used.
    pub(in crate::metrics) fn without_labels() -> Self {
        Self::default()
    }

    /// Creates a reader for responses from which pods are selected.
    pub(in crate::metrics) fn with_labels() -> Self {
        Self { labels: true, ..Self::default() }
    }

    /// Adds the next item.
    pub(in crate::metrics) fn item(&mut self, item: &[u8]) -> Result<(), DecodeError> {
        self.words_so_far = 0;
        let (containers, amounts) = (self.snapshot.containers.len(), self.snapshot.amounts.len());
        let plain = std::str::from_utf8(item).ok().and_then(|text| plain_item(text, self));
        if let Some(decoded) = plain {
            self.pod(decoded.name, decoded.labels, decoded.timestamp, decoded.window)?;
        } else {
            self.snapshot.containers.truncate(containers);
            self.snapshot.amounts.truncate(amounts);
            self.words_so_far = 0;
            let mut text = serde_json::Deserializer::from_slice(item);
            let decoded = ItemSeed(self).deserialize(&mut text);
            let decoded = decoded.map_err(|error| self.failed.take().unwrap_or_else(|| error.into()))?;
            text.end()?;
            let labels = decoded.metadata.labels.map(RawValue::get);
            self.pod(
                &decoded.metadata.name,
                labels,
                decoded.timestamp.as_deref(),
                decoded.window.as_deref(),
            )?;
        }
        self.snapshot.bytes += item.len();
        Ok(())
    }

    /// Adds a pod, whose containers have already been added.
    fn pod(
        &mut self,
        name: &str,
        labels: Option<&str>,
        timestamp: Option<&str>,
        window: Option<&str>,
    ) -> Result<(), DecodeError> {
        let window_nanos = self.window(window)?;
        let sampling = Sampling { timestamp: self.time.read(timestamp)?, window_nanos };
        let labels = self.labels(labels)?;
        let snapshot = &mut self.snapshot;
        if snapshot.samplings.last() != Some(&sampling) {
            snapshot.samplings.push(sampling);
        }
        snapshot.names.push_str(name);
        snapshot.pods.push(Pod {
            name_end: compact(snapshot.names.len()),
            containers_end: compact(snapshot.containers.len()),
            labels,
            sampling: compact(snapshot.samplings.len().saturating_sub(1)),
        });
        Ok(())
    }

    /// Returns the decoded snapshot.
    pub(in crate::metrics) fn finish(self) -> Snapshot {
        let mut snapshot = self.snapshot;
        // A set has a pair twice if a key is repeated.
        snapshot.by_label.sort_unstable();
        snapshot.by_label.dedup();
        if self.labels {
            let pods = &snapshot.pods;
            snapshot.by_set = (0..compact(pods.len())).collect();
            snapshot.by_set.sort_by_key(|at| pods.get(super::index(*at)).map(|pod| pod.labels));
        }
        snapshot.names.shrink_to_fit();
        snapshot.pods.shrink_to_fit();
        snapshot.containers.shrink_to_fit();
        snapshot.amounts.shrink_to_fit();
        snapshot
    }

    fn window(&mut self, text: Option<&str>) -> Result<i64, DecodeError> {
        let Some(text) = text else { return Ok(0) };
        if *text != *self.window.0 || text.is_empty() {
            let window = text.parse::<GoDuration>().map_err(|error| DecodeError::new(error.to_string()))?;
            self.window = (text.to_owned(), window.0);
        }
        Ok(self.window.1)
    }

    fn labels(&mut self, labels: Option<&str>) -> Result<u32, DecodeError> {
        if !self.labels {
            return Ok(0);
        }
        let text = labels.unwrap_or("null");
        // Lists are sorted by name, so the previous pod usually belongs to the same workload.
        if let Some(last) = self.snapshot.pods.last()
            && self
                .snapshot
                .label_sets
                .get(super::index(last.labels))
                .is_some_and(|last_set| **last_set == *text)
        {
            return Ok(last.labels);
        }
        if let Some(id) = self.label_sets.get(text) {
            return Ok(*id);
        }
        let id = compact(self.snapshot.label_sets.len());
        let pairs: Pairs<'_, Text<'_>> = serde_json::from_str(text)?;
        self.snapshot.by_label.extend(pairs.0.iter().map(|(key, value)| (label_hash(key, value), id)));
        self.snapshot.label_sets.push(text.into());
        self.label_sets.insert(text.into(), id);
        Ok(id)
    }

    /// Adds a container, whose amounts have already been added.
    pub(super) fn container(&mut self, name: &str) {
        let name = self.word(name);
        let amounts_end = compact(self.snapshot.amounts.len());
        self.snapshot.containers.push(Container { name, amounts_end });
    }

    fn word(&mut self, word: &str) -> u32 {
        let position = self.words_so_far;
        self.words_so_far += 1;
        if let Some(id) = self.last_words.get(position)
            && self.snapshot.words.get(super::index(*id)).is_some_and(|word_text| **word_text == *word)
        {
            return *id;
        }
        let id = self.words.get(word).copied().unwrap_or_else(|| {
            let (id, word): (u32, Arc<str>) = (compact(self.snapshot.words.len()), word.into());
            self.snapshot.words.push(Arc::clone(&word));
            self.words.insert(word, id);
            id
        });
        match self.last_words.get_mut(position) {
            Some(last) => *last = id,
            None => self.last_words.push(id),
        }
        id
    }

    /// Adds an amount in the form of [`plain_amount`]. `None` for any other text, valid or not.
    pub(super) fn plain_amount(&mut self, resource: &str, text: &str) -> Option<()> {
        let (milli, format) = plain_amount(text)?;
        let resource = self.word(resource);
        self.snapshot.amounts.push(Amount { resource, format, milli });
        Some(())
    }

    fn amount(&mut self, resource: &str, raw: Option<&RawValue>) -> Result<(), DecodeError> {
        let quantity = values::quantity(raw)?;
        let resource = self.word(resource);
        let (milli, format) = (quantity.milli_value(), quantity.format());
        self.snapshot.amounts.push(Amount { resource, format, milli });
        Ok(())
    }
}

/// Returns the milli-units and the format of an amount in a common form. This form is a whole number of at most 18
/// digits, with a common suffix or no suffix. `None` for any other text, and if the result is out of range.
pub(super) fn plain_amount(text: &str) -> Option<(i64, Format)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at_checked(digits).filter(|_| (1..=18).contains(&digits))?;
    let number = number.bytes().fold(0_i64, |number, digit| number * 10 + i64::from(digit & 0x0f));
    let scaled = |factor: i64| number.checked_mul(factor);
    let (milli, format) = match suffix {
        "n" => (round_up(number, 1_000_000), Format::DecimalSi),
        "u" => (round_up(number, 1_000), Format::DecimalSi),
        "m" => (number, Format::DecimalSi),
        "" => (scaled(1_000)?, Format::DecimalSi),
        "k" => (scaled(1_000_000)?, Format::DecimalSi),
        "Ki" => (scaled(1_000 << 10)?, Format::BinarySi),
        "Mi" => (scaled(1_000 << 20)?, Format::BinarySi),
        "Gi" => (scaled(1_000 << 30)?, Format::BinarySi),
        _ => return None,
    };
    Some((milli, format))
}

/// Divides a non-negative number and rounds up.
fn round_up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

/// The decoded fields of an item, without its containers, which go directly to the snapshot.
#[derive(Default)]
struct DecodedItem<'de> {
    metadata: Metadata<'de>,
    timestamp: Option<Text<'de>>,
    window: Option<Text<'de>>,
}

#[derive(Deserialize, Default)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ItemField {
    Metadata,
    Timestamp,
    Window,
    Containers,
    #[serde(other)]
    Other,
}

struct ItemSeed<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for ItemSeed<'_> {
    type Value = DecodedItem<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DecodedItem<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_> {
    type Value = DecodedItem<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PodMetrics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DecodedItem<'de>, A::Error> {
        let (mut decoded, mut containers) = (DecodedItem::default(), false);
        while let Some(field) = map.next_key()? {
            match field {
                ItemField::Metadata => decoded.metadata = map.next_value::<Option<_>>()?.unwrap_or_default(),
                ItemField::Timestamp => decoded.timestamp = map.next_value()?,
                ItemField::Window => decoded.window = map.next_value()?,
                ItemField::Containers if containers => {
                    return Err(Error::duplicate_field("containers"));
                }
                ItemField::Containers => {
                    containers = true;
                    map.next_value_seed(ContainersSeed(self.0))?;
                }
                ItemField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(decoded)
    }
}

struct ContainersSeed<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for ContainersSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ContainersSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of containers")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(ContainerSeed(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ContainerField {
    Name,
    Usage,
    #[serde(other)]
    Other,
}

struct ContainerSeed<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for ContainerSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ContainerSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the usage of a container")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut name = Text::default();
        while let Some(field) = map.next_key()? {
            match field {
                ContainerField::Name => name = map.next_value()?,
                ContainerField::Usage => map.next_value_seed(UsageSeed(&mut *self.0))?,
                ContainerField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        self.0.container(&name);
        Ok(())
    }
}

struct UsageSeed<'r>(&'r mut Reader);

impl<'de> DeserializeSeed<'de> for UsageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UsageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amounts by resource")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((resource, amount)) = map.next_entry::<Text<'de>, Option<&'de RawValue>>()? {
            self.0.amount(&resource, amount).map_err(|error| {
                let with_position = Error::custom(&error);
                self.0.failed = Some(error);
                with_position
            })?;
        }
        Ok(())
    }
}
