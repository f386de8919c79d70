//! Assigns every HPA an offset in the sync period.
//!
//! The offsets depend only on the set of HPAs, so they are equal in every replica and after every restart. Namespaces
//! are ordered by a hash. Each namespace has a slot of the period, in proportion to its share of all HPAs. Syncs are
//! therefore spread evenly over the period. The HPAs of a small namespace are close together in their slot, so that
//! they can share one list of metrics. A hash of their names determines their order. Offsets are on ticks with several
//! syncs each, because a batch of equal work costs less than the same work with pauses.
//!
//! A simulated controller can disable the offsets. Each HPA then keeps the phase of its first sync.
//!
//! The creation and deletion of HPAs moves the offsets of other HPAs slightly. In each period, a due time moves towards
//! its offset by at most a twentieth of a period, so that no sync moves far.

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
/// Divisor of the period for three values: the maximum move of a due time towards its offset per period, the maximum
/// distance between two ticks, and the minimum pause after a sync.
const STEP: u64 = 20;
/// Maximum distance between two ticks: 500 ms, in nanoseconds. An offset is rounded down to a tick.
const TICK: u64 = 500_000_000;
/// Maximum average number of syncs per tick. Above this number, the number of ticks doubles.
const SYNCS_PER_TICK: u64 = 64;

/// The offsets of all HPAs.
#[derive(Debug)]
pub struct SyncSchedule {
    /// The period in nanoseconds. Every value computed from it is also in nanoseconds.
    period: u64,
    /// The offsets. With `None`, every HPA keeps the phase of its first sync.
    offsets: Option<Offsets>,
}

#[derive(Debug)]
struct Offsets {
    window: u64,
    started: Instant,
    /// Offset of `started` in the period.
    passed: u64,
    /// Number of HPAs by group.
    groups: Mutex<Vec<u64>>,
}

/// The hashes that determine the offset of an HPA.
#[derive(Debug, Clone, Copy)]
struct Hashes {
    group: usize,
    /// Position within the window of its namespace, in units of 2^-64.
    inside: u64,
}

impl SyncSchedule {
    /// Creates offsets in a period, aligned to the time of day `now`. `shared`: the maximum age of a shared metrics
    /// response, or `None` if responses are not shared.
    pub fn spread(period: Duration, shared: Option<Duration>, now: Timestamp) -> Self {
        let length = nanos(period).max(1);
        let window =
            shared.map_or(length, |age| nanos((age * WINDOW.0 / WINDOW.1).min(period / WINDOW_OF_PERIOD)));
        let passed = now.as_nanosecond().rem_euclid(i128::from(length));
        let offsets = Offsets {
            window,
            started: Instant::now(),
            passed: u64::try_from(passed).unwrap_or_default(),
            groups: Mutex::new(vec![0; GROUPS]),
        };
        Self { period: length, offsets: Some(offsets) }
    }

    /// Creates a schedule without offsets. An HPA is due one period after its previous due time. Its first due time is
    /// one period after the start of its first sync.
    pub fn from_first_syncs(period: Duration) -> Self {
        Self { period: nanos(period).max(1), offsets: None }
    }

    /// Adds an HPA to the set that determines the offsets.
    pub fn add(&self, key: &Key) {
        self.count(key, |count| *count += 1);
    }

    /// Removes an HPA from the set that determines the offsets.
    pub fn remove(&self, key: &Key) {
        self.count(key, |count| *count = count.saturating_sub(1));
    }

    fn count(&self, key: &Key, change: impl FnOnce(&mut u64)) {
        if let Some(offsets) = &self.offsets
            && let Some(count) = offsets.groups.lock().get_mut(Hashes::new(key).group)
        {
            change(count);
        }
    }

    /// Returns the next due time of an HPA after a sync that started at `started` and has just ended. `due`: the due
    /// time of that sync, or `None` if that sync was not periodic. Skips due times in the past or too close to the
    /// sync. The next due time is at least half a period after the start. It is also at least a twentieth of a period
    /// after the end, so that the watch has delivered the writes of the sync.
    pub fn next(&self, key: &Key, due: Option<Instant>, started: Instant) -> Instant {
        let earliest = later(started, self.period / 2).max(later(Instant::now(), self.period / STEP));
        let first = match (&self.offsets, due) {
            (None, due) => later(due.unwrap_or(started), self.period),
            (Some(offsets), None) => {
                let offset = offsets.offset_of(key, self.period);
                later(earliest, ahead(offsets.position(earliest, self.period), offset, self.period))
            }
            (Some(offsets), Some(due)) => {
                let offset = offsets.offset_of(key, self.period);
                let forward = ahead(offsets.position(due, self.period), offset, self.period);
                let (backward, step) = (self.period - forward, self.period / STEP);
                // Move by one period, corrected towards the offset.
                let by = if forward <= backward {
                    self.period + forward.min(step)
                } else {
                    self.period - backward.min(step)
                };
                later(due, by)
            }
        };
        let behind = nanos(earliest.saturating_duration_since(first));
        later(first, behind.div_ceil(self.period).saturating_mul(self.period))
    }
}

impl Offsets {
    /// Returns the offset of an instant in the period.
    fn position(&self, at: Instant, period: u64) -> u64 {
        let since = at.saturating_duration_since(self.started).as_nanos() + u128::from(self.passed);
        u64::try_from(since % u128::from(period)).unwrap_or_default()
    }

    /// Returns the offset of an HPA in the period. Each group of namespaces has a slot in proportion to its HPAs. The
    /// hash of the HPA selects a position in the window of the slot. The offset is rounded down to a tick.
    fn offset_of(&self, key: &Key, period: u64) -> u64 {
        let Hashes { group, inside } = Hashes::new(key);
        let (before, here, all) = {
            let groups = self.groups.lock();
            // Use slices, because their sums vectorize. This code runs at every sync.
            let (before, rest) = groups.split_at_checked(group).unwrap_or((&groups, &[]));
            let here = rest.first().copied().unwrap_or(0);
            let (before, rest) = (before.iter().sum::<u64>(), rest.iter().sum::<u64>());
            (before, here, before + rest)
        };
        // The total is zero if the last HPA has just been deleted.
        let all = all.max(1);
        let slot = part(period, here, all);
        let window = self.window.max(here.saturating_mul(MIN_SPACING)).min(slot);
        let offset = part(period, before, all) + fraction(window, inside);
        offset - offset % tick(period, all)
    }
}

/// Returns the distance between two ticks with `all` HPAs. The distance changes only by factors of two, so that it is
/// stable while HPAs are created and deleted.
fn tick(period: u64, all: u64) -> u64 {
    let even = part(period, SYNCS_PER_TICK, all);
    let mut tick = TICK.min(period / STEP).max(1);
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

/// Returns the forward distance from one offset to another, across the end of the period if necessary.
fn ahead(from: u64, to: u64, period: u64) -> u64 {
    (to % period + period - from) % period
}

/// Returns the share `parts / all` of `whole`.
fn part(whole: u64, parts: u64, all: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(parts) / u128::from(all)).unwrap_or(u64::MAX)
}

/// Returns the share `parts / 2^64` of `whole`.
fn fraction(whole: u64, parts: u64) -> u64 {
    u64::try_from((u128::from(whole) * u128::from(parts)) >> u64::BITS).unwrap_or(u64::MAX)
}

/// Converts a duration to nanoseconds, at most 292 years, so that the sum of two values does not overflow.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2)
}

fn later(at: Instant, by: u64) -> Instant {
    clock::after(at, Duration::from_nanos(by))
}

#[cfg(test)]
mod tests;
