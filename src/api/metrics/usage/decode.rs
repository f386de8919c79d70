//! From the items of a PodMetricsList to a [`Snapshot`], without building anything on the way.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use autoscaling::quantity::{Format, Quantity};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Amount, Container, FixedHasher, Pod, Sampling, Snapshot, compact, label_hash};
use crate::api::decode::{DecodeError, Pairs, Text};
use crate::api::metrics::wire::{self, LastTime};
use crate::duration::GoDuration;

/// Reads the items of one answer.
#[derive(Debug, Default)]
pub(in crate::api::metrics) struct Reader {
    snapshot: Snapshot,
    /// Whether labels are read and kept.
    labels: bool,
    words: HashMap<Arc<str>, u32, FixedHasher>,
    label_sets: HashMap<Box<str>, u32, FixedHasher>,
    time: LastTime,
    window: (String, i64),
    /// Why an amount cannot be read, in its own words: an error that passes through serde gets a place appended.
    failed: Option<DecodeError>,
}

impl Reader {
    /// For an answer from which all pods are wanted.
    pub(in crate::api::metrics) fn without_labels() -> Self {
        Self::default()
    }

    /// For an answer from which pods are to be selected.
    pub(in crate::api::metrics) fn with_labels() -> Self {
        Self { labels: true, ..Self::default() }
    }

    /// Takes in the next item.
    pub(in crate::api::metrics) fn item(&mut self, item: &[u8]) -> Result<(), DecodeError> {
        let mut text = serde_json::Deserializer::from_slice(item);
        let seen = ItemSeed(self).deserialize(&mut text);
        let seen = seen.map_err(|error| self.failed.take().unwrap_or_else(|| error.into()))?;
        text.end()?;
        let window_nanos = self.window(seen.window.as_ref())?;
        let sampling = Sampling { timestamp: self.time.read(seen.timestamp.as_ref())?, window_nanos };
        let labels = self.labels(seen.metadata.labels)?;
        let snapshot = &mut self.snapshot;
        if snapshot.samplings.last() != Some(&sampling) {
            snapshot.samplings.push(sampling);
        }
        snapshot.names.push_str(&seen.metadata.name);
        snapshot.pods.push(Pod {
            name_end: compact(snapshot.names.len()),
            containers_end: compact(snapshot.containers.len()),
            labels,
            sampling: compact(snapshot.samplings.len().saturating_sub(1)),
        });
        snapshot.bytes += item.len();
        Ok(())
    }

    /// What the items told.
    pub(in crate::api::metrics) fn finish(self) -> Snapshot {
        let mut snapshot = self.snapshot;
        snapshot.by_label.sort_unstable();
        snapshot.names.shrink_to_fit();
        snapshot.pods.shrink_to_fit();
        snapshot.containers.shrink_to_fit();
        snapshot.amounts.shrink_to_fit();
        snapshot
    }

    fn window(&mut self, text: Option<&Text<'_>>) -> Result<i64, DecodeError> {
        let Some(text) = text else { return Ok(0) };
        if **text != *self.window.0 || text.is_empty() {
            let window = text.parse::<GoDuration>().map_err(|error| DecodeError::new(error.to_string()))?;
            self.window = ((**text).to_owned(), window.0);
        }
        Ok(self.window.1)
    }

    fn labels(&mut self, labels: Option<&RawValue>) -> Result<u32, DecodeError> {
        if !self.labels {
            return Ok(0);
        }
        let text = labels.map_or("null", RawValue::get);
        // Lists are sorted by name, so mostly it is a pod of the same workload as the one before.
        if let Some(last) = self.snapshot.pods.last()
            && self.snapshot.label_sets.get(super::index(last.labels)).is_some_and(|known| **known == *text)
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

    fn word(&mut self, word: &str) -> u32 {
        if let Some(id) = self.words.get(word) {
            return *id;
        }
        let (id, word): (u32, Arc<str>) = (compact(self.snapshot.words.len()), word.into());
        self.snapshot.words.push(Arc::clone(&word));
        self.words.insert(word, id);
        id
    }

    fn amount(&mut self, resource: &str, raw: Option<&RawValue>) -> Result<(), DecodeError> {
        let (milli, format) = match plain_amount(raw) {
            Some(known) => known,
            None => {
                let quantity: Quantity = wire::quantity(raw)?;
                (quantity.milli_value(), quantity.format())
            }
        };
        let resource = self.word(resource);
        self.snapshot.amounts.push(Amount { resource, format, milli });
        Ok(())
    }
}

/// What nearly all amounts are: whole numbers with a short suffix. `None` for everything else, sound or not.
fn plain_amount(raw: Option<&RawValue>) -> Option<(i64, Format)> {
    let text = raw?.get().strip_prefix('"')?.strip_suffix('"')?;
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

/// A number that is not negative, divided and rounded up.
fn round_up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

/// What an item says besides its containers, which go straight to the snapshot.
#[derive(Default)]
struct Seen<'de> {
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
    type Value = Seen<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_> {
    type Value = Seen<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PodMetrics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen<'de>, A::Error> {
        let (mut seen, mut containers) = (Seen::default(), false);
        while let Some(field) = map.next_key()? {
            match field {
                ItemField::Metadata => seen.metadata = map.next_value::<Option<_>>()?.unwrap_or_default(),
                ItemField::Timestamp => seen.timestamp = map.next_value()?,
                ItemField::Window => seen.window = map.next_value()?,
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
        Ok(seen)
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
        let name = self.0.word(&name);
        let amounts_end = compact(self.0.snapshot.amounts.len());
        self.0.snapshot.containers.push(Container { name, amounts_end });
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
                let placed = Error::custom(&error);
                self.0.failed = Some(error);
                placed
            })?;
        }
        Ok(())
    }
}
