//! The invariants of every run. They are checked on the journal of facts alone.
//!
//! - A replica writes only HPAs in scope, and only while it is the leader.
//! - After a status write of the built-in controller, a replica writes the HPA only after a new claim with a proven
//!   guard, a refused write, or two quiet periods.
//! - A replica refuses a write only in scope and only with a live leader.
//! - An HPA is without a writer for at most two periods (30 s), plus the duration of the Lease (15 s) for each leader that
//!   stops, plus one request in flight.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plan::{NAMES, Plan};
use crate::world::{LEASE, RETRY};

const PERIOD: Duration = Duration::from_secs(15);
/// Minimum time from a write of the built-in loop to the next write of a replica, unless the leader has changed.
const SETTLE: Duration = Duration::from_secs(1);
/// Time without a foreign write after which a contest ends, even if no write was refused.
const QUIET: Duration = Duration::from_secs(30);
/// Maximum time without a writer, while no leader stops. A writer writes once a period, so the time between two writes
/// may be one period longer.
const LONGEST: Duration = PERIOD.saturating_mul(2);

/// Maximum number of successive writes of Scales by the built-in loop that no replica can attribute to it. A Scale does
/// not show its writer. The status write of the same sync does, unless it conflicts with a write of a replica. While
/// the API server waits for a webhook that it does not reach, such a conflict can repeat in every period.
const UNSEEN: u32 = 8;

/// A violated invariant.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) at: Duration,
    pub(crate) text: String,
}

/// The longest times of a run without a writer and with two writers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Longest {
    /// Time between two writes minus one period, while no leader stopped.
    pub(crate) without_writer: Duration,
    /// Like `without_writer`, but while one leader stopped.
    pub(crate) without_leader: Duration,
    /// Time from a status write of the built-in loop to the end of a write that a replica sent before it could observe
    /// the status write.
    pub(crate) two_writers: Duration,
}

impl Longest {
    /// The maximum of each field.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            without_writer: self.without_writer.max(other.without_writer),
            without_leader: self.without_leader.max(other.without_leader),
            two_writers: self.two_writers.max(other.two_writers),
        }
    }
}

/// Checks a run that ends at `end`. Returns the first violation, if any, and the longest times.
pub(crate) fn check(plan: &Plan, facts: &[(Duration, Fact)], end: Duration) -> (Option<Violation>, Longest) {
    let checked: Vec<_> = (0..plan.hpas).map(|hpa| Hpa::new(plan, hpa).check(facts, end)).collect();
    let longest = checked.iter().fold(Longest::default(), |longest, (_, next)| longest.max(*next));
    (checked.into_iter().find_map(|(violation, _)| violation), longest)
}

/// The state of an HPA at one time of the journal.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
struct Hpa {
    number: usize,
    /// Maximum time until a replica observes a change.
    unseen: Duration,
    /// Maximum duration of a write: the timeout of a webhook that the API server does not reach, and the duration of a
    /// request.
    in_flight: Duration,
    exists: bool,
    is_in_scope: bool,
    left: Duration,
    /// Time of the newest claim, which follows a label, a new object or a new leader.
    claimed: Duration,
    /// Whether the newest claim continues that of the previous leader.
    is_handover: bool,
    /// Whether a replica has written since [`Self::claimed`].
    has_charge: bool,
    /// Whether a replica was in charge at the time [`Self::foreign`].
    is_contested: bool,
    /// Whether a replica that had observed the foreign write has written since [`Self::foreign`].
    has_returned: bool,
    leader: Option<usize>,
    died: Duration,
    deaths: Vec<Duration>,
    /// Time of the newest write of the built-in loop that shows its writer.
    foreign: Option<Duration>,
    /// Time of the newest write of any writer.
    last: Duration,
    /// Number of Scale writes of the built-in loop since its newest status write.
    rescales: u32,
    /// Time of the newest refused write of the built-in loop.
    refused: Option<Duration>,
    /// The replicas whose newest check found the guard intact.
    proven: BTreeSet<usize>,
    longest: Longest,
}

impl Hpa {
    fn new(plan: &Plan, number: usize) -> Self {
        Self {
            number,
            unseen: plan.watch_delay + plan.request + Duration::from_millis(20),
            in_flight: plan.unreached + plan.request,
            exists: true,
            is_in_scope: false,
            left: Duration::ZERO,
            claimed: Duration::ZERO,
            is_handover: false,
            has_charge: false,
            is_contested: false,
            has_returned: false,
            leader: None,
            died: Duration::ZERO,
            deaths: Vec::new(),
            foreign: None,
            last: Duration::ZERO,
            rescales: 0,
            refused: None,
            proven: BTreeSet::new(),
            longest: Longest::default(),
        }
    }

    fn check(mut self, facts: &[(Duration, Fact)], end: Duration) -> (Option<Violation>, Longest) {
        let violation = facts.iter().find_map(|(at, fact)| self.apply(*at, *fact));
        (violation.or_else(|| self.has_writer(end)), self.longest)
    }

