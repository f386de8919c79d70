//! The times of the last events about objects. All HPAs may be contested at once, so no operation searches all entries.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between two events about the same object.
const REMIND: Duration = Duration::from_hours(1);

/// The objects with an event within the last hour.
#[derive(Debug)]
pub(super) struct Reminders<K> {
    last: BTreeMap<K, Instant>,
    /// The events, oldest first, also of objects that are forgotten.
    order: VecDeque<(Instant, K)>,
}

impl<K> Default for Reminders<K> {
    fn default() -> Self {
        Self { last: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Clone> Reminders<K> {
    /// Drops the entries that are older than an hour.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(at, _)| now.duration_since(*at) >= REMIND) {
            if let Some((at, key)) = self.order.pop_front()
                && self.last.get(&key) == Some(&at)
            {
                self.last.remove(&key);
            }
        }
    }

    /// Returns whether an event about the object is recent, after [`Self::expire`].
    pub(super) fn is_recent(&self, key: &K) -> bool {
        self.last.contains_key(key)
    }

    /// Records an event.
    pub(super) fn add(&mut self, key: K, now: Instant) {
        self.order.push_back((now, key.clone()));
        self.last.insert(key, now);
    }

    /// Forgets a deleted object.
    pub(super) fn forget(&mut self, key: &K) {
        self.last.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug, Clone)]
    struct Counted(usize);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    impl Eq for Counted {}

    #[test]
    fn ten_thousand_contests_at_once_are_not_compared_with_each_other() {
        const OBJECTS: usize = 10_000;
        let (mut reminders, start) = (Reminders::default(), Instant::now());
        for round in [start, start + REMIND] {
            reminders.expire(round);
            for number in 0..OBJECTS {
                assert!(!reminders.is_recent(&Counted(number)));
                reminders.add(Counted(number), round);
            }
        }
        for number in 0..OBJECTS {
            reminders.forget(&Counted(number));
        }
        reminders.expire(start + REMIND * 2);
        assert!(reminders.last.is_empty() && reminders.order.is_empty());
        let per_object = COMPARISONS.get() / OBJECTS;
        assert!(per_object < 1_000, "{per_object} comparisons per object");
    }

    #[test]
    fn forgotten_object_is_reported_again_at_once() {
        let (mut reminders, start) = (Reminders::default(), Instant::now());
        reminders.add("a", start);
        reminders.forget(&"a");
        assert!(!reminders.is_recent(&"a"));
        reminders.add("a", start + REMIND / 2);
        // The entry of the first event does not end the second interval.
        reminders.expire(start + REMIND);
        assert!(reminders.is_recent(&"a"));
        reminders.expire(start + REMIND * 3 / 2);
        assert!(!reminders.is_recent(&"a"));
    }
}
