//! The list and watch loop as a state machine: outcomes in, next states and waits out. No I/O.

use std::time::Duration;

use clock::Backoff;

use crate::jitter::Jitter;

/// The first wait after a failure, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(800);
/// Minimum duration of a watch without events. A shorter watch counts as a failure. The limit is client-go's.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// Maximum `Retry-After` that the loop honours.
const LONGEST_ASKED_WAIT: Duration = Duration::from_mins(1);

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Read all objects as the initial events of a watch (`sendInitialEvents`). The watch then continues.
    Streaming,
    /// Read all objects page by page. `next` continues the list, or starts it if empty.
    Listing {
        /// `continue` of the previous page.
        next: String,
    },
    /// Follow the changes after `resource_version`, up to which the sink is complete.
    Watching {
        /// The last version received.
        resource_version: String,
    },
}

/// The result of a request, or of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A page arrived.
    Page {
        /// Token that continues the list. Empty after the last page.
        next: String,
        /// The version of the list.
        resource_version: String,
    },
    /// A streaming list is complete. Its watch continues.
    Listed {
        /// The version up to which the list is complete.
        resource_version: String,
    },
    /// An event or a bookmark arrived.
    Progress {
        /// The version of the event or bookmark.
        resource_version: String,
    },
    /// The server ended the watch, as it does every few minutes.
    Ended {
        /// The duration of the watch.
        lasted: Duration,
        /// The number of events received.
        events: u64,
    },
    /// The server does not support streaming lists, or ignores the parameters.
    StreamingUnsupported,
    /// The server does not know the version or the continue token: expired (410), or not reached (a restored
    /// etcd).
    Expired,
    /// Any other failure.
    Failed {
        /// The wait that the server requested.
        retry_after: Option<Duration>,
    },
}

/// The state of the loop between requests.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    streaming: bool,
    backoff: Backoff,
    jitter: Jitter,
}

impl Machine {
    /// Creates a machine that starts with a list, or with a streaming list if `streaming` is set. Waits grow
    /// up to `longest_wait`.
    pub(super) fn new(streaming: bool, longest_wait: Duration, jitter: Jitter) -> Self {
        let backoff = Backoff::new(FIRST_WAIT, longest_wait);
        let mut machine = Self { state: State::Streaming, streaming, backoff, jitter };
        machine.state = machine.initial_state();
        machine
    }

    /// The next request.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Applies an outcome. Returns the wait before the request of the new state.
    pub(super) fn step(&mut self, outcome: Outcome) -> Duration {
        match outcome {
            // A complete list alone does not reset the failures, because a server that expires every watch
            // would be listed in a hot loop.
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
                self.backoff.reset();
                self.state = State::Watching { resource_version };
                Duration::ZERO
            }
            Outcome::Ended { lasted, events } => {
                let complete = matches!(self.state, State::Watching { .. });
                if complete && (lasted >= VERY_SHORT || events > 0) {
                    self.backoff.reset();
                    Duration::ZERO
                } else {
                    self.back_off()
                }
            }
            Outcome::StreamingUnsupported => {
                self.streaming = false;
                self.state = self.initial_state();
                Duration::ZERO
            }
            Outcome::Expired => {
                self.state = self.initial_state();
                // The first retry is immediate, because an expired version is normal after a long pause.
                let wait = self.back_off();
                if self.backoff.failures() == 1 { Duration::ZERO } else { wait }
            }
            Outcome::Failed { retry_after } => {
                let asked = retry_after.unwrap_or_default().min(LONGEST_ASKED_WAIT);
                self.back_off().max(asked)
            }
        }
    }

    fn initial_state(&self) -> State {
        if self.streaming { State::Streaming } else { State::Listing { next: String::new() } }
    }

    /// The wait after a failure. Jitter subtracts up to half of it at random to spread replicas.
    fn back_off(&mut self) -> Duration {
        self.backoff.fail().mul_f64(self.jitter.fraction().mul_add(0.5, 0.5))
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
    fn waits_double_up_to_the_maximum_and_reset_after_progress() {
        let mut machine = machine();
        let mut expected = FIRST_WAIT;
        for _ in 0..40 {
            let wait = machine.step(failed());
            assert!(wait <= expected && wait >= expected / 2, "{wait:?} {expected:?}");
            expected = (expected * 2).min(Duration::from_millis(7_500));
        }
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert!(machine.step(failed()) > Duration::from_secs(3), "a list alone does not reset the wait");
        machine.step(Outcome::Progress { resource_version: "6".to_owned() });
        assert!(machine.step(failed()) <= FIRST_WAIT);
        assert_eq!(*machine.state(), watching("6"));
    }

    #[test]
    fn server_without_streaming_lists_is_listed_by_pages() {
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
            "a failed page is requested again"
        );
        machine.step(Outcome::Page { next: String::new(), resource_version: "5".to_owned() });
        assert_eq!(*machine.state(), watching("5"));
        machine.step(Outcome::Expired);
        assert_eq!(*machine.state(), State::Listing { next: String::new() }, "streaming is not tried again");
    }

    #[test]
    fn expired_version_relists_at_once_and_waits_before_the_second_relist() {
        let mut machine = machine();
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert_eq!(machine.step(Outcome::Expired), Duration::ZERO);
        machine.step(Outcome::Listed { resource_version: "5".to_owned() });
        assert!(machine.step(Outcome::Expired) > Duration::ZERO);
    }

    #[test]
    fn watch_resumes_at_once_unless_it_was_very_short() {
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
    fn streaming_list_fails_when_it_ends_early() {
        let mut machine = machine();
        assert!(machine.step(Outcome::Ended { lasted: Duration::from_secs(9), events: 9 }) > Duration::ZERO);
        assert_eq!(*machine.state(), State::Streaming);
    }

    #[test]
    fn retry_after_extends_the_wait_up_to_a_maximum() {
        let wait = |asked| machine().step(Outcome::Failed { retry_after: Some(Duration::from_secs(asked)) });
        assert_eq!(wait(20), Duration::from_secs(20));
        assert_eq!(wait(1_000_000), LONGEST_ASKED_WAIT);
    }
}
