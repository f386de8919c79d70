//! The program without the commands of the toolbox.

use std::process::ExitCode;

use crate::cli::{CliError, Program};
use crate::invocation::Invocation;

/// The commands in the help text.
pub(crate) const COMMANDS: &str = "\
Commands (their flags: concertina COMMAND --help):
  rbac      Print the roles that a controller with these flags needs.";

/// No command exists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {}

pub(crate) fn parse(_: Program, _: &[String]) -> Option<Result<Invocation, CliError>> {
    None
}

pub(crate) fn run(command: Command) -> ExitCode {
    match command {}
}
