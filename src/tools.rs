//! The commands for people at a terminal.

use std::error::Error;
use std::process::{ExitCode, Termination};
use std::sync::Arc;

use check::CheckError;
use check::options::CheckOptions;
use console::command as page;
use console::command::options::ConsoleOptions;
use demo::Screen;
use demo::options::DemoOptions;
use futures::future::BoxFuture;
use migration::handover::options::HandoverOptions;
use migration::handover::{self, HandoverError};
use migration::parity::options::ParityOptions;
use migration::parity::{self, ParityError};
use migration::policy::options::PolicyOptions;
use migration::policy::{self, PolicyError};
use past::advise;
use past::advise::options::AdviseOptions;
use past::forecast;
use past::forecast::options::BacktestOptions;
use simulate::options::SimulateOptions;
use terminal::ending::{FOUND, INTERRUPTED, on_another_thread};
use terminal::options::{Logging, cluster, parse as read};
use tokio_util::sync::CancellationToken;
use why::WhyError;
use why::options::WhyOptions;

use crate::logging;
use crate::{failed, until_stopped};
use clock::{SharedClock, SystemClock};
use engine::reconcile::Observers;
use flags::config::{LogFormat, LogOptions};
use flags::{CliError, Config, Parsed, Program};

/// The names of the commands, each with one line of help.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("why", "Explain the replica count of an HPA and its next decision."),
    ("check", "Check the installations in a cluster, or whether it is ready for one."),
    ("console", "Show all HPAs of a cluster on a page in the browser."),
    ("policy", "Check scaling policies, and import them from other autoscalers."),
    ("sources", "Check the file of metric sources, and import the configuration of prometheus-adapter."),
    ("handover", "Hand HPAs over from the built-in controller to Concertina, and back."),
    ("parity", "Compare a dry run with the built-in controller."),
    ("simulate", "Simulate HPAs and their workloads in virtual time."),
    ("advise", "Advise better settings for the HPAs of a cluster, from their past."),
    ("forecast", "Try floors from the load of earlier days on a recorded load."),
    ("demo", "Run a demo cluster with autoscaled workloads in this process."),
    ("completion", "Print the completion script of a shell."),
];

/// A command with its options.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Check the installations, or the cluster.
    Check(Box<CheckOptions>),
    /// Serve a page with all HPAs.
    Console(Box<ConsoleOptions>),
    /// Run the demo.
    Demo(DemoOptions),
    /// Explain the replica count of an HPA.
    Why(Box<WhyOptions>),
    /// Compare a dry run with the built-in controller.
    Parity(Box<ParityOptions>),
    /// Check or import scaling policies or sources.
    Policy(PolicyOptions),
    /// Hand HPAs over from the built-in controller, or back.
    Handover(Box<HandoverOptions>),
    /// Run a simulation.
    Simulate(Box<SimulateOptions>),
    /// Advise better settings for HPAs.
    Advise(Box<AdviseOptions>),
    /// Try floors on a recorded load.
    Forecast(Box<BacktestOptions>),
}

/// Parses the arguments after the name of `program`. Returns `None` if they do not start with a command.
pub(crate) fn parse(program: Program, words: &[String]) -> Option<Result<Parsed<Command>, CliError>> {
    let (name, rest) = words.split_first()?;
    let program = &program.to_string();
    Some(match name.as_str() {
        "check" => read(check::options::command(program), rest, |matches| {
            Ok(Command::Check(Box::new(check::options::options(matches))))
        }),
        "console" => read(page::options::command(program), rest, |matches| {
            Ok(Command::Console(Box::new(page::options::options(matches))))
        }),
        "demo" => read(demo::options::command(program), rest, |matches| {
            Ok(Command::Demo(demo::options::options(matches)))
        }),
        "why" => read(why::options::command(program), rest, |matches| {
            Ok(Command::Why(Box::new(why::options::options(matches)?)))
        }),
        "policy" => read(policy::options::command(program), rest, |matches| {
            policy::options::options(matches).map(Command::Policy)
        }),
        "sources" => read(policy::options::sources_command(program), rest, |matches| {
            policy::options::sources_options(matches).map(Command::Policy)
        }),
        "parity" => read(parity::options::command(program), rest, |matches| {
            Ok(Command::Parity(Box::new(parity::options::options(matches)?)))
        }),
        "handover" => read(handover::options::command(program), rest, |matches| {
            Ok(Command::Handover(Box::new(handover::options::options(matches)?)))
        }),
        "simulate" => read(simulate::options::command(program), rest, |matches| {
            Ok(Command::Simulate(Box::new(simulate::options::options(matches)?)))
        }),
        "advise" => read(advise::options::command(program), rest, |matches| {
            Ok(Command::Advise(Box::new(advise::options::options(matches)?)))
        }),
        "forecast" => read(forecast::options::command(program), rest, |matches| {
            Ok(Command::Forecast(Box::new(forecast::options::options(matches)?)))
        }),
        _ => return None,
    })
}

