//! What a controller remembers of an HPA, rebuilt from what the cluster shows of it: the status, and the events of
//! rescales.
//!
//! A controller publishes none of its recommendations. Three traces are left. A rescale shows the count that stood. The
//! condition AbleToScale shows whether the last sync, at most one period ago, was held by a stabilization window. And
//! ScalingLimited shows whether a policy held it back, which means that every recommendation was lower than the count.

use std::time::Duration;

use autoscaling::condition::{ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED};
use autoscaling::history::{Direction, History, Recommendation, ScaleEvent};
use autoscaling::settings::Settings;
use autoscaling::spec::{Behavior, PolicyKind};
use jiff::{SignedDuration, Timestamp};

use super::situation::{Memory, Origin, Past, RecentEvent, Remembered};
use crate::store::HpaRecord;

/// `lastScaleTime` and the event of the same rescale differ by less.
const SAME: SignedDuration = SignedDuration::from_secs(3);
const MOMENT: SignedDuration = SignedDuration::from_secs(1);

/// What the past is rebuilt from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) record: &'a HpaRecord,
    /// Oldest first.
    pub(super) events: &'a [RecentEvent],
    pub(super) settings: &'a Settings,
    /// The period between two syncs of the controller.
    pub(super) period: Duration,
    pub(super) now: Timestamp,
    /// Recommendations that this command keeps since it watches; with them, no other trace of any is needed.
    pub(super) kept: &'a [Remembered],
}

/// The stabilization windows of an HPA.
#[derive(Debug, Clone, Copy)]
struct Windows {
    up: SignedDuration,
    down: SignedDuration,
}

/// One rescale.
#[derive(Debug, Clone, Copy)]
struct Rescale {
    at: Timestamp,
    from: Option<i32>,
    to: i32,
    told: bool,
    /// Which way it went, as its event tells.
    direction: Option<Direction>,
    /// A bound was put right; no metric was asked.
    forced: bool,
}

/// Rebuilds the past of an HPA.
pub(super) fn rebuild(evidence: &Evidence<'_>) -> Past {
    let windows = Windows::of(evidence.record, evidence.settings);
    let rescales = rescales(evidence);
    let recommendations = if evidence.kept.is_empty() {
        let mut found = recommended(&rescales, windows);
        refute(&rescales, windows, &mut found);
        last_sync(evidence, windows, &mut found);
        found
    } else {
        evidence.kept.to_vec()
    };
    let history = history(evidence.record, &rescales, &recommendations);
    let rescales = rescales.iter().map(|rescale| Remembered {
        at: rescale.at,
        earliest: None,
        what: Memory::Rescale { from: rescale.from, to: rescale.to },
        origin: if rescale.told { Origin::Event } else { Origin::LastScaleTime },
    });
    let mut entries: Vec<_> = rescales.chain(recommendations).collect();
    entries.sort_by_key(|entry| entry.at);
    Past { history, entries, complete: false }
}

/// How far back a recommendation can count.
pub(super) fn longest_window(record: &HpaRecord, settings: &Settings) -> SignedDuration {
    let Windows { up, down } = Windows::of(record, settings);
    up.max(down)
}

impl Windows {
    fn of(record: &HpaRecord, settings: &Settings) -> Self {
        let given = |seconds: Option<i32>| seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        let behavior = record.spec.behavior.as_ref();
        let flag = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
        Self {
            up: behavior
                .and_then(|behavior| given(behavior.scale_up.stabilization_window_seconds))
                .unwrap_or_default(),
            down: behavior
                .and_then(|behavior| given(behavior.scale_down.stabilization_window_seconds))
                .unwrap_or(flag),
        }
    }
}

