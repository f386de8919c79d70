//! Runs an operation until its end or a signal, and converts the result to an exit code.

use std::io::{ErrorKind, Write};
use std::process::{ExitCode, Termination};

use tokio_util::sync::CancellationToken;

use crate::logging::for_terminal;
use cluster::platform::StopRequests;

/// Writes `text` to standard output. A closed pipe, such as that of `head`, is not an error.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Runs `run` to completion in a new runtime. A signal cancels the token that `run` receives.
pub(crate) fn until_stopped<F, T, E>(run: impl FnOnce(CancellationToken) -> F) -> ExitCode
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
        Err(error) => return failed(&error),
    };
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        if let Err(error) = stop_on_signal(&stop) {
            tracing::warn!(%error, "failed to listen for signals");
        }
        run(stop).await
    });
    match result {
        Ok(ended) => ended.report(),
        Err(error) => failed(&error),
    }
}

/// Cancels `stop` at the first of [`StopRequests`], such as SIGTERM or SIGINT. At the second, exits with code 1 at
/// once.
fn stop_on_signal(stop: &CancellationToken) -> std::io::Result<()> {
    let mut requests = StopRequests::listen()?;
    let stop = stop.clone();
    // The task needs no supervision, because it cannot panic.
    tokio::spawn(async move {
        for last in [false, true] {
            requests.next().await;
            if last {
                std::process::exit(1);
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
    use controller::tasks::Tasks;

    #[test]
    fn process_exits_with_code_1_after_the_panic_of_a_task() {
        let code = until_stopped(async |stop| {
            let tasks = Tasks::default();
            tasks.spawn_until(&stop, "watch", async { panic!("no pods") });
            tasks.failed().await;
            tasks.failure().map_or(Ok(()), Err)
        });
        assert_eq!(code, ExitCode::FAILURE);
    }
}
