//! Rebuilds a controller's history of an HPA from the status and from the events of rescales.
//!
//! A controller publishes none of its recommendations, but three traces allow conclusions. A rescale shows the
//! resulting count. The condition AbleToScale shows whether a stabilization window limited the last sync, at most one
//! sync period ago. The condition ScalingLimited shows whether a policy limited the last sync. If a policy limited a
//! scale-down, every recommendation in the window was lower than the count.

use std::time::Duration;

use autoscaling::event::RescaleReason;
use autoscaling::history::{Direction, History, Recommendation, ScaleEvent};
use autoscaling::settings::Settings;
use autoscaling::spec::{Behavior, PolicyKind};
use autoscaling::status::{ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED};
use jiff::{SignedDuration, Timestamp};

use super::situation::{HistoryEntry, Memory, Origin, Past, RecentEvent};
use engine::store::HpaRecord;

/// Upper bound of the difference between `lastScaleTime` and the event of the same rescale.
const SAME: SignedDuration = SignedDuration::from_secs(3);
/// The resolution of times in the status.
const MOMENT: SignedDuration = SignedDuration::from_secs(1);

/// The sources of a rebuilt history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) record: &'a HpaRecord,
    /// The events about the HPA, oldest first.
    pub(super) events: &'a [RecentEvent],
    pub(super) settings: &'a Settings,
    /// The controller's sync period.
    pub(super) period: Duration,
    pub(super) now: Timestamp,
    /// The recommendations that this command has kept with `--watch`. If there are any, they replace the
    /// recommendations that the status and the events show.
    pub(super) kept: &'a [HistoryEntry],
}

/// The stabilization windows of an HPA.
#[derive(Debug, Clone, Copy)]
struct Windows {
    up: SignedDuration,
    down: SignedDuration,
}

#[derive(Debug, Clone, Copy)]
struct Rescale {
    at: Timestamp,
    from: Option<i32>,
    to: i32,
    /// Whether an event shows the rescale. Otherwise, `status.lastScaleTime` shows the rescale.
    by_event: bool,
    /// The direction, if the rescale's event shows it.
    direction: Option<Direction>,
    /// Whether a bound caused the rescale, without metrics.
    forced: bool,
}

/// Rebuilds the history of an HPA.
pub(super) fn rebuild(evidence: &Evidence<'_>) -> Past {
    let windows = Windows::new(evidence.record, evidence.settings);
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
    let rescales = rescales.iter().map(|rescale| HistoryEntry {
        at: rescale.at,
        earliest: None,
        what: Memory::Rescale { from: rescale.from, to: rescale.to },
        origin: if rescale.by_event { Origin::Event } else { Origin::LastScaleTime },
    });
    let mut entries: Vec<_> = rescales.chain(recommendations).collect();
    entries.sort_by_key(|entry| entry.at);
    Past { history, entries, complete: false }
}

/// Returns the longer stabilization window, which is the maximum age of recommendations with an effect.
pub(super) fn longest_window(record: &HpaRecord, settings: &Settings) -> SignedDuration {
    let Windows { up, down } = Windows::new(record, settings);
    up.max(down)
}

