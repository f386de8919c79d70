//! Cuts bytes into pieces, as a network may do.

/// Cuts `bytes` into pieces. The pieces have the given `lengths`, which repeat.
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

/// Splits an input into cuts and bytes. The first byte is the number of cuts, each cut is one byte, and
/// the bytes follow.
pub fn parts(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((count, rest)) = input.split_first() else { return (&[], &[]) };
    // Text seeds are not cut, because their first byte is a letter and exceeds the limit.
    let count = if *count < 16 { usize::from(*count).min(rest.len()) } else { return (&[], input) };
    rest.split_at(count)
}
