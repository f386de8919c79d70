//! The `concertina` binary: passes the command line to [`concertina::process::run`] and returns its exit
//! code.

use std::process::ExitCode;

/// Released binaries are static musl builds, and musl's own allocator costs a quarter more CPU time per sync.
#[cfg(all(feature = "mimalloc", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    concertina::process::run(std::env::args_os())
}
