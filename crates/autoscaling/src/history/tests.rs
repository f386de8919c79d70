mod commit;
mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::collection;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Direction, History, LONGEST_PERIOD, ObservedRescale, Recommendation, SCALE_EVENTS, ScaleEvent};
use crate::behavior::{Bounds, with_behavior};
use crate::failure::ScaleFailureClass;
use crate::query::{Answer, ExternalValue};
use crate::settings::{Settings, Version};
use crate::spec::{Behavior, Spec};
use crate::status::{Status, whole_seconds};
use crate::{
    Answers, Conclusion, Hpa, Overlap, Scale, ScaleFailure, Verdict, WriteOutcome, conclude, decide, plan,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// An HPA with 1 to 100 replicas, whose external metric equals the proposed count.
fn spec(behavior: Option<Value>) -> Spec {
    let mut spec = json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 100,
        "metrics": [{"type": "External", "external": {
            "metric": {"name": "wanted"},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }}],
    });
    if let Some(behavior) = behavior {
        spec["behavior"] = behavior;
    }
    serde_json::from_value(spec).unwrap()
}

fn behavior_of(value: &Value) -> Behavior {
    spec(Some(value.clone())).behavior.unwrap()
}

/// The rules for at most one pod per minute in each direction, without stabilization.
fn one_per_minute() -> Value {
    let rules = json!({
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    });
    json!({"scaleUp": rules, "scaleDown": rules})
}

/// An HPA with its target and its history.
#[derive(Debug, Clone)]
struct Run {
    spec: Spec,
    status: Status,
    settings: Settings,
    history: History,
    replicas: i32,
}

impl Run {
    fn new(spec: Spec, replicas: i32) -> Self {
        let settings = Settings { tolerance: 0.0, ..Settings::default() };
        Self { spec, status: Status::default(), settings, history: History::default(), replicas }
    }

    /// Runs one sync. The metric proposes `wanted` replicas. `outcome` applies if the decision is a rescale.
    fn sync(&mut self, wanted: i32, outcome: WriteOutcome, now: Timestamp) -> Conclusion {
        let scale = Scale::new(self.replicas, self.replicas, "app=web", Version::default()).unwrap();
        self.sync_with(Ok(scale), wanted, outcome, now)
    }

    fn sync_with(
        &mut self,
        scale: Result<Scale, String>,
        wanted: i32,
        outcome: WriteOutcome,
        now: Timestamp,
    ) -> Conclusion {
        let hpa =
            Hpa { namespace: "shop", name: "web", generation: None, spec: &self.spec, status: &self.status };
        let scale = scale.map_err(|message| ScaleFailure { class: ScaleFailureClass::Other, message });
        let plan = plan(&hpa, scale, |_| Overlap::None, &self.settings);
        let value = wanted.to_string().parse().unwrap();
        let values: Arc<[ExternalValue]> = [ExternalValue { timestamp: None, value }].into();
        let answers = Answers { metrics: vec![Some(Ok(Answer::External(values)))], pods: &[] };
        let decision = decide(&hpa, &plan, &answers, &self.history, &self.settings, now);
        let outcome = match decision.verdict() {
            Verdict::Rescale { to, .. } => {
                if outcome == WriteOutcome::Done {
                    self.replicas = *to;
                }
                outcome
            }
            _ => WriteOutcome::NotNeeded,
        };
        let conclusion = conclude(&hpa, decision, &outcome, &self.settings, now);
        if let Some(status) = &conclusion.status {
            self.status.clone_from(status);
        }
        self.history.commit(&conclusion.changes);
        conclusion
    }

    fn done(&mut self, wanted: i32, now: Timestamp) -> Conclusion {
        self.sync(wanted, WriteOutcome::Done, now)
    }
}

/// The highest and the lowest count that the policies allow.
fn allowed(behavior: &Behavior, history: &History, current: i32, now: Timestamp) -> (i32, i32) {
    let bounds = Bounds { current, min: 0, max: i32::MAX };
    let up = with_behavior(bounds, i32::MAX, behavior, history, now).after;
    let down = with_behavior(bounds, 0, behavior, history, now).after;
    (up, down)
}

/// Whether the history `safe` allows no larger change than the history `than`, in both directions.
fn no_further(behavior: &Behavior, safe: &History, than: &History, current: i32, now: Timestamp) -> bool {
    let (up, down) = allowed(behavior, safe, current, now);
    let (most, least) = allowed(behavior, than, current, now);
    up <= most && down >= least
}

/// Arbitrary values of `behavior`, with up to three policies in each direction.
fn behaviors() -> impl Strategy<Value = Value> {
    let policy = (select(&["Pods", "Percent"][..]), 1..=100, 1..=1800)
        .prop_map(|(kind, value, period)| json!({"type": kind, "value": value, "periodSeconds": period}));
    let rules = (select(&["Max", "Min", "Disabled"][..]), collection::vec(policy, 1..4), 0..=3600);
    let rules = rules.prop_map(|(select, policies, window)| {
        json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": window})
    });
    (rules.clone(), rules).prop_map(|(up, down)| json!({"scaleUp": up, "scaleDown": down}))
}

