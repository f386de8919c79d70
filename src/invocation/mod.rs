//! The operation that a command line selects: the controller, or one of the commands.

use std::ffi::OsString;

use clap::{ArgMatches, Command};

pub(crate) mod rbac;

pub use self::rbac::RbacOptions;
use crate::cli::config::Config;
use crate::cli::flags::FlagSet;
use crate::cli::values::VersionOutput;
use crate::cli::{CliError, Parsed, Program};
use crate::tools;

/// The operation that the command line selects.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Run the controller.
    Controller(Box<Config>),
    /// Print the roles that a controller needs.
    Rbac(Box<RbacOptions>),
    /// Run a command of the toolbox.
    Tool(tools::Command),
    /// Print the help text and exit.
    Help(String),
    /// Print the version and exit.
    Version(String),
}

impl Invocation {
    /// Parses the arguments after the program's name.
    pub fn from_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        Self::parse(Program::Concertina, words)
    }

    /// Parses the arguments after the name of `program`.
    pub fn parse(program: Program, words: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        let words = words
            .into_iter()
            .map(|word| word.into_string().map_err(|word| CliError::NotText(format!("{}", word.display()))))
            .collect::<Result<Vec<String>, CliError>>()?;
        if let Some(("rbac", rest)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
            return rbac::parse(rest.iter().cloned()).map(|parsed| match parsed {
                Parsed::Options(options) => Self::Rbac(options),
                Parsed::Help(text) => Self::Help(text),
            });
        }
        tools::parse(program, &words).unwrap_or_else(|| Self::controller(words))
    }

    fn controller(words: Vec<String>) -> Result<Self, CliError> {
        let flags = FlagSet::controller();
        let command = Command::new("concertina").about(ABOUT).override_usage("concertina [flags]");
        let mut command = flags.add_to(command.before_help(tools::COMMANDS));
        let matches = flags.parse(command.clone(), words)?;
        if wants_help(&matches) {
            return Ok(Self::Help(command.render_help().to_string()));
        }
        match matches.get_one("version") {
            Some(VersionOutput::Raw) => Ok(Self::Version(raw_version())),
            Some(VersionOutput::Readable) => {
                Ok(Self::Version(format!("Concertina v{}", env!("CARGO_PKG_VERSION"))))
            }
            Some(VersionOutput::Off) | None => Ok(Self::Controller(Box::new(flags.config(&matches)?))),
        }
    }
}

const ABOUT: &str = "\
Concertina is a drop-in replacement for the HorizontalPodAutoscaler controller of
kube-controller-manager. It accepts that program's flags.";

fn wants_help(matches: &ArgMatches) -> bool {
    matches.get_one("help") == Some(&true)
}

/// Returns the output of `--version=raw`. Like kube-controller-manager's output, it is a Go value.
fn raw_version() -> String {
    format!(
        "version.Info{{GitVersion:\"v{}\", EmulatedVersions:\"1.36,1.37\", Platform:\"{}/{}\"}}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn read(words: &[&str]) -> Result<Invocation, String> {
        Invocation::from_args(words.iter().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn no_arguments_run_the_controller_with_defaults() {
        assert_eq!(read(&[]), Ok(Invocation::Controller(Box::default())));
    }

    #[test]
    fn help_lists_effective_flags_and_counts_ignored_ones() {
        for words in [&["-h"][..], &["--help"], &["--horizontal-pod-autoscaler-tolerance=0.2", "--help"]] {
            let Ok(Invocation::Help(text)) = read(words) else { panic!("{words:?}") };
            assert!(
                text.contains("--horizontal-pod-autoscaler-sync-period <duration>\n          Period between two syncs of an HPA. [default: 15s]"),
                "{text}"
            );
            assert!(text.contains("--dry-run"), "{text}");
            assert!(text.contains("\n  rbac      "), "{text}");
            assert!(!text.contains("--allocate-node-cidrs"), "{text}");
            assert!(text.contains("flags of kube-controller-manager"), "{text}");
        }
    }

    #[test]
    fn version_prints_a_readable_and_a_raw_form() {
        let Ok(Invocation::Version(text)) = read(&["--version"]) else { panic!() };
        assert!(text.starts_with("Concertina v"), "{text}");
        let Ok(Invocation::Version(text)) = read(&["--version=raw"]) else { panic!() };
        assert!(text.starts_with("version.Info{"), "{text}");
        assert!(matches!(read(&["--version=false"]), Ok(Invocation::Controller(_))));
    }

    #[test]
    fn positional_arguments_are_refused() {
        assert_eq!(read(&["now"]).unwrap_err(), "\"concertina\" does not take any arguments, got [\"now\"]");
        assert_eq!(
            read(&["--", "--dry-run"]).unwrap_err(),
            "\"concertina\" does not take any arguments, got [\"--dry-run\"]"
        );
        assert!(read(&[""]).is_ok());
    }

    #[test]
    fn program_is_the_plugin_when_called_by_the_plugin_file_name() {
        for name in ["kubectl-concertina", "/usr/local/bin/kubectl-concertina", "./kubectl-concertina.exe"] {
            assert_eq!(Program::from_called(OsStr::new(name)), Program::KubectlPlugin, "{name}");
        }
        assert_eq!(Program::from_called(OsStr::new("/usr/bin/concertina")), Program::Concertina);
    }

    #[cfg(unix)]
    #[test]
    fn arguments_that_are_not_utf8_are_refused() {
        use std::os::unix::ffi::OsStringExt;
        let error = Invocation::from_args([OsString::from_vec(vec![b'-', 0xff])]).unwrap_err();
        assert!(error.to_string().ends_with("is not valid UTF-8"), "{error}");
    }
}
