//! Bytes cut into pieces, as a network may do it.

/// The pieces of `bytes`, as long as the bytes of `lengths` say, over and over.
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

/// The cuts and the bytes of an input: how many cuts, each a byte, then the bytes.
pub fn parts(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((count, rest)) = input.split_first() else { return (&[], &[]) };
    // Texts as seeds are not cut: letters are large counts.
    let count = if *count < 16 { usize::from(*count).min(rest.len()) } else { return (&[], input) };
    rest.split_at(count)
}
