//! The commands of the toolbox.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
pub use toolbox::command::Command;
use toolbox::command::{self, Parsed};
use toolbox::demo::Screen;
use toolbox::handover::HandoverError;
use toolbox::parity::ParityError;
use toolbox::policy::PolicyError;
use toolbox::why::WhyError;

use crate::logging;
use crate::{failed, until_stopped};
use clock::{SharedClock, SystemClock};
use engine::reconcile::Observers;
use flags::config::{LogFormat, LogOptions};
use flags::{CliError, Config, Program};

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

pub(crate) fn parse(program: Program, words: &[String]) -> Option<Result<flags::Parsed<Command>, CliError>> {
    let parsed = command::parse(&program.to_string(), words)?;
    Some(match parsed {
        Ok(Parsed::Options(command)) => Ok(flags::Parsed::Options(command)),
        Ok(Parsed::Help(text)) => Ok(flags::Parsed::Help(text)),
        Err(error) => Err(CliError::Subcommand(error.to_string())),
    })
}

/// Runs the controller of the demo.
fn controller(
    config: Config,
    clock: SharedClock,
    observers: Observers,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
    Box::pin(async move { Ok(crate::app::run(&config, clock, observers, stop).await?) })
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
            until_stopped(async |stop| toolbox::console::run(&options, clock, stop).await)
        }
        Command::Demo(options) => until_stopped(async |stop| {
            toolbox::demo::run(&options, controller, clock, Screen::stdout(), stop).await
        }),
        Command::Why(options) => until_stopped(async |stop| {
            let found = toolbox::why::run(&options, clock, stop).await?;
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
        Command::Simulate(options) => match toolbox::simulate::run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::invocation::Invocation;

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
    fn cli_reference_page_lists_every_command() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/cli.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, _) in COMMANDS {
            assert!(page.contains(&format!("| `concertina {name}")), "{name}");
        }
    }
}
