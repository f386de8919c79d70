//! What happened in a run, for the invariants and for reports.

use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plan::NAMES;

/// The author of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A replica, by its number.
    Own(usize),
    /// The built-in loop.
    BuiltIn,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A Scale or status write about an HPA succeeded. `sent`: when the writer sent it.
    Wrote { hpa: usize, writer: Writer, is_status: bool, sent: Duration },
    /// A replica refused a write of the built-in loop about an HPA: its Scale, its status or an event. `is_led`: whether the Lease had a live holder,
    /// or lost it so recently that a standby was about to acquire it.
    Refused { hpa: usize, is_led: bool },
    /// An HPA entered the scope or left it, or exists from now on, or no longer.
    Scoped { hpa: usize, is_in_scope: bool, exists: bool },
    /// A replica leads. `is_handover`: it acquired the Lease shortly after another replica.
    Leads { replica: usize, is_handover: bool },
    /// The leader ended.
    Died,
    /// A check of the guard's objects by a replica has ended. `is_proven`: what a correct check finds.
    Checked { replica: usize, is_proven: bool },
    /// An event of the plan.
    Event(&'static str),
}

/// The facts of a run, in order.
#[derive(Debug)]
pub(crate) struct Journal {
    started: Instant,
    facts: Mutex<Vec<(Duration, Fact)>>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), facts: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn add(&self, fact: Fact) {
        self.facts.lock().push((self.now(), fact));
    }

    pub(crate) fn facts(&self) -> Vec<(Duration, Fact)> {
        self.facts.lock().clone()
    }

    /// One line for each fact.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (at, fact) in self.facts.lock().iter() {
            let _ = write!(text, "{:9.3} ", at.as_secs_f64());
            let _ = match fact {
                Fact::Wrote { hpa, writer, is_status, sent } => {
                    let (hpa, what) = (NAMES[*hpa], if *is_status { "status" } else { "scale" });
                    writeln!(text, "{hpa}: {what} written by {writer:?}, sent {:.3}", sent.as_secs_f64())
                }
                Fact::Refused { hpa, is_led } => writeln!(text, "{}: refused, led {is_led}", NAMES[*hpa]),
                Fact::Scoped { hpa, is_in_scope, exists } => {
                    writeln!(text, "{}: in scope {is_in_scope}, exists {exists}", NAMES[*hpa])
                }
                Fact::Leads { replica, is_handover } => {
                    writeln!(text, "replica {replica} leads, handover {is_handover}")
                }
                Fact::Died => writeln!(text, "the leader ended"),
                Fact::Checked { replica, is_proven } => {
                    writeln!(text, "replica {replica} checks the guard: {is_proven}")
                }
                Fact::Event(event) => writeln!(text, "-- {event}"),
            };
        }
        text
    }
}
