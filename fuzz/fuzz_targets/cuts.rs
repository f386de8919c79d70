//! Cuts bytes into pieces, like a network.

/// Cuts `bytes` into pieces of the given `lengths`, which repeat.
pub fn cut<'a>(bytes: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().map_or(rest.len(), |length| usize::from(*length).max(1).min(rest.len()));
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Splits an input into the lengths of pieces and the bytes. The first byte is the number of lengths, and each length
/// is a byte.
pub fn parts(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((count, rest)) = input.split_first() else { return (&[], &[]) };
    // An input without lengths, such as a text seed, starts with a byte of at least 16.
    let count = if *count < 16 { usize::from(*count).min(rest.len()) } else { return (&[], input) };
    rest.split_at(count)
}
