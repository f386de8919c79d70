//! A map that evicts the least recently used entry. The map is ordered, which allows the removal of a range of keys.

use std::collections::BTreeMap;

/// A map of at most `capacity` entries.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    uses: u64,
    entries: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of a key, created if absent. Counts as a use.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.touch(key);
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (0, make()));
        entry.0 = self.uses;
        &mut entry.1
    }

    /// Counts a use of a key. Evicts an entry if the key is new and the map is full.
    fn touch(&mut self, key: &K) {
        self.uses += 1;
        if let Some((used, _)) = self.entries.get(key) {
            self.by_use.remove(used);
        } else if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.by_use.insert(self.uses, key.clone());
    }

    /// The value of a key. Does not count as a use.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Sets the value of a key. Counts as a use.
    pub(crate) fn insert(&mut self, key: &K, value: V) {
        self.touch(key);
        self.entries.insert(key.clone(), (self.uses, value));
    }

    /// Removes `first` and the keys that follow it in order, as long as `belongs` holds.
    pub(crate) fn remove_from(&mut self, first: &K, belongs: impl Fn(&K) -> bool) {
        let keys = self.entries.range(first..).map(|(key, _)| key).take_while(|key| belongs(key));
        for key in keys.cloned().collect::<Vec<_>>() {
            if let Some((used, _)) = self.entries.remove(&key) {
                self.by_use.remove(&used);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.by_use.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Lru;

    #[test]
    fn least_recently_used_entry_is_evicted_first() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with(&"a", || 1) += 10;
        lru.get_or_insert_with(&"b", || 2);
        lru.get_or_insert_with(&"a", || 0);
        lru.get_or_insert_with(&"c", || 3);
        assert_eq!(lru.len(), 2);
        assert_eq!(*lru.get_or_insert_with(&"a", || 0), 11);
        assert_eq!(*lru.get_or_insert_with(&"b", || 7), 7, "was forgotten");
        lru.insert(&"a", 1);
        lru.insert(&"d", 4);
        assert_eq!((lru.get(&"a"), lru.get(&"b"), lru.get(&"d")), (Some(&1), None, Some(&4)));
        lru.clear();
        assert_eq!((lru.len(), lru.by_use.len()), (0, 0));
    }

    #[test]
    fn range_removal_leaves_no_trace_of_its_keys() {
        let mut lru = Lru::new(6);
        for key in ["a", "b1", "b2", "b3", "c", "b"] {
            lru.insert(&key, key.len());
        }
        lru.remove_from(&"b1", |key| key.starts_with('b'));
        assert_eq!((lru.len(), lru.by_use.len()), (3, 3));
        assert_eq!((lru.get(&"a"), lru.get(&"b"), lru.get(&"b2")), (Some(&1), Some(&1), None));
        lru.remove_from(&"d", |_| true);
        assert_eq!(lru.len(), 3);
    }
}
