//! Replaces `tools.rs` in a build without the commands for people at a terminal.

use std::process::ExitCode;

use flags::{CliError, Parsed, Program};

/// The names of the commands, each with one line of help.
pub(crate) const COMMANDS: &[(&str, &str)] = &[];

/// A command for people at a terminal. This build has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {}

pub(crate) fn parse(_: Program, _: &[String]) -> Option<Result<Parsed<Command>, CliError>> {
    None
}

pub(crate) fn run(command: Command) -> ExitCode {
    match command {}
}
