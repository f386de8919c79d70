//! Finds the end of a JSON object or array without decoding it.
//!
//! The quotes and brackets among 64 bytes are found at once, as the bits of a word. Skipping a value therefore costs a
//! fraction of decoding it. The JSON is not validated.

/// The nesting state between two bytes of an object or array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nesting {
    /// The number of open brackets. 0 after the closing bracket of the value.
    depth: usize,
    in_string: bool,
    /// Whether the previous byte is an escaping backslash.
    escaped: bool,
}

const BLOCK: usize = 64;
const WORD: usize = 8;
const LAST: u32 = 63;

/// The special characters among 64 bytes, as one bit per byte. The lowest bit belongs to the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

impl Nesting {
    /// Returns the state after the opening bracket of a value.
    pub fn opened() -> Self {
        Self { depth: 1, in_string: false, escaped: false }
    }

    /// Consumes bytes of the value. Returns the index of its closing bracket, or `None` if the value continues after
    /// `bytes`.
    pub fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(at) = self.block(block) {
                return Some(number * BLOCK + at);
            }
        }
        let at = rest.iter().position(|byte| self.byte(*byte))?;
        Some(blocks.len() * BLOCK + at)
    }

    /// Consumes one byte. Returns whether the byte is the closing bracket of the value.
    fn byte(&mut self, byte: u8) -> bool {
        let escaped = std::mem::take(&mut self.escaped);
        match byte {
            b'\\' => self.escaped = !escaped,
            b'"' if !escaped => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }

    /// Consumes 64 bytes. Returns the index of the closing bracket of the value, if the block contains it.
    fn block(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let Marks { mut quotes, backslashes, mut opening, mut closing } = Marks::from_block(block);
        if backslashes != 0 || self.escaped {
            quotes &= !self.escaped_after(backslashes);
        }
        let strings = toggled(quotes, self.in_string);
        self.in_string = strings >> LAST == 1;
        opening &= !strings;
        closing &= !strings;
        if count(closing) < self.depth {
            self.depth = self.depth + count(opening) - count(closing);
            return None;
        }
        // The block may contain the closing bracket.
        let mut brackets = opening | closing;
        while brackets != 0 {
            let at = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if opening >> at & 1 == 1 {
                self.depth += 1;
                continue;
            }
            self.depth -= 1;
            if self.depth == 0 {
                return usize::try_from(at).ok();
            }
        }
        None
    }

    /// Returns the bits of the bytes that a backslash escapes.
    fn escaped_after(&mut self, mut backslashes: u64) -> u64 {
        let mut escaped = u64::from(self.escaped);
        backslashes &= !escaped;
        self.escaped = false;
        while backslashes != 0 {
            let backslash = backslashes & backslashes.wrapping_neg();
            let next = backslash << 1;
            self.escaped = next == 0;
            escaped |= next;
            backslashes &= !(backslash | next);
        }
        escaped
    }
}

impl Marks {
    fn from_block(block: &[u8; BLOCK]) -> Self {
        Self {
            quotes: gathered(&hits(block, |byte| byte == b'"')),
            backslashes: gathered(&hits(block, |byte| byte == b'\\')),
            // A bracket and a brace differ only in the bit 0x20.
            opening: gathered(&hits(block, |byte| byte | 0x20 == b'{')),
            closing: gathered(&hits(block, |byte| byte | 0x20 == b'}')),
        }
    }
}

/// Maps each matching byte to 1 and all other bytes to 0. The compiler can vectorize the loop.
fn hits(block: &[u8; BLOCK], is_match: impl Fn(u8) -> bool) -> [u8; BLOCK] {
    let mut hits = [0; BLOCK];
    for (hit, byte) in hits.iter_mut().zip(block) {
        *hit = u8::from(is_match(*byte));
    }
    hits
}

/// Packs the lowest bit of each byte into one word.
fn gathered(hits: &[u8; BLOCK]) -> u64 {
    let (words, _) = hits.as_chunks::<WORD>();
    let mut bits = 0;
    for (number, word) in words.iter().enumerate() {
        // The multiplication moves bit 8 i to bit 56 + i. No other bit reaches the upper eight positions.
        bits |= (u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (number * WORD);
    }
    bits
}

/// Sets the bits from each opening quote (inclusive) to its closing quote (exclusive).
fn toggled(quotes: u64, before: bool) -> u64 {
    let mut bits = quotes;
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    if before { !bits } else { bits }
}

fn count(bits: u64) -> usize {
    usize::try_from(bits.count_ones()).unwrap_or(BLOCK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Finds the end of a value byte by byte.
    fn end_by_bytes(bytes: &[u8]) -> Option<usize> {
        let mut nesting = Nesting::opened();
        bytes.iter().position(|byte| nesting.byte(*byte))
    }

    #[test]
    fn object_ends_with_its_matching_bracket() {
        let long = "x".repeat(200);
        for value in [
            r#""a":"}","b":[{}]}"#.to_owned(),
            format!(r#""{long}":"{long}\"}}","b":["{long}\\"]}}"#),
            format!(r#""{long}",[[[[{{}}]]]],"y_Y"]"#),
            format!(r#""{long}\\\"{long}"]"#),
        ] {
            for after in 0..70 {
                let text = format!("{value}{}", ",}]".repeat(after));
                assert_eq!(Nesting::opened().end(text.as_bytes()), Some(value.len() - 1), "{text}");
                assert_eq!(end_by_bytes(text.as_bytes()), Some(value.len() - 1), "{text}");
            }
            let open = &value[..value.len() - 1];
            assert_eq!(Nesting::opened().end(open.as_bytes()), None);
        }
    }

    proptest! {
        #[test]
        fn end_is_the_same_by_blocks_by_bytes_and_in_pieces(
            text in r#"[\[\]{}"\\a-c_yY:,é]{0,300}"#, mut cuts in prop::collection::vec(0_usize..400, 0..4),
        ) {
            // With this depth, most inputs do not end at their first closing bracket.
            let deep = Nesting { depth: 4, ..Nesting::opened() };
            for start in [Nesting::opened(), deep, Nesting { in_string: true, ..deep }] {
                let (bytes, mut slow) = (text.as_bytes(), start);
                let expected = bytes.iter().position(|byte| slow.byte(*byte));
                let mut whole = start;
                prop_assert_eq!(whole.end(bytes), expected);
                if expected.is_none() {
                    prop_assert_eq!(whole, slow);
                }
                cuts.retain(|cut| *cut <= bytes.len());
                cuts.sort_unstable();
                let (mut nesting, mut at, mut found) = (start, 0, None);
                for cut in cuts.iter().copied().chain([bytes.len()]) {
                    if found.is_none() {
                        found = nesting.end(&bytes[at..cut]).map(|end| at + end);
                    }
                    at = cut;
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
