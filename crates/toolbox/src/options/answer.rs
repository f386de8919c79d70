//! Flags shared by the subcommands that print an answer: format, time zone, colors, logs.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

/// Format and verbosity of logs on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logging {
    /// `--logging-format=json`: one JSON object per line.
    pub json: bool,
    /// `-v`
    pub verbosity: u32,
}

/// The condition for colors in output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// Colors on a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Colors always.
    Always,
    /// No colors.
    Never,
}

impl Color {
    /// Reads the value of the flag [`color`].
    pub(super) fn from_matches(matches: &ArgMatches) -> Self {
        match matches.get_one::<String>("color").map(String::as_str) {
            Some("always") => Self::Always,
            Some("never") => Self::Never,
            _ => Self::Auto,
        }
    }

    /// Returns whether output has colors.
    pub(crate) fn applies(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

/// Creates a flag with a value.
pub(super) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Creates a flag without a value.
pub(super) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Creates a flag that takes one of `values`. The first value is the default.
pub(super) fn choice(name: &'static str, values: &'static [&'static str], help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("how")
        .value_parser(PossibleValuesParser::new(values))
        .default_value(values.first().copied().unwrap_or_default())
        .help(help)
}

/// Creates `--output`. The first format is the default.
pub(super) fn output(forms: &'static [&'static str]) -> Arg {
    choice("output", forms, "Output format").short('o')
}

pub(super) fn utc() -> Arg {
    switch("utc", "Show times in UTC instead of local time")
}

pub(super) fn color() -> Arg {
    choice("color", &["auto", "always", "never"], "Whether to use colors; auto honors NO_COLOR")
}

/// Creates `-v`.
pub(super) fn verbosity() -> Arg {
    Arg::new("v")
        .short('v')
        .long("v")
        .value_name("level")
        .value_parser(value_parser!(u32))
        .default_value("0")
        .hide_default_value(true)
        .help("Log verbosity on standard error: 1 logs failures, 6 logs every request")
}

/// Reads the logging options from the flag [`verbosity`].
pub(super) fn logging(matches: &ArgMatches) -> Logging {
    Logging { json: false, verbosity: matches.get_one::<u32>("v").copied().unwrap_or(0) }
}

pub(super) fn token_file() -> Arg {
    option("token-file", "file", "File with the bearer token for --from; if omitted, no credentials are sent")
        .value_parser(value_parser!(PathBuf))
        .requires("from")
}
