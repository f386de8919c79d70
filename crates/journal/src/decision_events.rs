//! Events with the sentence of a decision, for `--decision-events`.
//!
//! An event is recorded when the outcome of an HPA's syncs changes, not with each sync. The rate of events is limited
//! per HPA and in total. A change beyond a limit is recorded by a later sync, if the change persists. The events have
//! their own source and queue, so that they do not displace the events that the built-in controller also writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::WriteOutcome;
use autoscaling::event::{EventIntent, EventKind};
use autoscaling::explanation::LimitingStep;
use autoscaling::status::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

use cluster::events::Recorder;
use cluster::gate::{Gate, Permits};
use engine::reconcile::{ConcludedSync, Observer, event_target};
use engine::store::Key;
use engine::telemetry::metrics::Metrics as Telemetry;
use policies::sentence::Decided;
use policies::steps::StepReason;

/// `reason` of the events.
const LAST_DECISION: &str = "LastDecision";
/// Minimum interval between two events about the same HPA. Event correlation drops events of a higher rate.
const INTERVAL: Duration = Duration::from_mins(5);
/// Maximum burst of events about all HPAs.
const BURST: u32 = 50;
/// The time after which one more event is permitted.
const REFILL: Duration = Duration::from_millis(200);
/// Maximum length of a message in `events.k8s.io`, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Options and collaborators of [`DecisionEvents`].
#[derive(Debug)]
pub struct Parts {
    /// Sends the events.
    pub events: Recorder,
    /// No event is recorded while the gate refuses writes.
    pub gate: Arc<Gate>,
    /// Issues the permits for the events of each HPA. `None` permits all events.
    pub permits: Option<Arc<dyn Permits>>,
    /// Counts the events.
    pub telemetry: Telemetry,
}

/// Records an event about an HPA when the outcome of its syncs changes.
#[derive(Debug)]
pub struct DecisionEvents {
    parts: Parts,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last reported outcome of each HPA, by UID.
    reported: BTreeMap<Arc<str>, Reported>,
    budget: Budget,
}

/// The last reported outcome, or the first outcome of an HPA that already had a status.
#[derive(Debug)]
struct Reported {
    outcome: Outcome,
    /// The time of the last event. `None` before the first event.
    at: Option<Instant>,
}

/// The part of a decision whose change causes an event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    count: Option<i32>,
    /// `None` if no step limits the count, or the step is [`LimitingStep::Tolerance`] or [`LimitingStep::MissingPods`].
    limited_by: Option<LimitingStep>,
    policy: Vec<StepReason>,
}