/// The rescales that events and `status.lastScaleTime` show, oldest first, each with the count before where the one
/// before it is known.
fn rescales(evidence: &Evidence<'_>) -> Vec<Rescale> {
    let mut points = Vec::new();
    for event in evidence.events {
        let Some((to, combined)) = event.new_size() else { continue };
        let forced = event.told.message.contains("Current number of replicas");
        let way = direction(&event.told.message);
        if event.count > 1 && !combined {
            points.push((event.first, to, forced, way));
        }
        points.push((event.last, to, forced, way));
    }
    points.sort_by_key(|(at, to, ..)| (*at, *to));
    points.dedup();
    let mut found: Vec<Rescale> = Vec::new();
    for (at, to, forced, direction) in points {
        let from = found.last().map(|before| before.to).filter(|from| *from != to);
        found.push(Rescale { at, from, to, told: true, direction, forced });
    }
    let status = &evidence.record.status;
    if let Some(at) = status.last_scale_time
        && found.last().is_none_or(|last| at.duration_since(last.at) > SAME)
    {
        let from = found.last().map(|before| before.to).filter(|from| *from != status.desired_replicas);
        let to = status.desired_replicas;
        found.push(Rescale { at, from, to, told: false, direction: None, forced: false });
    }
    found
}

/// Which way a rescale went, by the reason that its event gives.
fn direction(message: &str) -> Option<Direction> {
    let is_up = message.ends_with(" above target") || message.ends_with("below Spec.MinReplicas");
    let is_down =
        message.ends_with("All metrics below target") || message.ends_with("above Spec.MaxReplicas");
    match (is_up, is_down) {
        (true, _) => Some(Direction::Up),
        (_, true) => Some(Direction::Down),
        _ => None,
    }
}

/// What the rescales show of recommendations. Who scaled up to a count was recommended at least that much then. Who
/// scaled down to it was recommended so at some time within the window before.
fn recommended(rescales: &[Rescale], windows: Windows) -> Vec<Remembered> {
    let shown = rescales.iter().map(|rescale| {
        let down = rescale.from.is_some_and(|from| from > rescale.to);
        Remembered {
            at: rescale.at,
            earliest: down.then(|| before(rescale.at, windows.down)),
            what: Memory::Recommendation { replicas: rescale.to },
            origin: if rescale.told { Origin::Event } else { Origin::LastScaleTime },
        }
    });
    shown.collect()
}

/// Drops what a later rescale shows to be wrong: the target is scaled down to a count only if no recommendation in the
/// window is higher, and up to one only if none is lower.
fn refute(rescales: &[Rescale], windows: Windows, found: &mut Vec<Remembered>) {
    found.retain(|entry| {
        let Memory::Recommendation { replicas } = entry.what else { return true };
        let later = rescales.iter().filter(|rescale| rescale.at > entry.at && !rescale.forced);
        !later.into_iter().any(|rescale| match rescale.from {
            Some(from) if from > rescale.to => {
                replicas > rescale.to && entry.at > before(rescale.at, windows.down)
            }
            Some(_) => replicas < rescale.to && entry.at > before(rescale.at, windows.up),
            None => false,
        })
    });
}

