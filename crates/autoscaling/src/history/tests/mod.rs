mod commit;
mod rebuild;
mod reconcile;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::collection;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Direction, History, Recommendation, ScaleEvent};
use crate::behavior::{Bounds, with_behavior};
use crate::failure::ScaleFailureClass;
use crate::query::{Answer, ExternalValue};
use crate::settings::Settings;
use crate::spec::{Behavior, Spec};
use crate::status::Status;
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
        let scale = Scale::new(self.replicas, self.replicas, "app=web").unwrap();
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
