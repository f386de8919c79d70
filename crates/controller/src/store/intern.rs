//! Tables of shared values with reference counts.
//!
//! The tables count their users themselves instead of reading the count of `Arc`. A reader that still holds a
//! value therefore does not keep it in the table, and the size of the table depends on the objects alone.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Hashes with fixed keys, so that the same objects have the same layout in every run. A lookup costs one
/// comparison per string that was crafted to collide with it.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Strings: label keys and values, container and resource names.
#[derive(Debug, Default)]
pub(super) struct Strings {
    users: HashMap<Arc<str>, usize, FixedHasher>,
}

impl Strings {
    /// Returns the shared copy of a text. Adds one user.
    pub(super) fn acquire(&mut self, text: &str) -> Arc<str> {
        let shared =
            self.users.get_key_value(text).map_or_else(|| text.into(), |(shared, _)| Arc::clone(shared));
        *self.users.entry(Arc::clone(&shared)).or_default() += 1;
        shared
    }

    /// Removes one user.
    pub(super) fn release(&mut self, text: &str) {
        let Some(users) = self.users.get_mut(text) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.users.remove(text);
            shrink(&mut self.users);
        }
    }

    /// Number of distinct strings.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }
}

/// Identifies a value of a [`Table`] while it has users.
pub(super) type Id = u32;

/// Values by a digest of their content.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: BTreeMap<Id, Shared<T>>,
    by_digest: HashMap<u64, Vec<Id>, FixedHasher>,
    last: Id,
}

#[derive(Debug)]
struct Shared<T> {
    value: Arc<T>,
    digest: u64,
    users: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), by_digest: HashMap::default(), last: 0 }
    }
}

impl<T> Table<T> {
    /// Returns the id of an equal value. Adds one user.
    pub(super) fn acquire(&mut self, digest: u64, same: impl Fn(&T) -> bool) -> Option<Id> {
        let ids = self.by_digest.get(&digest)?;
        let id = *ids.iter().find(|id| self.values.get(id).is_some_and(|shared| same(&shared.value)))?;
        self.retain(id);
        Some(id)
    }

    /// Adds a value that [`Self::acquire`] did not find, with one user.
    pub(super) fn insert(&mut self, digest: u64, value: T) -> Id {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.values.contains_key(&self.last) {
                break;
            }
        }
        self.values.insert(self.last, Shared { value: Arc::new(value), digest, users: 1 });
        self.by_digest.entry(digest).or_default().push(self.last);
        self.last
    }

    /// Adds one user.
    pub(super) fn retain(&mut self, id: Id) {
        if let Some(shared) = self.values.get_mut(&id) {
            shared.users += 1;
        }
    }

    /// Removes one user. Returns the value if this was its last user.
    pub(super) fn release(&mut self, id: Id) -> Option<Arc<T>> {
        let shared = self.values.get_mut(&id)?;
        shared.users -= 1;
        if shared.users > 0 {
            return None;
        }
        let shared = self.values.remove(&id)?;
        if let Some(ids) = self.by_digest.get_mut(&shared.digest) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_digest.remove(&shared.digest);
                shrink(&mut self.by_digest);
            }
        }
        Some(shared.value)
    }

    /// Returns the value with the given id.
    pub(super) fn get(&self, id: Id) -> Option<&Arc<T>> {
        self.values.get(&id).map(|shared| &shared.value)
    }

    /// All values, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &Arc<T>)> {
        self.values.iter().map(|(id, shared)| (*id, &shared.value))
    }

    /// Number of distinct values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Frees memory once three quarters of the capacity are unused. Keeps space for twice the entries, so that the next
/// growth is cheap.
fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V, FixedHasher>) {
    if map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_is_stored_once_and_removed_with_its_last_user() {
        let mut strings = Strings::default();
        let first = strings.acquire("app");
        let second = strings.acquire("app");
        assert!(Arc::ptr_eq(&first, &second));
        strings.release("app");
        assert_eq!(strings.len(), 1);
        strings.release("app");
        assert_eq!(strings.len(), 0);
        strings.release("app");
        assert_eq!(strings.len(), 0);
    }

    #[test]
    fn values_with_equal_digests_stay_distinct() {
        let mut table = Table::<&str>::default();
        assert_eq!(table.acquire(7, |value| *value == "a"), None);
        let a = table.insert(7, "a");
        let b = table.insert(7, "b");
        assert_eq!(table.acquire(7, |value| *value == "b"), Some(b));
        assert_eq!(table.release(b), None);
        assert_eq!(table.release(b).as_deref(), Some(&"b"));
        assert_eq!(table.acquire(7, |value| *value == "b"), None);
        assert_eq!(table.get(a).map(|value| **value), Some("a"));
        assert!(table.release(a).is_some());
        assert_eq!(table.len(), 0);
        assert!(table.by_digest.is_empty());
    }

    #[test]
    fn ids_in_use_are_not_reused() {
        let mut table = Table::<u8>::default();
        let first = table.insert(1, 1);
        table.last = first.wrapping_sub(1);
        assert_ne!(table.insert(2, 2), first);
    }
}
