//! The result of a test step: success, or a text with the failure.
//!
//! Scenarios run in parallel in one process. A failing step returns its reason instead of panicking, so
//! the others finish and the report names all failures.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// The reason of a failed step. It does not implement `Display`, so that `?` can convert every
/// displayable error.
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

/// Adds the failed operation to an error and keeps its reason.
pub(crate) trait Context<T> {
    fn context(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {}", error.into().0)))
    }
}

/// The pause between two attempts. It is short compared with the one-second period of the controllers
/// and long compared with the cost of an attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(150);

/// Retries until the probe succeeds. After the deadline the last reason is the failure.
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

/// Repeats the probe for the whole time and fails at the first failure.
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
