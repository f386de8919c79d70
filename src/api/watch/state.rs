//! The list and watch loop as a state machine: what happened goes in, what to do next and when comes out. No I/O.

use std::time::Duration;

use crate::api::jitter::Jitter;

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_millis(800);
/// A watch that ends sooner than this without a single event counts as a failure; client-go's number.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// A server that asks to wait is obeyed up to this long.
const LONGEST_ASKED_WAIT: Duration = Duration::from_mins(1);

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Read everything as the beginning of a watch, which then goes on (`sendInitialEvents`).
    Streaming,
    /// Read everything page by page; this continues the list, or begins it if empty.
    Listing {
        /// `continue` of the page before.
        next: String,
    },
    /// Everything up to this version is known: follow the changes after it.
    Watching {
        /// The last version seen.
        resource_version: String,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A page arrived.
    Page {
        /// Continues the list; empty after the last page.
        next: String,
        /// The version that the list shows.
        resource_version: String,
    },
    /// A streaming list is complete; its watch goes on.
    Listed {
        /// The version up to which everything is known.
        resource_version: String,
    },
    /// An event or a bookmark arrived.
    Progress {
        /// Its version.
        resource_version: String,
    },
    /// The server ended the watch, as it does every few minutes.
    Ended {
        /// How long it lasted.
        lasted: Duration,
        /// How many events it brought.
        events: u64,
    },
    /// The server does not know streaming lists, or ignores what it was asked.
    StreamingUnsupported,
    /// The version, or the continuation of the list, is no longer known (410), or not yet (a restored etcd).
    Expired,
    /// Anything else went wrong.
    Failed {
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
}

/// The loop's memory.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    streaming: bool,
    /// Failures since the last success.
    failures: u32,
    longest_wait: Duration,
    jitter: Jitter,
}

impl Machine {
    /// Begins with a list; `streaming`: with a streaming one first. Waits grow up to `longest_wait`.
    pub(super) fn new(streaming: bool, longest_wait: Duration, jitter: Jitter) -> Self {
        let mut machine = Self { state: State::Streaming, streaming, failures: 0, longest_wait, jitter };
        machine.state = machine.beginning();
        machine
    }

    /// What to do next.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Takes what happened, and says how long to wait before acting on the new state.
    pub(super) fn step(&mut self, outcome: Outcome) -> Duration {
        match outcome {
            // A complete list alone is no success: a server that expires every watch would be listed in a hot loop.
            Outcome::Page { next, resource_version } => {
                self.state = if next.is_empty() {
                    State::Watching { resource_version }
                } else {
                    State::Listing { next }
                };
                Duration::ZERO
            }
            Outcome::Listed { resource_version } => {
                self.state = State::Watching { resource_version };
                Duration::ZERO
            }
            Outcome::Progress { resource_version } => {
                self.failures = 0;
                self.state = State::Watching { resource_version };
                Duration::ZERO
            }
            Outcome::Ended { lasted, events } => {
                let complete = matches!(self.state, State::Watching { .. });
                if complete && (lasted >= VERY_SHORT || events > 0) {
                    self.failures = 0;
                    Duration::ZERO
                } else {
                    self.back_off()
                }
            }
            Outcome::StreamingUnsupported => {
                self.streaming = false;
                self.state = self.beginning();
                Duration::ZERO
            }
            Outcome::Expired => {
                self.state = self.beginning();
                // The first time at once: nothing is wrong but our age.
                let wait = self.back_off();
                if self.failures == 1 { Duration::ZERO } else { wait }
            }
            Outcome::Failed { retry_after } => {
                let asked = retry_after.unwrap_or_default().min(LONGEST_ASKED_WAIT);
                self.back_off().max(asked)
            }
        }
    }

    fn beginning(&self) -> State {
        if self.streaming { State::Streaming } else { State::Listing { next: String::new() } }
    }

    /// Doubles from 0.8 s to the longest wait, then takes a random half off, so that replicas spread.
    fn back_off(&mut self) -> Duration {
        let doubled = FIRST_WAIT.saturating_mul(1_u32 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        doubled.min(self.longest_wait).mul_f64(self.jitter.fraction().mul_add(0.5, 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine::new(true, Duration::from_millis(7_500), Jitter::seeded(1))
    }

    fn watching(version: &str) -> State {
        State::Watching { resource_version: version.to_owned() }
    }

    fn failed() -> Outcome {
        Outcome::Failed { retry_after: None }
    }

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew_after_progress() {
        let mut machine = machine();
        let mut expected = FIRST_WAIT;
        for _ in 0..40 {
            let wait = machine.step(failed());
            assert!(wait <= expected && wait >= expected / 2, "{wait:?} {expected:?}");
            expected = (expected * 2).min(Duration::from_millis(7_500));
        }
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert!(machine.step(failed()) > Duration::from_secs(3), "a list alone is no progress");
        machine.step(Outcome::Progress { resource_version: "6".to_owned() });
        assert!(machine.step(failed()) <= FIRST_WAIT);
        assert_eq!(*machine.state(), watching("6"));
    }

    #[test]
    fn a_server_without_streaming_lists_is_listed_by_pages() {
        let mut machine = machine();
        assert_eq!(*machine.state(), State::Streaming);
        assert_eq!(machine.step(Outcome::StreamingUnsupported), Duration::ZERO);
        assert_eq!(*machine.state(), State::Listing { next: String::new() });
        machine.step(Outcome::Page { next: "c".to_owned(), resource_version: "5".to_owned() });
        assert_eq!(*machine.state(), State::Listing { next: "c".to_owned() });
        machine.step(failed());
        assert_eq!(
            *machine.state(),
            State::Listing { next: "c".to_owned() },
            "a failed page is asked for again"
        );
        machine.step(Outcome::Page { next: String::new(), resource_version: "5".to_owned() });
        assert_eq!(*machine.state(), watching("5"));
        machine.step(Outcome::Expired);
        assert_eq!(*machine.state(), State::Listing { next: String::new() }, "and never streamed again");
    }

    #[test]
    fn an_expired_version_is_listed_at_once_and_again_only_after_a_wait() {
        let mut machine = machine();
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert_eq!(machine.step(Outcome::Expired), Duration::ZERO);
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert!(machine.step(Outcome::Expired) > Duration::ZERO);
    }

    #[test]
    fn a_watch_that_ends_normally_resumes_at_once_and_a_very_short_one_waits() {
        let mut machine = machine();
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert_eq!(
            machine.step(Outcome::Ended { lasted: Duration::from_mins(5), events: 0 }),
            Duration::ZERO
        );
        assert_eq!(machine.step(Outcome::Ended { lasted: Duration::ZERO, events: 1 }), Duration::ZERO);
        assert!(
            machine.step(Outcome::Ended { lasted: Duration::from_millis(999), events: 0 }) > Duration::ZERO
        );
        assert_eq!(*machine.state(), watching("5"));
    }

    #[test]
    fn a_streaming_list_that_ends_early_is_a_failure() {
        let mut machine = machine();
        assert!(machine.step(Outcome::Ended { lasted: Duration::from_secs(9), events: 9 }) > Duration::ZERO);
        assert_eq!(*machine.state(), State::Streaming);
    }

    #[test]
    fn the_server_may_ask_for_a_longer_wait_within_reason() {
        let wait = |asked| machine().step(Outcome::Failed { retry_after: Some(Duration::from_secs(asked)) });
        assert_eq!(wait(20), Duration::from_secs(20));
        assert_eq!(wait(1_000_000), LONGEST_ASKED_WAIT);
    }
}
