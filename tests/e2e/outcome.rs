//! How a step of a test ends: fine, or with a text that says what was wrong.
//!
//! Scenarios run side by side in one process, so a failing step returns its
//! reason instead of panicking: the others finish, and the report names all
//! that failed.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Why a step failed. Deliberately not `Display`, so that `?` can turn every
/// displayable error into one.
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

/// Says in what a step failed, keeping the reason.
pub(crate) trait Context<T> {
    fn context(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {}", error.into().0)))
    }
}

/// The pause between two looks at something that is awaited. Short beside the
/// one second period of the controllers, long beside the cost of a look.
const LOOK: Duration = Duration::from_millis(150);

/// Looks until the answer is fine; the last reason against it is the failure.
pub(crate) async fn eventually<T>(
    within: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Outcome<T>,
) -> Outcome<T> {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(Failure(reason)) if Instant::now() >= deadline => {
                return Err(Failure(format!("{what}: not within {} s: {reason}", within.as_secs())));
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Looks for the whole time; fails as soon as the answer is not fine.
pub(crate) async fn throughout(
    time: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Outcome,
) -> Outcome {
    let end = Instant::now() + time;
    while Instant::now() < end {
        look().await.context(what)?;
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
