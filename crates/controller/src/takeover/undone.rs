//! Detects counts written by Concertina that another client undoes before the next sync.

use std::collections::BTreeMap;

use crate::store::Key;

/// Number of consecutive undone counts that a person with `kubectl scale` is unlikely to cause.
const IN_A_ROW: u32 = 2;

/// The last count written to each target, with the number of consecutive times that it was undone.
#[derive(Debug, Default)]
pub(super) struct Undone {
    written: BTreeMap<Key, (i32, u32)>,
}

impl Undone {
    /// Records a sync: the count that it found, and the count that it wrote, if any. Returns true each time
    /// the number of undone counts reaches [`IN_A_ROW`].
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

    /// Drops a deleted HPA.
    pub(super) fn forget(&mut self, key: &Key) {
        self.written.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(syncs: &[(i32, Option<i32>)]) -> Vec<bool> {
        let (key, mut undone) = (Key::new("shop", "web"), Undone::default());
        syncs.iter().map(|(found, wrote)| undone.synced(&key, *found, *wrote)).collect()
    }

    #[test]
    fn only_the_second_undone_count_in_a_row_is_reported() {
        assert_eq!(run(&[(3, Some(5)), (3, Some(5)), (5, None), (5, None)]), [false; 4]);
        let again = [(3, Some(5)), (3, Some(5)), (3, Some(5)), (3, Some(5))];
        assert_eq!(run(&again), [false, false, true, false]);
    }

    #[test]
    fn count_that_lasted_one_sync_was_not_undone() {
        assert_eq!(run(&[(3, Some(5)), (5, None), (3, Some(5)), (5, None), (3, Some(5))]), [false; 5]);
    }
}
