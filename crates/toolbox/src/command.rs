//! The commands, and the parsing of their command lines.

use crate::options::{
    ConsoleOptions, DemoOptions, HandoverOptions, Logging, ParityOptions, PolicyOptions, SimulateOptions,
    WhyOptions,
};
pub use crate::options::{Parsed, UsageError};
use crate::options::{cluster, console, demo, handover, parity, policy, simulate, why};
use crate::process::Process;
use crate::why::{WhyError, hpa_names_of};

/// A command with its options.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Serve a page with all HPAs.
    Console(Box<ConsoleOptions>),
    /// Run the demo.
    Demo(DemoOptions),
    /// Explain the replica count of an HPA.
    Why(Box<WhyOptions>),
    /// Compare a dry run with the built-in controller.
    Parity(Box<ParityOptions>),
    /// Check or import scaling policies, or import sources.
    Policy(PolicyOptions),
    /// Hand HPAs over from the built-in controller, or back.
    Handover(Box<HandoverOptions>),
    /// Run a simulation.
    Simulate(Box<SimulateOptions>),
}

/// Parses the arguments after the name of `program`. Returns `None` if they do not start with a command.
pub fn parse(
    program: &str,
    words: &[String],
    process: Process,
) -> Option<Result<Parsed<Command>, UsageError>> {
    let (name, rest) = words.split_first()?;
    let rest = rest.iter().cloned();
    Some(match name.as_str() {
        "console" => console::parse(program, rest).map(|parsed| parsed.map(Box::new).map(Command::Console)),
        "demo" => demo::parse(program, rest).map(|parsed| parsed.map(Command::Demo)),
        "why" => why::parse(program, rest, process).map(|parsed| parsed.map(Box::new).map(Command::Why)),
        "policy" => policy::parse(program, rest).map(|parsed| parsed.map(Command::Policy)),
        "sources" => policy::parse_sources(program, rest).map(|parsed| parsed.map(Command::Policy)),
        "parity" => parity::parse(program, rest).map(|parsed| parsed.map(Box::new).map(Command::Parity)),
        "handover" => {
            handover::parse(program, rest).map(|parsed| parsed.map(Box::new).map(Command::Handover))
        }
        "simulate" => {
            simulate::parse(program, rest).map(|parsed| parsed.map(Box::new).map(Command::Simulate))
        }
        _ => return None,
    })
}

/// The command line of each command and subcommand, for reference pages. The entry `handover` has the flags that its
/// subcommands share. `policy` and `sources` have entries for their subcommands only.
pub fn command_lines(program: &str, process: Process) -> Vec<clap::Command> {
    let shared = handover::shared(clap::Command::new("handover"));
    let handover = handover::commands().map(|command| {
        let name = format!("handover {}", command.get_name());
        command.name(name)
    });
    let policy = policy::commands().map(|command| {
        let name = format!("policy {}", command.get_name());
        command.name(name)
    });
    let sources = policy::sources_import().name("sources import");
    let own = [
        why::command(program, process),
        console::command(program),
        parity::command(program),
        simulate::command(program),
        demo::command(program),
    ];
    own.into_iter().chain(policy).chain([sources, shared]).chain(handover).collect()
}

/// The commands as a tree, for completion and manual pages. `handover`, `policy` and `sources` have their subcommands.
pub fn commands(program: &str, process: Process) -> [clap::Command; 8] {
    [
        why::command(program, process),
        console::command(program),
        policy::command(program),
        policy::sources_command(program),
        handover::command(program),
        parity::command(program),
        simulate::command(program),
        demo::command(program),
    ]
}

/// Lists HPAs for the completion of a command line with kubectl's connection flags, such as `-n shop web`. Returns no
/// names if the connection flags are invalid.
///
/// # Errors
/// Returns the reason why the HPAs cannot be read.
pub async fn hpa_names(words: Vec<String>) -> Result<Vec<String>, WhyError> {
    let command = cluster::arguments(clap::Command::new("names")).no_binary_name(true).ignore_errors(true);
    // Other flags of the command and an unfinished word are not errors here.
    match command.try_get_matches_from(words) {
        Ok(matches) => hpa_names_of(&cluster::options(&matches)).await,
        Err(_) => Ok(Vec::new()),
    }
}

/// A command line with only the flags that select a cluster.
pub fn connection_flags() -> clap::Command {
    cluster::arguments(clap::Command::new("connection"))
}

impl Command {
    /// Returns the logging options. `None` disables logs, so that they do not mix with the output.
    pub fn logging(&self) -> Option<Logging> {
        let logging = match self {
            Self::Console(options) => options.logging,
            Self::Demo(options) => options.logging,
            Self::Why(options) => options.logging,
            Self::Parity(options) => options.logging,
            Self::Handover(options) => options.logging,
            Self::Policy(PolicyOptions::Check(options)) => options.logging,
            Self::Policy(PolicyOptions::Import { .. } | PolicyOptions::ImportSources { .. })
            | Self::Simulate(_) => return None,
        };
        (logging.verbosity > 0).then_some(logging)
    }
}
