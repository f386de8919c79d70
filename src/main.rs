//! The `concertina` binary: reads the command line, runs, maps errors to exit codes.

use std::process::ExitCode;

/// The released binaries are static, with musl, whose own allocator costs a quarter more CPU time per sync.
#[cfg(all(feature = "mimalloc", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    concertina::process::run(std::env::args_os())
}
