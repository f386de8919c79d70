//! The command lines of the tools, one module per command, and the flags that commands share.

pub mod answer;
pub mod cluster;
pub(crate) mod console;
pub mod decision;
pub(crate) mod demo;
pub mod handover;
pub mod parity;
pub mod policy;
pub(crate) mod simulate;
pub mod why;

use std::time::Duration;

use autoscaling::duration::GoDuration;
use clap::ArgMatches;
use clap::error::ErrorKind;

pub use self::answer::Logging;
pub use self::console::ConsoleOptions;
pub use self::demo::DemoOptions;
pub use self::handover::HandoverOptions;
pub use self::parity::ParityOptions;
pub use self::policy::PolicyOptions;
pub use self::simulate::{
    Output as SimulateOutput, Outputs as SimulateOutputs, SimulateOptions, Source as SimulateSource,
};
pub use self::why::WhyOptions;
use crate::process::FlagError;

/// The arguments of a command are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// A flag of the controller is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The arguments are invalid or cannot be combined.
    #[error("{0}")]
    Arguments(String),
}

/// A parsed command line: options, or the requested help text.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed<T> {
    /// The options.
    Options(T),
    /// The help text.
    Help(String),
}

impl<T> Parsed<T> {
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Parsed<U> {
        match self {
            Self::Options(options) => Parsed::Options(convert(options)),
            Self::Help(text) => Parsed::Help(text),
        }
    }
}

/// Parses the arguments of one command.
fn parse_with<T>(
    command: clap::Command,
    words: impl Iterator<Item = String>,
    options: impl FnOnce(&ArgMatches) -> Result<T, UsageError>,
) -> Result<Parsed<T>, UsageError> {
    match command.try_get_matches_from(words) {
        Ok(matches) => options(&matches).map(Parsed::Options),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            Err(UsageError::Arguments(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}

/// Parses a duration above zero.
fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    duration.unsigned().filter(|duration| !duration.is_zero()).ok_or_else(|| "must be above zero".to_owned())
}
