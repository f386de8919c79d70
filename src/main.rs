//! The `concertina` binary: reads the command line, runs, maps errors to exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    concertina::process::run(std::env::args_os())
}
