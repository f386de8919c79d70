//! The operation that a command line selects: the controller or another command.

use std::ffi::OsString;

use clap::{ArgMatches, Command};

pub(crate) mod commands;
#[cfg(feature = "tools")]
pub(crate) mod completion;

pub use self::commands::{ManifestFormat, RbacOptions};
use crate::tools;
use flags::FlagSet;
use flags::config::Config;
use flags::values::VersionOutput;
use flags::{CliError, FlagError, Parsed, Program};

/// The operation that the command line selects.
#[derive(Debug, Clone, PartialEq)]
pub enum Invocation {
    /// Run the controller.
    Controller(Box<Config>),
    /// Print the roles that a controller needs.
    Rbac(Box<RbacOptions>),
    /// Run a command for people at a terminal.
    Tool(tools::Command),
    /// Print the help text and exit.
    Help(String),
    /// Print the version and exit.
    Version(String),
}

impl Invocation {
    /// Parses the arguments after the name of `concertina`, as in a container.
    ///
    /// # Errors
    /// Returns [`CliError`] for an invalid command line.
    pub fn from_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        Self::parse(Program::Concertina, words, Start::InPod)
    }

    /// Parses the arguments after the name of `program`. `start` determines whether a command line without a command
    /// may run the controller.
    ///
    /// # Errors
    /// Returns [`CliError`] for an invalid command line.
    pub fn parse(
        program: Program,
        words: impl IntoIterator<Item = OsString>,
        start: Start,
    ) -> Result<Self, CliError> {
        let words = words
            .into_iter()
            .map(|word| word.into_string().map_err(|word| CliError::NotText(format!("{}", word.display()))))
            .collect::<Result<Vec<String>, CliError>>()?;
        let (first, rest) = match words.split_first() {
            Some((first, rest)) => (first.as_str(), rest),
            None => ("", &[][..]),
        };
        match first {
            "controller" => Self::controller(program, rest, Start::Explicit),
            "rbac" => commands::parse_rbac(rest.iter().cloned()).map(|parsed| match parsed {
                Parsed::Options(options) => Self::Rbac(options),
                Parsed::Help(text) => Self::Help(text),
            }),
            "version" => commands::parse_version(program, rest),
            "help" => Self::help(program, rest, start),
            #[cfg(feature = "tools")]
            "completion" => completion::parse(program, rest).map(Self::Help),
            #[cfg(feature = "tools")]
            "man" => completion::write_manual(program, rest).map(Self::Help),
            _ => match tools::parse(program, &words) {
                Some(parsed) => parsed.map(|parsed| match parsed {
                    Parsed::Options(command) => Self::Tool(command),
                    Parsed::Help(text) => Self::Help(text),
                }),
                None if words.is_empty()
                    && (program == Program::KubectlPlugin || start == Start::Outside) =>
                {
                    Ok(Self::Help(overview(program)))
                }
                None => Self::controller(program, &words, start),
            },
        }
    }

    /// Parses the arguments of `help`. Without arguments, the command lists all commands.
    fn help(program: Program, words: &[String], start: Start) -> Result<Self, CliError> {
        match words {
            [] => Ok(Self::Help(overview(program))),
            [word, ..] if word.starts_with('-') || word == "help" => Ok(Self::Help(overview(program))),
            _ => {
                let words = words.iter().cloned().chain(["--help".to_owned()]);
                Self::parse(program, words.map(OsString::from), start)
            }
        }
    }

    fn controller(program: Program, words: &[String], start: Start) -> Result<Self, CliError> {
        let flags = FlagSet::controller();
        let called =
            if start == Start::Explicit { format!("{program} controller") } else { program.to_string() };
        let mut command = controller_command(program, &flags).bin_name(called);
        let matches = flags.parse(command.clone(), words.iter().cloned()).map_err(|error| {
            // The first word is the name of a command, unless the command line starts with the flags of the controller.
            match words.first().filter(|word| start != Start::Explicit && !word.starts_with('-')) {
                Some(word) if matches!(error, FlagError::Arguments { .. }) => CliError::UnknownCommand {
                    word: word.clone(),
                    program,
                    similar: similar_command(word).map(str::to_owned),
                },
                _ => error.into(),
            }
        })?;
        if wants_help(&matches) {
            return Ok(Self::Help(command.render_help().to_string()));
        }
        match matches.get_one("version") {
            Some(VersionOutput::Raw) => return Ok(Self::Version(raw_version())),
            Some(VersionOutput::Readable) => return Ok(Self::Version(readable_version())),
            Some(VersionOutput::Off) | None => {}
        }
        let config = flags.config(&matches)?;
        let accident = match start {
            Start::Explicit => false,
            Start::InPod => program == Program::KubectlPlugin,
            Start::Outside => {
                program == Program::KubectlPlugin || (config.kubeconfig.is_none() && config.master.is_none())
            }
        };
        if accident {
            return Err(CliError::NoCommand { program });
        }
        Ok(Self::Controller(Box::new(config)))
    }
}

/// The form of the command line, which determines whether the controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The command `controller`.
    Explicit,
    /// No command in a pod, with the flags of kube-controller-manager.
    InPod,
    /// No command outside of a pod. The controller runs only if `--kubeconfig` or `--master` is set.
    Outside,
}

/// Creates the command line of `controller`, which is also the command line without a command.
pub(crate) fn controller_command(program: Program, flags: &FlagSet) -> Command {
    let command =
        Command::new("controller").about(ABOUT).override_usage(format!("{program} [controller] [OPTIONS]"));
    flags.add_to(command.before_help(commands_help(program)))
}

/// Returns the list of commands for help texts.
fn commands_help(program: Program) -> String {
    let commands = COMMANDS.iter().chain(tools::COMMANDS);
    let lines = commands.map(|(name, about)| format!("\n  {name:<10}  {about}"));
    format!("Commands (their flags: {program} COMMAND --help):{}", lines.collect::<String>())
}

