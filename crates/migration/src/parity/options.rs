//! The command line of `parity`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};

use ::cluster::kubeconfig::ClusterOptions;
use flags::CliError;
use terminal::options::cluster::RecordSource;
use terminal::options::{
    Color, Logging, cluster, color, logging, option, output, positive_duration, token_file, utc, verbosity,
};

/// The options of `parity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParityOptions {
    /// `--since`: the time span of the report.
    pub since: Duration,
    /// The source of the comparison.
    pub source: Source,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `--namespace`: the only namespace to report. `None` reports all namespaces.
    pub namespace: Option<String>,
    /// `--utc`: show times in UTC instead of local time.
    pub utc: bool,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// The source of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `--shadow`: the pod of a dry run, which is read by port-forward.
    Pod {
        /// The connection to the cluster.
        cluster: Box<ClusterOptions>,
        /// The namespace of the pod.
        namespace: String,
        /// The pod's label `app.kubernetes.io/instance`.
        instance: String,
    },
    /// `--from`: the base URL of a dry run.
    Address(RecordSource),
    /// `--from`: a file with a response of `/parity`. `-` means standard input.
    File(PathBuf),
}

/// The format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Text for a terminal.
    #[default]
    Text,
    /// One self-contained HTML page.
    Html,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Creates the command line of `parity`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let command = Command::new("parity")
        .no_binary_name(true)
        .bin_name(format!("{program} parity"))
        .about(
            "Compares a Concertina controller in a dry run (--dry-run) with the active built-in controller:\n\
             reports how many changes agree, every difference with both reasons, and the changes that could\n\
             not be compared. Nothing is written to the cluster.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 # The last day, from the pod of deploy/kustomize/overlays/shadow\n\
             \x20 {program} parity --shadow concertina-system/concertina-shadow\n\
             \x20 # The last hour of namespace shop, as an HTML page\n\
             \x20 {program} parity --shadow concertina-system/concertina-shadow --since 1h -n shop -o html\n\
             \x20 # From a dry run on this machine, or from a saved response\n\
             \x20 {program} parity --from https://127.0.0.1:10257 --insecure-skip-tls-verify --token-file token\n\
             \x20 {program} parity --from parity.json\n\n\
             Exit code: 0 without differences, 3 with differences, 1 if no answer is available, 2 for an\n\
              invalid command line.",
        ))
        .arg(
            option("since", "duration", "Time span of the report; a dry run keeps counts for 48 hours")
                .value_parser(positive_duration)
                .default_value("24h"),
        )
        .arg(output(&["text", "html", "json", "yaml"]))
        .arg(
            option("shadow", "namespace/instance", "Pod of the dry run, which gets your credentials: namespace and value of its label app.kubernetes.io/instance")
                .value_parser(shadow),
        )
        .arg(
            option("from", "URL or file", "URL of the dry run, such as https://127.0.0.1:10257, or a file with a response of its /parity"),
        )
        .arg(token_file())
        .arg(utc())
        .arg(color())
        .arg(verbosity());
    cluster::arguments(command)
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<ParityOptions, CliError> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let cluster = cluster::options(matches);
    let namespace = cluster.namespace.clone();
    let source = match text("from") {
        Some(url) if url.contains("://") => Source::Address(cluster::record_source(matches, url, &cluster)),
        Some(_) if matches.contains_id("token-file") => {
            return Err(CliError::Subcommand(
                "--token-file cannot be used with a file: it is read without a token".to_owned(),
            ));
        }
        Some(path) => Source::File(path.into()),
        None => {
            // Nothing proves that a pod with these labels is a dry run, so the user must name it.
            let (namespace, instance) = matches.get_one::<(String, String)>("shadow").cloned().ok_or_else(|| {
                CliError::Subcommand(
                    "the pod of the dry run gets your credentials, so name it: --shadow=NAMESPACE/RELEASE, such as \
                     --shadow=concertina-system/concertina-shadow, or use --from"
                        .to_owned(),
                )
            })?;
            Source::Pod { cluster: Box::new(cluster), namespace, instance }
        }
    };
    Ok(ParityOptions {
        since: matches.get_one::<Duration>("since").copied().unwrap_or_default(),
        source,
        output: match text("output") {
            Some("html") => Output::Html,
            Some("json") => Output::Json,
            Some("yaml") => Output::Yaml,
            _ => Output::Text,
        },
        namespace,
        utc: matches.get_flag("utc"),
        color: Color::from_matches(matches),
        logging: logging(matches),
    })
}

/// Parses a namespace and the value of the label `app.kubernetes.io/instance`.
fn shadow(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !name.is_empty() && name.len() <= 63 && name.bytes().all(allowed)
    };
    match text.split_once('/') {
        Some((namespace, instance)) if is_name(namespace) && is_name(instance) => {
            Ok((namespace.to_owned(), instance.to_owned()))
        }
        _ => Err("must be NAMESPACE/INSTANCE, such as concertina-system/concertina-shadow".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<ParityOptions, String> {
        parsed(command("concertina"), words, options)
    }

    #[test]
    fn dry_run_is_named_and_the_default_is_the_last_day() {
        assert!(read(&[]).unwrap_err().contains("--shadow=concertina-system/concertina-shadow"));
        let options = read(&["--shadow=concertina-system/concertina-shadow"]).unwrap();
        assert_eq!((options.since, options.output), (Duration::from_hours(24), Output::Text));
        let Source::Pod { namespace, instance, .. } = options.source else { panic!("{:?}", options.source) };
        assert_eq!((namespace.as_str(), instance.as_str()), ("concertina-system", "concertina-shadow"));
        assert_eq!(options.namespace, None);
    }

    #[test]
    fn from_is_a_url_or_a_file() {
        let options = read(&["--from=https://a:1", "--token-file=t", "--certificate-authority=ca"]).unwrap();
        let Source::Address(from) = options.source else { panic!() };
        assert_eq!((from.url.as_str(), from.token_file), ("https://a:1", Some("t".into())));
        assert_eq!(from.certificate_authority, Some("ca".into()));
        assert_eq!(read(&["--from", "a.json"]).unwrap().source, Source::File("a.json".into()));
        assert!(read(&["--from=a.json", "--token-file=t"]).unwrap_err().contains("without a token"));
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_allowed_values() {
        assert!(read(&["--since=0s"]).unwrap_err().contains("above zero"));
        assert!(read(&["--since=day"]).is_err());
        assert!(read(&["--shadow=concertina"]).unwrap_err().contains("concertina-system/concertina-shadow"));
        assert!(read(&["-o", "wide"]).unwrap_err().contains("yaml"));
        assert!(read(&["web"]).is_err());
    }
}
