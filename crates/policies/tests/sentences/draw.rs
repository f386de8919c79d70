//! Draws the inputs of decisions.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::history::{History, Recommendation, ScaleEvent};
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{PolicyKind, ScalingPolicy, SelectPolicy, Spec};
use autoscaling::status::Status;
use autoscaling::{Evaluation, Hpa, Overlap, Scale, plan};
use jiff::{SignedDuration, Timestamp};
use policies::guards::Rollout;
use policies::history::{MetricHistory, PolicyHistory};
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::spec::{Cause, Combine, Level, parse};
use policies::steps::PolicyEffect;
use policies::{Earlier, PolicyDecision, TargetState, ready_pods};
use serde_json::{Value, json};

/// The inputs of one decision.
pub(crate) struct World {
    pub(crate) now: Timestamp,
    spec: Arc<Spec>,
    status: Status,
    scale: (i32, i32),
    pods: Vec<Arc<Pod>>,
    answers: Vec<Result<Answer, QueryError>>,
    history: History,
    /// The history of the metrics, for fallbacks and guards.
    earlier: PolicyHistory,
    settings: Settings,
    rules: Option<Rules>,
    target: TargetState,
}

/// A step of the HPA that a decision omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    Windows,
    Rates,
    Maximum,
    Minimum,
}

impl World {
    /// Decides with the policy, but without guards and mode.
    pub(crate) fn decide(&self, without: &[Without]) -> PolicyDecision {
        let spec = match &self.rules {
            Some(rules) => rules.bounds.spec(&self.spec).0,
            None => Arc::clone(&self.spec),
        };
        let mut spec = Spec::clone(&spec);
        let mut history = self.history.clone();
        for without in without {
            match without {
                Without::Windows => {
                    history.recommendations =
                        vec![Recommendation { at: Timestamp::MIN, replicas: self.scale.0 }];
                }
                Without::Rates => {
                    let unlimited =
                        ScalingPolicy { kind: PolicyKind::Pods, value: 1_000_000, period_seconds: 1 };
                    if let Some(behavior) = &mut spec.behavior {
                        for rules in [&mut behavior.scale_up, &mut behavior.scale_down] {
                            rules.policies = [unlimited].into();
                            rules.select_policy = SelectPolicy::Max;
                        }
                    }
                    (history.scale_ups, history.scale_downs) = (Vec::new(), Vec::new());
                    (history.unknown_up, history.unknown_down) = (None, None);
                }
                Without::Maximum => spec.max_replicas = i32::MAX,
                Without::Minimum => spec.min_replicas = Some(0),
            }
        }
        self.decided(&spec, &history, &self.settings)
    }

    /// The count of the HPA without some steps.
    pub(crate) fn count(&self, without: &[Without]) -> Option<i32> {
        let decided = self.decide(without);
        let explanation = decided.decision.explanation();
        let window = explanation.stabilization.as_ref().filter(|step| step.up_window_seconds.is_none());
        match window.filter(|_| without.contains(&Without::Rates)) {
            // Without behavior, the only rate is at most twice the count.
            Some(window) => Some(window.after.min(explanation.max).max(explanation.min)),
            None => explanation.desired,
        }
    }

    fn decided(&self, spec: &Spec, history: &History, settings: &Settings) -> PolicyDecision {
        let hpa = Hpa { namespace: "shop", name: "web", generation: Some(1), spec, status: &self.status };
        let scale = Scale::new(self.scale.0, self.scale.1, "app=web", settings.version).unwrap();
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, settings);
        let mut evaluation = Evaluation::new(&hpa, &plan, settings);
        for index in 0..evaluation.metrics() {
            evaluation.evaluate(index, self.answers.get(index), &self.pods, self.now);
        }
        let ready = ready_pods(self.pods.iter().map(|pod| &**pod));
        match &self.rules {
            Some(rules) => {
                let earlier = Earlier { metrics: &self.earlier, burst: None, forecast: None };
                rules.decide(evaluation, history, earlier, ready, self.now)
            }
            None => PolicyDecision {
                decision: evaluation.decide(history, self.now),
                steps: Vec::new(),
                history: self.earlier.clone(),
                burst: None,
                forecast: None,
            },
        }
    }

    /// Whether the lowest proposal is chosen.
    pub(crate) fn combines(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.policy.spec.combine == Some(Combine::Min))
    }

    /// Decides, and applies guards and mode.
    pub(crate) fn apply(&self) -> (PolicyDecision, Option<PolicyEffect>) {
        let mut decided = self.decide(&[]);
        let effect = self.rules.as_ref().map(|rules| {
            let schedules = rules.bounds.spec(&self.spec).1;
            rules.apply(&mut decided, &self.target, &schedules)
        });
        (decided, effect)
    }
}

