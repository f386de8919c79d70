//! The table row of a pod.

use jiff::Timestamp;
use serde_json::Value;

use super::{Cell, age, cell, or_none, wide};
use crate::object::{at, int, list, text};

/// Returns the cells of one pod.
pub(super) fn cells(pod: &Value, now: Timestamp, name: Cell, age: Cell) -> Vec<Cell> {
    let statuses = list(pod, &["status", "containerStatuses"]);
    let inits = list(pod, &["spec", "initContainers"]);
    let restartable = |name: &str| {
        inits.iter().any(|init| text(init, &["name"]) == name && text(init, &["restartPolicy"]) == "Always")
    };
    let sidecars: Vec<&Value> = list(pod, &["status", "initContainerStatuses"])
        .iter()
        .filter(|status| restartable(text(status, &["name"])))
        .collect();
    let is_ready = |status: &&&Value| {
        status.get("ready") == Some(&Value::Bool(true)) && at(status, &["state", "running"]).is_some()
    };
    let all: Vec<&Value> = statuses.iter().chain(sidecars).collect();
    let ready = all.iter().filter(is_ready).count();
    let total = list(pod, &["spec", "containers"]).len()
        + inits.iter().filter(|init| text(init, &["restartPolicy"]) == "Always").count();
    let restarts: i64 = all.iter().filter_map(|status| int(status, &["restartCount"])).sum();
    let last = all
        .iter()
        .filter_map(|status| at(status, &["lastState", "terminated", "finishedAt"])?.as_str())
        .max()
        .filter(|_| restarts > 0);
    let restarts = match last {
        Some(last) => format!("{restarts} ({} ago)", age::since(last, now)),
        None => restarts.to_string(),
    };
    vec![
        name,
        cell("Ready", format!("{ready}/{total}")),
        cell("Status", reason(pod, statuses)),
        cell("Restarts", restarts),
        age,
        wide("IP", or_none(text(pod, &["status", "podIP"]))),
        wide("Node", or_none(text(pod, &["spec", "nodeName"]))),
        wide("Nominated Node", or_none(text(pod, &["status", "nominatedNodeName"]))),
        wide("Readiness Gates", "<none>"),
    ]
}

/// Returns the column `Status`: the phase, or a more specific reason.
fn reason(pod: &Value, statuses: &[Value]) -> String {
    let phase = text(pod, &["status", "phase"]);
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() && !matches!(phase, "Succeeded" | "Failed") {
        return "Terminating".to_owned();
    }
    let mut reason = match text(pod, &["status", "reason"]) {
        "" => phase,
        reason => reason,
    }
    .to_owned();
    for status in statuses.iter().rev() {
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut reason);
        } else if let Some(terminated) = at(status, &["state", "terminated"]) {
            reason = match text(terminated, &["reason"]) {
                "" => format!("ExitCode:{}", int(terminated, &["exitCode"]).unwrap_or(0)),
                specific => specific.to_owned(),
            };
        }
    }
    reason
}
