//! Texts in a record: bounded, and short for usual texts.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum bytes of a text. Longer texts are cut, because foreign messages must not fill the memory.
pub(super) const MAX_TEXT: usize = 1024;

/// Endings of the texts in most records, each encoded as one byte. The first entry is the empty ending. The
/// second marks a cut text.
const ENDINGS: [&str; 12] = [
    "",
    "…",
    " resource utilization (percentage of request)",
    "Resource",
    "External",
    "Object",
    "Pods",
    "cpu",
    "memory",
    "SuccessfulRescale",
    "FailedGetResourceMetric",
    "FailedComputeMetricsReplicas",
];

/// A text, encoded as an index into [`ENDINGS`] and the bytes before that ending.
#[derive(Debug)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a Arc<str>> for Text<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Self::from(&**text)
    }
}

impl From<Text<'_>> for String {
    fn from(text: Text<'_>) -> Self {
        text.0.into_owned()
    }
}

impl From<Text<'_>> for Arc<str> {
    fn from(text: Text<'_>) -> Self {
        text.0.into()
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let cut = self.0.get(..self.0.floor_char_boundary(MAX_TEXT)).unwrap_or(&self.0);
        let (ending, stem) = if cut.len() < self.0.len() {
            (1, cut)
        } else {
            let mut usual = ENDINGS.iter().enumerate().skip(2);
            usual.find_map(|(code, ending)| Some((code, cut.strip_suffix(ending)?))).unwrap_or((0, cut))
        };
        (ending, stem).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Text<'_> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (ending, stem) = <(usize, &str)>::deserialize(from)?;
        let ending = ENDINGS.get(ending).ok_or_else(|| D::Error::custom("unknown ending"))?;
        Ok(Self([stem, ending].concat().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{append, take};

    fn round_trip(text: &str) -> String {
        let bytes = append(&Text::from(text), Vec::new());
        take::<Text<'_>>(&bytes).unwrap().0.into()
    }

    #[test]
    fn long_text_is_cut_between_two_characters() {
        let text = format!("x{}", "ü".repeat(1000));
        assert_eq!(round_trip(&text).strip_suffix('…').unwrap(), &text[..1023]);
        let text = "x".repeat(1024);
        assert_eq!(round_trip(&text), text);
    }

    #[test]
    fn usual_texts_are_short() {
        for text in
            ["Resource", "ContainerResource", "cpu", "cpu resource utilization (percentage of request)", ""]
        {
            let bytes = append(&Text::from(text), Vec::new());
            assert!(bytes.len() <= 11, "{text}: {}", bytes.len());
            assert_eq!(round_trip(text), text);
        }
    }

    #[test]
    fn invalid_text_is_refused() {
        for bytes in [&[12, 0][..], &[0, 9, b'x'], &[0, 1, 0xff]] {
            assert!(take::<Text<'_>>(bytes).is_err());
        }
    }
}
