//! The differential oracle: what must be equal between a run with a fault and the run without.
//!
//! Equal must be: the count of every target; of every HPA its status, with conditions and metrics; the counts that were
//! written, in their order ([`Counts::All`]); and which events there are, by object, type, reason and message.
//!
//! Left out, since time or a death decides it by right:
//! - times: `lastTransitionTime`, `lastScaleTime`, those of events, and how often an event was counted;
//! - events and `lastScaleTime` of the sync in which the process died: what it had not sent yet nobody knows any more;
//! - the condition `ScaledToZero`, if that sync rescaled: as in the reference only a rescale writes it, so it stays as it was;
//! - `FailedUpdateStatus` for a conflict: it tells that a change of the HPA met a sync;
//! - the texts of `SuccessfulRescale` where only the last count is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::scenario::{Counts, Scenario};
use super::way::{Fault, Write};
use super::world::{HPAS, World};

/// What a process that dies had in hand: how long before and after its death things may have been under way.
const IN_HAND: Duration = Duration::from_secs(1);

/// An event: object, type, reason, message.
type Told = [String; 4];

/// The world at the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    counts: BTreeMap<String, i64>,
    /// By namespace and name; without times, but whether there was ever a rescale.
    statuses: BTreeMap<String, (Value, bool)>,
    /// With when each was told first, in seconds of the day.
    events: BTreeMap<Told, String>,
}

impl Outcome {
    pub(crate) fn of(world: &World) -> Self {
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
            let told = [object, text(&event["type"]), text(&event["reason"]), text(&event["message"])];
            (told, text(&event["firstTimestamp"]))
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

/// Where a run differs from the one without a fault; `struck` is when the fault of that plan happens, since the start.
pub(crate) fn differences(
    scenario: &Scenario,
    expected: &Run<'_>,
    got: &Run<'_>,
    fault: Fault,
    struck: Duration,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |what: &str, expected: String, got: String| {
        if expected != got {
            found.push(format!("{what}\n      without the fault {expected}\n      with it           {got}"));
        }
    };
    let dies = matches!(fault, Fault::DiesBefore(_) | Fault::DiesAfter(_));
    let in_hand = |at: Duration| dies && at.abs_diff(struck) <= IN_HAND;
    let rescaled_then = expected.writes.iter().any(|write| in_hand(write.at));
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
                let what = format!("whether {key} has a lastScaleTime");
                note(&what, scaled.to_string(), got_scaled.to_string());
            }
        }
    }
    if scenario.counts == Counts::All {
        note("counts written", steps(expected.writes), steps(got.writes));
    }
    let loose = |[_, _, reason, message]: &Told| match reason.as_str() {
        "SuccessfulRescale" => scenario.counts == Counts::Last,
        "FailedUpdateStatus" => message.contains("the object has been modified"),
        _ => false,
    };
    for (told, at) in &one.events {
        if !other.events.contains_key(told) && !loose(told) && !in_hand(since_start(at)) {
            note("event", format!("{told:?}"), "none".to_owned());
        }
    }
    for told in other.events.keys() {
        if !one.events.contains_key(told) && !loose(told) {
            note("event", "none".to_owned(), format!("{told:?}"));
        }
    }
    found
}

/// A status without what only a rescale tells.
fn settled(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != "ScaledToZero");
    }
    status
}

/// Where two values part: path and both texts.
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

/// Whether a target that was scaled to 0 when the process died is still there, and its HPA takes it for paused.
pub(crate) fn stays_paused(expected: &Run<'_>, got: &Run<'_>, fault: Fault, struck: Duration) -> bool {
    let dies = matches!(fault, Fault::DiesBefore(_) | Fault::DiesAfter(_));
    let in_hand = |write: &&Write| write.to == 0 && write.at.abs_diff(struck) <= IN_HAND;
    dies && expected.writes.iter().filter(in_hand).any(|write| {
        let stays = got.outcome.counts.get(&write.path) == Some(&0);
        stays && expected.outcome.counts.get(&write.path) != Some(&0)
    })
}

/// The counts that were written, by target, in order.
fn steps(writes: &[Write]) -> String {
    let mut steps: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for write in writes {
        steps.entry(&write.path).or_default().push(write.to);
    }
    format!("{steps:?}")
}

/// Every run begins at the same full day.
fn since_start(at: &str) -> Duration {
    let epoch: jiff::Timestamp = super::world::EPOCH.parse().unwrap();
    let at: jiff::Timestamp = at.parse().unwrap();
    at.duration_since(epoch).try_into().unwrap()
}
