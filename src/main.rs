//! The `concertina` binary.

use std::process::ExitCode;

/// The allocator of static musl builds, such as released binaries. With musl's allocator, a sync needs a quarter more
/// CPU time.
#[cfg(all(feature = "mimalloc", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    concertina::run(std::env::args_os())
}
