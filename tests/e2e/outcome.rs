//! The results of test steps, and the child processes that steps start.
//!
//! Scenarios run in parallel in one process. A failing step returns its reason instead of panicking, so
//! the other scenarios finish and the report names all failures.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

/// The reason of a failed step. It does not implement `Display`, so that `?` can convert every error with `Display`.
pub(crate) struct Failure(pub(crate) String);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Fails with a text unless the condition holds.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(otherwise())) }
}

/// Puts the failed operation in front of the reason of an error.
pub(crate) trait Context<T> {
    fn context(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {}", error.into().0)))
    }
}

/// The pause between two attempts: much shorter than the sync period of one second, and much longer than an attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);

/// Retries until the probe succeeds. After the time limit, returns the failure of the last attempt.
pub(crate) async fn eventually<T>(
    within: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Outcome<T>,
) -> Outcome<T> {
    let deadline = Instant::now() + within;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(Failure(reason)) if Instant::now() >= deadline => {
                return Err(Failure(format!(
                    "{what}: did not happen within {} s: {reason}",
                    within.as_secs()
                )));
            }
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Repeats the probe for the whole `time`. Returns the first failure.
pub(crate) async fn throughout(
    time: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Outcome,
) -> Outcome {
    let end = Instant::now() + time;
    while Instant::now() < end {
        probe().await.context(what)?;
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    Ok(())
}

/// A child process, which never outlives the test. Its output goes to a log file.
pub(crate) struct Process {
    name: String,
    child: Child,
    /// A shell that kills the child at the end of its own standard input, when the test closes the pipe or dies.
    guard: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> Outcome<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context(format!("failed to start {name} ({})", command.get_program().display()))?;
        let guard = Command::new("sh")
            .args(["-c", "cat >/dev/null; kill -9 \"$1\"", "guard", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match guard {
            Ok(guard) => Ok(Self { name: name.to_owned(), child, guard, log }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Failure(format!("failed to start the guard shell of {name}: {error}")))
            }
        }
    }

    /// Fails, with the last lines of the log, if the program has exited.
    pub(crate) fn still_runs(&mut self) -> Outcome {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure(format!("{} exited with {status}\n{}", self.name, self.tail(20)))),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `TERM`, `KILL`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, signal: &str) -> Outcome {
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status()?;
        ensure(sent.success(), || format!("failed to send {signal} to {}", self.name))
    }

    /// Waits until the program exits. Returns its exit code, or `None` after a signal.
    pub(crate) async fn wait_for_exit(&mut self, within: Duration) -> Outcome<Option<i32>> {
        let what = format!("{} exits", self.name);
        let status =
            eventually(within, &what, async || self.child.try_wait()?.ok_or_else(|| Failure(self.tail(20))));
        Ok(status.await?.code())
    }

    /// Waits until the program has logged `part`.
    pub(crate) async fn wait_for_log(&self, part: &str, within: Duration) -> Outcome {
        let what = format!("{} logs {part}", self.name);
        eventually(within, &what, async || {
            let text = fs::read(&self.log)?;
            ensure(String::from_utf8_lossy(&text).contains(part), || self.tail(20))
        })
        .await
    }

    /// The last `lines` lines of the program's output.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        let from = all.len().saturating_sub(lines);
        let mut tail = format!("--- {}, last {} of {} lines\n", self.name, all.len() - from, all.len());
        for line in all.iter().skip(from) {
            tail.extend(line.chars().take(400));
            tail.push('\n');
        }
        tail
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Stop the guard first. After the child is reaped, another process may get its process id.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
