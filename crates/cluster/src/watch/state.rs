//! The state machine of the list and watch loop, without I/O. An outcome leads to the next state and to a wait.

use std::time::Duration;

use clock::{Backoff, Jitter};

use super::MAX_SILENCE;

/// The first wait after a failure, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(800);
/// Minimum duration of a watch without events. A shorter watch is a failure. The limit is client-go's.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// Maximum wait before a list after an expired or silent watch. The limit is client-go's.
const LONGEST_RELIST_WAIT: Duration = Duration::from_secs(30);
/// Minimum age of a complete list at which a list after an expired or silent watch starts without a wait. The limit is
/// client-go's.
const LASTING_VIEW: Duration = Duration::from_mins(2);
/// Maximum `Retry-After` that the loop respects.
const LONGEST_ASKED_WAIT: Duration = Duration::from_mins(1);

/// The next request of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Read all objects as the initial events of a watch (`sendInitialEvents`), and continue the watch.
    Streaming,
    /// Read all objects page by page. `next` continues the list, or starts it if empty.
    Listing {
        /// The continue token of the previous page.
        next: String,
    },
    /// Follow the changes after `resource_version`. The sink is complete up to this version.
    Watching {
        /// The last received resourceVersion.
        resource_version: String,
    },
}

/// The result of a request, or of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A page arrived.
    Page {
        /// The token that continues the list. Empty after the last page.
        next: String,
        /// The resourceVersion of the list.
        resource_version: String,
    },
    /// A streaming list is complete. Its watch continues.
    Listed {
        /// The resourceVersion up to which the list is complete.
        resource_version: String,
    },
    /// An event or a bookmark arrived.
    Progress {
        /// The resourceVersion of the event or bookmark.
        resource_version: String,
        /// Whether this is a periodic bookmark.
        bookmark: bool,
    },
    /// The server ended the watch, as it does every few minutes, or failed to end the watch at its timeout.
    Ended {
        /// The duration of the watch.
        lasted: Duration,
        /// The number of received events.
        events: u64,
    },
    /// No event and no bookmark arrived within [`Machine::max_silence`].
    Silent {
        /// Time since the last complete list. `None` while a list is read.
        view_age: Option<Duration>,
    },
    /// The server does not support streaming lists, or ignores the parameters.
    StreamingUnsupported,
    /// The resourceVersion or the continue token has expired (410) or was refused (400). Or the server has not reached
    /// the resourceVersion, as after a restore of etcd.
    Expired {
        /// Time since the last complete list. `None` while a list is read.
        view_age: Option<Duration>,
    },
    /// The request or the watch failed in another way.
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
    relists: Backoff,
    bookmarks: Bookmarks,
    /// Whether the previous watch was silent and the current watch has received no event.
    silent: bool,
    jitter: Jitter,
}

/// Whether the server sends bookmarks. A server may ignore the request for bookmarks, as servers without a watch cache
/// and some servers of aggregated APIs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bookmarks {
    /// No watch has received a bookmark or has been silent.
    Unknown,
    /// A bookmark has arrived, so silence of a later watch is a fault. The bookmark that ends a streaming list does not
    /// count, because a server without a watch cache sends it too.
    Sent,
    /// A watch was silent for [`MAX_SILENCE`] before the first bookmark. Silence then means that the resource has not
    /// changed, so the next watches last until the server ends them.
    Missing,
}

impl Machine {
    /// Creates a machine that starts with a streaming list if `streaming` is set, and otherwise with a list by pages.
    /// Waits grow up to `longest_wait`.
    pub(super) fn new(streaming: bool, longest_wait: Duration, jitter: Jitter) -> Self {
        let backoff = Backoff::new(FIRST_WAIT, longest_wait);
        let mut machine = Self {
            state: State::Streaming,
            streaming,
            backoff,
            relists: Backoff::new(FIRST_WAIT, LONGEST_RELIST_WAIT),
            bookmarks: Bookmarks::Unknown,
            silent: false,
            jitter,
        };
        machine.state = machine.initial_state();
        machine
    }

