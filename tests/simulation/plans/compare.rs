//! The differential oracle compares a run with a fault to the run without a fault.
//!
//! The following parts must be equal:
//!
//! - the count of every target
//! - the status of every HPA with conditions and metrics
//! - the written counts in order ([`Counts::All`])
//! - the events by object, type, reason and message
//!
//! The following parts are not compared, because time or a crash legitimately changes them:
//!
//! - times: `lastTransitionTime`, `lastScaleTime`, times of events, and counts of repeated events
//! - events and `lastScaleTime` of the sync in which the process died, because unsent data is lost
//! - the condition `ScaledToZero` if that sync rescaled. As in the reference, only a rescale writes the condition, so
//!   the condition keeps its previous value.
//! - `FailedUpdateStatus` for a conflict, which reports that a change of the HPA coincided with a sync
//! - the reason in the text of `SuccessfulRescale` if an event came late. With a late view, another metric or an older
//!   recommendation may decide on the same count.
//! - the texts of `SuccessfulRescale` if only the last count is compared
//!
//! Rules for the written counts hold under every fault: no write repeats the current count, leaves the bounds of the
//! HPA or exceeds a policy. Separate code checks these rules on the API server's side, independent of the controller's
//! history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::fault_injector::{Fault, Write};
use super::world::{Counts, HPAS, Scenario, World};

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

/// The parts of a run that are compared.
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

/// Paths at which two values differ, with the texts of both values.
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

/// Whether a target that was scaled to 0 when the process died stays at 0, because the HPA treats the target as paused.
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

/// Returns the writes that repeat a count, leave the bounds of the HPA or exceed its policies.
pub(crate) fn broken(writes: &[Write]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, write) in writes.iter().enumerate() {
        let Write { at, path, from, to, hpa } = write;
        let (min, max) = (
            hpa["spec"]["minReplicas"].as_i64().unwrap_or(1),
            hpa["spec"]["maxReplicas"].as_i64().unwrap_or(0),
        );
        if from == to {
            found.push(format!("{path} was set to {to} at {at:?}, which is the current count"));
        } else if hpa.is_object() && !(min..=max).contains(to) {
            found.push(format!("{path} was set to {to} at {at:?}, which is not in {min}..={max}"));
        } else if let Some(limit) = limit(write, &writes[..number], min, max) {
            let exceeds = if to > from { *to > limit } else { *to < limit };
            if exceeds {
                found.push(format!(
                    "{path} was set from {from} to {to} at {at:?}; its policies allow {limit}"
                ));
            }
        }
    }
    found
}

/// The maximum or minimum count that the policies of a direction allow, or `None` without policies. A count
/// out of bounds may return to the bounds at once.
fn limit(write: &Write, before: &[Write], min: i64, max: i64) -> Option<i64> {
    let Write { at, path, from, to, hpa } = write;
    let up = to > from;
    let rules = &hpa["spec"]["behavior"][if up { "scaleUp" } else { "scaleDown" }];
    let policies = rules["policies"].as_array()?;
    if (*from < min && *to == min) || (*from > max && *to == max) {
        return None;
    }
    let limits = policies.iter().map(|policy| {
        let period = Duration::from_secs(policy["periodSeconds"].as_u64().unwrap_or(0));
        let recent = before.iter().filter(|other| {
            other.path == *path
                && other.hpa["metadata"]["uid"] == hpa["metadata"]["uid"]
                && other.at + period > *at
        });
        let changed: i64 = recent.map(|other| other.to - other.from).sum();
        after(from - changed, policy, up)
    });
    let (least, most) = (limits.clone().min(), limits.max());
    match (rules["selectPolicy"].as_str(), up) {
        (Some("Disabled"), _) => Some(*from),
        (Some("Min"), true) | (Some("Max") | None, false) => least,
        _ => most,
    }
}

/// The limit of one policy for the count at the start of its period.
fn after(start: i64, policy: &Value, up: bool) -> i64 {
    let value = policy["value"].as_i64().unwrap_or(0);
    match (policy["type"].as_str(), up) {
        (Some("Pods"), true) => start + value,
        (Some("Pods"), false) => start - value,
        (_, true) => (start * (100 + value) + 99).div_euclid(100),
        (_, false) => start * (100 - value) / 100,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(at: u64, from: i64, to: i64) -> Write {
        let policies = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}]);
        let rules = json!({ "policies": policies });
        let hpa = json!({"spec": {
            "minReplicas": 1, "maxReplicas": 10, "behavior": {"scaleUp": rules, "scaleDown": rules},
        }});
        Write { at: Duration::from_secs(at), path: "web".to_owned(), from, to, hpa }
    }

    #[test]
    fn policy_of_two_pods_a_minute_holds_in_any_minute() {
        assert_eq!(broken(&[write(0, 2, 4), write(60, 4, 6), write(200, 6, 4)]), [""; 0]);
        let found = broken(&[write(0, 2, 4), write(59, 4, 5)]);
        assert_eq!(found, ["web was set from 4 to 5 at 59s; its policies allow 4"]);
        let found = broken(&[write(0, 6, 4), write(30, 4, 3)]);
        assert_eq!(found, ["web was set from 4 to 3 at 30s; its policies allow 4"]);
    }

    #[test]
    fn count_is_not_written_twice_and_stays_within_its_bounds() {
        assert_eq!(broken(&[write(0, 4, 4)]).len(), 1);
        assert_eq!(broken(&[write(0, 10, 12)]).len(), 1);
        // A return to the bounds is not limited by policies.
        assert_eq!(broken(&[write(0, 15, 10)]), [""; 0]);
    }
}
