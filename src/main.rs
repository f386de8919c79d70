//! The `concertina` binary.

use std::process::ExitCode;

/// With the allocator of glibc or musl, a sync needs a fifth to a quarter more CPU time.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    concertina::run(std::env::args_os())
}
