//! Sets of labels, by their hash.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};

/// A hash of a set of labels. Equal sets have equal hashes, in any order of their labels. A label with an empty value
/// counts as absent, as in Prometheus.
///
/// The hash replaces the labels, which may be 64 KiB for each series. Among the 1,000 series that a scrape keeps for
/// each selector by default, two different series have the same hash with a probability of 1,000² / 2¹²⁹, less than 2
/// in 10³³. Such a collision would invalidate the samples of one selector, or one rate, of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelsHash([u64; 2]);

impl LabelsHash {
    /// The hash of labels, each with its name and value.
    pub fn new<'a>(labels: impl IntoIterator<Item = (Cow<'a, [u8]>, Cow<'a, str>)>) -> Self {
        let mut labels: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        labels.sort_unstable();
        let mut text = Vec::with_capacity(256);
        for (name, value) in &labels {
            for part in [name, value.as_bytes()] {
                // The length precedes each part, so different parts never give the same text.
                text.extend_from_slice(&part.len().to_ne_bytes());
                text.extend_from_slice(part);
            }
        }
        // Two SipHashes whose inputs differ from their first byte on.
        Self([0, 1].map(|first| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(first);
            hasher.write(&text);
            hasher.finish()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(labels: &[(&'static str, &'static str)]) -> LabelsHash {
        LabelsHash::new(labels.iter().map(|(name, value)| (name.as_bytes().into(), (*value).into())))
    }

    #[test]
    fn hash_is_that_of_the_set_of_labels() {
        let sets: [&[(&str, &str)]; 9] = [
            &[],
            &[("a", "b")],
            &[("a", "c")],
            &[("b", "a")],
            &[("ab", "")],
            &[("a", "b"), ("c", "d")],
            &[("a", "bc"), ("c", "d")],
            &[("a", "b"), ("a", "b")],
            &[("a", "b\u{1}c\u{1}d")],
        ];
        for (index, one) in sets.iter().enumerate() {
            for (other_index, other) in sets.iter().enumerate() {
                // A label with an empty value counts as absent.
                let equal = index == other_index
                    || (one.len() + other.len() == 1 && [0, 4].contains(&index.max(other_index)));
                assert_eq!(hash(one) == hash(other), equal, "{one:?} {other:?}");
            }
        }
        assert_eq!(hash(&[("c", "d"), ("a", "b")]), hash(&[("a", "b"), ("e", ""), ("c", "d")]));
        let LabelsHash([low, high]) = hash(&[("a", "b")]);
        assert_ne!(low, high);
    }
}
