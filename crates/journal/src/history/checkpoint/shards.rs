//! The shards of a checkpoint: the assignment of HPAs to shards, and the encoding of one shard.
//!
//! A shard is the content of one ConfigMap: `CHPA`, the version of the format, [`Head`] and the entries in postcard's
//! format, and FNV-1a of all preceding bytes, big-endian.

use std::cmp::Reverse;

use autoscaling::hash::fnv1a;
use jiff::Timestamp;
use postcard::ser_flavors::Size;
use postcard::serialize_with_flavor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::history::codec;
use crate::record::{append, take};

/// Maximum number of shards.
pub const MOST_SHARDS: usize = 8;

/// Location of the histories of `--history-checkpoint`: the namespace and the name of the Lease, also without leader
/// election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointPlace {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// The prefix of the ConfigMap names. This is the name of the Lease, so that installations with different Leases
    /// use different ConfigMaps.
    pub name: String,
}

impl Default for CheckpointPlace {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: "concertina".to_owned() }
    }
}

impl CheckpointPlace {
    /// Returns the names of all ConfigMaps, such as `concertina-history-0`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..MOST_SHARDS).map(|number| format!("{}-history-{number}", self.name))
    }
}

/// An entry that a shard may contain or leave out.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// Size of the entry within a shard, in bytes.
    pub(super) size: usize,
    /// The time of the last scale event. `None` without a scale event.
    pub(super) scaled: Option<Timestamp>,
}

/// The assignment of all histories.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// The shards. Their number is a power of two.
    pub(super) shards: Vec<Vec<Entry>>,
    /// Number of HPAs that were left out.
    pub(super) left_out: usize,
}

/// Assigns histories to shards of at most `limit` bytes each. The number of shards is the smallest sufficient power of
/// two. It is at most [`MOST_SHARDS`] and at least `at_least`, the number that this leader already uses. [`shard_of`]
/// determines the shard of an HPA by its UID. A shard that is still too large leaves out HPAs: first those without a
/// scale event, then those with the oldest last scale event. Old events affect the rates of `behavior` for the shortest
/// time.
pub(super) fn arrange(candidates: Vec<Candidate>, at_least: usize, limit: usize) -> Arrangement {
    let mut count = at_least.clamp(1, MOST_SHARDS).next_power_of_two();
    while count < MOST_SHARDS && !fits(&candidates, count, limit) {
        count *= 2;
    }
    let mut shards: Vec<Vec<Candidate>> = (0..count).map(|_| Vec::new()).collect();
    for candidate in candidates {
        if let Some(shard) = shards.get_mut(shard_of(&candidate.entry.uid, count)) {
            shard.push(candidate);
        }
    }
    let mut left_out = 0;
    let shards = shards
        .into_iter()
        .map(|mut shard| {
            let mut size = Shard::EMPTY + shard.iter().map(|candidate| candidate.size).sum::<usize>();
            if size > limit {
                // Entries are removed from the end, so the HPAs to leave out first come last.
                shard.sort_by_key(|candidate| Reverse(candidate.scaled));
                while size > limit
                    && let Some(candidate) = shard.pop()
                {
                    size -= candidate.size;
                    left_out += 1;
                }
            }
            let mut entries: Vec<_> = shard.into_iter().map(|candidate| candidate.entry).collect();
            entries.sort_by(|one, other| one.uid.cmp(&other.uid));
            entries
        })
        .collect();
    Arrangement { shards, left_out }
}

/// Assigns the states of forecasts to at most `count` shards of at most `limit` bytes each. A shard that is too large
/// leaves out the largest states.
pub(super) fn arrange_forecasts(states: Vec<Entry>, count: usize, limit: usize) -> Vec<Vec<Entry>> {
    let mut shards: Vec<(usize, Vec<Entry>)> = (0..count).map(|_| (Shard::EMPTY, Vec::new())).collect();
    let mut sized: Vec<_> = states.into_iter().map(|entry| (entry.size(), entry)).collect();
    sized.sort_by_key(|(size, _)| *size);
    for (size, entry) in sized {
        let shard = shards.get_mut(shard_of(&entry.uid, count));
        if let Some((used, entries)) = shard.filter(|(used, _)| used + size <= limit) {
            *used += size;
            entries.push(entry);
        }
    }
    shards.into_iter().map(|(_, entries)| entries).collect()
}

fn fits(candidates: &[Candidate], count: usize, limit: usize) -> bool {
    let mut sizes = [Shard::EMPTY; MOST_SHARDS];
    for candidate in candidates {
        if let Some(size) = sizes.get_mut(shard_of(&candidate.entry.uid, count)) {
            *size += candidate.size;
        }
    }
    sizes.iter().all(|size| *size <= limit)
}

/// Returns the shard of an HPA, out of `shards`. Its hash is part of the format, as is the checksum of a shard. The halves of the hash are folded, because its lowest bits depend only
/// on the lowest bits of each byte.
pub(super) fn shard_of(uid: &str, shards: usize) -> usize {
    let hash = fnv1a(uid.as_bytes());
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    usize::try_from((hash ^ (hash >> 32)) % shards).unwrap_or(0)
}

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
    #[serde(serialize_with = "put_history")]
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
    /// Returns the size of the entry within a shard, in bytes.
    pub(super) fn size(&self) -> usize {
        // Fails only like `append`.
        serialize_with_flavor(self, Size::default()).unwrap_or_default()
    }
}

