//! The exit codes of the commands, and reads that an interruption can end.

use std::panic::resume_unwind;

/// The result needs attention, such as a finding or a difference.
pub const FOUND: u8 = 3;
/// The user interrupted the command: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

/// Runs `work`, such as a read of standard input, on another thread, so that this thread still handles signals.
pub async fn on_another_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        },
    }
}
