//! The command line of `demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};

use terminal::options::{Color, Logging, color, logging, option, positive_duration, verbosity};

/// The options of the demo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoOptions {
    /// `--for`: the duration of the demo, after which it prints a summary. `None` means that the demo runs
    /// until it is interrupted.
    pub duration: Option<Duration>,
    /// `--port`, on the loopback address. 0 selects a free port.
    pub port: u16,
    /// `--metrics-port`, on the loopback address, for the controller's metrics and decisions. `None` means that
    /// they are not served.
    pub metrics_port: Option<u16>,
    /// `--write-kubeconfig`: the file to write for kubectl. With `None`, the demo chooses the path.
    pub kubeconfig: Option<PathBuf>,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `--logging-format` and `-v`: the format and the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `demo`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    Command::new("demo")
        .no_binary_name(true)
        .bin_name(format!("{program} demo"))
        .about("Runs a cluster in this process: workloads under changing load, and the controller that scales them.")
        .arg(
            option("for", "duration", "Stop with a summary after this time; default: run until interrupted")
                .allow_hyphen_values(true)
                .value_parser(positive_duration),
        )
        .arg(
            option("port", "port", "Port of the API server on 127.0.0.1; 0 selects a free port")
                .value_parser(value_parser!(u16))
                .default_value("0"),
        )
        .arg(
            option(
                "metrics-port",
                "port",
                "Port on 127.0.0.1 for the metrics and decisions of the controller; default: not served",
            )
            .value_parser(value_parser!(u16).range(1..)),
        )
        .arg(
            option("write-kubeconfig", "file", "Kubeconfig file to write for kubectl; default: a temporary file")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(color())
        .arg(
            option("logging-format", "format", "Log format")
                .value_parser(["text", "json"])
                .default_value("text"),
        )
        .arg(verbosity().help("Log verbosity: 4 adds details, 6 adds traces"))
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> DemoOptions {
    let json = matches.get_one::<String>("logging-format").is_some_and(|format| format == "json");
    DemoOptions {
        duration: matches.get_one::<Duration>("for").copied(),
        port: matches.get_one::<u16>("port").copied().unwrap_or(0),
        metrics_port: matches.get_one::<u16>("metrics-port").copied(),
        kubeconfig: matches.get_one::<PathBuf>("write-kubeconfig").cloned(),
        color: Color::from_matches(matches),
        logging: Logging { json, ..logging(matches) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<DemoOptions, String> {
        parsed(command("concertina"), words, |matches| Ok(options(matches)))
    }

    #[test]
    fn no_arguments_run_until_interrupted_on_a_free_port() {
        assert_eq!(read(&[]), Ok(DemoOptions::default()));
    }

    #[test]
    fn for_takes_a_positive_go_duration() {
        assert_eq!(read(&["--for", "1m30s"]).unwrap().duration, Some(Duration::from_secs(90)));
        for wrong in ["90", "0s", "-1s"] {
            let error = read(&["--for", wrong]).unwrap_err();
            assert!(error.contains("--for"), "{error}");
        }
    }

    #[test]
    fn error_names_the_invalid_argument() {
        assert!(read(&["--port=65536"]).unwrap_err().contains("--port"));
        assert_eq!(read(&["--color=never"]).unwrap().color, Color::Never);
        assert_eq!(read(&["--metrics-port=9"]).unwrap().metrics_port, Some(9));
        assert!(read(&["--metrics-port=0"]).unwrap_err().contains("--metrics-port"));
        assert!(read(&["--dry-run"]).unwrap_err().contains("--dry-run"));
        assert!(read(&["now"]).unwrap_err().contains("now"));
    }

    #[test]
    fn help_lists_the_flags() {
        let text = read(&["--help"]).unwrap_err();
        assert!(text.contains("--write-kubeconfig <file>"), "{text}");
    }
}
