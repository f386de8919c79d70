//! When in each period an HPA is synced: its place.
//!
//! The places follow from the HPAs that there are and from nothing else, so that they are the same in every replica and
//! after every restart. Namespaces stand in the order of a hash, each with a slot of the period as large as its share of
//! all HPAs: no second has more syncs than another. In its slot the HPAs of a namespace lie close together, as far as
//! they are few, so that one list of its metrics serves them all; by a hash of their names. Places lie on beats, some
//! syncs on each: what does the same several times in a row costs less than what does it as often with pauses.
//!
//! A controller that is played can do without: each HPA then keeps the phase of its first sync.
//!
//! HPAs that come and go move the places of others a little. No sync leaps because of it: due times follow by a twentieth
//! of a period at most.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::FOREVER;
use crate::store::Key;

/// Into how many groups namespaces fall by their hash, as a power of two. Those of one group share a slot.
const GROUP_BITS: u32 = 10;
const GROUPS: usize = 1 << GROUP_BITS;
/// How far apart HPAs of one namespace lie at least, on average: 50 ms, in nanoseconds. Many take more than the window.
const CLOSE: u64 = 50_000_000;
/// The part of the time that a list of metrics serves in which HPAs lie that share it: the rest is for syncs that are late.
const WINDOW: (u32, u32) = (3, 5);
/// The most that HPAs of a namespace lie apart that could lie together, as a part of the period.
const WINDOW_OF_PERIOD: u32 = 5;
/// How far a due time follows its place from one period to the next, and the least pause after a sync, as a part of the
/// period.
const STEP: u64 = 20;
/// Between two beats at most: 500 ms, in nanoseconds. That is how late a due time may be that is moved to a beat.
const BEAT: u64 = 500_000_000;
/// Where a beat would have more syncs on average there are twice as many beats.
const SYNCS_PER_BEAT: u64 = 64;

/// The places of all HPAs.
#[derive(Debug)]
pub struct Phases {
    /// In nanoseconds, as all that is computed with it.
    period: u64,
    /// None: every HPA keeps the phase that it has.
    places: Option<Places>,
}

#[derive(Debug)]
struct Places {
    window: u64,
    began: Instant,
    /// How much of a period had passed at `began`.
    passed: u64,
    /// How many HPAs each group has.
    groups: Mutex<Vec<u64>>,
}

/// What the place of an HPA is made of.
#[derive(Debug, Clone, Copy)]
struct Hashes {
    group: usize,
    /// How far inside of its namespace's window, in parts of 2^64.
    inside: u64,
}

impl Phases {
    /// Places in a period, by the time of day `now`. `shared`: for how long one answer of the metrics APIs serves; none
    /// if answers are not shared.
    pub fn spread(period: Duration, shared: Option<Duration>, now: Timestamp) -> Self {
        let length = nanos(period).max(1);
        let window =
            shared.map_or(length, |age| nanos((age * WINDOW.0 / WINDOW.1).min(period / WINDOW_OF_PERIOD)));
        let passed = now.as_nanosecond().rem_euclid(i128::from(length));
        let places = Places {
            window,
            began: Instant::now(),
            passed: u64::try_from(passed).unwrap_or_default(),
            groups: Mutex::new(vec![0; GROUPS]),
        };
        Self { period: length, places: Some(places) }
    }

    /// No places: every HPA is due a period after it was due last, at first a period after its first sync.
    pub fn of_first_syncs(period: Duration) -> Self {
        Self { period: nanos(period).max(1), places: None }
    }

    /// There is one HPA more.
    pub fn add(&self, key: &Key) {
        self.count(key, |count| *count += 1);
    }

    /// There is one HPA less.
    pub fn remove(&self, key: &Key) {
        self.count(key, |count| *count = count.saturating_sub(1));
    }

    fn count(&self, key: &Key, change: impl FnOnce(&mut u64)) {
        if let Some(places) = &self.places
            && let Some(count) = places.groups().get_mut(Hashes::of(key).group)
        {
            change(count);
        }
    }

