//! Situations for tests: an HPA, its pods, the responses of the metrics APIs, and a decision of [`autoscaling`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use autoscaling::history::{History, Recommendation, ScaleEvent};
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, ExternalValue, PodUsage, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::{Answers, Hpa, Overlap, Scale, ScaleFailure, WriteOutcome, conclude, decide, plan};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Situation;
use super::situation::{Owner, Past, Recorded, Source, Target, TargetObject};
use engine::store::{HpaRecord, Key};

/// Returns the time of every scene, 14:01:10 in Berlin.
pub(crate) fn now() -> Timestamp {
    "2026-07-01T12:01:10Z".parse().unwrap()
}

/// Returns the time `seconds` before [`now`].
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now() - jiff::SignedDuration::from_secs(seconds)
}

/// The input of a decision.
pub(crate) struct Scene {
    pub(crate) spec: Value,
    pub(crate) status: Value,
    pub(crate) scale: Result<(i32, i32), String>,
    pub(crate) overlap: Overlap,
    pub(crate) pods: Vec<Pod>,
    /// The response for each metric, by the metric's index in the spec.
    pub(crate) answers: Vec<Option<Result<Answer, QueryError>>>,
    pub(crate) history: History,
    pub(crate) settings: Settings,
}

impl Scene {
    /// Creates `shop/web`, with a cpu target of 80 % of 500m and 2 to 10 replicas. Each pod has been ready for an hour
    /// and uses `milli` millicores.
    pub(crate) fn cpu(replicas: usize, milli: i64) -> Self {
        let pods: Vec<Pod> =
            (1..=replicas).map(|number| pod(&format!("web-{number}"), Some("500m"))).collect();
        let count = i32::try_from(replicas).unwrap();
        Self {
            spec: json!({
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 10,
                "metrics": [cpu_metric(80)],
            }),
            status: json!({"currentMetrics": null, "desiredReplicas": count, "currentReplicas": count}),
            scale: Ok((count, count)),
            overlap: Overlap::None,
            answers: vec![Some(Ok(usages(&pods, milli)))],
            pods,
            history: steady(count),
            settings: Settings::default(),
        }
    }

    /// Creates `shop/web`, with 2 to 10 replicas and an External metric `jobs` with one value.
    pub(crate) fn jobs(replicas: i32, target: &Value, value: &str) -> Self {
        let mut scene = Self::cpu(usize::try_from(replicas).unwrap(), 100);
        scene.spec["metrics"] = json!([external_metric("jobs", target)]);
        scene.answers = vec![Some(Ok(external(value)))];
        scene
    }

    /// Adds a metric with its response.
    pub(crate) fn and(mut self, metric: Value, answer: Result<Answer, &str>) -> Self {
        self.spec["metrics"].as_array_mut().unwrap().push(metric);
        self.answers.push(Some(answer.map_err(query_error)));
        self
    }

    pub(crate) fn behavior(mut self, behavior: Value) -> Self {
        self.spec["behavior"] = behavior;
        self
    }

    /// Sets recommendations, each as an age in seconds and a count.
    pub(crate) fn recommended(mut self, recommendations: &[(i64, i32)]) -> Self {
        self.history.recommendations = recommendations
            .iter()
            .map(|&(seconds, replicas)| Recommendation { at: ago(seconds), replicas })
            .collect();
        self
    }

    /// Sets scale-ups, each as an age in seconds and a number of added pods.
    pub(crate) fn added(mut self, events: &[(i64, i32)]) -> Self {
        self.history.scale_ups =
            events.iter().map(|&(seconds, change)| ScaleEvent::new(ago(seconds), change)).collect();
        self
    }