/// What the conditions show of the recommendations up to the last sync.
fn last_sync(evidence: &Evidence<'_>, windows: Windows, found: &mut Vec<Remembered>) {
    let status = &evidence.record.status;
    let reason = |kind: &str| {
        let mut conditions = status.conditions.iter();
        let holds = conditions.find(|condition| condition.kind == kind && condition.status == "True");
        holds.map(|condition| &*condition.reason)
    };
    if reason(SCALING_ACTIVE).is_none() {
        return;
    }
    let (now, stands) = (evidence.now, status.desired_replicas);
    let period = SignedDuration::try_from(evidence.period).unwrap_or(SignedDuration::MAX);
    let remembered = |reason: &str, at, earliest| Remembered {
        at,
        earliest,
        what: Memory::Recommendation { replicas: stands },
        origin: Origin::Condition(reason.to_owned()),
    };
    if reason(SCALING_LIMITED) == Some("ScaleDownLimit") {
        // The policy would not have mattered had the window held the count.
        found.retain(|entry| entry.at <= before(now, windows.down));
        let at = before(now, windows.down.saturating_add(MOMENT));
        found.push(remembered("ScaleDownLimit", at, None));
        return;
    }
    let able = reason(ABLE_TO_SCALE);
    if able == Some("ReadyForNewScale") {
        // Whatever is higher would have held the last sync.
        found.retain(|entry| {
            let higher = matches!(entry.what, Memory::Recommendation { replicas } if replicas > stands);
            !higher || entry.at <= before(now, windows.down)
        });
    }
    let holds = |window, enough: fn(i32, i32) -> bool| {
        found.iter().any(|entry| {
            let Memory::Recommendation { replicas } = entry.what else { return false };
            entry.at > before(now, window) && enough(replicas, stands)
        })
    };
    match able {
        Some(reason @ "ReadyForNewScale") => {
            found.push(remembered(reason, now, Some(before(now, period))));
        }
        Some(reason @ "ScaleDownStabilized") if !holds(windows.down, |held, stands| held >= stands) => {
            let earliest = before(now, windows.down.saturating_add(period));
            found.push(remembered(reason, now, Some(earliest)));
        }
        Some(reason @ "ScaleUpStabilized") if !holds(windows.up, |held, stands| held <= stands) => {
            let earliest = before(now, windows.up.saturating_add(period));
            found.push(remembered(reason, now, Some(earliest)));
        }
        _ => {}
    }
}

fn history(record: &HpaRecord, rescales: &[Rescale], recommendations: &[Remembered]) -> History {
    let mut history = History::default();
    for entry in recommendations {
        if let Memory::Recommendation { replicas } = entry.what {
            history.recommendations.push(Recommendation { at: entry.at, replicas });
        }
    }
    history.recommendations.sort_by_key(|recommendation| recommendation.at);
    // Without behavior, no rescale is remembered: the policies need none.
    let Some(behavior) = &record.spec.behavior else { return history };
    for rescale in rescales {
        let (direction, change) = match (rescale.from, rescale.direction) {
            (Some(from), _) if from < rescale.to => (Direction::Up, rescale.to.saturating_sub(from)),
            (Some(from), _) => (Direction::Down, from.saturating_sub(rescale.to)),
            // By how much is not known: as much as the policies allow, so that none of them is exceeded.
            (None, Some(direction)) => (direction, allowance(behavior, direction, rescale.to)),
            (None, None) => continue,
        };
        let events = match direction {
            Direction::Up => &mut history.scale_ups,
            Direction::Down => &mut history.scale_downs,
        };
        if change > 0 {
            events.push(ScaleEvent::new(rescale.at, change));
        }
    }
    history
}

/// The largest change to a count that the policies of a direction allow at once.
fn allowance(behavior: &Behavior, direction: Direction, to: i32) -> i32 {
    let rules = match direction {
        Direction::Up => &behavior.scale_up,
        Direction::Down => &behavior.scale_down,
    };
    let changes = rules.policies.iter().map(|policy| {
        let (value, to) = (i64::from(policy.value), i64::from(to));
        match (policy.kind, direction) {
            (PolicyKind::Percent, Direction::Up) => to - to * 100 / (100 + value).max(1),
            (PolicyKind::Percent, Direction::Down) if value < 100 => to * 100 / (100 - value).max(1) - to,
            _ => value,
        }
    });
    i32::try_from(changes.max().unwrap_or(0)).unwrap_or(i32::MAX)
}

