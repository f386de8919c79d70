//! The command line of `concertina simulate`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::CliError;

/// What the user asks of a simulation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimulateOptions {
    /// The scenario file.
    pub scenario: Option<PathBuf>,
    /// `--schema`: print the JSON schema of scenario files and end.
    pub schema: bool,
}

/// What came of the words: options, or a help text that was asked for.
pub(super) enum Parsed {
    Options(SimulateOptions),
    Help(String),
}

/// Reads the words after `simulate`.
pub(super) fn parse(words: impl Iterator<Item = String>) -> Result<Parsed, CliError> {
    match command().try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Options(options(&matches))),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            Err(CliError::Subcommand(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}

fn command() -> Command {
    Command::new("concertina simulate")
        .no_binary_name(true)
        .about("Plays HPAs against a model of their workload, in virtual time, through the whole controller.")
        .arg(
            Arg::new("scenario")
                .value_name("scenario.yaml")
                .value_parser(value_parser!(PathBuf))
                .required_unless_present("schema")
                .help("The scenario file"),
        )
        .arg(
            Arg::new("schema")
                .long("schema")
                .action(ArgAction::SetTrue)
                .help("Print the JSON schema of scenario files and end"),
        )
}

fn options(matches: &ArgMatches) -> SimulateOptions {
    SimulateOptions {
        scenario: matches.get_one::<PathBuf>("scenario").cloned(),
        schema: matches.get_flag("schema"),
    }
}
