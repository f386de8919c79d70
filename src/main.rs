//! The `concertina` binary.

fn main() {}
