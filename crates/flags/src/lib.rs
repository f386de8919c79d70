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
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    match with_one_layout(command).try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Options(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => {
            let valid = texts(&error, ContextKind::ValidSubcommand).join(", ");
            Err(CliError::Subcommand(format!("a command is missing for \"{name}\": {valid}")))
        }
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
            let word = texts(&error, ContextKind::InvalidSubcommand).concat();
            let similar = texts(&error, ContextKind::SuggestedSubcommand).into_iter().next();
            let hint = suggestion(similar.as_deref());
            Err(CliError::Subcommand(format!(
                "unknown command {} for \"{name}\"{hint}",
                failure::quote(&word)
            )))
        }
        Err(error) => Err(FlagError::from(error).into()),
    }
}

/// Gives the help of a command and its subcommands the layout of the controller's help: each flag has its text in the
/// next line. With a long description, clap would add empty lines.
fn with_one_layout(command: Command) -> Command {
    let command = command.next_line_help(true).mut_subcommands(with_one_layout);
    match command.get_long_about().cloned() {
        Some(about) => command
            .long_about(None::<&str>)
            .before_help(about)
            .help_template("{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}"),
        None => command,
    }
}

/// Returns the texts of a part of an error.
fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
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
    #[error(
        "invalid argument {} for {}{}: {reason}",
        failure::quote(.value),
        failure::quote(.flag),
        if .flag.starts_with('-') { " flag" } else { "" }
    )]
    Invalid {
        /// The text of the value.
        value: String,
        /// The flag with its dashes, or the name of a positional argument.
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
        let text = |kind| Some(texts(&error, kind).concat()).filter(|text| !text.is_empty());
        let arg = texts(&error, ContextKind::InvalidArg).join(", ");
        let value = text(ContextKind::InvalidValue).unwrap_or_default();
        match (error.kind(), error.source()) {
            (ErrorKind::UnknownArgument, _) if !arg.starts_with('-') => {
                Self::Syntax(format!("unexpected argument {}", failure::quote(&arg)))
            }
            (ErrorKind::UnknownArgument, _) => {
                // clap also suggests names with only a few equal letters. Only a suggestion with the same first two
                // letters is kept.
                let start = arg.get(.."--xx".len());
                let similar = text(ContextKind::SuggestedArg);
                Self::Unknown {
                    similar: similar.filter(|similar| similar.get(.."--xx".len()) == start),
                    flag: arg,
                }
            }
            (ErrorKind::InvalidValue, _) if value.is_empty() => {
                Self::Syntax(format!("flag needs an argument: {}", flag_of(&arg)))
            }
            (ErrorKind::InvalidValue, _) => {
                let valid = texts(&error, ContextKind::ValidValue).join(", ");
                Self::Invalid {
                    value,
                    flag: flag_of(&arg),
                    reason: Reason::Text(format!("must be one of {valid}")),
                }
            }
            (ErrorKind::ValueValidation, Some(source)) => {
                Self::Invalid { value, flag: flag_of(&arg), reason: Reason::Text(source.to_string()) }
            }
            (ErrorKind::MissingRequiredArgument, _) => Self::Syntax(format!("required but missing: {arg}")),
            (ErrorKind::ArgumentConflict, _) => {
                let others = texts(&error, ContextKind::PriorArg).join(", ");
                Self::Syntax(format!("{arg} cannot be used with {others}"))
            }
            _ => {
                let text = error.to_string();
                let message = text.split("\n\n").next().unwrap_or_default();
                Self::Syntax(message.trim_start_matches("error: ").trim_end().to_owned())
            }
        }
    }
}

/// Removes the placeholder of the value, which clap appends to a flag. The name of a positional argument has none.
fn flag_of(arg: &str) -> String {
    let is_flag = arg.starts_with('-');
    let end = arg.find([' ', '[', '=']).filter(|_| is_flag).unwrap_or(arg.len());
    arg.get(..end).unwrap_or(arg).to_owned()
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

#[cfg(test)]
mod tests {
    use clap::builder::PossibleValuesParser;
    use clap::{Arg, ArgAction};

    use super::*;

    fn command() -> Command {
        let check = Command::new("check")
            .about("Checks a file")
            .long_about("Checks a file, line by line.")
            .arg(Arg::new("file").value_name("FILE").required(true).value_parser(["a", "b"]))
            .arg(
                Arg::new("all")
                    .long("all")
                    .action(ArgAction::SetTrue)
                    .help("Check all")
                    .conflicts_with("output"),
            )
            .arg(
                Arg::new("output")
                    .long("output")
                    .short('o')
                    .value_name("how")
                    .value_parser(PossibleValuesParser::new(["text", "json"]))
                    .help("Output format"),
            );
        let main = Command::new("policy").no_binary_name(true).bin_name("concertina policy");
        main.subcommand_required(true).disable_help_subcommand(true).subcommand(check)
    }

    fn read(words: &[&str]) -> Result<Parsed<ArgMatches>, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        matches(command(), &words).map_err(|error| error.to_string())
    }

    #[test]
    fn commands_have_the_errors_of_the_controllers_flags() {
        for (words, expected) in [
            (&[][..], "a command is missing for \"concertina policy\": check"),
            (&["chek"], "unknown command \"chek\" for \"concertina policy\"; did you mean check?"),
            (&["check", "a", "--outptu=x"], "unknown flag: --outptu; did you mean --output?"),
            (&["check", "a", "b"], "unexpected argument \"b\""),
            (&["check"], "required but missing: <FILE>"),
            (&["check", "c"], "invalid argument \"c\" for \"<FILE>\": must be one of a, b"),
            (&["check", "a", "--output"], "flag needs an argument: --output"),
            (
                &["check", "a", "-o", "wide"],
                "invalid argument \"wide\" for \"--output\" flag: must be one of text, json",
            ),
            (&["check", "a", "--all", "-o", "json"], "--all cannot be used with --output <how>"),
        ] {
            assert_eq!(read(words).unwrap_err(), expected, "{words:?}");
        }
    }

    #[test]
    fn help_has_the_layout_of_the_controllers_help() {
        let Ok(Parsed::Help(text)) = read(&["check", "--help"]) else { panic!("no help") };
        assert!(text.starts_with("Checks a file, line by line.\n\nUsage: "), "{text}");
        assert!(text.contains("\n      --all\n          Check all\n  -o, --output <how>\n"), "{text}");
    }
}
