//! Errors of command lines.

use std::error::Error as _;
use std::fmt::Display;

use autoscaling::go;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use controller::election::TimingError;

use super::Program;
use super::gates::GateError;
use crate::serve::options::OpenPathsError;
use crate::serve::tls::options::TlsListError;

/// An invalid command line. The process exits with [`CliError::EXIT_CODE`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// A flag or its value is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The arguments of a subcommand are invalid.
    #[error("{0}")]
    Subcommand(String),
    /// The first argument is not a command.
    #[error("unknown command {} for \"{program}\"{}", go::quote(.word), suggestion(.similar.as_deref()))]
    UnknownCommand {
        /// The argument.
        word: String,
        /// The program, as invoked.
        program: Program,
        /// A command with a similar name.
        similar: Option<String>,
    },
    /// The command line names no command, and may not be meant to run the controller.
    #[error(
        "a command is missing: \"{program} help\" lists the commands, and \"{program} controller\" runs the controller"
    )]
    NoCommand {
        /// The program, as invoked.
        program: Program,
    },
    /// An argument is not UTF-8.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
}

impl CliError {
    /// The exit code for an invalid command line.
    pub const EXIT_CODE: u8 = 2;
}

/// An error in the flags of the controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The command line contains an unknown flag.
    #[error("unknown flag: {flag}{}", suggestion(.similar.as_deref()))]
    Unknown {
        /// The flag with its dashes.
        flag: String,
        /// A known flag with a similar name.
        similar: Option<String>,
    },
    /// The value has the wrong type or is not allowed.
    #[error("invalid argument {} for {} flag: {reason}", go::quote(.value), go::quote(.flag))]
    Invalid {
        /// The value.
        value: String,
        /// The flag with its dashes.
        flag: String,
        /// The reason.
        reason: Reason,
    },
    /// The command line contains positional arguments.
    #[error("\"concertina\" does not take any arguments, got [{}]", quote_all(.0))]
    Arguments(Vec<String>),
    /// Another error, such as a flag without its value.
    #[error("{0}")]
    Syntax(String),
}

fn suggestion(similar: Option<&str>) -> String {
    similar.map(|flag| format!("; did you mean {flag}?")).unwrap_or_default()
}

fn quote_all(words: &[String]) -> String {
    words.iter().map(|word| go::quote(word)).collect::<Vec<_>>().join(" ")
}

impl FlagError {
    /// Creates the error for a value that is not allowed.
    pub(crate) fn invalid(name: impl Display, value: impl Into<String>, reason: impl Into<Reason>) -> Self {
        Self::Invalid { value: value.into(), flag: format!("--{name}"), reason: reason.into() }
    }
}

impl From<clap::Error> for FlagError {
    fn from(error: clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            _ => None,
        };
        match (error.kind(), text(ContextKind::InvalidArg), error.source()) {
            (ErrorKind::UnknownArgument, Some(flag), _) => {
                // clap also suggests names that share only a few letters.
                let start = flag.get(.."--xx".len());
                let similar = text(ContextKind::SuggestedArg);
                Self::Unknown {
                    similar: similar.filter(|similar| similar.get(.."--xx".len()) == start),
                    flag,
                }
            }
            (ErrorKind::ValueValidation, Some(flag), Some(source)) => Self::Invalid {
                value: text(ContextKind::InvalidValue).unwrap_or_default(),
                // clap appends the value's placeholder.
                flag: flag.split([' ', '[', '=']).next().unwrap_or_default().to_owned(),
                reason: Reason::Text(source.to_string()),
            },
            _ => {
                let text = error.to_string();
                let message = text.split("\n\n").next().unwrap_or_default();
                Self::Syntax(message.trim_start_matches("error: ").trim_end().to_owned())
            }
        }
    }
}

/// The reason why a value is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The value does not have the type of the flag, with the parser's text.
    #[error("{0}")]
    Text(String),
    /// The value is out of bounds, or is not one of the allowed words.
    #[error("must be {0}")]
    MustBe(&'static str),
    /// The flag requires another flag.
    #[error("needs --{0}")]
    Needs(&'static str),
    /// The guard would refuse the writes of this controller itself.
    #[error(
        "cannot be used with --handover-guard=webhook and --handover-guard=policy: the guards refuse writes by \
         {0}, and this controller would write as that user; run the controller as a separate ServiceAccount"
    )]
    GuardRefuses(String),
    /// A namespace has an invalid name.
    #[error("{0:?} is not a valid namespace name")]
    Namespace(String),
    /// A list of namespaces is empty, which would select the whole cluster.
    #[error("must name at least one namespace")]
    NoNamespace,
    /// A list contains an item twice.
    #[error("{0} is listed twice")]
    Twice(String),
    /// An item is not a resource.
    #[error("{0:?} is not a resource with its group, such as deployments.apps")]
    Resource(String),
    /// A header has no name.
    #[error("empty header \"\"")]
    EmptyHeader,
    /// A feature gate or an emulated version is invalid.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The durations of leader election are invalid.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A list of cipher suites or curves is invalid.
    #[error(transparent)]
    Tls(#[from] TlsListError),
    /// A path without authorization is invalid.
    #[error(transparent)]
    OpenPaths(#[from] OpenPathsError),
}
