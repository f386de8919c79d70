//! The commands of the toolbox, and the controller process that they run.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use futures::future::BoxFuture;
use sources::Sources;
use tokio_util::sync::CancellationToken;
pub use toolbox::command::Command;
use toolbox::command::{self, Parsed};
use toolbox::demo::Screen;
use toolbox::handover::HandoverError;
use toolbox::parity::ParityError;
use toolbox::policy::PolicyError;
use toolbox::process::{ControllerProcess, FlagError, FlagHelp, Process, ResolvedFlags};
use toolbox::why::WhyError;

use crate::app::client_options;
use crate::logging;
use crate::{failed, until_stopped};
use clock::{SharedClock, SystemClock};
use cluster::client::ClientOptions;
use controller::options::MetricSources;
use engine::reconcile::Observers;
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::FlagSet;
use flags::config::{LogFormat, LogOptions};
use flags::flag::Purpose;
use flags::{self, CliError, Program};

/// The names of the commands, each with one line of help.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("why", "Explain the replica count of an HPA and its next decision."),
    ("console", "Show all HPAs of a cluster on a page in the browser."),
    ("policy", "Check scaling policies, and import them from other autoscalers."),
    ("sources", "Import the configuration of prometheus-adapter as sources and scaling policies."),
    ("handover", "Hand HPAs over from the built-in controller to Concertina, and back."),
    ("parity", "Compare a dry run with the built-in controller."),
    ("simulate", "Simulate HPAs and their workloads in virtual time."),
    ("demo", "Run a demo cluster with autoscaled workloads in this process."),
    ("completion", "Print the completion script of a shell."),
];

/// The controller process of this program. Commands such as `demo` run it.
pub const PROCESS: Process = &ThisProcess;

#[derive(Debug)]
struct ThisProcess;

impl ControllerProcess for ThisProcess {
    fn flags(&self) -> Vec<FlagHelp> {
        let flags = FlagSet::controller();
        let effective = flags.flags().filter(|flag| matches!(flag.purpose, Purpose::Effective { .. }));
        let help = effective.map(|flag| FlagHelp {
            name: flag.name.to_owned(),
            placeholder: flag.placeholder.to_owned(),
            usage: flag.usage().to_owned(),
        });
        help.collect()
    }

    fn resolve(&self, words: Vec<String>) -> Result<ResolvedFlags, FlagError> {
        let config = FlagSet::controller().resolve(words).map_err(|error| match error {
            flags::FlagError::Unknown { flag, .. } => FlagError::Unknown(flag),
            error => FlagError::Invalid(error.to_string()),
        })?;
        let clients = ClientOptions { observer: None, ..client_options(&config, &Telemetry::new()) };
        Ok(ResolvedFlags { options: config.controller, clients, warnings: config.warnings })
    }

    fn run(
        &self,
        words: Vec<String>,
        clock: SharedClock,
        observers: Observers,
        sources: Option<Arc<Sources>>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let mut config = FlagSet::controller().resolve(words)?;
            config.controller.metric_sources = sources.map(MetricSources);
            Ok(crate::app::run(&config, clock, observers, stop).await?)
        })
    }
}

pub(crate) fn parse(program: Program, words: &[String]) -> Option<Result<flags::Parsed<Command>, CliError>> {
    let parsed = command::parse(&program.to_string(), words, PROCESS)?;
    Some(match parsed {
        Ok(Parsed::Options(command)) => Ok(flags::Parsed::Options(command)),
        Ok(Parsed::Help(text)) => Ok(flags::Parsed::Help(text)),
        Err(error) => Err(CliError::Subcommand(error.to_string())),
    })
}

