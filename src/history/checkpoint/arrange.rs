//! Which HPA goes into which shard, how many shards there are, and what is left out.
//!
//! The rule: as many shards as are needed for each to fit, doubled from one up to [`MOST_SHARDS`], never fewer than
//! this leader has had; an HPA is in the shard that [`shard_of`] its UID names. If it still does not fit, those HPAs of
//! that shard are left out whose last scale event is the oldest, first of all those without one: their rate policies
//! run out first, or have nothing to lose.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::format::{Entry, Shard};
use super::hash::shard_of;

/// The most shards there are.
pub const MOST_SHARDS: usize = 8;

/// An entry, and what decides whether it is left out.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) entry: Entry,
    /// The time of the last scale event.
    pub(super) scaled: Option<Timestamp>,
}

/// What goes where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// A power of two of them.
    pub(super) shards: Vec<Vec<Entry>>,
    /// How many HPAs did not fit.
    pub(super) left_out: usize,
}

/// Arranges histories, with at most `limit` bytes a shard.
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
                // The last are the first to go.
                shard.sort_by_key(|candidate| Reverse(candidate.scaled));
                while size > limit
                    && let Some(candidate) = shard.pop()
                {
                    size -= candidate.entry.size();
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
    Shard::EMPTY + shard.iter().map(|candidate| candidate.entry.size()).sum::<usize>()
}

fn fits(candidates: &[Candidate], count: usize, limit: usize) -> bool {
    let mut sizes = [Shard::EMPTY; MOST_SHARDS];
    for candidate in candidates {
        if let Some(size) = sizes.get_mut(shard_of(&candidate.entry.uid, count)) {
            *size += candidate.entry.size();
        }
    }
    sizes.iter().all(|size| *size <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(count: u32, size: usize) -> Vec<Candidate> {
        let candidate = |n: u32| Candidate {
            entry: Entry { uid: format!("{n:08x}-0000-4000-8000-000000000000"), history: vec![1; size] },
            // The first tenth never scaled.
            scaled: (n >= count / 10).then(|| Timestamp::from_second(n.into()).unwrap()),
        };
        (0..count).map(candidate).collect()
    }

    #[test]
    fn there_are_as_many_shards_as_needed_and_each_fits() {
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
        assert_eq!(arrange(candidates(10, 82), 4, 10_000).shards.len(), 4, "never fewer than there were");
    }

    #[test]
    fn who_did_not_scale_for_the_longest_time_is_left_out_first() {
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
            assert!(!left_out_newer, "UIDs of this test rise with time");
        }
    }
}
