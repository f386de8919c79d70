//! The command line of `concertina advise`.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, ArgMatches, Command, value_parser};
use http::Uri;

use ::cluster::kubeconfig::ClusterOptions;
use flags::CliError;
use terminal::options::{
    Logging, Output, cluster, logging, option, output, verbosity, with_one_standard_input,
};

/// The options of `advise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdviseOptions {
    /// `--prometheus`: the URL before `/api/v1`.
    pub prometheus: Uri,
    /// `--prometheus-token-file`.
    pub token_file: Option<PathBuf>,
    /// `--prometheus-ca`.
    pub ca_file: Option<PathBuf>,
    /// `--days`.
    pub days: usize,
    /// `--filename`: the files with the HPAs. Empty reads the cluster.
    pub files: Vec<PathBuf>,
    /// `--patch`: the folder for the patches.
    pub patches: Option<PathBuf>,
    /// `--report`: the file of the page.
    pub report: Option<PathBuf>,
    /// The connection to the cluster. Without a namespace, all are read.
    pub cluster: ClusterOptions,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `advise`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let path = |name, value, help| option(name, value, help).value_parser(value_parser!(PathBuf));
    let command = Command::new("advise")
        .no_binary_name(true)
        .bin_name(format!("{program} advise"))
        .about("Advises better settings for the HPAs of a cluster, from their past in Prometheus.")
        .long_about(
            "Replays the past load of each HPA with the rules of the controller, and advises settings that need\n\
             fewer pods and serve as well, or that serve better. They are chosen on the first 70 % of the time,\n\
             and judged on the rest. Where the past does not suffice, it says why. It works with any HPA controller.\n\
             Nothing is written to the cluster: patches are files for kubectl.\n\n\
             Prometheus needs the series of kube-state-metrics and of cAdvisor.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 {program} advise --prometheus http://localhost:9090 --report advice.html\n\
             \x20 {program} advise --prometheus http://localhost:9090 -n shop --patch patches\n\n\
             Exit code: 0 if there is an answer, 1 if not, 2 for an invalid command line.",
        ))
        .arg(
            option("prometheus", "url", "Server with the query API of Prometheus")
                .value_parser(url)
                .required(true),
        )
        .arg(path("prometheus-token-file", "file", "File with a bearer token; needs https"))
        .arg(path("prometheus-ca", "file", "PEM file with the authorities of the server; default: the system's"))
        .arg(
            option("days", "number", "Days to read, 3 to 30")
                .value_parser(RangedU64ValueParser::<usize>::new().range(3..=30))
                .default_value("14"),
        )
        .arg(
            path("filename", "file", "File with the HPAs, instead of the cluster; - reads standard input; repeatable")
                .short('f')
                .action(ArgAction::Append),
        )
        .arg(path("patch", "folder", "Folder for a patch file for each advice"))
        .arg(path("report", "file", "File to write a page with a chart for each HPA to"))
        .arg(output(&["text", "json", "yaml"]))
        .arg(verbosity());
    cluster::arguments(command).mut_arg("namespace", |arg| arg.help("Namespace; default: all"))
}

fn url(text: &str) -> Result<Uri, String> {
    let url = text.trim_end_matches('/').parse::<Uri>().ok().filter(|url| {
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        matches!(url.scheme_str(), Some("http" | "https")) && !has_user && url.query().is_none()
    });
    url.ok_or_else(|| "must be http:// or https:// with a host, without user and query".to_owned())
}

/// Reads the options from the arguments.
///
/// # Errors
/// Returns [`CliError`] if a token would be sent unencrypted, or two files are standard input.
pub fn options(matches: &ArgMatches) -> Result<AdviseOptions, CliError> {
    let path = |name| matches.get_one::<PathBuf>(name).cloned();
    let Some(prometheus) = matches.get_one::<Uri>("prometheus").cloned() else {
        return Err(CliError::Subcommand("--prometheus is missing".to_owned()));
    };
    let files = matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect();
    let token_file = path("prometheus-token-file");
    if token_file.is_some() && prometheus.scheme_str() != Some("https") {
        let problem = "--prometheus-token-file: a token is only sent over https://";
        return Err(CliError::Subcommand(problem.to_owned()));
    }
    Ok(AdviseOptions {
        prometheus,
        token_file,
        ca_file: path("prometheus-ca"),
        days: matches.get_one::<usize>("days").copied().unwrap_or(14),
        files: with_one_standard_input(files)?,
        patches: path("patch"),
        report: path("report"),
        cluster: cluster::options(matches),
        output: Output::from_matches(matches),
        logging: logging(matches),
    })
}