const APART: Duration = Duration::from_secs(15);

fn scaled(second: i64, desired_replicas: i32) -> Status {
    let current_replicas = desired_replicas;
    Status { last_scale_time: Some(at(second)), current_replicas, desired_replicas, ..Status::default() }
}

fn rescaled(points: &[(i64, i32)]) -> Vec<ObservedRescale> {
    points.iter().map(|&(second, to)| ObservedRescale { at: at(second), to }).collect()
}

/// The time of the rescale of unknown size, which is equal for both directions.
fn unknown(history: &History) -> Option<Timestamp> {
    assert_eq!(history.unknown_up, history.unknown_down);
    history.unknown_up
}

#[test]
fn never_scaled_hpa_has_an_empty_history() {
    let history = History::rebuilt(&Status::default(), &rescaled(&[(90, 5)]), APART, at(100));
    assert_eq!(history, History::default().inherit(at(100)));
}

#[test]
fn last_rescale_has_unknown_size_without_events() {
    let history = History::rebuilt(&scaled(50, 5), &[], APART, at(100));
    assert_eq!(unknown(&history), Some("1970-01-01T00:00:50.999999999Z".parse().unwrap()));
    assert!(history.inherited == Some(at(100)) && history.scale_ups.is_empty());
    let skewed = History::rebuilt(&scaled(150, 5), &[], APART, at(100));
    assert_eq!(unknown(&skewed), Some(at(100)));
}

#[test]
fn rescale_beyond_every_period_is_ignored() {
    let long_ago = History::rebuilt(&scaled(50, 5), &rescaled(&[(50, 5)]), APART, at(1851));
    assert_eq!(long_ago, History::default().inherit(at(1851)));
    let barely = History::rebuilt(&scaled(50, 5), &rescaled(&[(50, 5)]), APART, at(1850));
    assert!(unknown(&barely).is_some());
}

#[test]
fn rescale_that_just_left_the_longest_period_is_ignored() {
    let history = History::rebuilt(&scaled(213, 9), &rescaled(&[(213, 9), (198, 6)]), APART, at(2000));
    assert_eq!((unknown(&history), history.scale_ups.len()), (None, 1));
}

#[test]
fn events_are_ignored_when_syncs_are_too_close() {
    let events = rescaled(&[(50, 5), (46, 3)]);
    let rebuilt = |apart| History::rebuilt(&scaled(50, 5), &events, Duration::from_secs(apart), at(100));
    assert!(rebuilt(4).scale_ups.is_empty() && unknown(&rebuilt(4)).is_some());
    assert_eq!(rebuilt(5).scale_ups.len(), 1);
}

#[test]
fn consecutive_rescales_are_known_except_for_the_first() {
    let events = rescaled(&[(45, 9), (15, 6), (30, 4), (45, 9)]);
    let history = History::rebuilt(&scaled(45, 9), &events, APART, at(100));
    let end = "1970-01-01T00:00:45.999999999Z".parse().unwrap();
    assert_eq!(history.scale_ups, [ScaleEvent { at: end, change: 5, earliest: Some(at(45)) }]);
    assert_eq!(history.scale_downs, [ScaleEvent { at: at(32), change: 2, earliest: Some(at(30)) }]);
    assert_eq!(unknown(&history), Some(at(17)));
}

#[test]
fn rescale_from_a_count_without_an_event_has_unknown_size() {
    let events = rescaled(&[(30, 4), (45, 9)]);
    for (current_replicas, known) in [(4, true), (9, true), (12, false)] {
        let status = Status { current_replicas, ..scaled(45, 9) };
        let history = History::rebuilt(&status, &events, APART, at(100));
        assert_eq!(history.scale_ups.len(), usize::from(known), "from {current_replicas}");
        assert!(unknown(&history).is_some());
    }
}

#[test]
fn events_can_cover_the_whole_longest_period() {
    let events: Vec<ObservedRescale> = (0..140)
        .map(|step| ObservedRescale { at: at(step * 15), to: 10 + i32::try_from(step % 2).unwrap() })
        .collect();
    let history = History::rebuilt(&scaled(139 * 15, 11), &events, APART, at(139 * 15));
    assert_eq!(unknown(&history), None);
    assert_eq!(history.scale_ups.len() + history.scale_downs.len(), 121);
}

#[test]
fn newer_event_has_unknown_size_when_a_rescale_fits_in_between() {
    let history = History::rebuilt(&scaled(48, 9), &rescaled(&[(30, 4), (48, 9)]), APART, at(100));
    assert!(history.scale_ups.is_empty());
    assert!(unknown(&history) >= Some(at(48)));
    for second in [43, 47] {
        let events = rescaled(&[(30, 4), (second, 9)]);
        let history = History::rebuilt(&scaled(second, 9), &events, APART, at(100));
        assert_eq!(history.scale_ups.len(), 1, "the apparent distance of two syncs");
    }
}

