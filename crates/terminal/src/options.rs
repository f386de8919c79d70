//! The flags that commands share, and the reading of a command line.

pub mod cluster;
pub mod leader;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use autoscaling::duration::GoDuration;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use serde::Serialize;

use crate::ending::FOUND;
use flags::{CliError, Parsed};

/// Parses the arguments of a command, and reads its options with `options`.
///
/// # Errors
/// Returns [`CliError`] for an invalid command line.
pub fn parse<T>(
    command: clap::Command,
    words: &[String],
    options: impl FnOnce(&ArgMatches) -> Result<T, CliError>,
) -> Result<Parsed<T>, CliError> {
    Ok(match flags::matches(command, words)? {
        Parsed::Options(matches) => Parsed::Options(options(&matches)?),
        Parsed::Help(text) => Parsed::Help(text),
    })
}

/// Parses a duration above zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    duration.unsigned().filter(|duration| !duration.is_zero()).ok_or_else(|| "must be above zero".to_owned())
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Text for a terminal.
    #[default]
    Text,
    /// One JSON document. With `--watch`, one document per line.
    Json,
    /// One YAML document. With `--watch`, several documents separated by `---`.
    Yaml,
}

/// The error of encoding an answer.
#[derive(Debug, thiserror::Error)]
#[error("failed to encode the answer as {form}: {error}")]
pub struct EncodeError {
    /// `JSON` or `YAML`.
    form: &'static str,
    error: String,
}

impl From<serde_json::Error> for EncodeError {
    fn from(error: serde_json::Error) -> Self {
        Self { form: "JSON", error: error.to_string() }
    }
}

/// Encodes a value as one YAML document.
pub fn to_yaml(value: &impl Serialize) -> Result<String, EncodeError> {
    serde_saphyr::to_string(value).map_err(|error| EncodeError { form: "YAML", error: error.to_string() })
}

impl Output {
    /// Reads `--output`.
    pub fn from_matches(matches: &ArgMatches) -> Self {
        match matches.get_one::<String>("output").map(String::as_str) {
            Some("json") => Self::Json,
            Some("yaml") => Self::Yaml,
            _ => Self::Text,
        }
    }

    /// Encodes an answer as one document. Returns `None` for [`Self::Text`].
    pub fn encode(self, answer: &impl Serialize) -> Result<Option<String>, EncodeError> {
        match self {
            Self::Text => Ok(None),
            Self::Json => Ok(Some(serde_json::to_string_pretty(answer)?)),
            Self::Yaml => to_yaml(answer).map(Some),
        }
    }
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
            Self::Attention => FOUND,
        }
    }

    /// Returns [`Self::Good`] if `good`.
    pub fn good_if(good: bool) -> Self {
        if good { Self::Good } else { Self::Attention }
    }
}

/// The format and the verbosity of logs on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logging {
    /// `--logging-format=json`: one JSON object per line.
    pub json: bool,
    /// `-v`: the verbosity of logs.
    pub verbosity: u32,
}

/// The condition for colors in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// Colors on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Colors, even if the output is not a terminal.
    Always,
    /// No colors.
    Never,
}

impl Color {
    /// Reads `--color`.
    pub fn from_matches(matches: &ArgMatches) -> Self {
        match matches.get_one::<String>("color").map(String::as_str) {
            Some("always") => Self::Always,
            Some("never") => Self::Never,
            _ => Self::Auto,
        }
    }

    /// Returns whether to color an output.
    pub fn applies(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                is_terminal
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of columns.
    pub columns: usize,
    /// The number of rows.
    pub rows: usize,
}

impl Size {
    /// Returns the size of the terminal at standard input, as `stty` reports it, or 100 columns and 30 rows. The system
    /// call would require unsafe code.
    pub fn from_terminal() -> Self {
        Self::read().unwrap_or(Self { columns: 100, rows: 30 })
    }

    /// Returns the size of the terminal at standard input. `None` if it is unknown.
    pub fn read() -> Option<Self> {
        let answer = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
        Self::parse(&String::from_utf8_lossy(&answer.ok()?.stdout))
    }

    /// Parses the output of `stty size`: rows and columns. `None` if a value is 0, which means an unknown size.
    pub fn parse(text: &str) -> Option<Self> {
        let (rows, columns) = text.trim().split_once(' ')?;
        let size = Self { columns: columns.parse().ok()?, rows: rows.parse().ok()? };
        (size.columns > 0 && size.rows > 0).then_some(size)
    }
}

/// Creates a flag with a value.
pub fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Creates a flag without a value.
pub fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Creates a flag that takes one of `values`. The first value is the default.
pub fn choice(name: &'static str, values: &'static [&'static str], help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("how")
        .value_parser(PossibleValuesParser::new(values))
        .default_value(values.first().copied().unwrap_or_default())
        .help(help)
}

/// Creates `--output`. The first format is the default.
pub fn output(forms: &'static [&'static str]) -> Arg {
    choice("output", forms, "Output format").short('o')
}

/// Creates the arguments for the files of a command: `-f`, and positional arguments.
pub fn files() -> [Arg; 2] {
    let file = |arg: Arg| arg.action(ArgAction::Append).value_parser(value_parser!(PathBuf));
    [
        file(Arg::new("file").value_name("FILE"))
            .num_args(1..)
            .required_unless_present("filename")
            .help("File with objects, as YAML or JSON; - reads standard input"),
        file(option("filename", "file", "Same as FILE; repeatable")).short('f'),
    ]
}

/// Reads the arguments of [`files`]. At least one file is given.
pub fn given_files(matches: &ArgMatches) -> Result<Vec<PathBuf>, CliError> {
    let of = |name| matches.get_many::<PathBuf>(name).into_iter().flatten().cloned();
    with_one_standard_input(of("file").chain(of("filename")).collect())
}

/// Checks that at most one of a command's files is standard input.
pub fn with_one_standard_input(files: Vec<PathBuf>) -> Result<Vec<PathBuf>, CliError> {
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(CliError::Subcommand("standard input can be read only once".to_owned()));
    }
    Ok(files)
}

/// Creates `--utc`.
pub fn utc() -> Arg {
    switch("utc", "Show times in UTC instead of local time")
}

/// Creates `--color`.
pub fn color() -> Arg {
    choice("color", &["auto", "always", "never"], "Whether to use colors; auto honors NO_COLOR")
}

/// Creates `-v`.
pub fn verbosity() -> Arg {
    Arg::new("v")
        .short('v')
        .long("v")
        .value_name("level")
        .value_parser(value_parser!(u32))
        .default_value("0")
        .hide_default_value(true)
        .help("Log verbosity on standard error: 1 logs failures, 6 logs every request")
}

/// Reads the options of logs in text format from `-v`.
pub fn logging(matches: &ArgMatches) -> Logging {
    Logging { json: false, verbosity: matches.get_one::<u32>("v").copied().unwrap_or(0) }
}

/// Creates `--token-file`.
pub fn token_file() -> Arg {
    option("token-file", "file", "File with the bearer token for --from; if omitted, no credentials are sent")
        .value_parser(value_parser!(PathBuf))
        .requires("from")
}

/// Parses a command line like [`parse`]. The error is the error text or the help text. This is for tests.
pub fn parsed<T>(
    command: clap::Command,
    words: &[&str],
    options: impl FnOnce(&ArgMatches) -> Result<T, CliError>,
) -> Result<T, String> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    match parse(command, &words, options) {
        Ok(Parsed::Options(options)) => Ok(options),
        Ok(Parsed::Help(text)) => Err(text),
        Err(error) => Err(error.to_string()),
    }
}
