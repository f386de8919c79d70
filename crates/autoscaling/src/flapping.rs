//! Counts that change direction repeatedly.

use std::cmp::Ordering;

/// Minimum number of direction changes within an hour for an HPA to count as flapping.
pub const FLAPPING: usize = 4;

/// Returns how often a sequence of counts changes direction. Equal counts in a row count once.
pub fn direction_changes(counts: impl IntoIterator<Item = i32>) -> usize {
    let (mut last, mut direction, mut changes) = (None, Ordering::Equal, 0);
    for count in counts {
        let next = last.map_or(Ordering::Equal, |last| count.cmp(&last));
        last = Some(count);
        if next == Ordering::Equal {
            continue;
        }
        if direction != Ordering::Equal && next != direction {
            changes += 1;
        }
        direction = next;
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::direction_changes;

    #[test]
    fn direction_changes_ignore_repeated_counts() {
        for (counts, changes) in [
            (&[][..], 0),
            (&[3], 0),
            (&[2, 4, 6], 0),
            (&[2, 4, 4, 3], 1),
            (&[2, 2, 4, 4, 2, 2, 4], 2),
            (&[1, 3, 1, 3, 1, 3], 4),
        ] {
            assert_eq!(direction_changes(counts.iter().copied()), changes, "{counts:?}");
        }
    }
}
