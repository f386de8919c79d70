//! The scale benchmark of `crates/benchmark`, with the program of this package as its default controller.

use std::path::Path;

fn main() -> Result<(), benchmark::Failure> {
    benchmark::main(Path::new(env!("CARGO_BIN_EXE_concertina")), Path::new(env!("CARGO_TARGET_TMPDIR")))
}
