//! Counts of ours that somebody else undid before the next sync.

use std::collections::BTreeMap;

use crate::store::Key;

/// So many times in a row are more than a person with `kubectl scale`.
const IN_A_ROW: u32 = 2;

/// What was written last to the targets, and how often in a row it was undone.
#[derive(Debug, Default)]
pub(super) struct Undone {
    written: BTreeMap<Key, (i32, u32)>,
}

impl Undone {
    /// A sync found one count and wrote another, if it did. Answers whether somebody keeps undoing what is written;
    /// once each time that it becomes so.
    pub(super) fn synced(&mut self, key: &Key, found: i32, wrote: Option<i32>) -> bool {
        let times = match self.written.remove(key) {
            Some((written, times)) if written != found => times + 1,
            _ => 0,
        };
        if let Some(wrote) = wrote {
            self.written.insert(key.clone(), (wrote, times));
        }
        times == IN_A_ROW
    }

    /// An HPA is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.written.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(syncs: &[(i32, Option<i32>)]) -> Vec<bool> {
        let (key, mut undone) = (Key::new("shop", "web"), Undone::default());
        syncs.iter().map(|(found, wrote)| undone.synced(&key, *found, *wrote)).collect()
    }

    #[test]
    fn one_count_that_was_undone_is_a_person_and_the_second_in_a_row_is_not() {
        assert_eq!(play(&[(3, Some(5)), (3, Some(5)), (5, None), (5, None)]), [false; 4]);
        let again = [(3, Some(5)), (3, Some(5)), (3, Some(5)), (3, Some(5))];
        assert_eq!(play(&again), [false, false, true, false]);
    }

    #[test]
    fn a_count_that_stood_for_a_sync_was_not_undone() {
        assert_eq!(play(&[(3, Some(5)), (5, None), (3, Some(5)), (5, None), (3, Some(5))]), [false; 5]);
    }
}