impl Outcome {
    fn new(sync: &ConcludedSync<'_>) -> Self {
        let explanation = &sync.conclusion.explanation;
        let step = explanation.limiting_step();
        Self {
            count: Decided::new(explanation, sync.policy).count(),
            limited_by: step
                .filter(|step| !matches!(step, LimitingStep::Tolerance | LimitingStep::MissingPods)),
            policy: sync
                .policy
                .iter()
                .flat_map(|effect| &effect.steps)
                .map(policies::steps::Step::reason)
                .collect(),
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct Budget {
    tokens: u32,
    refilled: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.tokens < BURST && now.duration_since(self.refilled) >= REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
        let permitted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        permitted
    }
}

impl DecisionEvents {
    /// Creates an observer that has reported no outcome.
    pub fn new(parts: Parts) -> Self {
        let state = State { reported: BTreeMap::new(), budget: Budget::new(Instant::now()) };
        Self { parts, state: Mutex::new(state) }
    }

    fn may_write(&self, key: &Key) -> bool {
        let permit = self.parts.permits.as_ref().map(|permits| permits.permit(&key.namespace, &key.name));
        self.parts.gate.refusal().is_none() && permit.is_none_or(|permit| permit.0.may_write())
    }
}

impl State {
    /// Returns whether to report an outcome now. `is_new` means that the HPA has no status yet.
    fn changes(&mut self, uid: &Arc<str>, outcome: &Outcome, is_new: bool, now: Instant) -> bool {
        let Some(reported) = self.reported.get_mut(uid) else {
            // The first outcome of an HPA with a status is not reported. Otherwise a new leader would report all HPAs.
            let is_reported = is_new && self.budget.take(now);
            if is_reported || !is_new {
                let at = is_reported.then_some(now);
                self.reported.insert(Arc::clone(uid), Reported { outcome: outcome.clone(), at });
            }
            return is_reported;
        };
        let is_early = reported.at.is_some_and(|at| now.duration_since(at) < INTERVAL);
        if reported.outcome == *outcome || is_early || !self.budget.take(now) {
            return false;
        }
        *reported = Reported { outcome: outcome.clone(), at: Some(now) };
        true
    }
}

impl Observer for DecisionEvents {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let hpa = sync.hpa;
        if *sync.outcome == WriteOutcome::Withheld || !self.may_write(&hpa.key) {
            return;
        }
        let (outcome, is_new) = (Outcome::new(sync), *hpa.status == Status::default());
        if self.state.lock().changes(&hpa.uid, &outcome, is_new, Instant::now()) {
            let message = cut(Decided::new(&sync.conclusion.explanation, sync.policy).sentence(sync.at));
            self.parts.telemetry.decision_event();
            let intent = EventIntent { kind: EventKind::Normal, reason: LAST_DECISION, message };
            self.parts.events.record(event_target(hpa), intent);
        }
    }

    fn forgotten(&self, key: &Key, uid: &str) {
        self.state.lock().reported.remove(uid);
        self.parts.events.forget(&key.namespace, &key.name, &uid.into());
    }
}

/// Returns a message, cut to [`MAX_MESSAGE`].
fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(count: i32, limited_by: Option<LimitingStep>) -> Outcome {
        Outcome { count: Some(count), limited_by, policy: Vec::new() }
    }

    fn state() -> (State, Instant, Arc<str>) {
        let now = Instant::now();
        (State { reported: BTreeMap::new(), budget: Budget::new(now) }, now, "uid".into())
    }

    #[tokio::test(start_paused = true)]
    async fn change_is_reported_once_and_at_most_every_five_minutes() {
        let (mut state, start, uid) = state();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let (four, five) = (outcome(4, None), outcome(5, Some(LimitingStep::Maximum)));
        assert!(!state.changes(&uid, &four, false, at(0)), "the first decision of an existing HPA");
        assert!(!state.changes(&uid, &four, false, at(15)));
        assert!(state.changes(&uid, &five, false, at(30)));
        assert!(!state.changes(&uid, &five, false, at(45)));
        assert!(!state.changes(&uid, &four, false, at(60)), "within five minutes");
        assert!(!state.changes(&uid, &five, false, at(400)), "the change did not last");
        assert!(state.changes(&uid, &four, false, at(415)));
    }

    #[tokio::test(start_paused = true)]
    async fn new_hpa_is_reported_with_its_first_decision() {
        let (mut state, start, uid) = state();
        assert!(state.changes(&uid, &outcome(1, None), true, start));
        assert!(!state.changes(&uid, &outcome(1, None), true, start));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_beyond_the_total_rate_are_reported_later() {
        let (mut state, start, _) = state();
        let uids: Vec<Arc<str>> = (0..200).map(|number| format!("uid-{number:03}").into()).collect();
        for uid in &uids {
            assert!(!state.changes(uid, &outcome(1, None), false, start));
        }
        let mut reported =
            |at: Instant| uids.iter().filter(|uid| state.changes(uid, &outcome(2, None), false, at)).count();
        assert_eq!(reported(start), 50);
        assert_eq!(reported(start + Duration::from_secs(1)), 5);
        assert_eq!(reported(start + Duration::from_mins(1)), 50);
        assert_eq!(reported(start + Duration::from_mins(2)), 50);
        assert_eq!(reported(start + Duration::from_mins(3)), 45);
    }

    #[test]
    fn long_message_is_cut_at_a_character() {
        let text = format!("a{}", "é".repeat(1000));
        assert_eq!(cut(text).len(), 1023);
    }
}
