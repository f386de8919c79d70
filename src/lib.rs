//! Concertina: a drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller.
//!
//! This package contains the process: command lines, the check of permissions, serving, start and stop.
//! `docs/architecture.md` describes the other crates and the path of one sync.
//!
//! [`run`] runs a command line. `docs/reference/cli.md` lists the exit codes.

pub mod app;
pub mod handover;
pub mod invocation;
pub mod logging;
pub mod permissions;
pub mod serve;
#[cfg(feature = "tools")]
pub mod tools;
#[cfg(not(feature = "tools"))]
#[path = "no_tools.rs"]
pub mod tools;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::{ExitCode, Termination};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::app::AppError;
use crate::invocation::{Invocation, ManifestFormat, RbacOptions, Start};
use crate::logging::for_terminal;
use clock::{SharedClock, SystemClock};
use cluster::platform::StopRequests;
use flags::{CliError, Config, Program, permissions as table};
use sources::SourceFile;

/// Runs the operation that the command line selects, and returns the exit code. The first word is the name of the
/// program.
pub fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let program = words.next().map(|called| Program::from_called(&called)).unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    #[cfg(feature = "tools")]
    if let Some(completed) = invocation::completion::complete(program, &words) {
        return completed;
    }
    let invocation = match Invocation::parse(program, words, start()) {
        Ok(invocation) => invocation,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::from(CliError::EXIT_CODE);
        }
    };
    match invocation {
        Invocation::Help(text) | Invocation::Version(text) => print(&format!("{}\n", text.trim_end())),
        Invocation::Controller(config) => controller(&config),
        Invocation::Rbac(options) => {
            let RbacOptions { config, account, output } = &*options;
            let mut needed = table::needed(config);
            if let Some(path) = &config.metric_sources {
                match SourceFile::read(path) {
                    Ok(file) => needed.extend(table::source_permissions(config, &file)),
                    Err(error) => return failed(&AppError::from(error)),
                }
            }
            needed.extend(table::optional_watch_permissions(config));
            let manifest = table::manifest(&needed, account, config.controller.watch_namespaces.is_some());
            match output {
                ManifestFormat::Yaml => print(&manifest),
                ManifestFormat::Json => match table::manifest_as_json(&manifest) {
                    Ok(list) => print(&list),
                    Err(error) => failed(&error),
                },
            }
        }
        Invocation::Tool(command) => tools::run(command),
    }
}

/// Returns where a command line without a command was started.
fn start() -> Start {
    // A pod without this variable could not reach its cluster either.
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() { Start::InPod } else { Start::Outside }
}

fn controller(config: &Config) -> ExitCode {
    let clock: SharedClock = Arc::new(SystemClock);
    if let Err(error) = logging::set_up(config.logging, Arc::clone(&clock)) {
        return failed(&error);
    }
    raise_open_files();
    until_stopped(1, |stop| crate::app::run(config, clock, Vec::new(), stop)).code
}

/// Raises the limit of open files to the maximum that the system allows this process, as Go programs do. Container
/// runtimes and systemd start processes with a limit of 1,024, which pages of a thousand pods exhaust.
fn raise_open_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::warn!(%error, ?current, ?maximum, "failed to raise the limit of open files");
        }
    }
}

/// Writes `text` to standard output. A closed pipe, such as that of `head`, is not an error.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// The end of a run.
pub(crate) struct Ended {
    /// The exit code of the run.
    pub(crate) code: ExitCode,
    /// Whether a signal requested the end.
    #[cfg_attr(
        not(feature = "tools"),
        expect(dead_code, reason = "an interrupted tool has its own exit code")
    )]
    pub(crate) is_stopped: bool,
}

/// Runs `run` to completion in a new runtime. A signal cancels the token that `run` receives. A second
/// signal ends the process at once, with the exit code `hurried`.
pub(crate) fn until_stopped<F, T, E>(hurried: u8, run: impl FnOnce(CancellationToken) -> F) -> Ended
where
    F: Future<Output = Result<T, E>>,
    T: Termination,
    E: std::error::Error,
{
    // With an explicit choice, a second provider in the dependencies cannot cause a panic. An error means that a
    // provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Syncs mostly wait, so one thread is enough. Two threads that wake each other need a fifth more CPU time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Ended { code: failed(&error), is_stopped: false },
    };
    let stop = CancellationToken::new();
    let result = runtime.block_on(async {
        if let Err(error) = stop_on_signal(&stop, hurried) {
            tracing::warn!(%error, "failed to listen for signals");
        }
        run(stop.clone()).await
    });
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    let code = match result {
        Ok(ended) => ended.report(),
        Err(error) => failed(&error),
    };
    Ended { code, is_stopped: stop.is_cancelled() }
}

/// Cancels `stop` at the first of [`StopRequests`], such as SIGTERM or SIGINT. At the second, exits with the code
/// `hurried` at once.
fn stop_on_signal(stop: &CancellationToken, hurried: u8) -> std::io::Result<()> {
    let mut requests = StopRequests::listen()?;
    let stop = stop.clone();
    // The task needs no supervision, because it cannot panic.
    tokio::spawn(async move {
        for last in [false, true] {
            requests.next().await;
            if last {
                std::process::exit(hurried.into());
            }
            stop.cancel();
        }
    });
    Ok(())
}

pub(crate) fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("Error: {}", for_terminal(&error.to_string()));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::tasks::Tasks;

    #[test]
    fn process_exits_with_code_1_after_the_panic_of_a_task() {
        let ended = until_stopped(1, async |stop| {
            let tasks = Tasks::default();
            tasks.spawn_until(&stop, "watch", async { panic!("no pods") });
            tasks.failed().await;
            tasks.failure().map_or(Ok(()), Err)
        });
        assert_eq!(ended.code, ExitCode::FAILURE);
    }
}
