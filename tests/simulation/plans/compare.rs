//! The differential oracle compares a run with a fault to the run without a fault.
//!
//! The following parts must be equal: the count of every target, the status of every HPA with conditions and
//! metrics, the written counts in order ([`Counts::All`]), and the events by object, type, reason and
//! message.
//!
//! The following parts are not compared, since time or a crash legitimately changes them:
//! - times: `lastTransitionTime`, `lastScaleTime`, times of events, and counts of repeated events
//! - events and `lastScaleTime` of the sync in which the process died, because unsent data is lost
//! - the condition `ScaledToZero` if that sync rescaled. As in the reference, only a rescale writes the
//!   condition, so it keeps its previous value
//! - `FailedUpdateStatus` for a conflict, which reports that a change of the HPA coincided with a sync
//! - the reason in the text of `SuccessfulRescale` if an event came late. With a late view, another metric or
//!   an older recommendation may decide on the same count
//! - the texts of `SuccessfulRescale` where only the last count is compared

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::fault_injector::{Fault, Write};
use super::scenario::{Counts, Scenario};
use super::world::{HPAS, World};

/// Time before and after a crash in which requests of the process may have been in flight.
const IN_FLIGHT: Duration = Duration::from_secs(1);

/// An event: object, type, reason, message.
type EventText = [String; 4];

/// The final state of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    counts: BTreeMap<String, i64>,
    /// Statuses without times by namespace and name, and whether there was ever a rescale.
    statuses: BTreeMap<String, (Value, bool)>,
    /// First time of each event.
    events: BTreeMap<EventText, String>,
}

impl Outcome {
    pub(crate) fn from_world(world: &World) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let statuses = world.cluster.list(HPAS, None).into_iter().map(|mut hpa| {
            let key = format!("{}/{}", text(&hpa["metadata"]["namespace"]), text(&hpa["metadata"]["name"]));
            let mut status = hpa["status"].take();
            let scaled =
                status.as_object_mut().is_some_and(|status| status.remove("lastScaleTime").is_some());
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                condition.as_object_mut().unwrap().remove("lastTransitionTime");
            }
            (key, (status, scaled))
        });
        let events = world.cluster.list("events", None).into_iter().map(|event| {
            let about = &event["involvedObject"];
            let object = format!("{}/{}", text(&about["namespace"]), text(&about["name"]));
            let event_text = [object, text(&event["type"]), text(&event["reason"]), text(&event["message"])];
            (event_text, text(&event["firstTimestamp"]))
        });
        Self { counts: world.counts(), statuses: statuses.collect(), events: events.collect() }
    }
}

/// A run without its times.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) outcome: &'a Outcome,
    pub(crate) writes: &'a [Write],
}

/// Returns the differences between a run and the run without a fault. `fault_time` is the time of the fault
/// since the start.
pub(crate) fn differences(
    scenario: &Scenario,
    expected: &Run<'_>,
    got: &Run<'_>,
    fault: Fault,
    fault_time: Duration,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |part: &str, expected: String, got: String| {
        if expected != got {
            found.push(format!("{part}\n      without the fault {expected}\n      with it           {got}"));
        }
    };
    let dies = matches!(fault, Fault::DiesBefore(_) | Fault::DiesAfter(_));
    let in_flight = |at: Duration| dies && at.abs_diff(fault_time) <= IN_FLIGHT;
    let rescaled_then = expected.writes.iter().any(|write| in_flight(write.at));
    let (one, other) = (expected.outcome, got.outcome);
    note("counts", format!("{:?}", one.counts), format!("{:?}", other.counts));
    let keys = |outcome: &Outcome| format!("{:?}", outcome.statuses.keys().collect::<Vec<_>>());
    note("HPAs", keys(one), keys(other));
    for (key, (status, scaled)) in &one.statuses {
        if let Some((got, got_scaled)) = other.statuses.get(key) {
            let (status, got) =
                if rescaled_then { (settled(status), settled(got)) } else { (status.clone(), got.clone()) };
            for (path, one, other) in parts("", &status, &got) {
                note(&format!("status of {key}: {path}"), one, other);
            }
            if !rescaled_then {
                let part = format!("whether {key} has a lastScaleTime");
                note(&part, scaled.to_string(), got_scaled.to_string());
            }
        }
    }
    if scenario.counts == Counts::All {
        note("counts written", steps(expected.writes), steps(got.writes));
    }
    let loose = |[_, _, reason, message]: &EventText| match reason.as_str() {
        "SuccessfulRescale" => scenario.counts == Counts::Last,
        "FailedUpdateStatus" => message.contains("the object has been modified"),
        _ => false,
    };
    let late = matches!(fault, Fault::Late(..));
    let (base, other) = (comparable(&one.events, late), comparable(&other.events, late));
    for (event_text, at) in &base {
        if !other.contains_key(event_text) && !loose(event_text) && !in_flight(since_start(at)) {
            note("event", format!("{event_text:?}"), "none".to_owned());
        }
    }
    for event_text in other.keys() {
        if !base.contains_key(event_text) && !loose(event_text) {
            note("event", "none".to_owned(), format!("{event_text:?}"));
        }
    }
    found
}

/// Events without the parts that a late view legitimately changes.
fn comparable(events: &BTreeMap<EventText, String>, late: bool) -> BTreeMap<EventText, String> {
    let comparable = |([object, kind, reason, message], at): (&EventText, &String)| {
        let event_text = match message.split_once("; reason: ") {
            Some((size, _)) if late => size,
            _ => message.as_str(),
        };
        ([object.clone(), kind.clone(), reason.clone(), event_text.to_owned()], at.clone())
    };
    events.iter().map(comparable).collect()
}

/// A status without the condition that only a rescale writes.
fn settled(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != "ScaledToZero");
    }
    status
}

/// Paths at which two values differ, with both texts.
fn parts(path: &str, one: &Value, other: &Value) -> Vec<(String, String, String)> {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let names: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
            let inner =
                names.into_iter().map(|name| parts(&format!("{path}.{name}"), &one[name], &other[name]));
            inner.flatten().collect()
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let pairs = items.iter().zip(others).enumerate();
            pairs.flat_map(|(at, (one, other))| parts(&format!("{path}[{at}]"), one, other)).collect()
        }
        _ if one == other => Vec::new(),
        _ => vec![(path.to_owned(), one.to_string(), other.to_string())],
    }
}

/// Whether a target that was scaled to 0 when the process died stays at 0, since its HPA takes it for paused.
pub(crate) fn stays_paused(expected: &Run<'_>, got: &Run<'_>, fault: Fault, fault_time: Duration) -> bool {
    let dies = matches!(fault, Fault::DiesBefore(_) | Fault::DiesAfter(_));
    let in_flight = |write: &&Write| write.to == 0 && write.at.abs_diff(fault_time) <= IN_FLIGHT;
    dies && expected.writes.iter().filter(in_flight).any(|write| {
        let stays = got.outcome.counts.get(&write.path) == Some(&0);
        stays && expected.outcome.counts.get(&write.path) != Some(&0)
    })
}

/// The written counts in order, by target.
fn steps(writes: &[Write]) -> String {
    let mut steps: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for write in writes {
        steps.entry(&write.path).or_default().push(write.to);
    }
    format!("{steps:?}")
}

/// Time since [`super::world::EPOCH`], the start time of every run.
fn since_start(at: &str) -> Duration {
    let epoch: jiff::Timestamp = super::world::EPOCH.parse().unwrap();
    let at: jiff::Timestamp = at.parse().unwrap();
    at.duration_since(epoch).try_into().unwrap()
}
