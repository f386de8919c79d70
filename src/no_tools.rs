//! The program without the commands of the toolbox.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::{CliError, Program};
use crate::invocation::Invocation;

/// The commands of the toolbox, each with one line of help.
pub(crate) const COMMANDS: &[(&str, &str)] = &[];

/// No command exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {}

pub(crate) fn parse(_: Program, _: &[String]) -> Option<Result<Invocation, CliError>> {
    None
}

pub(crate) fn run(command: Command) -> ExitCode {
    match command {}
}

/// Completes no command line.
pub(crate) fn complete(_: Program, _: &[OsString]) -> Option<ExitCode> {
    None
}
