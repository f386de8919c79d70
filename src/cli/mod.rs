//! The command line of kube-controller-manager, read by its own rules.
//!
//! Two layers: [`flags`] reads words into values by pflag's rules, knowing nothing of their meaning; [`config`] makes of
//! them a [`Config`] that cannot be invalid. [`kcm`] is the list of kube-controller-manager's flags, [`own`] that
//! of ours. Without a subcommand it is the controller.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

#[cfg(feature = "tools")]
pub mod answer;
#[cfg(feature = "tools")]
pub mod cluster;
pub mod config;
#[cfg(feature = "tools")]
pub mod decision;
#[cfg(feature = "tools")]
mod demo;
pub mod flags;
pub mod gates;
mod help;
pub mod kcm;
pub mod own;
#[cfg(feature = "tools")]
pub mod parity;
mod rbac;
#[cfg(feature = "tools")]
mod simulate;
pub mod values;
#[cfg(feature = "tools")]
pub mod why;

pub use config::Config;
#[cfg(feature = "tools")]
pub use demo::DemoOptions;
use flags::{FlagError, Raw, Table};
#[cfg(feature = "tools")]
pub use parity::ParityOptions;
pub use rbac::RbacOptions;
#[cfg(feature = "tools")]
pub use simulate::{Outputs as SimulateOutputs, SimulateOptions, Source as SimulateSource};
use values::Value;
#[cfg(feature = "tools")]
pub use why::WhyOptions;

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Run the controller.
    Controller(Box<Config>),
    /// Print the roles that a controller needs.
    Rbac(Box<RbacOptions>),
    /// Run the demo.
    #[cfg(feature = "tools")]
    Demo(DemoOptions),
    /// Explain what an HPA does.
    #[cfg(feature = "tools")]
    Why(Box<WhyOptions>),
    /// Tell whether a dry run and the built-in controller are the same.
    #[cfg(feature = "tools")]
    Parity(Box<ParityOptions>),
    /// Run a simulation.
    #[cfg(feature = "tools")]
    Simulate(Box<SimulateOptions>),
    /// Print this help text and end.
    Help(String),
    /// Print this version and end.
    Version(String),
}

/// How the program was called; help texts call it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Program {
    /// By its name.
    #[default]
    Concertina,
    /// As a plugin of kubectl, which calls what is named `kubectl-concertina`.
    KubectlPlugin,
}

impl Program {
    /// From the first word of the command line.
    pub fn of(called: &OsStr) -> Self {
        let plugin = Path::new(called).file_stem().is_some_and(|name| name == "kubectl-concertina");
        if plugin { Self::KubectlPlugin } else { Self::Concertina }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Concertina => "concertina",
            Self::KubectlPlugin => "kubectl concertina",
        })
    }
}

/// Why a command line cannot be followed. The process ends with [`CliError::EXIT_CODE`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// A flag or its value is wrong.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The words of a subcommand are wrong.
    #[error("{0}")]
    Subcommand(String),
    /// A word is not text.
    #[error("argument {0} is not valid UTF-8")]
    NotText(String),
}

impl CliError {
    /// The exit code of a wrong command line.
    pub const EXIT_CODE: u8 = 2;
}

impl Invocation {
    /// Reads the words after the program's name.
    pub fn from_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        Self::of(Program::Concertina, words)
    }

    /// The same for a program that was called so.
    pub fn of(program: Program, words: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        let words = words
            .into_iter()
            .map(|word| word.into_string().map_err(|word| CliError::NotText(format!("{}", word.display()))))
            .collect::<Result<Vec<String>, CliError>>()?;
        if let Some(("rbac", rest)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
            return rbac::parse(rest.iter().cloned()).map(|parsed| match parsed {
                rbac::Parsed::Options(options) => Self::Rbac(options),
                rbac::Parsed::Help(text) => Self::Help(text),
            });
        }
        #[cfg(feature = "tools")]
        match words.split_first().map(|(first, rest)| (first.as_str(), rest.iter().cloned())) {
            Some(("demo", rest)) => {
                return demo::parse(rest).map(|parsed| match parsed {
                    demo::Parsed::Options(options) => Self::Demo(options),
                    demo::Parsed::Help(text) => Self::Help(text),
                });
            }
            Some(("why", rest)) => {
                return why::parse(program, rest).map(|parsed| match parsed {
                    why::Parsed::Options(options) => Self::Why(options),
                    why::Parsed::Help(text) => Self::Help(text),
                });
            }
            Some(("parity", rest)) => {
                return parity::parse(program, rest).map(|parsed| match parsed {
                    parity::Parsed::Options(options) => Self::Parity(options),
                    parity::Parsed::Help(text) => Self::Help(text),
                });
            }
            Some(("simulate", rest)) => {
                return simulate::parse(rest).map(|parsed| match parsed {
                    simulate::Parsed::Options(options) => Self::Simulate(options),
                    simulate::Parsed::Help(text) => Self::Help(text),
                });
            }
            _ => {}
        }
        #[cfg(not(feature = "tools"))]
        let _ = program;
        let table = Table::new(&[kcm::FLAGS, kcm::REMOVED_FLAGS, own::FLAGS]);
        let raw = Raw::parse(words, &table)?;
        if wants_help(&raw) {
            return Ok(Self::Help(help::controller(&table)));
        }
        match raw.value("version") {
            Some(Value::Text(text)) if text == "raw" => return Ok(Self::Version(raw_version())),
            Some(Value::Text(text)) if !text.is_empty() => {
                return Ok(Self::Version(format!("Concertina v{}", env!("CARGO_PKG_VERSION"))));
            }
            _ => {}
        }
        Ok(Self::Controller(Box::new(Config::resolve(&raw, &table)?)))
    }
}