    fn apply(&mut self, now: Duration, fact: Fact) -> Option<Violation> {
        match fact {
            Fact::Scoped { hpa, is_in_scope, exists } if hpa == self.number => {
                if !exists {
                    let violation = self.has_writer(now);
                    self.exists = false;
                    self.leave(now);
                    return violation;
                }
                if !std::mem::replace(&mut self.exists, true) {
                    (self.last, self.foreign, self.refused) = (now, None, None);
                }
                if is_in_scope {
                    (self.is_in_scope, self.is_handover) = (true, false);
                    self.claim(now);
                } else if self.is_in_scope {
                    self.leave(now);
                }
            }
            Fact::Leads { replica, is_handover } => {
                (self.leader, self.is_handover) = (Some(replica), is_handover);
                self.claim(now);
            }
            Fact::Died => {
                (self.leader, self.died) = (None, now);
                self.deaths.push(now);
            }
            Fact::Checked { replica, is_proven: true } => {
                self.proven.insert(replica);
            }
            Fact::Checked { replica, is_proven: false } => {
                self.proven.remove(&replica);
            }
            Fact::Refused { hpa, is_led } if hpa == self.number => {
                self.refused = Some(now);
                let left = !self.is_in_scope && now.saturating_sub(self.left) > self.unseen;
                if !is_led {
                    return self.violation("refused-only-with-leader", now, "no replica leads");
                }
                if left {
                    return self.violation("refused-only-in-scope", now, "the HPA is out of scope");
                }
            }
            Fact::Wrote { hpa, writer, is_status, sent } if hpa == self.number => {
                let violation = self.has_writer(now);
                self.last = now;
                if violation.is_some() {
                    return violation;
                }
                match writer {
                    Writer::BuiltIn if !is_status && self.rescales < UNSEEN => self.rescales += 1,
                    Writer::BuiltIn => {
                        self.rescales = 0;
                        (self.foreign, self.is_contested, self.has_returned) =
                            (Some(now), self.has_charge, false);
                    }
                    Writer::Own(replica) => return self.own_write(now, replica, sent),
                }
            }
            _ => {}
        }
        None
    }

    fn claim(&mut self, now: Duration) {
        (self.claimed, self.has_charge, self.is_contested, self.has_returned) = (now, false, false, false);
    }

    fn leave(&mut self, now: Duration) {
        (self.is_in_scope, self.left) = (false, now);
    }

    /// Checks that the time since the last write is bounded.
    fn has_writer(&mut self, now: Duration) -> Option<Violation> {
        if !self.exists {
            return None;
        }
        let deaths = self.deaths.iter().filter(|died| **died + LEASE + RETRY >= self.last).count();
        let longest = LONGEST + LEASE * u32::try_from(deaths).unwrap() + self.in_flight;
        let gap = now.saturating_sub(self.last).saturating_sub(PERIOD);
        let without = match deaths {
            0 => &mut self.longest.without_writer,
            _ => &mut self.longest.without_leader,
        };
        if deaths <= 1 {
            *without = gap.max(*without);
        }
        let text = format!("there was no writer for {gap:?} from one period after {:?} on", self.last);
        if gap > longest { self.violation("always-a-writer", now, &text) } else { None }
    }

    fn own_write(&mut self, now: Duration, replica: usize, sent: Duration) -> Option<Violation> {
        self.has_charge = true;
        let since = |at: Duration| sent.saturating_sub(at);
        let is_leader = self.leader == Some(replica);
        if !is_leader && (self.leader.is_some() || since(self.died) > self.unseen) {
            return self.violation(
                "only-the-leader-writes",
                now,
                &format!("replica {replica} does not lead"),
            );
        }
        if !self.is_in_scope && now.saturating_sub(self.left) > self.unseen + self.unseen {
            return self.violation("only-in-scope", now, &format!("out of scope since {:?}", self.left));
        }
        // The replica sent the request before it could observe the foreign write.
        let overlap = self.foreign.filter(|at| self.is_contested && since(*at) <= self.unseen);
        let overlap = overlap.map(|at| now.saturating_sub(at)).unwrap_or_default();
        self.longest.two_writers = self.longest.two_writers.max(overlap);
        let foreign = self.foreign.filter(|at| since(*at) > self.unseen)?;
        if std::mem::replace(&mut self.has_returned, true) || since(foreign) + self.unseen >= QUIET {
            return None;
        }
        let is_refused = self.refused.is_some_and(|at| at + self.unseen >= foreign);
        let may_claim = !self.is_contested && self.proven.contains(&replica);
        let has_settled = since(foreign) + self.unseen >= SETTLE;
        let text = format!(
            "the built-in loop wrote at {foreign:?}, refused {:?}, contested {}, guard proven {:?}, claimed at {:?}",
            self.refused, self.is_contested, self.proven, self.claimed
        );
        if !self.is_handover && !has_settled {
            return self.violation("silence-before-a-write", now, &text);
        }
        if !(is_refused || may_claim) {
            return self.violation("one-writer", now, &text);
        }
        None
    }

    #[expect(clippy::unnecessary_wraps, reason = "the checks return the result unchanged")]
    fn violation(&self, invariant: &'static str, at: Duration, text: &str) -> Option<Violation> {
        let text = format!("HPA {}: {text}", NAMES[self.number]);
        Some(Violation { invariant, at, text })
    }
}

/// The author of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The replica with this number.
    Own(usize),
    /// The built-in loop.
    BuiltIn,
}

/// An entry of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A write of the Scale or the status of an HPA succeeded. The writer sent it at `sent`.
    Wrote { hpa: usize, writer: Writer, is_status: bool, sent: Duration },
    /// A replica refused a write of the built-in loop about an HPA: its Scale, its status or an event. `is_led` is true
    /// until a standby must have acquired an expired Lease.
    Refused { hpa: usize, is_led: bool },
    /// An HPA entered or left the scope, or was created or deleted.
    Scoped { hpa: usize, is_in_scope: bool, exists: bool },
    /// A replica acquired the Lease. `is_handover` is true if another replica led shortly before.
    Leads { replica: usize, is_handover: bool },
    /// The leader stopped.
    Died,
    /// A replica has checked the webhook configuration. `is_proven` is the correct result, even if a planted bug hides
    /// it from the replica.
    Checked { replica: usize, is_proven: bool },
    /// An action of the plan, by its name.
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
