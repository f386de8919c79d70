//! The encoding of one shard: `CHPA`, the version of the format, [`Head`] and the entries in postcard's format,
//! and FNV-1a of all preceding bytes, big-endian.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::arrange::fnv1a;
use crate::codec::{append, take};

/// The version of the format.
const VERSION: u8 = 2;
const MAGIC: [u8; 4] = *b"CHPA";
/// Length of magic and version.
const FORMAT: usize = MAGIC.len() + 1;
const CHECKSUM: usize = 8;
/// Maximum bytes of a shard: the API server's limit for a ConfigMap.
const MAX_BYTES: usize = 1 << 20;

/// The reason why bytes are not a valid shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The bytes exceed the size of a ConfigMap.
    #[error("the shard has {0} bytes, more than a ConfigMap can have")]
    TooLarge(usize),
    /// The bytes have another format.
    #[error("the data is not a checkpoint")]
    Foreign,
    /// The shard has another version of the format.
    #[error("the shard has format version {0}, but this build reads version {VERSION}")]
    Version(u8),
    /// The shard was changed or truncated.
    #[error("the checksum of the shard is wrong")]
    Checksum,
    /// The checksum is right, but the content is invalid.
    #[error("the content of the shard is invalid: {0}")]
    Content(#[from] postcard::Error),
    /// Bytes follow the last entry.
    #[error("the shard has {0} trailing bytes")]
    Trailing(usize),
    /// The time of the write is in the future, so one of the clocks is wrong.
    #[error("the time of the write, {0}, is in the future")]
    Future(Timestamp),
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Time of the write, by the leader's clock.
    pub written: Timestamp,
    /// Whether this is the last write of a leader that shut down cleanly.
    pub ended: bool,
    /// The histories.
    pub entries: Vec<Entry>,
}

/// One HPA's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `metadata.uid`.
    #[serde(serialize_with = "put_uid", deserialize_with = "take_uid")]
    pub uid: String,
    /// The encoded history.
    pub history: Vec<u8>,
}

/// The start of a shard, after its format.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    ended: bool,
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    written: Timestamp,
}

impl Entry {
    /// Size of the entry within a shard, in bytes.
    pub(super) fn size(&self) -> usize {
        append(self, Vec::new()).len()
    }
}

impl Shard {
    /// Maximum size of a shard without entries, in bytes. A time has up to 19 bytes, a count up to four.
    pub(super) const EMPTY: usize = FORMAT + 1 + 19 + 4 + CHECKSUM;

    /// The entries within an encoded shard.
    pub(super) fn entries_of(bytes: &[u8]) -> &[u8] {
        let content = bytes.get(FORMAT..bytes.len().saturating_sub(CHECKSUM)).unwrap_or_default();
        take::<Head>(content).map_or(&[], |(_, entries)| entries)
    }

    /// Encodes the shard.
    pub fn encode(&self) -> Vec<u8> {
        let head = Head { ended: self.ended, written: self.written };
        let format = [&MAGIC[..], &[VERSION]].concat();
        let mut bytes = append(&(head, &self.entries), format);
        bytes.extend(fnv1a(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes a shard, but not its histories: an invalid history must not affect the others.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShardError> {
        if bytes.len() > MAX_BYTES {
            return Err(ShardError::TooLarge(bytes.len()));
        }
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Err(ShardError::Foreign) };
        match rest.first() {
            Some(&VERSION) => {}
            Some(version) => return Err(ShardError::Version(*version)),
            None => return Err(ShardError::Checksum),
        }
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(ShardError::Checksum)?;
        if fnv1a(content).to_be_bytes() != *checksum {
            return Err(ShardError::Checksum);
        }
        let content = content.get(FORMAT..).unwrap_or_default();
        match take(content)? {
            ((Head { ended, written }, entries), []) => Ok(Self { written, ended, entries }),
            (_, rest) => Err(ShardError::Trailing(rest.len())),
        }
    }
}

/// A UID on the wire. A UUID, the usual form, takes less than half the bytes of its text.
#[derive(Serialize, Deserialize)]
enum Uid<'a> {
    Uuid([u8; 16]),
    Text(&'a str),
}

#[expect(clippy::ptr_arg, reason = "serde passes fields by reference")]
fn put_uid<S: Serializer>(uid: &String, to: S) -> Result<S::Ok, S::Error> {
    uuid(uid).map_or(Uid::Text(uid), Uid::Uuid).serialize(to)
}

fn take_uid<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Uid::deserialize(from)? {
        Uid::Uuid(bytes) => uuid_text(bytes),
        Uid::Text(text) => text.to_owned(),
    })
}

/// Parses a UUID in the form that API servers write. `None` for any other text.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = u128::from_str_radix(&text.replace('-', ""), 16).ok()?.to_be_bytes();
    (uuid_text(bytes) == text).then_some(bytes)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(bytes));
    for at in [8, 13, 18, 23] {
        text.insert(at, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard() -> Shard {
        let entry = |uid: &str, history: &[u8]| Entry { uid: uid.to_owned(), history: history.to_vec() };
        Shard {
            written: "2030-01-01T00:00:00.123456789Z".parse().unwrap(),
            ended: true,
            entries: vec![
                entry("0a1b2c3d-0000-4fff-8000-0123456789ab", &[1, 2, 3]),
                entry("0A1B2C3D-0000-4FFF-8000-0123456789AB", &[]),
                entry("other-form", &[7; 300]),
            ],
        }
    }

    #[test]
    fn shard_round_trips() {
        let shard = shard();
        let bytes = shard.encode();
        assert_eq!(Shard::decode(&bytes), Ok(shard.clone()));
        let size: usize = shard.entries.iter().map(Entry::size).sum();
        assert!((size..=Shard::EMPTY + size).contains(&bytes.len()));
        assert_eq!(Shard::entries_of(&bytes).len(), 1 + size);
        assert_eq!(shard.entries[0].size(), 17 + 1 + 3);
    }

    #[test]
    fn truncated_or_changed_shard_is_refused() {
        let bytes = shard().encode();
        for length in 0..bytes.len() {
            assert!(Shard::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(Shard::decode(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn error_names_the_defect() {
        let mut newer = shard().encode();
        newer[4] = 3;
        assert_eq!(Shard::decode(&newer), Err(ShardError::Version(3)));
        assert_eq!(Shard::decode(b"{}"), Err(ShardError::Foreign));
        assert_eq!(Shard::decode(&vec![0; MAX_BYTES + 1]), Err(ShardError::TooLarge(MAX_BYTES + 1)));
        assert_eq!(Shard::decode(b"CHPA"), Err(ShardError::Checksum));
    }

    #[test]
    fn content_that_ends_early_or_late_is_refused() {
        let sealed = |entries: &[u8]| {
            let mut bytes = append(&(true, 0_i128), [&MAGIC[..], &[VERSION]].concat());
            bytes.extend(entries);
            bytes.extend(fnv1a(&bytes).to_be_bytes());
            Shard::decode(&bytes)
        };
        assert_eq!(sealed(&[0, 7]), Err(ShardError::Trailing(1)));
        // A count, a text and a history that announce more bytes than follow.
        for entries in [&[0xff, 0xff, 0xff, 0x7f][..], &[1, 1, 9, b'u'], &[1, 1, 1, b'u', 9]] {
            assert_eq!(sealed(entries), Err(ShardError::Content(postcard::Error::DeserializeUnexpectedEnd)));
        }
    }
}
