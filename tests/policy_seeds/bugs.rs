//! Bugs that the seeds must find. They change the responses that a process receives, so that a correct process acts
//! like an incorrect one.

use std::collections::BTreeSet;

use fake_cluster::{Answer, Exchange, Status};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::many_seeds::{bugs, change_objects};

bugs! { PlantedBug:
    /// A process other than the first does not end a mode at its `until`.
    UntilMissedAtFailover: "until-missed-at-failover",
    /// The maximum of the HPA does not bound the floor of a schedule.
    FloorAboveMaximum: "floor-above-maximum",
    /// The guard `maxStep` has no effect.
    StepIgnored: "step-ignored",
    /// A metric that failed once fails forever, so its fallback never ends.
    FallbackNeverEnds: "fallback-never-ends",
    /// A fallback starts without its `failureDurationSeconds`.
    FallbackWithoutDuration: "fallback-without-duration",
    /// A recurring schedule keeps the winter time when the clocks change.
    ClockChangeIgnored: "clock-change-ignored",
    /// A pause does not hold the count.
    PauseWrites: "pause-writes",
    /// A mode for one direction allows both directions.
    DirectionIgnored: "direction-ignored",
    /// The limits of the platform do not apply.
    LimitsIgnored: "limits-ignored",
    /// A deleted policy still applies.
    DeletionIgnored: "deletion-ignored",
    /// A ScalingPolicy applies to all HPAs of its namespace.
    SelectorIgnored: "selector-ignored",
    /// Modes end, and schedules start and end, five seconds late.
    LateEdge: "late-edge",
    /// The highest proposal is chosen, although the policy requires the lowest.
    CombineIgnored: "combine-ignored",
    /// A target scales up while its pods are pending.
    PendingPodsIgnored: "pending-pods-ignored",
    /// A target scales down when all metrics drop to 0 at once.
    ZeroMetricsIgnored: "zero-metrics-ignored",
    /// The guard for pending pods also sets a minimum of 8 replicas.
    GuardScales: "guard-scales",
    /// The policy of a tenant uses a mode that the platform does not allow.
    ModeAllowed: "mode-allowed",
    /// Nothing waits for policies: a list of policies that fails counts as one of a server without policies.
    UnlistedIsUnserved: "unlisted-is-unserved",
}

/// The API group of policies.
const GROUP: &str = "autoscaling.concertina.dev";

/// Changes the responses that one process receives.
#[derive(Debug)]
pub(crate) struct Alteration {
    bug: Option<PlantedBug>,
    /// The number of the process, in the order of the starts.
    process: usize,
    /// Paths of the external metrics that have failed.
    failed: Mutex<BTreeSet<String>>,
}

impl Alteration {
    pub(crate) fn new(bug: Option<PlantedBug>, process: usize) -> Self {
        Self { bug, process, failed: Mutex::default() }
    }

    /// Changes the response to a request.
    pub(crate) fn answer(&self, exchange: &Exchange, answer: Answer) -> Answer {
        let Some(bug) = self.bug else { return answer };
        if bug == PlantedBug::FallbackNeverEnds && exchange.path.contains("/external.metrics.k8s.io/") {
            let mut failed = self.failed.lock();
            let is_metric = exchange.path.contains("/namespaces/");
            if is_metric && answer.code() != Some(200) {
                failed.insert(exchange.path.clone());
            }
            if failed.contains(&exchange.path) {
                return Status::new(500, "InternalError", "planted").into();
            }
            return answer;
        }
        let failed = answer.code().is_some_and(|code| code >= 400);
        if bug == PlantedBug::UnlistedIsUnserved && failed && exchange.path.contains(GROUP) {
            return Status::not_found(GROUP, "scalingpolicies", "").into();
        }
        let is_hpa = exchange.path.ends_with("/horizontalpodautoscalers");
        if !is_hpa && !exchange.path.ends_with("scalingpolicies") {
            return answer;
        }
        let process = self.process;
        change_objects(answer, move |kind, object| {
            if bug == PlantedBug::DeletionIgnored && !is_hpa && kind == "DELETED" {
                return false;
            }
            bug.object(process, is_hpa, object);
            true
        })
    }
}