    /// When an HPA is due again whose sync began at `began` and has just ended. `due`: when it was due by its place, if it
    /// was. A due time that lies behind already, or is too near to this sync, is left out: it comes half a period after the
    /// beginning or later, and a twentieth after the end, so that what this sync wrote has been seen.
    pub fn next(&self, key: &Key, due: Option<Instant>, began: Instant) -> Instant {
        let earliest = later(began, self.period / 2).max(later(Instant::now(), self.period / STEP));
        let first = match (&self.places, due) {
            (None, due) => later(due.unwrap_or(began), self.period),
            (Some(places), None) => {
                let place = places.of(key, self.period);
                later(earliest, ahead(places.position(earliest, self.period), place, self.period))
            }
            (Some(places), Some(due)) => {
                let place = places.of(key, self.period);
                let forward = ahead(places.position(due, self.period), place, self.period);
                let (backward, step) = (self.period - forward, self.period / STEP);
                // One period, and what brings it nearer to its place.
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

impl Places {
    /// How much of a period has passed at an instant.
    fn position(&self, at: Instant, period: u64) -> u64 {
        let since = at.saturating_duration_since(self.began).as_nanos() + u128::from(self.passed);
        u64::try_from(since % u128::from(period)).unwrap_or_default()
    }

    /// How much of a period has passed when an HPA is due.
    fn of(&self, key: &Key, period: u64) -> u64 {
        let Hashes { group, inside } = Hashes::of(key);
        let (before, here, all) = {
            let groups = self.groups();
            // Of slices, which are summed many at a time: this is done at every sync.
            let (before, rest) = groups.split_at_checked(group).unwrap_or((&groups, &[]));
            let here = rest.first().copied().unwrap_or(0);
            let (before, rest) = (before.iter().sum::<u64>(), rest.iter().sum::<u64>());
            (before, here, before + rest)
        };
        // An HPA that has just gone is nowhere.
        let all = all.max(1);
        let slot = part(period, here, all);
        let window = self.window.max(here.saturating_mul(CLOSE)).min(slot);
        let place = part(period, before, all) + fraction(window, inside);
        place - place % beat(period, all)
    }

    fn groups(&self) -> MutexGuard<'_, Vec<u64>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far two beats lie apart with so many HPAs. In steps of two, so that it stays while HPAs come and go.
fn beat(period: u64, all: u64) -> u64 {
    let even = part(period, SYNCS_PER_BEAT, all);
    let mut beat = BEAT.min(period / STEP).max(1);
    while beat > even && beat > 1 {
        beat /= 2;
    }
    beat
}

impl Hashes {
    fn of(key: &Key) -> Self {
        let namespace = hash(&[&key.namespace]);
        let group = usize::try_from(namespace >> (u64::BITS - GROUP_BITS)).unwrap_or_default();
        // A slash is in no name.
        Self { group, inside: hash(&[&key.namespace, "/", &key.name]) }
    }
}

/// A hash that is the same everywhere and for ever.
fn hash(parts: &[&str]) -> u64 {
    let digest = digest(&SHA256, parts.concat().as_bytes());
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// How far it is from one place to another, forward.
fn ahead(from: u64, to: u64, period: u64) -> u64 {
    (to % period + period - from) % period
}

/// So many parts of all.
fn part(of: u64, parts: u64, all: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(parts) / u128::from(all)).unwrap_or(u64::MAX)
}

/// So many parts of 2^64.
fn fraction(of: u64, parts: u64) -> u64 {
    u64::try_from((u128::from(of) * u128::from(parts)) >> u64::BITS).unwrap_or(u64::MAX)
}

/// Nanoseconds; 292 years if it is longer, so that two of them can be added.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2)
}

fn later(at: Instant, by: u64) -> Instant {
    at.checked_add(Duration::from_nanos(by)).unwrap_or(at + FOREVER)
}

#[cfg(test)]
mod tests;
