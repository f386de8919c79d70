//! The flags that subcommands share which answer a person: form, times, colours, logs.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::telemetry::logging::{LogFormat, LogOptions};

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl Color {
    /// What was chosen with [`color`].
    pub(super) fn of(matches: &ArgMatches) -> Self {
        match matches.get_one::<String>("color").map(String::as_str) {
            Some("always") => Self::Always,
            Some("never") => Self::Never,
            _ => Self::Auto,
        }
    }
}

/// A flag that is given or not.
pub(super) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// A flag that takes one of these values; the first one if it is not given.
pub(super) fn choice(name: &'static str, values: &'static [&'static str], help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("how")
        .value_parser(PossibleValuesParser::new(values))
        .default_value(values.first().copied().unwrap_or_default())
        .help(help)
}

/// `--output`: the first form if it is not given.
pub(super) fn output(forms: &'static [&'static str]) -> Arg {
    choice("output", forms, "In which form to answer").short('o')
}

/// `--utc`
pub(super) fn utc() -> Arg {
    switch("utc", "Times in UTC instead of local time")
}

/// `--color`
pub(super) fn color() -> Arg {
    choice("color", &["auto", "always", "never"], "Whether to use colours; auto honours NO_COLOR")
}

/// `-v`
pub(super) fn verbosity() -> Arg {
    Arg::new("v")
        .short('v')
        .long("v")
        .value_name("level")
        .value_parser(value_parser!(u32))
        .default_value("0")
        .hide_default_value(true)
        .help("Log to standard error: 1 what goes wrong on the way, 6 every request")
}

/// What was chosen with [`verbosity`].
pub(super) fn logging(matches: &ArgMatches) -> LogOptions {
    let verbosity = matches.get_one::<u32>("v").copied().unwrap_or(0);
    LogOptions { format: LogFormat::Text, verbosity }
}

/// `--token-file`
pub(super) fn token_file() -> Arg {
    Arg::new("token-file")
        .long("token-file")
        .value_name("file")
        .value_parser(value_parser!(PathBuf))
        .requires("from")
        .help("Send the token in this file to --from; without it no credentials are sent")
}
