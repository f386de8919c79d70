//! What a command waits for, on a terminal.

use std::io::{IsTerminal as _, Write, stderr};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// The wait after which the line appears.
const SILENCE: Duration = Duration::from_secs(2);
/// The time between two updates of the line.
const STEP: Duration = Duration::from_secs(1);

/// Shows what a command waits for, as a line on standard error that disappears with the end of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    is_shown: bool,
}

impl Progress {
    /// Returns a progress that is shown if standard error is a terminal. [`Self::default`] is never shown.
    pub fn on_terminal() -> Self {
        Self { is_shown: stderr().is_terminal() }
    }

    /// Waits for `work`. `what` names the wait, such as `reading HPAs`, without a full stop.
    pub async fn during<T>(self, what: &str, work: impl Future<Output = T>) -> T {
        self.during_steps(|| what.to_owned(), work).await
    }

    /// Like [`Self::during`], with a name that changes while the work advances.
    pub async fn during_steps<T>(self, what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        if self.is_shown { shown(what, work, &mut stderr()).await } else { work.await }
    }
}

async fn shown<T>(
    what: impl Fn() -> String,
    work: impl Future<Output = T>,
    out: &mut (dyn Write + Send),
) -> T {
    let start = Instant::now();
    let mut ticks = interval_at(start + SILENCE, STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut work = pin!(work);
    let mut is_written = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                if is_written {
                    put(out, "\r\x1b[K");
                }
                return done;
            }
            _ = ticks.tick() => {
                put(out, &format!("\r\x1b[K{} … {} s", what(), start.elapsed().as_secs()));
                is_written = true;
            }
        }
    }
}

fn put(out: &mut (dyn Write + Send), text: &str) {
    // A terminal that cannot be written is no reason to fail.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(wait: u64) -> String {
        let mut out = Vec::new();
        let work = async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            7
        };
        assert_eq!(shown(|| "reading pods".to_owned(), work, &mut out).await, 7);
        String::from_utf8(out).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn long_wait_is_shown_and_the_line_is_removed() {
        assert_eq!(written(1_900).await, "");
        assert_eq!(written(3_500).await, "\r\x1b[Kreading pods … 2 s\r\x1b[Kreading pods … 3 s\r\x1b[K");
    }
}
