//! The command line of kube-controller-manager, parsed by pflag's rules.
//!
//! [`kcm`] lists kube-controller-manager's flags, and [`own`] lists Concertina's additional flags, each with
//! its place in the [`Config`]. [`flags`] converts them to clap arguments.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

pub mod config;
mod csv;
mod error;
pub mod flags;
pub mod gates;
pub mod kcm;
pub mod own;
pub mod values;

pub use config::Config;
pub use error::{CliError, FlagError, Reason};

/// The program's name on the command line, which help texts repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Program {
    /// `concertina`.
    #[default]
    Concertina,
    /// The kubectl plugin, which kubectl runs as `kubectl-concertina`.
    KubectlPlugin,
    /// The completion of the plugin, which kubectl runs as `kubectl_complete-concertina`.
    KubectlCompletion,
}

impl Program {
    /// Returns the program for `called`, the first argument of the command line.
    pub fn from_called(called: &OsStr) -> Self {
        match Path::new(called).file_stem().and_then(OsStr::to_str) {
            Some("kubectl-concertina") => Self::KubectlPlugin,
            Some("kubectl_complete-concertina") => Self::KubectlCompletion,
            _ => Self::Concertina,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Concertina => "concertina",
            Self::KubectlPlugin | Self::KubectlCompletion => "kubectl concertina",
        })
    }
}

/// The parsed arguments of a command: its options, or the requested help text.
#[derive(Debug)]
pub enum Parsed<T> {
    /// The options of the command.
    Options(T),
    /// The help text.
    Help(String),
}

/// Parses the arguments of a command. A request for help returns the help text.
pub(crate) fn matches(command: Command, words: &[String]) -> Result<Parsed<ArgMatches>, CliError> {
    match command.try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Options(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            Err(CliError::Subcommand(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}