fn before(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use autoscaling::event::EventKind;
    use serde_json::json;

    use super::super::situation::Told;
    use super::*;
    use crate::api::decode;
    use crate::store::Key;

    fn at(text: &str) -> Timestamp {
        format!("2030-01-01T{text}Z").parse().unwrap()
    }

    fn record(behavior: bool, desired: i32, scaled: Option<&str>, conditions: &[(&str, &str)]) -> HpaRecord {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, reason)| json!({"type": kind, "status": "True", "reason": reason}))
            .collect();
        let mut hpa = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
            "spec": {"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            "status": {"desiredReplicas": desired, "conditions": conditions},
        });
        if behavior {
            hpa["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 120}});
        }
        if let Some(scaled) = scaled {
            hpa["status"]["lastScaleTime"] = json!(at(scaled));
        }
        let object = decode::hpa(hpa.to_string().as_bytes()).unwrap();
        HpaRecord {
            key: Key::new(object.namespace, object.name),
            uid: object.uid.into(),
            generation: None,
            resource_version: String::new(),
            metadata: object.metadata,
            spec_raw: object.spec_raw,
            spec: object.spec,
            status: object.status,
            status_writers: Vec::new(),
        }
    }

    fn rescaled(to: i32, first: &str, last: &str, count: u32) -> RecentEvent {
        RecentEvent {
            told: Told {
                kind: EventKind::Normal,
                reason: "SuccessfulRescale".to_owned(),
                message: format!("New size: {to}; reason: All metrics below target"),
            },
            count,
            first: at(first),
            last: at(last),
            reporter: String::new(),
        }
    }

    fn past(record: &HpaRecord, events: &[RecentEvent], now: &str) -> Past {
        rebuild(&Evidence {
            record,
            events,
            settings: &Settings::default(),
            period: Duration::from_secs(15),
            now: at(now),
            kept: &[],
        })
    }

    fn recommendations(past: &Past) -> Vec<(i32, Timestamp)> {
        past.history.recommendations.iter().map(|entry| (entry.replicas, entry.at)).collect()
    }

    #[test]
    fn a_change_of_unknown_size_counts_as_all_that_its_policies_allow() {
        let mut record = record(true, 5, None, STEADY);
        let behavior = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 10, "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]},
            "scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]},
        }});
        record.spec = serde_json::from_value::<autoscaling::spec::Spec>(behavior).unwrap().into();
        let mut up = rescaled(5, "10:00:00", "10:00:00", 1);
        up.told.message =
            "New size: 5; reason: cpu resource utilization (percentage of request) above target".to_owned();
        let seen = past(&record, &[up], "10:00:30");
        assert_eq!(seen.history.scale_ups, [ScaleEvent::new(at("10:00:00"), 3)]);
        let seen = past(&record, &[rescaled(5, "10:00:00", "10:00:00", 1)], "10:00:30");
        assert_eq!(seen.history.scale_downs, [ScaleEvent::new(at("10:00:00"), 5)]);
    }

    const STEADY: &[(&str, &str)] =
        &[("AbleToScale", "ReadyForNewScale"), ("ScalingActive", "ValidMetricFound")];
    const HELD: &[(&str, &str)] =
        &[("AbleToScale", "ScaleDownStabilized"), ("ScalingActive", "ValidMetricFound")];

    #[test]
    fn amounts_are_known_where_one_rescale_follows_another() {
        let events = [
            rescaled(4, "10:00:00", "10:00:00", 1),
            rescaled(8, "10:01:00", "10:01:00", 1),
            rescaled(5, "10:02:00", "10:02:00", 1),
        ];
        let past = past(&record(true, 5, Some("10:02:00"), &[]), &events, "10:02:10");
        assert_eq!(past.history.scale_ups, [ScaleEvent::new(at("10:01:00"), 4)]);
        assert_eq!(past.history.scale_downs, [ScaleEvent::new(at("10:02:00"), 3)]);
        let rescales: Vec<_> = past
            .entries
            .iter()
            .filter_map(|entry| match entry.what {
                Memory::Rescale { from, to } => Some((from, to)),
                Memory::Recommendation { .. } | Memory::UnknownRescale => None,
            })
            .collect();
        assert_eq!(rescales, [(None, 4), (Some(4), 8), (Some(8), 5)]);
        let without = super::tests::past(&record(false, 5, Some("10:02:00"), &[]), &events, "10:02:10");
        assert!(without.history.scale_ups.is_empty() && without.history.scale_downs.is_empty());
    }

    #[test]
    fn the_last_rescale_is_known_without_its_event() {
        let past = past(&record(false, 6, Some("10:00:00"), &[]), &[], "10:03:00");
        assert_eq!(recommendations(&past), [(6, at("10:00:00"))]);
        assert!(past.entries.iter().all(|entry| entry.origin == Origin::LastScaleTime));
    }

    #[test]
    fn a_rescale_refutes_what_would_have_held_it() {
        let events = [
            rescaled(8, "10:00:00", "10:00:00", 1),
            rescaled(6, "10:04:00", "10:04:00", 1),
            rescaled(3, "10:05:00", "10:05:00", 1),
        ];
        let past = past(&record(false, 3, None, &[]), &events, "10:05:10");
        assert_eq!(recommendations(&past), [(3, at("10:05:00"))]);
    }

    #[test]
    fn a_last_sync_that_was_not_held_recommended_what_stands() {
        let past = past(&record(false, 6, Some("08:00:00"), STEADY), &[], "10:00:00");
        assert_eq!(recommendations(&past), [(6, at("08:00:00")), (6, at("10:00:00"))]);
        let last = past.entries.last().unwrap();
        assert_eq!(last.earliest, Some(at("09:59:45")));
        assert_eq!(last.origin, Origin::Condition("ReadyForNewScale".to_owned()));
    }

    #[test]
    fn a_last_sync_that_was_held_shows_a_recommendation_of_an_unknown_time() {
        let past = past(&record(false, 6, Some("08:00:00"), HELD), &[], "10:00:00");
        assert_eq!(past.entries.last().unwrap().earliest, Some(at("09:54:45")));
        // A recommendation that is known and holds explains it.
        let known = super::tests::past(&record(false, 6, Some("09:58:00"), HELD), &[], "10:00:00");
        assert_eq!(recommendations(&known), [(6, at("09:58:00"))]);
    }

    #[test]
    fn a_last_sync_that_a_policy_held_back_had_no_recommendation_as_high_as_the_count() {
        let limited = &[
            ("AbleToScale", "ReadyForNewScale"),
            ("ScalingActive", "ValidMetricFound"),
            ("ScalingLimited", "ScaleDownLimit"),
        ];
        let past = past(&record(true, 6, Some("09:59:00"), limited), &[], "10:00:00");
        assert_eq!(recommendations(&past), [(6, at("09:57:59"))]);
    }

    #[test]
    fn without_valid_metrics_the_last_sync_recommended_nothing() {
        let failing = &[("AbleToScale", "ReadyForNewScale")];
        assert_eq!(past(&record(false, 6, None, failing), &[], "10:00:00"), Past::default());
    }

    #[test]
    fn counted_and_combined_events_tell_what_they_can() {
        let mut combined = rescaled(7, "10:05:00", "10:20:00", 5);
        combined.told.message =
            "(combined from similar events): New size: 7; reason: cpu above target".to_owned();
        let events = [rescaled(4, "10:00:00", "10:10:00", 2), combined];
        let past = past(&record(false, 7, None, &[]), &events, "10:30:00");
        assert_eq!(recommendations(&past), [(4, at("10:00:00")), (4, at("10:10:00")), (7, at("10:20:00"))]);
        let odd = RecentEvent {
            told: Told { message: "New size: many".to_owned(), ..events[0].told.clone() },
            ..events[0].clone()
        };
        assert_eq!(super::tests::past(&record(false, 7, None, &[]), &[odd], "10:30:00"), Past::default());
    }

    #[test]
    fn what_is_kept_takes_the_place_of_every_other_trace() {
        let record = record(false, 6, Some("09:59:00"), STEADY);
        let kept = [Remembered {
            at: at("09:59:30"),
            earliest: None,
            what: Memory::Recommendation { replicas: 3 },
            origin: Origin::Here,
        }];
        let settings = Settings::default();
        let evidence = Evidence {
            record: &record,
            events: &[],
            settings: &settings,
            period: Duration::from_secs(15),
            now: at("10:00:00"),
            kept: &kept,
        };
        let past = rebuild(&evidence);
        assert_eq!(recommendations(&past), [(3, at("09:59:30"))]);
        assert_eq!(past.entries.len(), 2);
    }
}