fn wants_help(raw: &Raw) -> bool {
    raw.value("help") == Some(&Value::Bool(true))
}

/// As kube-controller-manager's `--version=raw`: a Go value.
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

    fn read(words: &[&str]) -> Result<Invocation, String> {
        Invocation::from_args(words.iter().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn without_words_it_is_the_controller_with_defaults() {
        assert_eq!(read(&[]), Ok(Invocation::Controller(Box::default())));
    }

    #[test]
    fn help_lists_what_works_and_counts_what_does_not() {
        for words in [&["-h"][..], &["--help"], &["--horizontal-pod-autoscaler-tolerance=0.2", "--help"]] {
            let Ok(Invocation::Help(text)) = read(words) else { panic!("{words:?}") };
            assert!(
                text.contains("--horizontal-pod-autoscaler-sync-period duration (default 15s)"),
                "{text}"
            );
            assert!(text.contains("--dry-run"), "{text}");
            #[cfg(feature = "tools")]
            assert!(text.contains("\n  rbac      ") && text.contains("\n  why       "), "{text}");
            assert!(!text.contains("--allocate-node-cidrs"), "{text}");
            assert!(text.contains("flags of kube-controller-manager"), "{text}");
        }
    }

    #[test]
    fn the_version_is_told_for_people_and_for_programs() {
        let Ok(Invocation::Version(text)) = read(&["--version"]) else { panic!() };
        assert!(text.starts_with("Concertina v"), "{text}");
        let Ok(Invocation::Version(text)) = read(&["--version=raw"]) else { panic!() };
        assert!(text.starts_with("version.Info{"), "{text}");
        assert!(matches!(read(&["--version=false"]), Ok(Invocation::Controller(_))));
    }

    #[test]
    fn words_that_are_no_flags_are_refused() {
        assert_eq!(read(&["now"]).unwrap_err(), "\"concertina\" does not take any arguments, got [\"now\"]");
        assert_eq!(
            read(&["--", "--dry-run"]).unwrap_err(),
            "\"concertina\" does not take any arguments, got [\"--dry-run\"]"
        );
        assert!(read(&[""]).is_ok());
    }

    #[cfg(feature = "tools")]
    #[test]
    fn demo_has_flags_of_its_own() {
        assert!(matches!(read(&["demo", "--for", "60s", "--port=0"]), Ok(Invocation::Demo(_))));
        assert!(matches!(read(&["demo", "-h"]), Ok(Invocation::Help(_))));
        assert!(read(&["demo", "--dry-run"]).is_err());
    }

    #[cfg(feature = "tools")]
    #[test]
    fn why_has_flags_of_its_own() {
        assert!(matches!(read(&["why", "web", "-n", "shop"]), Ok(Invocation::Why(_))));
        assert!(matches!(read(&["why", "-h"]), Ok(Invocation::Help(_))));
        assert!(read(&["why", "--dry-run"]).is_err());
    }

    #[test]
    fn as_a_plugin_it_is_known_by_its_file() {
        for name in ["kubectl-concertina", "/usr/local/bin/kubectl-concertina", "./kubectl-concertina.exe"] {
            assert_eq!(Program::of(OsStr::new(name)), Program::KubectlPlugin, "{name}");
        }
        assert_eq!(Program::of(OsStr::new("/usr/bin/concertina")), Program::Concertina);
    }

    #[cfg(unix)]
    #[test]
    fn words_that_are_not_text_are_refused() {
        use std::os::unix::ffi::OsStringExt;
        let error = Invocation::from_args([OsString::from_vec(vec![b'-', 0xff])]).unwrap_err();
        assert!(error.to_string().ends_with("is not valid UTF-8"), "{error}");
    }
}