    /// Decides and returns the situation.
    pub(crate) fn situation(self) -> Situation {
        let key = Key::new("shop", "web");
        let raw = serde_json::value::RawValue::from_string(self.spec.to_string()).unwrap();
        let record = HpaRecord {
            key: key.clone(),
            uid: "u1".into(),
            generation: Some(1),
            resource_version: "1".to_owned(),
            metadata: serde_json::value::RawValue::from_string("{}".to_owned()).unwrap(),
            spec_raw: raw.into(),
            spec: Arc::new(serde_json::from_value(self.spec).unwrap()),
            status: Arc::new(serde_json::from_value(self.status).unwrap()),
            status_writers: Vec::new(),
        };
        let hpa = Hpa {
            namespace: &key.namespace,
            name: &key.name,
            generation: Some(1),
            spec: &record.spec,
            status: &record.status,
        };
        let scale = self
            .scale
            .map(|(replicas, status)| Scale::new(replicas, status, "app=web", Version::default()).unwrap())
            .map_err(|message| ScaleFailure { class: ScaleFailureClass::from_text(&message), message });
        let overlap = self.overlap;
        let pods: Vec<Arc<Pod>> = self.pods.into_iter().map(Arc::new).collect();
        let plan = plan(&hpa, scale, |_| overlap, &self.settings);
        let metrics = if plan.reads_metrics() { self.answers } else { Vec::new() };
        let answers = Answers { metrics: metrics.clone(), pods: &pods };
        let decision = decide(&hpa, &plan, &answers, &self.history, &self.settings, now());
        let outcome = WriteOutcome::Withheld;
        let concluded = conclude(&hpa, decision, &outcome, &self.settings, now());
        let status = concluded.status.as_ref().unwrap_or(&record.status);
        let owners = pods.iter().map(|pod| (Arc::clone(&pod.name), chain("web"))).collect::<BTreeMap<_, _>>();
        Situation {
            key: key.clone(),
            source: Source::Cluster { watching_since: None, record: Recorded::NotRequested },
            at: now(),
            status_writer: None,
            in_charge: None,
            explanation: concluded.explanation,
            policy: None,
            sources: Vec::new(),
            rules: None,
            outcome,
            events: Vec::new(),
            conditions: status.conditions.clone(),
            metrics,
            pods,
            owners,
            target: Some(Target {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                name: "web".to_owned(),
                object: Some(TargetObject {
                    uid: "uid-web".to_owned(),
                    owners: Vec::new(),
                    replicas_owners: Vec::new(),
                }),
                others: Vec::new(),
            }),
            hpa: Some(Arc::new(record)),
            sharing: Vec::new(),
            recent_events: Vec::new(),
            past: Past { history: self.history, entries: Vec::new(), complete: true },
            settings: self.settings,
            flags: Vec::new(),
            period: Duration::from_secs(15),
            skew: None,
            refused: Vec::new(),
            missing_apis: Vec::new(),
            server_version: Some("v1.37.1".to_owned()),
        }
    }
}

/// Creates the error of a query, with the class of its text.
pub(crate) fn query_error(message: &str) -> QueryError {
    QueryError::new(MetricFailureClass::from_text(message), message)
}

/// Creates a history with the same recommendation throughout the last window.
fn steady(count: i32) -> History {
    let recommendations = (1..=20).rev().map(|sync| Recommendation { at: ago(sync * 15), replicas: count });
    History { recommendations: recommendations.collect(), ..History::default() }
}

pub(crate) fn cpu_metric(percent: i32) -> Value {
    json!({"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

pub(crate) fn external_metric(name: &str, target: &Value) -> Value {
    json!({"type": "External", "external": {"metric": {"name": name}, "target": target}})
}

pub(crate) fn pods_metric(name: &str, average: &str) -> Value {
    json!({"type": "Pods",
        "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": average}}})
}

/// Creates a pod with one container `app`. The pod has been ready for an hour.
pub(crate) fn pod(name: &str, cpu: Option<&str>) -> Pod {
    let requests = ResourceList::new(cpu.map(|cpu| ("cpu".into(), cpu.parse::<Quantity>().unwrap())));
    let container = ContainerRequests { name: "app".into(), restartable: false, requests };
    Pod {
        name: name.into(),
        labels: Arc::new(LabelSet::default()),
        requests: Arc::new(PodRequests { containers: Box::new([container]), ..PodRequests::default() }),
        phase: Phase::Running,
        terminating: false,
        ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(ago(3600)) }),
        start_time: Some(ago(3610)),
    }
}

/// Creates a pod that started 20 s ago and is not ready.
pub(crate) fn starting(name: &str) -> Pod {
    Pod {
        ready: Some(ReadyCondition { status: ConditionStatus::False, since: Some(ago(20)) }),
        start_time: Some(ago(20)),
        ..pod(name, Some("500m"))
    }
}

/// Creates the usage of one pod's container `app`, sampled 12 s ago.
pub(crate) fn usage(name: &str, milli: i64) -> PodUsage {
    let cpu = Quantity::from_milli(milli, autoscaling::quantity::Format::DecimalSi);
    PodUsage {
        pod: name.into(),
        timestamp: Some(ago(12)),
        window_nanos: 15_000_000_000,
        containers: Box::new([ContainerUsage {
            name: "app".into(),
            usage: ResourceList::new([("cpu".into(), cpu)]),
        }]),
    }
}

pub(crate) fn usages(pods: &[Pod], milli: i64) -> Answer {
    Answer::Resource(pods.iter().map(|pod| usage(&pod.name, milli)).collect())
}

pub(crate) fn external(value: &str) -> Answer {
    Answer::External([ExternalValue { timestamp: Some(ago(20)), value: value.parse().unwrap() }].into())
}

/// Returns the owner chain of a Deployment's pod.
pub(crate) fn chain(deployment: &str) -> Vec<Owner> {
    let owner = |kind: &str, name: String| Owner {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        uid: format!("uid-{name}"),
        name,
        controller: Some(true),
    };
    vec![owner("ReplicaSet", format!("{deployment}-7d9")), owner("Deployment", deployment.to_owned())]
}