impl Shard {
    /// Maximum size of a shard without entries, in bytes. A time has up to 19 bytes, a count up to four.
    pub(super) const EMPTY: usize = FORMAT + 1 + 19 + 4 + CHECKSUM;

    /// Returns the part of an encoded shard that contains the entries.
    pub(super) fn entries_of(bytes: &[u8]) -> &[u8] {
        let content = bytes.get(FORMAT..bytes.len().saturating_sub(CHECKSUM)).unwrap_or_default();
        take::<Head>(content).map_or(&[], |(_, entries)| entries)
    }

    /// Whether the entries are states of forecasts. Histories and states are in different shards.
    pub fn holds_forecasts(&self) -> bool {
        self.entries.first().is_some_and(|entry| codec::forecast(&entry.history).is_some())
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

/// Copies the history as a whole. The form on the wire is that of a sequence of bytes.
#[expect(clippy::ptr_arg, reason = "serde passes fields by reference")]
fn put_history<S: Serializer>(history: &Vec<u8>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(history)
}

fn take_uid<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Uid::deserialize(from)? {
        Uid::Uuid(bytes) => uuid_text(bytes),
        Uid::Text(text) => text.to_owned(),
    })
}

/// Parses a UUID in the form that API servers write. `None` for any other text.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (mut rest, mut bytes) = (text.bytes(), [0; 16]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) && rest.next() != Some(b'-') {
            return None;
        }
        *byte = digit(rest.next()?)? << 4 | digit(rest.next()?)?;
    }
    rest.next().is_none().then_some(bytes)
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

    fn candidates(count: u32, size: usize) -> Vec<Candidate> {
        let candidate = |n: u32| {
            let entry = Entry { uid: format!("{n:08x}-0000-4000-8000-000000000000"), history: vec![1; size] };
            // The first tenth of the HPAs has never scaled.
            let scaled = (n >= count / 10).then(|| Timestamp::from_second(n.into()).unwrap());
            Candidate { size: entry.size(), entry, scaled }
        };
        (0..count).map(candidate).collect()
    }

    #[test]
    fn shards_are_as_few_as_needed_and_each_fits() {
        for (count, shards) in [(0, 1), (10, 1), (90, 1), (110, 2), (250, 4), (500, 8)] {
            let arrangement = arrange(candidates(count, 82), 1, 10_000);
            assert_eq!((arrangement.shards.len(), arrangement.left_out), (shards, 0), "{count} HPAs");
            let all: usize = arrangement.shards.iter().map(Vec::len).sum();
            assert_eq!(all, usize::try_from(count).unwrap());
            for shard in arrangement.shards {
                let size = Shard::EMPTY + shard.iter().map(Entry::size).sum::<usize>();
                assert!(size <= 10_000 && shard.is_sorted_by_key(|entry| entry.uid.clone()));
            }
        }
        assert_eq!(arrange(candidates(10, 82), 4, 10_000).shards.len(), 4, "never fewer than before");
    }

    #[test]
    fn hpas_with_the_oldest_scale_event_are_left_out_first() {
        let all = candidates(1200, 82);
        let arrangement = arrange(all, 1, 10_000);
        assert_eq!(arrangement.shards.len(), MOST_SHARDS);
        let kept: usize = arrangement.shards.iter().map(Vec::len).sum();
        assert_eq!(kept + arrangement.left_out, 1200);
        assert!(arrangement.left_out > 300);
        for shard in &arrangement.shards {
            let oldest_kept = shard.iter().map(|entry| entry.uid.clone()).min().unwrap();
            let left_out_newer = candidates(1200, 82).into_iter().any(|candidate| {
                shard_of(&candidate.entry.uid, MOST_SHARDS) == shard_of(&oldest_kept, MOST_SHARDS)
                    && candidate.entry.uid > oldest_kept
                    && !shard.contains(&candidate.entry)
            });
            assert!(!left_out_newer, "UIDs of this test increase with time");
        }
    }

    #[test]
    fn largest_forecasts_are_left_out_first() {
        let state = |n: u8| {
            let state = codec::encode_forecast(&vec![1; if n.is_multiple_of(2) { 30 } else { 2_000 }]);
            Entry { uid: format!("{n:08x}-0000-4000-8000-000000000000"), history: state }
        };
        let shards = arrange_forecasts((0..60).map(state).collect(), 2, 10_000);
        let sizes: Vec<_> = shards.iter().flatten().map(|entry| entry.history.len()).collect();
        assert_eq!(sizes.iter().filter(|size| **size == 31).count(), 30);
        assert!((6..=9).contains(&sizes.iter().filter(|size| **size == 2001).count()), "{sizes:?}");
        for entries in shards {
            let shard = Shard { entries, ..shard() };
            assert!(shard.holds_forecasts() && shard.encode().len() <= 10_000);
        }
        assert!(!shard().holds_forecasts());
        assert_eq!(arrange_forecasts(vec![state(1)], 0, 10_000), Vec::<Vec<Entry>>::new());
    }

    /// The vectors come from draft-eastlake-fnv.
    #[test]
    fn hash_matches_the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hpas_spread_evenly_and_move_only_to_new_shards() {
        let uids: Vec<_> = (0..8000_u32)
            .map(|n| format!("{n:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(0x9e37_79b9)))
            .collect();
        let mut counts = [0_usize; 8];
        for uid in &uids {
            let (eighth, fourth) = (shard_of(uid, 8), shard_of(uid, 4));
            counts[eighth] += 1;
            assert!(eighth == fourth || eighth == fourth + 4);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
