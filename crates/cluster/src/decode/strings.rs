//! Finds the end of a JSON string without escapes, eight bytes at a time.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;
const WORD: usize = 8;

/// Returns the index of the first quote, backslash or control character.
pub(crate) fn end_of_plain(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (number, word) in words.iter().enumerate() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(number * WORD + usize::try_from(found.trailing_zeros()).unwrap_or(0) / WORD);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))?;
    Some(words.len() * WORD + at)
}

/// Sets the highest bit of the lowest byte that is a quote, a backslash or a control character. Bits of higher bytes may
/// also be set.
fn marks(word: u64) -> u64 {
    // A subtraction borrows from higher bytes only if a lower byte is found.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, 0x20) | equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn end_is_the_first_special_byte(bytes in prop::collection::vec(
            prop_oneof![6 => any::<u8>(), 1 => Just(b'"'), 1 => Just(b'!'), 1 => Just(0x1f), 1 => Just(b'\\')], 0..40,
        ), plain in 0_usize..24) {
            let bytes = ["é #$[]^_ {}~ abc \u{7f}".repeat(2).as_bytes().get(..plain).unwrap_or_default(), &bytes].concat();
            let expected = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20));
            prop_assert_eq!(end_of_plain(&bytes), expected);
        }
    }
}
