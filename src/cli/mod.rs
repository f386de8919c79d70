//! The command line of kube-controller-manager, parsed by pflag's rules, and the subcommands.
//!
//! Two layers: [`flags`] parses arguments into values by pflag's rules and does not know their meaning.
//! [`config`] resolves the values into a [`Config`] that is always valid. [`kcm`] lists
//! kube-controller-manager's flags, and [`own`] lists Concertina's additional flags. Without a subcommand,
//! the program is the controller.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

pub mod config;
pub mod flags;
pub mod gates;
pub(crate) mod help;
pub mod kcm;
pub mod own;
pub mod values;

pub use config::Config;
use flags::FlagError;

/// The program's name on the command line, which help texts repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Program {
    /// `concertina`.
    #[default]
    Concertina,
    /// The kubectl plugin, which kubectl runs as `kubectl-concertina`.
    KubectlPlugin,
}

impl Program {
    /// Returns the program for `called`, the first argument of the command line.
    pub fn of(called: &OsStr) -> Self {
        let plugin = Path::new(called).file_stem().is_some_and(|name| name == "kubectl-concertina");
        if plugin { Self::KubectlPlugin } else { Self::Concertina }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Concertina => "concertina",
            Self::KubectlPlugin => "kubectl concertina",
        })
    }
}

/// An invalid command line. The process exits with [`CliError::EXIT_CODE`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// A flag or its value is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The arguments of a subcommand are invalid.
    #[error("{0}")]
    Subcommand(String),
    /// An argument is not UTF-8.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
}

impl CliError {
    /// The exit code for an invalid command line.
    pub const EXIT_CODE: u8 = 2;
}
