//! The command line of `concertina advise`.

use std::path::PathBuf;

use clap::{ArgMatches, Command, value_parser};

use super::source::{self, PastSource};
use flags::CliError;
use terminal::options::{Logging, Output, logging, option, output, verbosity};

/// The options of `advise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdviseOptions {
    /// Where the HPAs and their past come from. Without a namespace, all are read.
    pub source: PastSource,
    /// `--patch`: the folder for the patches.
    pub patches: Option<PathBuf>,
    /// `--report`: the file of the page.
    pub report: Option<PathBuf>,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `advise`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let path = |name, value, help| option(name, value, help).value_parser(value_parser!(PathBuf));
    let command = source::arguments(Command::new("advise"))
        .no_binary_name(true)
        .bin_name(format!("{program} advise"))
        .about("Advises better settings for the HPAs of a cluster, from their past in Prometheus or in a record.")
        .long_about(
            "Replays the past load of each HPA with the rules of the controller, and advises settings that need\n\
             fewer pods and serve as well, or that serve better. They are chosen on the first 70 % of the time,\n\
             and judged on the rest. Where the past does not suffice, it says why. It works with any HPA controller.\n\
             Nothing is written to the cluster: patches are files for kubectl.\n\n\
             Prometheus needs the series of kube-state-metrics and of cAdvisor. A record is the answers of\n\
             /decisions/NAMESPACE/NAME of a Concertina controller that were saved again and again.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 {program} advise --prometheus http://localhost:9090 --report advice.html\n\
             \x20 {program} advise --prometheus http://localhost:9090 -n shop --patch patches\n\n\
             Exit code: 0 if there is an answer, 1 if not, 2 for an invalid command line.",
        ))
        .arg(path("patch", "folder", "Folder for a patch file for each advice"))
        .arg(path("report", "file", "File to write a page with a chart for each HPA to"))
        .arg(output(&["text", "json", "yaml"]))
        .arg(verbosity());
    command
        .mut_group(source::PAST, |group| group.required(true))
        .mut_arg("namespace", |arg| arg.help("Namespace; default: all"))
}

/// Reads the options from the arguments.
///
/// # Errors
/// Returns [`CliError`] if a token would be sent unencrypted, or two files are standard input.
pub fn options(matches: &ArgMatches) -> Result<AdviseOptions, CliError> {
    let path = |name| matches.get_one::<PathBuf>(name).cloned();
    let Some(source) = PastSource::from_matches(matches)? else {
        return Err(CliError::Subcommand("--prometheus or --record is missing".to_owned()));
    };
    Ok(AdviseOptions {
        source,
        patches: path("patch"),
        report: path("report"),
        output: Output::from_matches(matches),
        logging: logging(matches),
    })
}
