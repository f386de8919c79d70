//! Where a JSON object, array or string ends, without understanding it.
//!
//! Quotes and brackets are found for 64 bytes at once, as bits of a word, so that what is skipped costs a fraction of what
//! it would cost to be read. Whether it is sound JSON is not seen.

/// How deep in brackets the byte is that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::api) struct Nesting {
    /// Brackets open.
    depth: usize,
    in_string: bool,
    /// A backslash came last.
    escaped: bool,
}

const BLOCK: usize = 64;
const WORD: usize = 8;
const LAST: u32 = 63;

/// What 64 bytes hold: one bit per byte, the first is the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Marks {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

impl Nesting {
    /// Takes the next bytes, the first of which begins an object, an array or a string, and tells which of them is its last.
    /// `None`: it goes on with the bytes that come next.
    pub(in crate::api) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (number, block) in blocks.iter().enumerate() {
            if let Some(at) = self.block(block) {
                return Some(number * BLOCK + at);
            }
        }
        let at = rest.iter().position(|byte| self.byte(*byte))?;
        Some(blocks.len() * BLOCK + at)
    }

    /// Takes one byte; whether it is the last.
    fn byte(&mut self, byte: u8) -> bool {
        let escaped = std::mem::take(&mut self.escaped);
        match byte {
            b'\\' => self.escaped = !escaped,
            b'"' if !escaped => {
                self.in_string = !self.in_string;
                return !self.in_string && self.depth == 0;
            }
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// Takes 64 bytes; which of them is the last.
    fn block(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        if self.depth == 0 {
            return block.iter().position(|byte| self.byte(*byte));
        }
        let Marks { mut quotes, backslashes, mut opening, mut closing } = Marks::of(block);
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
        // The end may be among them.
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

    /// Which bytes follow a backslash that does not itself follow one that escapes it.
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
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut marks = Self::default();
        let (words, _) = block.as_chunks::<WORD>();
        for (number, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            let at = number * WORD;
            marks.quotes |= gathered(equal(word, b'"')) << at;
            // Rare: most words have none.
            let backslashes = equal(word, b'\\');
            if backslashes != 0 {
                marks.backslashes |= gathered(backslashes) << at;
            }
            // Brackets and braces differ in this bit.
            let brackets = word | each(0x20);
            marks.opening |= gathered(equal(brackets, b'{')) << at;
            marks.closing |= gathered(equal(brackets, b'}')) << at;
        }
        marks
    }
}

/// A word of eight times this byte.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; WORD])
}

/// The highest bit of each byte of a word that is this byte.
fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ each(byte);
    // Nothing carries from one byte to the next.
    !(((other & each(0x7f)) + each(0x7f)) | other) & each(0x80)
}

/// The highest bits of the eight bytes, side by side.
fn gathered(highest: u64) -> u64 {
    (highest >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The bits from each set one to before the next: what is between quotes, with the first and without the last.
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

    /// Where the value ends, byte by byte.
    fn slowly(bytes: &[u8]) -> Option<usize> {
        let mut nesting = Nesting::default();
        bytes.iter().position(|byte| nesting.byte(*byte))
    }

    #[test]
    fn an_object_ends_with_its_own_bracket() {
        let long = "x".repeat(200);
        for value in [
            r#"{"a":"}","b":[{}]}"#.to_owned(),
            format!(r#"{{"{long}":"{long}\"}}","b":["{long}\\"]}}"#),
            format!(r#"["{long}",[[[[{{}}]]]],"y_Y"]"#),
            format!(r#""{long}\\\"{long}""#),
        ] {
            for before in 0..70 {
                let text = format!("{value}{}", ",}]".repeat(before));
                assert_eq!(Nesting::default().end(text.as_bytes()), Some(value.len() - 1), "{text}");
                assert_eq!(slowly(text.as_bytes()), Some(value.len() - 1), "{text}");
            }
            let open = &value[..value.len() - 1];
            assert_eq!(Nesting::default().end(open.as_bytes()), None);
        }
    }

    proptest! {
        #[test]
        fn the_end_is_the_same_by_blocks_by_bytes_and_in_pieces(
            rest in r#"[\[\]{}"\\a-c_yY:,é]{0,300}"#, cuts in prop::collection::vec(0_usize..400, 0..4),
        ) {
            for first in ["{", "[", "\""] {
                let text = format!("{first}{rest}");
                let bytes = text.as_bytes();
                let expected = slowly(bytes);
                prop_assert_eq!(Nesting::default().end(bytes), expected);
                let mut cuts = cuts.clone();
                cuts.retain(|cut| *cut <= bytes.len());
                cuts.sort_unstable();
                let (mut nesting, mut at, mut found) = (Nesting::default(), 0, None);
                for cut in cuts.into_iter().chain([bytes.len()]) {
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
