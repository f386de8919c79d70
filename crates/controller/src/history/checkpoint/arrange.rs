//! Assigns HPAs to shards.
//!
//! The number of shards is the smallest sufficient power of two, at most [`MOST_SHARDS`], and never below the number
//! that this leader already uses. [`shard_of`] determines the shard of an HPA by its UID. A shard that is still too
//! large leaves out HPAs: first those without a scale event, then those with the oldest last scale event. HPAs without
//! a scale event lose no rates, and the rates of old events expire first.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::format::{Entry, Shard};

/// Maximum number of shards.
pub const MOST_SHARDS: usize = 8;

/// An entry with the time that decides whether it is left out.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// Size of the entry within a shard, in bytes.
    pub(super) size: usize,
    /// The time of the last scale event.
    pub(super) scaled: Option<Timestamp>,
}

/// The assignment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// The shards. Their number is a power of two.
    pub(super) shards: Vec<Vec<Entry>>,
    /// Number of HPAs that were left out.
    pub(super) left_out: usize,
}

/// Assigns histories to shards of at most `limit` bytes each.
pub(super) fn arrange(candidates: Vec<Candidate>, at_least: usize, limit: usize) -> Arrangement {
    let mut count = at_least.clamp(1, MOST_SHARDS).next_power_of_two();
    while count < MOST_SHARDS && !fits(&candidates, count, limit) {
        count *= 2;
    }
    let mut shards: Vec<Vec<Candidate>> = Vec::new();
    shards.resize_with(count, Vec::new);
    for candidate in candidates {
        if let Some(shard) = shards.get_mut(shard_of(&candidate.entry.uid, count)) {
            shard.push(candidate);
        }
    }
    let mut left_out = 0;
    let shards = shards
        .into_iter()
        .map(|mut shard| {
            let mut size = size(&shard);
            if size > limit {
                // The last entries are left out first.
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

fn size(shard: &[Candidate]) -> usize {
    Shard::EMPTY + shard.iter().map(|candidate| candidate.size).sum::<usize>()
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

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// 64-bit FNV-1a. It assigns HPAs to shards, is the checksum of a shard, and detects unchanged shards. The first two
/// uses are part of the format, while the hash of the standard library may change.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Returns the shard of an HPA, out of `shards`. The halves of the hash are folded, because its lowest bits depend only
/// on the lowest bits of each byte.
pub(super) fn shard_of(uid: &str, shards: usize) -> usize {
    let hash = fnv1a(uid.as_bytes());
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    usize::try_from((hash ^ (hash >> 32)) % shards).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
