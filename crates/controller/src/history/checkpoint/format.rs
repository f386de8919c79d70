//! The encoding of one shard.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `CHPA` |
//! | 1 | the version of this format: 1 |
//! | 1 | 1: the leader shut down cleanly after this write; otherwise 0 |
//! | 8, 4 | the time of the write: seconds since 1970 and nanoseconds, big-endian |
//! | n | the entries, one after another |
//! | 8 | FNV-1a of all preceding bytes, big-endian |
//!
//! An entry consists of the HPA's UID and its history in the core's encoding. The length of each precedes it
//! as a varint: seven bits per byte, the lowest first, the highest bit set on all bytes but the last. A UID
//! in the usual form of a UUID has the length 0 and sixteen bytes. Any other UID is text.

use jiff::Timestamp;

use super::hash::fnv1a;

/// The version of the format.
const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"CHPA";
/// Magic, version, mark and time.
const HEAD: usize = 18;
const CHECKSUM: usize = 8;
/// Maximum bytes of a UID that is not a UUID.
const MAX_UID: usize = 128;
/// Maximum bytes of a shard: the API server's limit for a ConfigMap.
const MAX_BYTES: usize = 1 << 20;

/// The reason why bytes are not a valid shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The bytes exceed the size of a ConfigMap.
    #[error("it has {0} bytes, more than a ConfigMap can have")]
    TooLarge(usize),
    /// The bytes have another format.
    #[error("it is not a checkpoint")]
    Foreign,
    /// The shard has another version of the format.
    #[error("it has version {0} of the format, not {VERSION}")]
    Version(u8),
    /// The shard was changed or truncated.
    #[error("its checksum is wrong")]
    Checksum,
    /// The entries do not end with the shard.
    #[error("an entry ends beyond its end")]
    Entries,
    /// The time of the write is in the future, so one of the clocks is wrong.
    #[error("its time of writing {0} is in the future")]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `metadata.uid`.
    pub uid: String,
    /// The history in the core's encoding.
    pub history: Vec<u8>,
}

impl Entry {
    /// Size of the entry within a shard, in bytes.
    pub(super) fn size(&self) -> usize {
        let uid = if uuid(&self.uid).is_some() { 17 } else { varint_size(self.uid.len()) + self.uid.len() };
        uid + varint_size(self.history.len()) + self.history.len()
    }
}

impl Shard {
    /// Size of a shard without entries, in bytes.
    pub(super) const EMPTY: usize = HEAD + CHECKSUM;

    /// The entries within an encoded shard.
    pub(super) fn entries_of(bytes: &[u8]) -> &[u8] {
        bytes.get(HEAD..bytes.len().saturating_sub(CHECKSUM)).unwrap_or_default()
    }

    /// Encodes the shard.
    pub fn encode(&self) -> Vec<u8> {
        let size: usize = self.entries.iter().map(Entry::size).sum();
        let mut bytes = Vec::with_capacity(Self::EMPTY + size);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, u8::from(self.ended)]);
        bytes.extend(self.written.as_second().to_be_bytes());
        bytes.extend(self.written.subsec_nanosecond().to_be_bytes());
        for Entry { uid, history } in &self.entries {
            if let Some(uuid) = uuid(uid) {
                bytes.push(0);
                bytes.extend(uuid);
            } else {
                varint(&mut bytes, uid.len());
                bytes.extend(uid.as_bytes());
            }
            varint(&mut bytes, history.len());
            bytes.extend(history);
        }
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
        let mut reader = Reader(content.get(MAGIC.len() + 1..).unwrap_or_default());
        let ended = reader.byte()? == 1;
        let (seconds, nanoseconds) = (reader.array()?, reader.array()?);
        let written = Timestamp::new(i64::from_be_bytes(seconds), i32::from_be_bytes(nanoseconds))
            .map_err(|_| ShardError::Entries)?;
        let mut entries = Vec::new();
        while !reader.0.is_empty() {
            let uid = reader.uid()?;
            let length = reader.length()?;
            entries.push(Entry { uid, history: reader.take(length)?.to_vec() });
        }
        Ok(Self { written, ended, entries })
    }
}

/// The remaining bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ShardError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ShardError::Entries)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ShardError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ShardError::Entries)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, ShardError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<usize, ShardError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(value).map_err(|_| ShardError::Entries);
            }
        }
        Err(ShardError::Entries)
    }

    fn uid(&mut self) -> Result<String, ShardError> {
        match self.length()? {
            0 => self.array().map(uuid_text),
            length if length <= MAX_UID => {
                let text = std::str::from_utf8(self.take(length)?).map_err(|_| ShardError::Entries)?;
                Ok(text.to_owned())
            }
            _ => Err(ShardError::Entries),
        }
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: usize) {
    while let Some(rest) = Some(value >> 7).filter(|rest| *rest > 0) {
        bytes.push(low_bits(value) | 0x80);
        value = rest;
    }
    bytes.push(low_bits(value));
}

/// The lowest seven bits.
fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or(0x7f)
}

fn varint_size(value: usize) -> usize {
    let bits = usize::BITS - value.leading_zeros();
    usize::try_from(bits.div_ceil(7).max(1)).unwrap_or(1)
}

/// Parses a UUID in the form that API servers write. `None` for any other text.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|digit| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    });
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    (uuid_text(bytes) == text).then_some(bytes)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for nibble in [byte >> 4, byte & 0xf] {
            text.extend(char::from_digit(nibble.into(), 16));
        }
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
        assert_eq!(bytes.len(), Shard::EMPTY + size);
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
        newer[4] = 2;
        assert_eq!(Shard::decode(&newer), Err(ShardError::Version(2)));
        assert_eq!(Shard::decode(b"{}"), Err(ShardError::Foreign));
        assert_eq!(Shard::decode(&vec![0; MAX_BYTES + 1]), Err(ShardError::TooLarge(MAX_BYTES + 1)));
        assert_eq!(Shard::decode(b"CHPA"), Err(ShardError::Checksum));
    }

    #[test]
    fn length_beyond_the_end_allocates_nothing() {
        let mut bytes = Shard { entries: Vec::new(), ..shard() }.encode();
        bytes.truncate(bytes.len() - CHECKSUM);
        for tail in
            [&[0xff, 0xff, 0xff, 0x7f][..], &[0xff, 0xff, 0xff, 0xff, 0x01], &[0, 1, 2], &[1, b'u', 9]]
        {
            let mut bytes = [&bytes, tail].concat();
            bytes.extend(fnv1a(&bytes).to_be_bytes());
            assert_eq!(Shard::decode(&bytes), Err(ShardError::Entries), "{tail:?}");
        }
    }
}
