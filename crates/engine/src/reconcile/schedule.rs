//! The time of the next sync of an HPA.
//!
//! As in upstream, an HPA is due one period after the *end* of its sync. Every time that a sync adds to the history is
//! at or before its end. At the n-th sync after it, a rescale is therefore more than n periods old: it has left each
//! policy period of n sync periods, and a recommendation has left each such window. No comparison of two times needs a
//! tolerance for the duration or the lateness of a sync.
//!
//! A due time is then moved to the next slot of the HPA. A move is a hundredth of a period at most, and always to a
//! later time. Slots are a lap apart, which is slightly longer than a period, so an HPA with short syncs stays in its
//! slot. An HPA that was late leaves its slot, and catches up with it.
//!
//! The slots depend only on the set of HPAs, so they are equal in every replica and after every restart. Namespaces are
//! ordered by a hash. Each namespace has a part of the lap, in proportion to its share of all HPAs. Syncs are therefore
//! spread evenly over the lap. The HPAs of a small namespace are close together in their part, so that they can share
//! one list of metrics. A hash of their names determines their order. Slots are on ticks with several syncs each,
//! because a batch of equal work costs less than the same work with pauses.
//!
//! A new HPA, and every HPA at the start of a controller, syncs at once. In upstream, the sync that was due a period later
//! stays due. Here it is due at the HPA's slot, so syncs are spread over the lap from the first period on.
//!
//! A simulated controller can disable the slots.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use crate::store::Key;

/// Binary logarithm of the number of hash groups of namespaces. The namespaces of one group share a slot.
const GROUP_BITS: u32 = 10;
const GROUPS: usize = 1 << GROUP_BITS;
/// Minimum average distance between the HPAs of a group of namespaces: 50 ms, in nanoseconds. A group with many HPAs
/// therefore exceeds its window.
const MIN_SPACING: u64 = 50_000_000;
/// Fraction of the lifetime of a shared metrics list over which its HPAs are spread. The rest is a reserve for late
/// syncs.
const WINDOW: (u32, u32) = (3, 5);
/// Maximum window of a small namespace, as a divisor of the period.
const WINDOW_OF_PERIOD: u32 = 5;
/// Maximum distance between two ticks: 500 ms, in nanoseconds. An offset is rounded down to a tick.
const TICK: u64 = 500_000_000;
/// Minimum number of ticks in a lap.
const MIN_TICKS: u64 = 20;
/// By this fraction of the period, a lap is longer than the period. It is 75 ms of 15 s. A sync of an ordinary API
/// server takes 10 to 50 ms.
const SLACK: u64 = 200;
/// By this fraction of the period, a due time moves at most.
const MOVE: u64 = 100;
/// By this fraction of its period, an HPA with a period of its own moves at most.
const OWN_MOVE: u64 = 20;
/// By this fraction of its period, a lap of an HPA with a period of its own is longer than the period.
const OWN_SLACK: u64 = 50;
/// Maximum average number of syncs per tick. Above this number, the number of ticks doubles.
const SYNCS_PER_TICK: u64 = 64;

/// The slots of all HPAs.
#[derive(Debug)]
pub struct SyncSchedule {
    /// The period in nanoseconds. Every value computed from it is also in nanoseconds.
    period: u64,
    /// The slots. `None`: an HPA is due exactly one period after the end of its sync.
    offsets: Option<Offsets>,
}

#[derive(Debug)]
struct Offsets {
    lap: u64,
    window: u64,
    started: Instant,
    /// Offset of `started` in the lap.
    passed: u64,
    /// For each group, the number of HPAs in the groups before it. The last value is the number of all HPAs. Every sync
    /// reads these sums, and only a new or deleted HPA changes them.
    before: Mutex<Vec<u64>>,
}

/// The hashes that determine the offset of an HPA.
#[derive(Debug, Clone, Copy)]
struct Hashes {
    group: usize,
    /// Position within the window of its namespace, in units of 2^-64.
    inside: u64,
}

/// The sync period of an HPA whose policy sets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnPeriod {
    /// The period.
    pub period: Duration,
    /// The time of the request for the newest number that the sync read, if its source has a new number about once in a
    /// period. HPAs that read the same number move to the same slots, so that one request serves them all.
    pub requested: Option<Instant>,
}

impl OwnPeriod {
    /// Returns the next due time of an HPA whose sync ends now.
    pub(super) fn next(self) -> Instant {
        let earliest = clock::after(Instant::now(), self.period);
        let Some(requested) = self.requested else { return earliest };
        let period = nanos(self.period).max(1);
        let lap = lap(period, OWN_SLACK);
        let since = earliest.saturating_duration_since(requested).as_nanos() % u128::from(lap);
        let forward = ahead(u64::try_from(since).unwrap_or_default(), 0, lap);
        later(earliest, towards(forward, lap, period / OWN_MOVE))
    }
}

impl SyncSchedule {
    /// Creates slots in laps that are aligned to the time of day `now`. `shared`: the maximum age of a shared metrics
    /// response, or `None` if responses are not shared.
    pub fn spread(period: Duration, shared: Option<Duration>, now: Timestamp) -> Self {
        let length = nanos(period).max(1);
        let lap = lap(length, SLACK);
        let window =
            shared.map_or(lap, |age| nanos((age * WINDOW.0 / WINDOW.1).min(period / WINDOW_OF_PERIOD)));
        let passed = now.as_nanosecond().rem_euclid(i128::from(lap));
        let offsets = Offsets {
            lap,
            window,
            started: Instant::now(),
            passed: u64::try_from(passed).unwrap_or_default(),
            before: Mutex::new(vec![0; GROUPS + 1]),
        };
        Self { period: length, offsets: Some(offsets) }
    }