#[test]
fn contradictory_events_are_ignored() {
    let events = rescaled(&[(30, 4), (45, 9)]);
    let all_unknown = |status: &Status, events: &[ObservedRescale], apart| {
        let history = History::rebuilt(status, events, apart, at(100));
        history.scale_ups.is_empty() && history.scale_downs.is_empty() && unknown(&history) >= Some(at(45))
    };
    assert!(!all_unknown(&scaled(45, 9), &events, APART));
    assert!(all_unknown(&scaled(60, 9), &events, APART), "a newer event was lost");
    assert!(all_unknown(&scaled(45, 8), &events, APART), "the status has another size");
    assert!(all_unknown(&scaled(30, 4), &events, APART), "the status lacks the newest rescale");
    assert!(all_unknown(&scaled(45, 9), &rescaled(&[(32, 9), (45, 9)]), APART), "from 9 to 9");
    assert!(all_unknown(&scaled(45, 9), &rescaled(&[(45, 8), (45, 9)]), APART), "the order is ambiguous");
    assert!(all_unknown(&scaled(45, 9), &rescaled(&[(40, 8), (45, 9)]), APART), "less than one sync apart");
    assert!(all_unknown(&scaled(45, 9), &events, Duration::ZERO), "the minimum distance of syncs is unknown");
}

/// A rescale of an HPA. Times are in milliseconds.
#[derive(Debug, Clone)]
struct RealRescale {
    /// The time since the previous rescale.
    after: i64,
    /// The new size.
    to: i32,
    /// The time from the event to the rescale.
    event: i64,
    /// The time from the rescale to the status.
    status: i64,
    /// Whether the event is lost.
    lost: bool,
}

fn pasts() -> impl Strategy<Value = Vec<RealRescale>> {
    let after = prop_oneof![6 => 15_000..17_000_i64, 2 => 15_000..40_000_i64, 1 => 15_000..600_000_i64];
    let moment = prop_oneof![9 => 0..5_i64, 1 => 0..999_i64];
    let rescale = (after, 0..60, moment.clone(), moment, proptest::bool::weighted(0.1))
        .prop_map(|(after, to, event, status, lost)| RealRescale { after, to, event, status, lost });
    collection::vec(rescale, 1..40)
}

/// Rebuilds the history `later` milliseconds after the last rescale. Returns whether the rebuilt history allows no
/// larger change than the real history, and the rebuilt history.
fn rebuilt_is_safe(rules: &Value, past: &[RealRescale], later: i64) -> (bool, History) {
    let behavior = behavior_of(rules);
    let milliseconds = SignedDuration::from_millis;
    let (mut now, mut size) = (at(1_700_000_000), 20);
    let mut truth = History::default();
    let (mut status, mut events) = (Status::default(), Vec::new());
    for rescale in past.iter().filter(|rescale| rescale.after > 0) {
        now += milliseconds(rescale.after);
        if rescale.to == size {
            continue;
        }
        let (direction, change) = Direction::between(size, rescale.to);
        truth.events_mut(direction).push(ScaleEvent::new(now, change));
        size = rescale.to;
        if !rescale.lost {
            events.push(ObservedRescale { at: whole_seconds(now - milliseconds(rescale.event)), to: size });
        }
        status.last_scale_time = Some(whole_seconds(now + milliseconds(rescale.status)));
        status.desired_replicas = size;
    }
    let now = now + milliseconds(later);
    let history = History::rebuilt(&status, &events, APART, now);
    let safe = [0, 1, 500, 1500, 30_000, 400_000, 1_700_000]
        .into_iter()
        .all(|after| no_further(&behavior, &history, &truth, size, now + milliseconds(after)));
    (safe, history)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rebuilt_history_never_allows_more_than_the_real_one(
        rules in behaviors(), past in pasts(), later in prop_oneof![0..3000_i64, 0..2_000_000_i64],
    ) {
        let (safe, history) = rebuilt_is_safe(&rules, &past, later);
        prop_assert!(safe, "{:?}", history);
        prop_assert!(history.inherited.is_some());
        prop_assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
    }
}

#[test]
fn using_every_event_would_allow_more() {
    // The count changes from 20 to 18, to 5 and to 9, and the event of the rescale to 5 is lost. The known events alone
    // would imply a rescale from 18 to 9, so the policy would allow more.
    let event = |after, to, lost| RealRescale { after, to, event: 0, status: 0, lost };
    let past =
        [event(30_000, 20, false), event(30_000, 18, false), event(30_000, 5, true), event(30_000, 9, false)];
    let rules = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 20}]}});
    let (safe, history) = rebuilt_is_safe(&rules, &past, 0);
    assert!(safe && unknown(&history).is_some());
    assert!(unknown(&history).is_some_and(|at| at > Timestamp::UNIX_EPOCH + LONGEST_PERIOD));
}