/// Returns the help text without the flags of the controller.
fn overview(program: Program) -> String {
    format!("{ABOUT}\n\nUsage: {program} COMMAND [OPTIONS]\n\n{}", commands_help(program))
}

/// Returns the command with the most similar name. Returns `None` if no name is similar.
fn similar_command(word: &str) -> Option<&'static str> {
    let names = COMMANDS.iter().chain(tools::COMMANDS).map(|(name, _)| *name);
    let near = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    let near = near.filter(|(distance, name)| *distance <= name.len().div_ceil(3));
    near.min().map(|(_, name)| name)
}

/// The commands of every build, each with one line of help.
const COMMANDS: &[(&str, &str)] = &[
    ("controller", "Run the controller. Without a command, containers run it too."),
    ("help", "List the commands, or explain one: help COMMAND."),
    ("version", "Print the version."),
    ("rbac", "Print the roles that a controller with these flags needs."),
];

const ABOUT: &str = "\
Concertina is a drop-in replacement for the HorizontalPodAutoscaler controller of
kube-controller-manager. It accepts that program's flags.";

fn wants_help(matches: &ArgMatches) -> bool {
    matches.get_one("help") == Some(&true)
}

fn readable_version() -> String {
    format!("Concertina v{}", env!("CARGO_PKG_VERSION"))
}

/// Returns the output of `--version=raw`, which is a Go value as in kube-controller-manager.
fn raw_version() -> String {
    format!(
        "version.Info{{GitVersion:\"v{}\", EmulatedVersions:\"{}\", Platform:\"{}/{}\"}}",
        env!("CARGO_PKG_VERSION"),
        commands::emulated().join(","),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn read(words: &[&str]) -> Result<Invocation, String> {
        read_as(Program::Concertina, Start::InPod, words)
    }

    fn read_as(program: Program, start: Start, words: &[&str]) -> Result<Invocation, String> {
        Invocation::parse(program, words.iter().map(OsString::from), start).map_err(|error| error.to_string())
    }

    #[test]
    fn controller_starts_by_its_command_or_in_a_container() {
        let started = |program, start, words: &[&str]| {
            matches!(read_as(program, start, words), Ok(Invocation::Controller(_)))
        };
        for program in [Program::Concertina, Program::KubectlPlugin] {
            for start in [Start::InPod, Start::Outside] {
                assert!(started(program, start, &["controller", "--dry-run"]), "{program} {start:?}");
            }
        }
        assert!(started(Program::Concertina, Start::InPod, &["--dry-run"]));
        assert!(started(Program::Concertina, Start::Outside, &["--kubeconfig=admin.conf"]));
        let refused = |program, start, words: &[&str]| read_as(program, start, words).unwrap_err();
        let error = refused(Program::Concertina, Start::Outside, &["--dry-run"]);
        assert!(error.contains("\"concertina controller\" runs the controller"), "{error}");
        let error = refused(Program::KubectlPlugin, Start::InPod, &["--kubeconfig=admin.conf"]);
        assert!(error.contains("\"kubectl concertina controller\""), "{error}");
    }

    #[test]
    fn bare_call_prints_help_outside_of_a_pod_and_as_a_plugin() {
        for (program, start) in [
            (Program::Concertina, Start::Outside),
            (Program::KubectlPlugin, Start::InPod),
            (Program::KubectlPlugin, Start::Outside),
        ] {
            let Ok(Invocation::Help(text)) = read_as(program, start, &[]) else {
                panic!("{program} {start:?}")
            };
            assert!(text.contains(&format!("Usage: {program} COMMAND")), "{text}");
        }
    }

    #[test]
    fn help_lists_commands_or_explains_one() {
        for words in [&["help"][..], &["help", "help"], &["help", "--help"]] {
            let Ok(Invocation::Help(text)) = read(words) else { panic!("{words:?}") };
            assert!(text.contains("\n  controller  ") && !text.contains("--dry-run"), "{text}");
        }
        for (word, expected) in [
            ("controller", "--dry-run"),
            ("rbac", "--service-account"),
            ("version", "Usage: concertina version"),
        ] {
            let Ok(Invocation::Help(text)) = read(&["help", word]) else { panic!("{word}") };
            assert!(text.contains(expected), "{text}");
        }
        assert!(read(&["help", "rbca"]).unwrap_err().contains("did you mean rbac?"));
    }

    #[test]
    fn mistyped_command_has_a_suggestion() {
        assert_eq!(
            read(&["verison"]).unwrap_err(),
            "unknown command \"verison\" for \"concertina\"; did you mean version?"
        );
        let error = read_as(Program::KubectlPlugin, Start::Outside, &["contoller"]).unwrap_err();
        assert_eq!(
            error,
            "unknown command \"contoller\" for \"kubectl concertina\"; did you mean controller?"
        );
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
        for (words, expected) in [
            (&["--", "--dry-run"][..], "\"concertina\" does not take any arguments, got [\"--dry-run\"]"),
            (&["--dry-run", "false"], "\"concertina\" does not take any arguments, got [\"false\"]"),
            (&["controller", "why"], "\"concertina controller\" does not take any arguments, got [\"why\"]"),
            (&["rbac", "a", "b"], "\"concertina rbac\" does not take any arguments, got [\"a\" \"b\"]"),
        ] {
            assert_eq!(read(words).unwrap_err(), expected);
        }
        for words in [&["nonsense"][..], &["help", "nonsense"]] {
            let expected =
                "unknown command \"nonsense\" for \"concertina\"; \"concertina help\" lists the commands";
            assert_eq!(read(words).unwrap_err(), expected);
        }
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