    /// Creates a schedule without slots: an HPA is due one period after the end of its sync.
    pub fn without_slots(period: Duration) -> Self {
        Self { period: nanos(period).max(1), offsets: None }
    }

    /// Adds an HPA to the set that determines the slots.
    pub fn add(&self, key: &Key) {
        self.count(key, |here| here + 1);
    }

    /// Removes an HPA from the set that determines the slots.
    pub fn remove(&self, key: &Key) {
        self.count(key, |here| here.saturating_sub(1));
    }

    fn count(&self, key: &Key, change: impl FnOnce(u64) -> u64) {
        let Some(offsets) = &self.offsets else { return };
        let mut before = offsets.before.lock();
        if let Some([start, ends @ ..]) = before.get_mut(Hashes::new(key).group..)
            && let Some(end) = ends.first().copied()
        {
            let here = end - *start;
            let changed = change(here);
            for end in ends {
                *end = *end - here + changed;
            }
        }
    }

    /// Returns the time of the next slot of an HPA, which is within a lap. `None` without slots.
    pub(super) fn slot(&self, key: &Key) -> Option<Instant> {
        let offsets = self.offsets.as_ref()?;
        let now = Instant::now();
        Some(later(now, offsets.until_slot(key, now)))
    }

    /// Returns the next due time of an HPA whose sync ends now: at least one period, and at most a hundredth of a period
    /// more.
    pub fn next(&self, key: &Key) -> Instant {
        let earliest = later(Instant::now(), self.period);
        let Some(offsets) = &self.offsets else { return earliest };
        later(earliest, towards(offsets.until_slot(key, earliest), offsets.lap, self.period / MOVE))
    }
}

/// Returns the length of a lap in nanoseconds: the period, and the fraction `1 / slack` of it.
fn lap(period: u64, slack: u64) -> u64 {
    period + (period / slack).max(1)
}

/// Returns the move of a due time that is `forward` before its slot, in nanoseconds. A due time that has passed its slot
/// by less than a quarter of a lap does not move: syncs that are shorter than the slack bring it back to the slot.
fn towards(forward: u64, lap: u64, most: u64) -> u64 {
    if forward > lap - lap / 4 { 0 } else { forward.min(most) }
}

impl Offsets {
    /// Returns the distance from an instant to the next slot of an HPA, in nanoseconds.
    fn until_slot(&self, key: &Key, from: Instant) -> u64 {
        ahead(self.position(from), self.offset_of(key), self.lap)
    }

    /// Returns the offset of an instant in the lap.
    fn position(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started).as_nanos() + u128::from(self.passed);
        u64::try_from(since % u128::from(self.lap)).unwrap_or_default()
    }

    /// Returns the offset of an HPA's slot in the lap. Each group of namespaces has a part in proportion to its HPAs. The
    /// hash of the HPA selects a position in the window of the part. The offset is rounded down to a tick.
    fn offset_of(&self, key: &Key) -> u64 {
        let Hashes { group, inside } = Hashes::new(key);
        let (before, here, all) = {
            let sums = self.before.lock();
            let [before, end] = [group, group + 1].map(|group| sums.get(group).copied().unwrap_or_default());
            (before, end - before, sums.last().copied().unwrap_or_default())
        };
        // The total is zero if the last HPA has just been deleted.
        let all = all.max(1);
        let whole = part(self.lap, here, all);
        let window = self.window.max(here.saturating_mul(MIN_SPACING)).min(whole);
        let offset = part(self.lap, before, all) + fraction(window, inside);
        offset - offset % tick(self.lap, all)
    }
}

/// Returns the distance between two ticks with `all` HPAs. The distance changes only by factors of two, so that it is
/// stable while HPAs are created and deleted.
fn tick(lap: u64, all: u64) -> u64 {
    let even = part(lap, SYNCS_PER_TICK, all);
    let mut tick = TICK.min(lap / MIN_TICKS).max(1);
    while tick > even && tick > 1 {
        tick /= 2;
    }
    tick
}

impl Hashes {
    fn new(key: &Key) -> Self {
        let namespace = hash(&[&key.namespace]);
        let group = usize::try_from(namespace >> (u64::BITS - GROUP_BITS)).unwrap_or_default();
        // The slash separates unambiguously, because it occurs in no name.
        Self { group, inside: hash(&[&key.namespace, "/", &key.name]) }
    }
}

/// Computes a hash that is stable across platforms and releases.
fn hash(parts: &[&str]) -> u64 {
    let digest = digest(&SHA256, parts.concat().as_bytes());
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Returns the forward distance from one offset to another, across the end of the lap if necessary.
fn ahead(from: u64, to: u64, lap: u64) -> u64 {
    (to % lap + lap - from) % lap
}

/// Returns the share `parts / all` of `whole`.
fn part(whole: u64, parts: u64, all: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(parts) / u128::from(all)).unwrap_or(u64::MAX)
}

/// Returns the share `parts / 2^64` of `whole`.
fn fraction(whole: u64, parts: u64) -> u64 {
    u64::try_from((u128::from(whole) * u128::from(parts)) >> u64::BITS).unwrap_or(u64::MAX)
}

/// Converts a duration to nanoseconds, at most 146 years, so that the sum of three values does not overflow.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

fn later(at: Instant, by: u64) -> Instant {
    clock::after(at, Duration::from_nanos(by))
}

#[cfg(test)]
mod tests;