    /// Returns the next request.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Returns the maximum time without an event or a bookmark in a watch. `None` if the server sends no bookmarks.
    pub(super) fn max_silence(&self) -> Option<Duration> {
        (self.bookmarks != Bookmarks::Missing).then_some(MAX_SILENCE)
    }

    /// Applies an outcome. Returns the wait before the request of the new state.
    pub(super) fn step(&mut self, outcome: Outcome) -> Duration {
        match outcome {
            // A complete list does not reset the back-off. Otherwise, if a server expired every watch, the loop would
            // list again without a wait.
            Outcome::Page { next, resource_version } => {
                self.state = if next.is_empty() {
                    State::Watching { resource_version }
                } else {
                    State::Listing { next }
                };
                Duration::ZERO
            }
            Outcome::Listed { resource_version } => {
                self.silent = false;
                self.state = State::Watching { resource_version };
                Duration::ZERO
            }
            Outcome::Progress { resource_version, bookmark } => {
                self.backoff.reset();
                self.silent = false;
                if bookmark {
                    self.bookmarks = Bookmarks::Sent;
                }
                self.state = State::Watching { resource_version };
                Duration::ZERO
            }
            Outcome::Ended { lasted, events } => {
                let complete = matches!(self.state, State::Watching { .. });
                // Without bookmarks, a long watch without events is the only sign of a resourceVersion that the server
                // has not reached.
                if complete && self.bookmarks == Bookmarks::Missing && events == 0 && lasted >= MAX_SILENCE {
                    return self.relist(Some(lasted));
                }
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
            Outcome::Silent { view_age } => match self.bookmarks {
                Bookmarks::Sent if self.silent => {
                    // After a restore of etcd, a server may not have reached the resourceVersion of the watch. It then
                    // sends no events and no bookmarks. Only a list returns the current resourceVersion.
                    self.silent = false;
                    self.relist(view_age)
                }
                Bookmarks::Sent => {
                    self.silent = true;
                    Duration::ZERO
                }
                // The server sends no bookmarks, or has not reached the resourceVersion of the watch. A list is correct
                // in both cases.
                Bookmarks::Unknown | Bookmarks::Missing => {
                    self.bookmarks = Bookmarks::Missing;
                    self.relist(view_age)
                }
            },
            Outcome::Expired { view_age } if matches!(self.state, State::Watching { .. }) => {
                self.relist(view_age)
            }
            Outcome::Expired { .. } => {
                self.state = self.initial_state();
                let wait = self.back_off();
                if self.backoff.failures() == 1 { Duration::ZERO } else { wait }
            }
            Outcome::Failed { retry_after } => {
                let asked = retry_after.unwrap_or_default().min(LONGEST_ASKED_WAIT);
                self.back_off().max(asked)
            }
        }
    }

    /// Lists again after a watch. The first list is immediate, because an expired resourceVersion is normal after a
    /// long pause. As in client-go, waits are reset only if the last list is older than [`LASTING_VIEW`]. If events
    /// reset the waits, a server that expired each watch after one event would be listed without a wait.
    fn relist(&mut self, view_age: Option<Duration>) -> Duration {
        self.state = self.initial_state();
        if view_age.is_some_and(|age| age >= LASTING_VIEW) {
            self.relists.reset();
        }
        let wait = self.relists.fail();
        if self.relists.failures() == 1 { Duration::ZERO } else { self.spread(wait) }
    }

    fn initial_state(&self) -> State {
        if self.streaming { State::Streaming } else { State::Listing { next: String::new() } }
    }

    /// Counts a failure. Returns the wait after it.
    fn back_off(&mut self) -> Duration {
        let wait = self.backoff.fail();
        self.spread(wait)
    }

    /// Subtracts up to half of a wait at random to spread replicas.
    fn spread(&mut self, wait: Duration) -> Duration {
        wait.mul_f64(self.jitter.fraction().mul_add(0.5, 0.5))
    }
}

#[cfg(test)]
mod tests;
