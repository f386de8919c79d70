//! The command line of `console`.

use std::path::PathBuf;

use clap::{ArgMatches, Command, value_parser};

use ::cluster::kubeconfig::ClusterOptions;
use terminal::options::leader::{self, Leader};
use terminal::options::{Logging, choice, cluster, logging, option, verbosity};

/// The options of `console`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// The connection to the cluster. `--namespace` limits the page to one namespace.
    pub cluster: ClusterOptions,
    /// `--port`, on the loopback address. 0 selects a free port.
    pub port: u16,
    /// Whether to open the browser (`--browser`). The browser is opened only if standard output is a terminal.
    pub opens_browser: bool,
    /// The Leases of controllers whose records are read: the Lease of `--leader`, or those of the default
    /// installations. Empty with `--record=off`.
    pub leaders: Vec<Leader>,
    /// `--metric-sources-file`: the file with the Prometheus servers from which *What if* reads past values.
    pub metric_sources_file: Option<PathBuf>,
    /// `--advice`: the output of `concertina advise -o json`, which the page shows.
    pub advice: Option<PathBuf>,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `console`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let command = Command::new("console")
        .no_binary_name(true)
        .bin_name(format!("{program} console"))
        .about("Serves a page with all HPAs of a cluster on a loopback address, and opens it in a browser.")
        .after_help(format!(
            "The page shows what your kubeconfig allows, and its address contains a random token.\n\n\
             Examples:\n  {program} console\n  {program} console -n shop --browser=off\n  {program} console --advice advice.json"
        ))
        .arg(
            option("port", "port", "Port of the page on 127.0.0.1; 0 selects a free port")
                .value_parser(value_parser!(u16))
                .default_value("0"),
        )
        .arg(choice(
            "browser",
            &["auto", "off"],
            "Whether to open the page in a browser; auto does so on a terminal",
        ))
        .arg(
            option(
                "metric-sources-file",
                "file",
                "File with the Prometheus servers from which What if reads past values, in the format of the \
                 controller's --metric-sources",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option(
                "advice",
                "file",
                "File with the output of concertina advise -o json; the page shows it, also after the file has changed",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(verbosity())
        .arg(leader::record())
        .arg(leader::leader().help_heading(leader::RECORD));
    cluster::arguments(command)
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> ConsoleOptions {
    ConsoleOptions {
        cluster: cluster::options(matches),
        port: matches.get_one::<u16>("port").copied().unwrap_or(0),
        opens_browser: matches.get_one::<String>("browser").is_none_or(|browser| browser != "off"),
        leaders: leader::leaders(matches),
        metric_sources_file: matches.get_one::<PathBuf>("metric-sources-file").cloned(),
        advice: matches.get_one::<PathBuf>("advice").cloned(),
        logging: logging(matches),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<ConsoleOptions, String> {
        parsed(command("concertina"), words, |matches| Ok(options(matches)))
    }

    #[test]
    fn no_arguments_show_all_namespaces_on_a_free_port() {
        let options = read(&[]).unwrap();
        assert_eq!((options.port, options.opens_browser), (0, true));
        assert_eq!(options.cluster, ClusterOptions::default());
        assert_eq!(options.leaders.len(), 2);
    }

    #[test]
    fn flags_are_read() {
        let words = [
            "-n",
            "shop",
            "--port=8080",
            "--browser=off",
            "--record=off",
            "-v",
            "1",
            "--metric-sources-file=a",
            "--advice=b",
        ];
        let options = read(&words).unwrap();
        assert_eq!(options.cluster.namespace.as_deref(), Some("shop"));
        assert_eq!((options.port, options.opens_browser), (8080, false));
        let (sources, advice) = (options.metric_sources_file, options.advice);
        assert_eq!((sources, advice), (Some(PathBuf::from("a")), Some(PathBuf::from("b"))));
        assert_eq!((options.leaders.len(), options.logging.verbosity), (0, 1));
        for wrong in ["--port=70000", "--browser=maybe", "--address=0.0.0.0", "web"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