impl PlantedBug {
    /// Changes an HPA or a policy.
    fn object(self, process: usize, is_hpa: bool, object: &mut Value) {
        if !is_hpa {
            self.policy(process, &mut object["spec"]);
            return;
        }
        if self == Self::FloorAboveMaximum
            && let Some(maximum) = object["spec"]["maxReplicas"].as_i64()
        {
            object["spec"]["maxReplicas"] = json!(maximum + 2);
        }
        let text = &mut object["metadata"]["annotations"]["concertina.dev/policy"];
        if let Some(mut policy) = text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            self.policy(process, &mut policy);
            *text = json!(policy.to_string());
        }
    }

    fn policy(self, process: usize, policy: &mut Value) {
        let Some(fields) = policy.as_object_mut() else { return };
        let mode = fields.get("mode").and_then(Value::as_str).unwrap_or_default().to_owned();
        match self {
            Self::UntilMissedAtFailover if process > 0 => drop(fields.remove("until")),
            Self::StepIgnored => remove_guard(fields, "maxStep"),
            Self::PendingPodsIgnored => remove_guard(fields, "pendingPods"),
            Self::ZeroMetricsIgnored => remove_guard(fields, "zeroMetrics"),
            Self::GuardScales
                if fields.get("guards").is_some_and(|guards| guards["pendingPods"].is_object()) =>
            {
                let floor = json!({
                    "name": "guard", "from": "2030-01-01T00:00:00Z", "to": "2031-01-01T00:00:00Z", "minReplicas": 8,
                });
                fields.insert("schedules".to_owned(), json!([floor]));
            }
            Self::ModeAllowed => {
                if let Some(limits) = fields.get_mut("limits").and_then(Value::as_object_mut) {
                    limits.remove("allowedModes");
                }
            }
            Self::PauseWrites if mode == "Paused" => drop(fields.insert("mode".to_owned(), json!("Auto"))),
            Self::DirectionIgnored if mode.starts_with("Scale") => {
                fields.insert("mode".to_owned(), json!("Auto"));
            }
            Self::LimitsIgnored => drop(fields.remove("limits")),
            Self::SelectorIgnored => drop(fields.remove("selector")),
            Self::CombineIgnored => drop(fields.remove("combine")),
            Self::FallbackWithoutDuration => {
                for fallback in entries(fields, "fallback") {
                    fallback["failureDurationSeconds"] = json!(0);
                }
            }
            Self::ClockChangeIgnored => {
                for schedule in entries(fields, "schedules") {
                    let winter = match schedule["timeZone"].as_str() {
                        Some("Europe/Berlin") => "Etc/GMT-1",
                        Some("America/Los_Angeles") => "Etc/GMT+8",
                        _ => continue,
                    };
                    schedule["timeZone"] = json!(winter);
                }
            }
            Self::LateEdge => {
                delay(policy, "until");
                for schedule in
                    policy.as_object_mut().into_iter().flat_map(|fields| entries(fields, "schedules"))
                {
                    delay(schedule, "from");
                    delay(schedule, "to");
                }
            }
            _ => {}
        }
    }
}

fn remove_guard(fields: &mut Map<String, Value>, guard: &str) {
    if let Some(guards) = fields.get_mut("guards").and_then(Value::as_object_mut) {
        guards.remove(guard);
    }
}

fn entries<'a>(fields: &'a mut Map<String, Value>, field: &str) -> impl Iterator<Item = &'a mut Value> {
    fields.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn delay(object: &mut Value, field: &str) {
    let time = object.get(field).and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    if let Some(time) = time {
        object[field] = json!((time + SignedDuration::from_secs(5)).to_string());
    }
}