/// Returns the commands with their subcommands, for completion and manual pages.
pub(crate) fn commands(program: &str) -> [clap::Command; 11] {
    [
        why::options::command(program),
        check::options::command(program),
        page::options::command(program),
        policy::options::command(program),
        policy::options::sources_command(program),
        handover::options::command(program),
        parity::options::command(program),
        simulate::options::command(program),
        advise::options::command(program),
        forecast::options::command(program),
        demo::options::command(program),
    ]
}

/// Returns the names of HPAs for the completion of a command line with kubectl's connection flags, such as `-n shop
/// web`. Returns no names if the connection flags are invalid.
///
/// # Errors
/// Returns the reason why the HPAs cannot be read.
pub async fn hpa_names(words: Vec<String>) -> Result<Vec<String>, WhyError> {
    let command = cluster::arguments(clap::Command::new("names")).no_binary_name(true).ignore_errors(true);
    // `ignore_errors` ignores the other flags of the completed command, and an unfinished word.
    match command.try_get_matches_from(words) {
        Ok(matches) => why::hpa_names_of(&cluster::options(&matches)).await,
        Err(_) => Ok(Vec::new()),
    }
}

impl Command {
    /// Returns the logging options. `None` disables logs, so that they do not mix with the output.
    pub fn logging(&self) -> Option<Logging> {
        let logging = match self {
            Self::Advise(options) => options.logging,
            Self::Check(options) => options.logging,
            Self::Console(options) => options.logging,
            Self::Demo(options) => options.logging,
            Self::Why(options) => options.logging,
            Self::Parity(options) => options.logging,
            Self::Handover(options) => options.logging,
            Self::Policy(PolicyOptions::Check(options)) => options.logging,
            Self::Policy(
                PolicyOptions::Import { .. }
                | PolicyOptions::ImportSources { .. }
                | PolicyOptions::CheckSources { .. },
            )
            | Self::Simulate(_)
            | Self::Forecast(_) => return None,
        };
        (logging.verbosity > 0).then_some(logging)
    }
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

/// Runs a command to its end. If the user interrupts it, the exit code is [`INTERRUPTED`].
fn until_interrupted<F, T, E>(run: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = Result<T, E>>,
    T: Termination,
    E: Error,
{
    let ended = until_stopped(INTERRUPTED, run);
    if ended.is_stopped { ExitCode::from(INTERRUPTED) } else { ended.code }
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
        Command::Check(options) => until_interrupted(async |stop| {
            let verdict = check::run(&options, clock, stop).await?;
            Ok::<_, CheckError>(ExitCode::from(verdict.exit_code()))
        }),
        Command::Console(options) => until_interrupted(async |stop| page::run(&options, clock, stop).await),
        Command::Demo(options) => until_interrupted(async |stop| {
            let screen = Screen::stdout(options.color);
            demo::run(&options, controller, clock, screen, stop).await
        }),
        Command::Why(options) => until_interrupted(async |stop| {
            let found = why::run(&options, clock, stop).await?;
            Ok::<_, WhyError>(ExitCode::from(found.exit_code()))
        }),
        Command::Parity(options) => until_interrupted(async |stop| {
            let differs = parity::run(&options, stop).await?;
            Ok::<_, ParityError>(ExitCode::from(if differs { FOUND } else { 0 }))
        }),
        Command::Handover(options) => until_interrupted(async |stop| {
            let verdict = handover::run(&options, clock, stop).await?;
            Ok::<_, HandoverError>(ExitCode::from(verdict.exit_code()))
        }),
        Command::Policy(options) => until_interrupted(async |stop| {
            let verdict = policy::run(&options, clock, stop).await?;
            Ok::<_, PolicyError>(ExitCode::from(verdict.exit_code()))
        }),
        Command::Simulate(options) => until_interrupted(async |stop| {
            // A simulation blocks its thread, in runtimes with virtual time.
            let simulation = on_another_thread(move || simulate::run(&options));
            stop.run_until_cancelled(simulation).await.unwrap_or(Ok(()))
        }),
        Command::Advise(options) => until_interrupted(async |stop| advise::run(&options, clock, stop).await),
        Command::Forecast(options) => {
            until_interrupted(async |stop| forecast::run(&options, clock, stop).await)
        }
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
            &["check", "--pre"],
            &["console", "--port=0"],
            &["parity", "--shadow=ops/shadow"],
            &["simulate", "a.yaml"],
            &["advise", "--prometheus", "http://a"],
            &["forecast", "backtest", "--csv", "a.csv"],
            &["handover", "status"],
            &["policy", "check", "--offline", "a.yaml"],
            &["policy", "import", "-f", "a.yaml"],
            &["sources", "import", "-f", "a.yaml"],
            &["sources", "check", "a.yaml"],
        ] {
            assert!(matches!(read(words), Ok(Invocation::Tool(_))), "{words:?}");
            let Ok(Invocation::Help(help)) = read(&[words[0], "-h"]) else { panic!("{words:?}") };
            assert!(help.contains("OPTIONS]") || help.contains(" <COMMAND>"), "{help}");
            assert!(!help.contains("[flags]"), "{help}");
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