pub(crate) fn run(command: Command) -> ExitCode {
    let clock: SharedClock = Arc::new(SystemClock);
    if let Some(options) = command.logging() {
        let format = if options.json { LogFormat::Json } else { LogFormat::Text };
        let options = LogOptions { format, verbosity: options.verbosity };
        if let Err(error) = logging::set_up(options, Arc::clone(&clock)) {
            return failed(&error);
        }
    }
    match command {
        Command::Console(options) => {
            until_stopped(async |stop| toolbox::console::run(&options, PROCESS, clock, stop).await)
        }
        Command::Demo(options) => until_stopped(async |stop| {
            toolbox::demo::run(&options, PROCESS, clock, Screen::stdout(), stop).await
        }),
        Command::Why(options) => until_stopped(async |stop| {
            let found = toolbox::why::run(&options, PROCESS, clock, stop).await?;
            Ok::<_, WhyError>(ExitCode::from(found.exit_code()))
        }),
        Command::Parity(options) => until_stopped(async |stop| {
            let differs = toolbox::parity::run(&options, stop).await?;
            Ok::<_, ParityError>(ExitCode::from(if differs { 3 } else { 0 }))
        }),
        Command::Handover(options) => until_stopped(async |stop| {
            let verdict = toolbox::handover::run(&options, clock, stop).await?;
            Ok::<_, HandoverError>(ExitCode::from(verdict.exit_code()))
        }),
        Command::Policy(options) => until_stopped(async |stop| {
            let verdict = toolbox::policy::run(&options, clock, stop).await?;
            Ok::<_, PolicyError>(ExitCode::from(verdict.exit_code()))
        }),
        Command::Simulate(options) => match toolbox::simulate::run(&options, PROCESS) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

#[cfg(test)]
mod tests {
    //! One test generates the page `docs/reference/flags.md`, and checks that it is current.

    use std::fmt::Write as _;
    use std::path::Path;

    use toolbox::process::{DecisionFlags, NAMES, TOLERANCE};

    use super::*;
    use crate::invocation::Invocation;
    use flags::flag::Flag;
    use flags::{kcm, own};

    fn read(words: &[&str]) -> Result<Invocation, CliError> {
        Invocation::from_args(words.iter().map(Into::into))
    }

    #[test]
    fn each_command_has_its_own_flags() {
        for words in [
            &["demo", "--for", "60s", "--port=0"][..],
            &["why", "web", "-n", "shop"],
            &["console", "--port=0"],
            &["parity", "--shadow=ops/shadow"],
            &["simulate", "a.yaml"],
            &["handover", "status"],
            &["policy", "check", "--offline", "a.yaml"],
            &["policy", "import", "-f", "a.yaml"],
            &["sources", "import", "-f", "a.yaml"],
        ] {
            assert!(matches!(read(words), Ok(Invocation::Tool(_))), "{words:?}");
            assert!(matches!(read(&[words[0], "-h"]), Ok(Invocation::Help(_))), "{words:?}");
            assert!(read(&[words[0], "--dry-run"]).is_err(), "{words:?}");
        }
        let Ok(Invocation::Help(text)) = read(&["-h"]) else { panic!("no help") };
        assert!(text.contains("\n  why       "), "{text}");
    }

    #[test]
    fn every_decision_flag_exists() {
        let flags = PROCESS.flags();
        for name in NAMES {
            assert!(flags.iter().any(|flag| flag.name == name && !flag.usage.is_empty()), "{name}");
        }
    }

    #[test]
    fn invalid_value_has_the_controllers_error() {
        let error = DecisionFlags::new(vec![(TOLERANCE, "ten".to_owned())], PROCESS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid argument \"ten\" for \"--horizontal-pod-autoscaler-tolerance\" flag: strconv.ParseFloat: parsing \"ten\": invalid syntax"
        );
    }

    /// Compares the page with its generated text. With the environment variable `UPDATE_DOCS`, writes the text to the
    /// page instead.
    #[test]
    fn flags_reference_page_equals_the_flag_tables() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/flags.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, flags_page()).unwrap();
        }
        let is_current = std::fs::read_to_string(&path).unwrap() == flags_page();
        assert!(is_current, "flags.md is stale: run UPDATE_DOCS=1 cargo test --lib reference_page");
    }

    #[test]
    fn cli_reference_page_lists_every_command() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/cli.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, _) in COMMANDS {
            assert!(page.contains(&format!("| `concertina {name}")), "{name}");
        }
    }

    /// Renders the page `flags.md`: the flags of Concertina with their help texts, and the names of the others.
    fn flags_page() -> String {
        let mut text = "\
# Flags

Concertina accepts the command line of kube-controller-manager 1.36 to 1.38 unchanged, by pflag's
rules. `concertina controller --help` explains every flag. This page is generated.

## Flags of Concertina

| flag | default | |
|---|---|---|
"
        .to_owned();
        let sorted = |mut flags: Vec<Flag>| {
            flags.sort_by_key(|flag| flag.name);
            flags
        };
        for flag in sorted(own::flags()) {
            let Purpose::Effective { usage, .. } = flag.purpose else { continue };
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let _ = writeln!(text, "| `{}` | {default} | {usage} |", flag.printed());
        }
        let (mut shared, mut ignored) = (Vec::new(), Vec::new());
        for flag in sorted([kcm::flags(), kcm::removed_flags()].into_iter().flatten().collect()) {
            let name = format!("`--{}`", flag.name);
            match flag.purpose {
                Purpose::Effective { .. } => shared.push(name),
                Purpose::Ignored { reason } if reason.contains("other controllers") => {}
                Purpose::Ignored { .. } => ignored.push(name),
            }
        }
        for (title, introduction, names) in [
            (
                "Flags of kube-controller-manager",
                "These flags have the same effect and default, except that the Lease is named `concertina`:",
                shared,
            ),
            (
                "Without effect",
                "These flags, and those of other controllers, are ignored. If one is not at its default, a warning at\n\
                 startup gives the reason:",
                ignored,
            ),
        ] {
            let _ = writeln!(text, "\n## {title}\n\n{introduction}\n{}.", names.join(", "));
        }
        text
    }
}