impl Windows {
    fn new(record: &HpaRecord, settings: &Settings) -> Self {
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

/// Returns the rescales that events and `status.lastScaleTime` show, oldest first. `from` is known if the
/// previous rescale is known.
fn rescales(evidence: &Evidence<'_>) -> Vec<Rescale> {
    let mut points = Vec::new();
    for event in evidence.events {
        let Some((to, combined)) = event.new_size() else { continue };
        let reason = RescaleReason::from_message(&event.content.message);
        let forced = reason.is_some_and(RescaleReason::is_bound);
        let direction = reason.map(RescaleReason::direction);
        if event.count > 1 && !combined {
            points.push((event.first, to, forced, direction));
        }
        points.push((event.last, to, forced, direction));
    }
    points.sort_by_key(|(at, to, ..)| (*at, *to));
    points.dedup();
    let mut found: Vec<Rescale> = Vec::new();
    for (at, to, forced, direction) in points {
        let from = found.last().map(|previous| previous.to).filter(|from| *from != to);
        found.push(Rescale { at, from, to, by_event: true, direction, forced });
    }
    let status = &evidence.record.status;
    if let Some(at) = status.last_scale_time
        && found.last().is_none_or(|last| at.duration_since(last.at) > SAME)
    {
        let from = found.last().map(|previous| previous.to).filter(|from| *from != status.desired_replicas);
        let to = status.desired_replicas;
        found.push(Rescale { at, from, to, by_event: false, direction: None, forced: false });
    }
    found
}

/// Returns the recommendations that rescales show. At a scale-up, the recommendation was at least the new count. Before
/// a scale-down, the new count was recommended at some time within the window.
fn recommended(rescales: &[Rescale], windows: Windows) -> Vec<HistoryEntry> {
    let shown = rescales.iter().map(|rescale| {
        let down = rescale.from.is_some_and(|from| from > rescale.to);
        HistoryEntry {
            at: rescale.at,
            earliest: down.then(|| before(rescale.at, windows.down)),
            what: Memory::Recommendation { replicas: rescale.to },
            origin: if rescale.by_event { Origin::Event } else { Origin::LastScaleTime },
        }
    });
    shown.collect()
}

/// Drops recommendations that a later rescale refutes. The target scales down to a count only if no recommendation in
/// the window is higher. It scales up to a count only if no recommendation in the window is lower.
fn refute(rescales: &[Rescale], windows: Windows, found: &mut Vec<HistoryEntry>) {
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

/// Adds the recommendations that the conditions of the last sync show, and drops those that the conditions refute.
fn last_sync(evidence: &Evidence<'_>, windows: Windows, found: &mut Vec<HistoryEntry>) {
    let status = &evidence.record.status;
    let reason = |kind: &str| {
        let mut conditions = status.conditions.iter();
        let holds = conditions.find(|condition| condition.kind == kind && condition.status == "True");
        holds.map(|condition| &*condition.reason)
    };
    if reason(SCALING_ACTIVE).is_none() {
        return;
    }
    let (now, desired) = (evidence.now, status.desired_replicas);
    let period = SignedDuration::try_from(evidence.period).unwrap_or(SignedDuration::MAX);
    let entry = |reason: &str, at, earliest| HistoryEntry {
        at,
        earliest,
        what: Memory::Recommendation { replicas: desired },
        origin: Origin::Condition(reason.to_owned()),
    };
    if reason(SCALING_LIMITED) == Some("ScaleDownLimit") {
        // The policy had an effect, so no higher recommendation in the window kept the count.
        found.retain(|entry| entry.at <= before(now, windows.down));
        let at = before(now, windows.down.saturating_add(MOMENT));
        found.push(entry("ScaleDownLimit", at, None));
        return;
    }
    let able = reason(ABLE_TO_SCALE);
    if able == Some("ReadyForNewScale") {
        // A higher recommendation in the window would have kept a higher count in the last sync.
        found.retain(|entry| {
            let higher = matches!(entry.what, Memory::Recommendation { replicas } if replicas > desired);
            !higher || entry.at <= before(now, windows.down)
        });
    }
    let holds = |window, enough: fn(i32, i32) -> bool| {
        found.iter().any(|entry| {
            let Memory::Recommendation { replicas } = entry.what else { return false };
            entry.at > before(now, window) && enough(replicas, desired)
        })
    };
    match able {
        Some(reason @ "ReadyForNewScale") => {
            found.push(entry(reason, now, Some(before(now, period))));
        }
        Some(reason @ "ScaleDownStabilized") if !holds(windows.down, |held, desired| held >= desired) => {
            let earliest = before(now, windows.down.saturating_add(period));
            found.push(entry(reason, now, Some(earliest)));
        }
        Some(reason @ "ScaleUpStabilized") if !holds(windows.up, |held, desired| held <= desired) => {
            let earliest = before(now, windows.up.saturating_add(period));
            found.push(entry(reason, now, Some(earliest)));
        }
        _ => {}
    }
}

fn history(record: &HpaRecord, rescales: &[Rescale], recommendations: &[HistoryEntry]) -> History {
    let mut history = History::default();
    for entry in recommendations {
        if let Memory::Recommendation { replicas } = entry.what {
            history.recommendations.push(Recommendation { at: entry.at, replicas });
        }
    }
    history.recommendations.sort_by_key(|recommendation| recommendation.at);
    // Without `behavior`, no policies apply, so rescales have no effect.
    let Some(behavior) = &record.spec.behavior else { return history };
    for rescale in rescales {
        let (direction, change) = match (rescale.from, rescale.direction) {
            (Some(from), _) if from < rescale.to => (Direction::Up, rescale.to.saturating_sub(from)),
            (Some(from), _) => (Direction::Down, from.saturating_sub(rescale.to)),
            // For a rescale of unknown size, the full allowance is assumed, so that no policy is exceeded.
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

/// Returns the largest change to the count `to` that the policies of a direction allow at once.
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

    use super::super::situation::EventContent;
    use super::*;
    use cluster::decode;
    use engine::store::Key;

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
            content: EventContent {
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
    fn rescale_of_unknown_size_counts_as_the_full_allowance() {
        let mut record = record(true, 5, None, STEADY);
        let behavior = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 10, "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]},
            "scaleDown": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]},
        }});
        record.spec = serde_json::from_value::<autoscaling::spec::Spec>(behavior).unwrap().into();
        let mut up = rescaled(5, "10:00:00", "10:00:00", 1);
        up.content.message =
            "New size: 5; reason: cpu resource utilization (percentage of request) above target".to_owned();
        let rebuilt = past(&record, &[up], "10:00:30");
        assert_eq!(rebuilt.history.scale_ups, [ScaleEvent::new(at("10:00:00"), 3)]);
        let rebuilt = past(&record, &[rescaled(5, "10:00:00", "10:00:00", 1)], "10:00:30");
        assert_eq!(rebuilt.history.scale_downs, [ScaleEvent::new(at("10:00:00"), 5)]);
    }

    const STEADY: &[(&str, &str)] =
        &[("AbleToScale", "ReadyForNewScale"), ("ScalingActive", "ValidMetricFound")];
    const HELD: &[(&str, &str)] =
        &[("AbleToScale", "ScaleDownStabilized"), ("ScalingActive", "ValidMetricFound")];

    #[test]
    fn size_is_known_if_the_previous_rescale_is() {
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
    fn last_rescale_is_found_without_its_event() {
        let past = past(&record(false, 6, Some("10:00:00"), &[]), &[], "10:03:00");
        assert_eq!(recommendations(&past), [(6, at("10:00:00"))]);
        assert!(past.entries.iter().all(|entry| entry.origin == Origin::LastScaleTime));
    }

    #[test]
    fn rescale_refutes_recommendations_that_would_have_held_it() {
        let events = [
            rescaled(8, "10:00:00", "10:00:00", 1),
            rescaled(6, "10:04:00", "10:04:00", 1),
            rescaled(3, "10:05:00", "10:05:00", 1),
        ];
        let past = past(&record(false, 3, None, &[]), &events, "10:05:10");
        assert_eq!(recommendations(&past), [(3, at("10:05:00"))]);
    }

    #[test]
    fn free_last_sync_recommended_the_desired_count() {
        let past = past(&record(false, 6, Some("08:00:00"), STEADY), &[], "10:00:00");
        assert_eq!(recommendations(&past), [(6, at("08:00:00")), (6, at("10:00:00"))]);
        let last = past.entries.last().unwrap();
        assert_eq!(last.earliest, Some(at("09:59:45")));
        assert_eq!(last.origin, Origin::Condition("ReadyForNewScale".to_owned()));
    }

    #[test]
    fn stabilized_last_sync_shows_a_recommendation_of_unknown_time() {
        let past = past(&record(false, 6, Some("08:00:00"), HELD), &[], "10:00:00");
        assert_eq!(past.entries.last().unwrap().earliest, Some(at("09:54:45")));
        // If a known recommendation explains the condition, no recommendation is added.
        let known = super::tests::past(&record(false, 6, Some("09:58:00"), HELD), &[], "10:00:00");
        assert_eq!(recommendations(&known), [(6, at("09:58:00"))]);
    }

    #[test]
    fn rate_limited_last_sync_had_only_lower_recommendations() {
        let limited = &[
            ("AbleToScale", "ReadyForNewScale"),
            ("ScalingActive", "ValidMetricFound"),
            ("ScalingLimited", "ScaleDownLimit"),
        ];
        let past = past(&record(true, 6, Some("09:59:00"), limited), &[], "10:00:00");
        assert_eq!(recommendations(&past), [(6, at("09:57:59"))]);
    }

    #[test]
    fn last_sync_without_valid_metrics_recommended_nothing() {
        let failing = &[("AbleToScale", "ReadyForNewScale")];
        assert_eq!(past(&record(false, 6, None, failing), &[], "10:00:00"), Past::default());
    }

    #[test]
    fn repeated_and_combined_events_are_read() {
        let mut combined = rescaled(7, "10:05:00", "10:20:00", 5);
        combined.content.message =
            "(combined from similar events): New size: 7; reason: cpu above target".to_owned();
        let events = [rescaled(4, "10:00:00", "10:10:00", 2), combined];
        let past = past(&record(false, 7, None, &[]), &events, "10:30:00");
        assert_eq!(recommendations(&past), [(4, at("10:00:00")), (4, at("10:10:00")), (7, at("10:20:00"))]);
        let odd = RecentEvent {
            content: EventContent { message: "New size: many".to_owned(), ..events[0].content.clone() },
            ..events[0].clone()
        };
        assert_eq!(super::tests::past(&record(false, 7, None, &[]), &[odd], "10:30:00"), Past::default());
    }

    #[test]
    fn kept_recommendations_replace_every_other_trace() {
        let record = record(false, 6, Some("09:59:00"), STEADY);
        let kept = [HistoryEntry {
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
