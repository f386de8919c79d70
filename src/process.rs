//! Runs a command line. The exit code is 0 after a success or a requested stop, 1 after a failure, and 2 for an invalid
//! command line. The commands `why`, `parity`, `handover`, `policy` and `sources` return 3 if their result needs
//! attention.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use crate::app::AppError;
use crate::cli::{CliError, Config, Program};
use crate::exit::{failed, print, until_stopped};
use crate::invocation::{Invocation, ManifestFormat, RbacOptions, Start};
use crate::logging;
use crate::{permissions, tools};
use clock::{SharedClock, SystemClock};
use sources::SourceFile;

/// Runs the operation that the command line selects, and returns the exit code. The first word is the name of the
/// program.
pub fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let program = words.next().map(|called| Program::from_called(&called)).unwrap_or_default();
    let words: Vec<OsString> = words.collect();
    if let Some(completed) = tools::complete(program, &words) {
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
            let mut needed = permissions::needed(config);
            if let Some(path) = &config.metric_sources {
                match SourceFile::read(path) {
                    Ok(file) => needed.extend(permissions::source_permissions(config, &file)),
                    Err(error) => return failed(&AppError::from(error)),
                }
            }
            needed.extend(permissions::optional_watch_permissions(config));
            let manifest =
                permissions::manifest(&needed, account, config.controller.watch_namespaces.is_some());
            match output {
                ManifestFormat::Yaml => print(&manifest),
                ManifestFormat::Json => match permissions::manifest_as_json(&manifest) {
                    Ok(list) => print(&list),
                    Err(error) => failed(&error),
                },
            }
        }
        Invocation::Tool(command) => tools::run(command),
    }
}

/// Returns [`Start::BareOnTerminal`] if the process runs in a terminal outside a pod.
fn start() -> Start {
    let typed = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if typed && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        Start::BareOnTerminal
    } else {
        Start::Bare
    }
}

fn controller(config: &Config) -> ExitCode {
    let clock: SharedClock = Arc::new(SystemClock);
    if let Err(error) = logging::set_up(config.logging, Arc::clone(&clock)) {
        return failed(&error);
    }
    until_stopped(|stop| crate::app::run(config, clock, Vec::new(), stop))
}
