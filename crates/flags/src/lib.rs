//! The command line of kube-controller-manager, parsed by pflag's rules, and what follows from it: the configuration of
//! the process and the permissions that it needs.
//!
//! | module | contents |
//! |---|---|
//! | [`kcm`], [`own`] | the flags of kube-controller-manager, and the additional flags of Concertina, each with its place in the [`Config`] |
//! | [`flag`], `set` | a flag as an argument of clap, and all flags ([`FlagSet`]) |
//! | [`values`], `csv`, [`gates`] | the types of values, as in pflag and Go, and the feature gates |
//! | [`config`], [`serving`], [`tls`] | the validated configuration, with that of the HTTPS server |
//! | [`decision`] | the flags that change a decision, for commands that decide themselves |
//! | [`permissions`] | the permissions of a configuration, and their manifest |

pub mod config;
mod csv;
pub mod decision;
pub mod flag;
pub mod gates;
pub mod kcm;
pub mod own;
pub mod permissions;
pub mod serving;
mod set;
pub mod tls;
pub mod values;

use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::path::Path;

use autoscaling::failure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};
use controller::election::TimingError;

pub use self::config::Config;
pub use self::decision::DecisionFlags;
use self::gates::GateError;
use self::serving::OpenPathsError;
pub use self::set::FlagSet;
use self::tls::TlsListError;

/// The name of the program on the command line. Help texts use this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Program {
    /// `concertina`.
    #[default]
    Concertina,
    /// `kubectl-concertina`: the kubectl plugin.
    KubectlPlugin,
    /// `kubectl_complete-concertina`: the completion of the kubectl plugin.
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
    /// The help text that `--help` requests.
    Help(String),
}

/// Parses the arguments of a command. Returns the help text if the arguments request it.
///
/// # Errors
/// Returns [`CliError`] for an invalid command line.
pub fn matches(command: Command, words: &[String]) -> Result<Parsed<ArgMatches>, CliError> {
    match command.try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Options(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            Err(CliError::Subcommand(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
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
    /// The first argument is not a command.
    #[error(
        "unknown command {} for \"{program}\"; {}",
        failure::quote(.word),
        match .similar {
            Some(similar) => format!("did you mean {similar}?"),
            None => format!("\"{program} help\" lists the commands"),
        }
    )]
    UnknownCommand {
        /// The first argument.
        word: String,
        /// The program whose name the message cites.
        program: Program,
        /// A command with a similar name.
        similar: Option<String>,
    },
    /// The command line names no command, and the user probably does not intend to run the controller.
    #[error(
        "a command is missing: \"{program} help\" lists the commands, and \"{program} controller\" runs the controller, \
         outside of a pod with --kubeconfig or --master"
    )]
    NoCommand {
        /// The program whose name the message cites.
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
    #[error("invalid argument {} for {} flag: {reason}", failure::quote(.value), failure::quote(.flag))]
    Invalid {
        /// The text of the value.
        value: String,
        /// The flag with its dashes.
        flag: String,
        /// The fault of the value.
        reason: Reason,
    },
    /// The command line contains positional arguments.
    #[error("\"{command}\" does not take any arguments, got [{}]", quote_all(.words))]
    Arguments {
        /// The command as the user calls it, such as `concertina controller`.
        command: String,
        /// The positional arguments.
        words: Vec<String>,
    },
    /// Another error, such as a flag without its value.
    #[error("{0}")]
    Syntax(String),
}

fn suggestion(similar: Option<&str>) -> String {
    similar.map(|flag| format!("; did you mean {flag}?")).unwrap_or_default()
}

fn quote_all(words: &[String]) -> String {
    words.iter().map(|word| failure::quote(word)).collect::<Vec<_>>().join(" ")
}

impl FlagError {
    /// Creates the error for a value that is not allowed.
    pub fn invalid(name: impl Display, value: impl Into<String>, reason: impl Into<Reason>) -> Self {
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
                // clap also suggests names with only a few equal letters. Only a suggestion with the same first two
                // letters is kept.
                let start = flag.get(.."--xx".len());
                let similar = text(ContextKind::SuggestedArg);
                Self::Unknown {
                    similar: similar.filter(|similar| similar.get(.."--xx".len()) == start),
                    flag,
                }
            }
            (ErrorKind::ValueValidation, Some(flag), Some(source)) => Self::Invalid {
                value: text(ContextKind::InvalidValue).unwrap_or_default(),
                // clap appends the placeholder of the value to the flag.
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
    /// The value does not have the type of the flag. The text is the parser's error.
    #[error("{0}")]
    Text(String),
    /// The value is out of bounds, or is not one of the allowed words.
    #[error("must be {0}")]
    MustBe(&'static str),
    /// The flag requires another flag.
    #[error("needs --{0}")]
    Needs(&'static str),
    /// The guard would refuse the writes of this controller. The text is the user name of the controller.
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
    /// An item does not have the format of a resource.
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
    /// A path of `--authorization-always-allow-paths` is invalid.
    #[error(transparent)]
    OpenPaths(#[from] OpenPathsError),
}