/// A generator of inputs.
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d };
        for _ in 0..4 {
            draw.next();
        }
        draw
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Draws a number from `from` to `to`.
    fn number(&mut self, from: i32, to: i32) -> i32 {
        let span = u64::try_from(to - from + 1).unwrap();
        from + i32::try_from(self.next() % span).unwrap()
    }

    fn chance(&mut self, percent: i32) -> bool {
        self.number(1, 100) <= percent
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.next() % of.len() as u64).unwrap()].clone()
    }

    pub(crate) fn world(&mut self) -> World {
        let now: Timestamp = "2026-07-01T12:01:10Z".parse().unwrap();
        let min = self.one(&[0, 1, 1, 2, 2, 3, 5]);
        let max = min.max(1) + self.one(&[0, 1, 3, 5, 10, 30]);
        let current = match self.number(0, 19) {
            0 => 0,
            1 => max + 2,
            2 => (min - 1).max(0),
            _ => self.number(min.max(1), max),
        };
        let status_replicas = (current + self.one(&[0, 0, 0, 0, 1, -1, 2])).max(0);
        let pods = self.pods(current, now);
        let kinds = self.one(&[1, 1, 2, 3, 4]);
        // Several metrics are rarely all 0 by chance.
        let is_idle = self.chance(15);
        let levels: &[i32] =
            if is_idle { &[0] } else { &[0, 1, 20, 45, 60, 85, 93, 100, 104, 108, 120, 180, 300, 900] };
        let (metrics, answers): (Vec<Value>, Vec<_>) = (0..kinds)
            .map(|index| {
                let level = self.one(levels);
                self.metric(index, &pods, current, now, level)
            })
            .unzip();
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": min, "maxReplicas": max, "metrics": metrics,
        });
        if self.chance(50) {
            spec["behavior"] = json!({"scaleUp": self.rules(), "scaleDown": self.rules()});
        }
        let status = match current {
            0 => json!({"currentMetrics": null, "desiredReplicas": 0, "currentReplicas": 0, "conditions": [
                {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero", "message": "",
                 "lastTransitionTime": "2026-07-01T11:00:00Z"}]}),
            _ => json!({"currentMetrics": null, "desiredReplicas": current, "currentReplicas": current}),
        };
        let ago = |seconds: i32| now - SignedDuration::from_secs(seconds.into());
        let mut history = History::default();
        for _ in 0..self.one(&[0, 1, 1, 2, 4]) {
            let replicas = (current + self.number(-4, 6)).max(0);
            history.recommendations.push(Recommendation { at: ago(self.number(1, 500)), replicas });
        }
        for _ in 0..self.one(&[0, 0, 1, 2]) {
            history.scale_ups.push(ScaleEvent::new(ago(self.number(1, 100)), self.number(1, 4)));
            history.scale_downs.push(ScaleEvent::new(ago(self.number(1, 100)), self.number(1, 4)));
        }
        if self.chance(5) {
            history.unknown_up = Some(ago(20));
            history.unknown_down = Some(ago(20));
        }
        let settings = Settings {
            downscale_stabilization: Duration::from_secs(self.one(&[0, 60, 300])),
            ..Settings::new(Version::default())
        };
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let earlier = self.earlier(&spec, current, now);
        World {
            now,
            spec: Arc::new(spec),
            status: serde_json::from_value(status).unwrap(),
            scale: (current, status_replicas),
            pods,
            answers,
            history,
            earlier,
            settings,
            rules: self.policy(now, is_idle),
            target: TargetState {
                pending: self.one(&[0, 0, 1, 3]),
                unschedulable: self.one(&[0, 0, 1]),
                rollout: self.chance(30).then_some(Rollout { updated: 1, total: 4 }),
            },
        }
    }

    /// Draws the last proposal and the failures of each metric.
    fn earlier(&mut self, spec: &Spec, current: i32, now: Timestamp) -> PolicyHistory {
        let mut earlier = PolicyHistory::default();
        for metric in &*spec.metrics {
            let subject = metric.subject("shop");
            let ago =
                |draw: &mut Self, longest| now - SignedDuration::from_secs(draw.number(1, longest).into());
            let known = MetricHistory {
                name: Arc::clone(&subject.name),
                failing: self.chance(40).then(|| (ago(self, 120), Cause::Error)),
                last_proposal: self.chance(70).then(|| (current + self.number(-4, 6)).max(0)),
                last_nonzero: self.chance(70).then(|| ago(self, 90)),
            };
            if self.chance(70) {
                earlier.metrics.insert(format!("{}/{subject}", subject.kind).into(), known);
            }
        }
        earlier
    }

    fn rules(&mut self) -> Value {
        let policy = |draw: &mut Self| {
            json!({"type": draw.one(&["Pods", "Percent"]), "value": draw.one(&[1, 2, 4, 50, 100]),
                "periodSeconds": draw.one(&[15, 60])})
        };
        let mut policies = vec![policy(self)];
        if self.chance(40) {
            policies.push(policy(self));
        }
        json!({"policies": policies, "stabilizationWindowSeconds": self.one(&[0, 0, 60, 300]),
            "selectPolicy": self.one(&["Max", "Max", "Min", "Disabled"])})
    }

    fn pods(&mut self, current: i32, now: Timestamp) -> Vec<Arc<Pod>> {
        let number = (current + self.one(&[0, 0, 0, 0, 1, 3, -1])).max(0);
        let cpu = ResourceList::new([("cpu".into(), "500m".parse::<Quantity>().unwrap())]);
        let requests = Arc::new(PodRequests {
            containers: Box::new([ContainerRequests {
                name: "app".into(),
                restartable: false,
                requests: cpu,
            }]),
            ..PodRequests::default()
        });
        let labels = Arc::new(LabelSet::default());
        let healthy = self.chance(50);
        (0..number)
            .map(|index| {
                let kind = if healthy { 9 } else { self.number(0, 9) };
                let since = now - SignedDuration::from_secs(if kind == 2 { 20 } else { 3600 });
                let ready =
                    if matches!(kind, 2 | 3) { ConditionStatus::False } else { ConditionStatus::True };
                Arc::new(Pod {
                    name: format!("web-{index:03}").into(),
                    labels: Arc::clone(&labels),
                    requests: Arc::clone(&requests),
                    phase: match kind {
                        0 => Phase::Pending,
                        1 => Phase::Failed,
                        _ => Phase::Running,
                    },
                    terminating: kind == 4,
                    ready: Some(ReadyCondition { status: ready, since: Some(since) }),
                    start_time: Some(since),
                })
            })
            .collect()
    }

    fn metric(
        &mut self,
        index: usize,
        pods: &[Arc<Pod>],
        current: i32,
        now: Timestamp,
        level: i32,
    ) -> (Value, Result<Answer, QueryError>) {
        let name = format!("m{index}");
        let average = json!({"type": "AverageValue", "averageValue": "10"});
        let value = json!({"type": "Value", "value": "100"});
        let complete = self.chance(60);
        let mut with_sample = Vec::new();
        for pod in pods {
            if complete || self.chance(60) {
                with_sample.push(Arc::clone(&pod.name));
            }
        }
        let milli = |milli: i32| Quantity::from_milli(i64::from(milli), Format::DecimalSi);
        let timestamp = Some(now - SignedDuration::from_secs(10));
        let kind = self.number(0, 5);
        let (metric, answer) = match kind {
            0 => {
                let usage = with_sample.iter().map(|pod| PodUsage {
                    pod: Arc::clone(pod),
                    timestamp,
                    window_nanos: 15_000_000_000,
                    containers: Box::new([ContainerUsage {
                        name: "app".into(),
                        usage: ResourceList::new([("cpu".into(), milli(level * 4))]),
                    }]),
                });
                let target = json!({"type": "Utilization", "averageUtilization": 80});
                (
                    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}),
                    Answer::Resource(usage.collect()),
                )
            }
            1 => {
                let values = with_sample.iter().map(|pod| CustomValue {
                    object: Arc::clone(pod),
                    timestamp,
                    window_seconds: None,
                    value: milli(level * 100),
                });
                (
                    json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}),
                    Answer::Custom(values.collect()),
                )
            }
            2 | 3 => {
                let target = if kind == 2 { average } else { value };
                let total = if kind == 2 { level * 100 * current.max(1) } else { level * 1000 };
                let value = CustomValue {
                    object: "main".into(),
                    timestamp,
                    window_seconds: None,
                    value: milli(total),
                };
                let described =
                    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
                (
                    json!({"type": "Object",
                        "object": {"describedObject": described, "metric": {"name": name}, "target": target}}),
                    Answer::Custom([value].into()),
                )
            }
            _ => {
                let target = if kind == 4 { average } else { value };
                let sign = if self.chance(3) { -1 } else { 1 };
                let total = if kind == 4 { level * 100 * current.max(1) } else { level * 1000 };
                (
                    json!({"type": "External", "external": {"metric": {"name": name}, "target": target}}),
                    Answer::External([ExternalValue { timestamp, value: milli(total * sign) }].into()),
                )
            }
        };
        let fails = self.chance(18);
        let class = self.one(&[MetricFailureClass::Other, MetricFailureClass::NoValues]);
        (metric, if fails { Err(QueryError::new(class, "the server does not answer")) } else { Ok(answer) })
    }

    fn policy(&mut self, now: Timestamp, is_idle: bool) -> Option<Rules> {
        if self.chance(40) {
            return None;
        }
        let mut fields = Vec::new();
        if self.chance(40) {
            let mode = self.one(&[
                "Paused",
                "Pinned, replicas: 7",
                "ScaleUpOnly",
                "ScaleDownOnly",
                "DryRun",
                "Nonsense",
            ]);
            let until = self.one(&["", ", until: 2026-07-02T00:00:00Z"]);
            fields.push(format!("mode: {mode}{until}"));
        }
        if self.chance(40) {
            let guard = self.one(&[
                "pendingPods: {maximum: 0}",
                "rollout: Hold",
                "rollout: HoldScaleUp",
                "zeroMetrics: Hold",
                "maxStep: {up: 1, down: 1}",
                "maxStep: {up: 2, down: 1}, rollout: HoldScaleDown",
            ]);
            let guard = if is_idle { "zeroMetrics: Hold" } else { guard };
            fields.push(format!("guards: {{{guard}}}"));
        }
        if self.chance(40) {
            let bounds = self.one(&["minReplicas: 4", "maxReplicas: 6", "minReplicas: 3, maxReplicas: 8"]);
            fields.push(format!(
                "schedules: [{{name: sale, from: 2026-07-01T00:00:00Z, to: 2026-07-02T00:00:00Z, {bounds}}}]"
            ));
        }
        if self.chance(40) {
            let rule = |draw: &mut Self, when: &str| {
                let action = draw.one(&[
                    "Hold",
                    "Ignore",
                    "LastValue",
                    "Replicas, replicas: 4",
                    "Replicas, replicas: 12",
                    "Replicas, replicas: 4, strategy: AtLeast",
                    "Replicas, replicas: 4, strategy: AtMost",
                ]);
                let metric = draw.one(&["", "", ", metric: m1"]);
                let seconds = draw.one(&[0, 0, 60]);
                format!("{{when: {when}{metric}, failureDurationSeconds: {seconds}, action: {action}}}")
            };
            fields.push(format!("fallback: [{}, {}]", rule(self, "Error"), rule(self, "Empty")));
        }
        if self.chance(40) {
            fields.push("combine: Min".to_owned());
        }
        if self.chance(20) {
            fields.push("burst: {}".to_owned());
        }
        if self.chance(20) {
            fields.push("corrections: {averageValueWithinTolerance: true}".to_owned());
        }
        let parsed = parse(&format!("{{{}}}", fields.join(", ")), Level::Annotation);
        assert!(parsed.problems.iter().all(|problem| problem.path == "mode"), "{:?}", parsed.problems);
        let source =
            Source { level: Level::Annotation, name: "".into(), created: None, parsed: Arc::new(parsed) };
        Some(resolve(&Arc::new(Policy::merge(vec![source])), now))
    }
}
