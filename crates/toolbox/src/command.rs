//! The commands, the parsing of their command lines, and their verdict.

use crate::options::{
    self, ConsoleOptions, DemoOptions, HandoverOptions, Logging, ParityOptions, PolicyOptions,
    SimulateOptions, WhyOptions, cluster, console, demo, handover, parity, policy, simulate, why,
};
pub use crate::options::{Parsed, UsageError};
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

/// The result of the commands `policy`, `sources` and `handover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The command found nothing that needs attention.
    Good,
    /// A field has no effect or is not imported, an HPA is not in the intended state, or the guard does not work as
    /// intended.
    Attention,
}

impl Verdict {
    /// Returns the exit code, 0 or 3.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Attention => 3,
        }
    }

    pub(crate) fn good_if(good: bool) -> Self {
        if good { Self::Good } else { Self::Attention }
    }
}

/// Parses the arguments after the name of `program`. Returns `None` if they do not start with a command.
pub fn parse(program: &str, words: &[String]) -> Option<Result<Parsed<Command>, UsageError>> {
    let (name, rest) = words.split_first()?;
    let rest = rest.iter().cloned();
    Some(match name.as_str() {
        "console" => options::parse(console::command(program), rest, |matches| {
            Ok(Command::Console(Box::new(console::options(matches))))
        }),
        "demo" => {
            options::parse(demo::command(program), rest, |matches| Ok(Command::Demo(demo::options(matches))))
        }
        "why" => options::parse(why::command(program), rest, |matches| {
            Ok(Command::Why(Box::new(why::options(matches)?)))
        }),
        "policy" => options::parse(policy::command(program), rest, |matches| {
            policy::options(matches).map(Command::Policy)
        }),
        "sources" => options::parse(policy::sources_command(program), rest, |matches| {
            policy::sources_options(matches).map(Command::Policy)
        }),
        "parity" => options::parse(parity::command(program), rest, |matches| {
            Ok(Command::Parity(Box::new(parity::options(matches)?)))
        }),
        "handover" => options::parse(handover::command(program), rest, |matches| {
            Ok(Command::Handover(Box::new(handover::options(matches)?)))
        }),
        "simulate" => options::parse(simulate::command(program), rest, |matches| {
            Ok(Command::Simulate(Box::new(simulate::options(matches)?)))
        }),
        _ => return None,
    })
}

/// Returns the commands with their subcommands, for completion and manual pages.
pub fn commands(program: &str) -> [clap::Command; 8] {
    [
        why::command(program),
        console::command(program),
        policy::command(program),
        policy::sources_command(program),
        handover::command(program),
        parity::command(program),
        simulate::command(program),
        demo::command(program),
    ]
}

/// Returns the names of HPAs for the completion of a command line with kubectl's connection flags, such as `-n shop
/// web`. Returns no names if the connection flags are invalid.
///
/// # Errors
/// Returns the reason why the HPAs cannot be read.
pub async fn hpa_names(words: Vec<String>) -> Result<Vec<String>, WhyError> {
    let command = cluster::arguments(clap::Command::new("names")).no_binary_name(true).ignore_errors(true);
    // `ignore_errors` ignores the other flags of the completed command, and an unfinished word.
    match command.try_get_matches_from(words) {
        Ok(matches) => hpa_names_of(&cluster::options(&matches)).await,
        Err(_) => Ok(Vec::new()),
    }
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
