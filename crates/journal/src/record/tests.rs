use std::sync::Arc;

use autoscaling::explanation::{LISTED_PODS, LimitingStep};
use autoscaling::failure::ScaleFailureClass;
use autoscaling::history::History;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::query::{Answer, ContainerUsage, PodUsage};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::{
    Answers, Conclusion, Hpa, Overlap, Scale, ScaleFailure, WriteOutcome, conclude, decide, plan,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::wire::{ActionTaken, DecisionEntry, DecisionList, Outcome};
use super::{Record, Text, append, take};
use engine::reconcile::{ConcludedSync, Observer};
use engine::store::{HpaRecord, Key};
use policies::steps::PolicyEffect;

/// One HPA with its pods. The core decides for the HPA, and a record observes the decisions.
struct Stage {
    record: Record,
    hpa: HpaRecord,
    history: History,
    now: Timestamp,
    replicas: Result<i32, String>,
    /// Per pod: the cpu usage in milli-cores, if there is a sample, and whether it is ready.
    pods: Vec<(Option<i64>, bool)>,
    /// The outcome of the next write.
    write: WriteOutcome,
    /// The effect of the policy.
    policy: Option<PolicyEffect>,
}

impl Stage {
    /// Creates a stage with four pods at their target of 50 % cpu, and 2 to 10 replicas.
    fn new(capacity: usize) -> Self {
        Self {
            record: Record::new(capacity),
            hpa: HpaRecord {
                key: Key::new("shop", "web"),
                uid: "uid-1".into(),
                generation: Some(1),
                resource_version: "1".to_owned(),
                metadata: to_raw_value(&()).unwrap(),
                spec_raw: to_raw_value(&()).unwrap().into(),
                spec: spec(&json!([cpu(50)]), &Value::Null),
                status: Arc::default(),
                status_writers: Vec::new(),
            },
            history: History::default(),
            now: "2030-01-01T12:00:00Z".parse().unwrap(),
            replicas: Ok(4),
            pods: vec![(Some(50), true); 4],
            write: WriteOutcome::Done,
            policy: None,
        }
    }

    fn cpu(&mut self, each: i64) {
        self.pods = self.pods.iter().map(|_| (Some(each), true)).collect();
    }

    /// Runs a sync, 15 s after the previous sync.
    fn sync(&mut self) -> Conclusion {
        self.now = self.now.checked_add(SignedDuration::from_secs(15)).unwrap();
        let start = self.now.checked_sub(SignedDuration::from_mins(1)).unwrap();
        let amount = |milli: i64| ResourceList::new([("cpu".into(), format!("{milli}m").parse().unwrap())]);
        let mut usages = Vec::new();
        let mut pods = Vec::new();
        for (index, (used, ready)) in self.pods.iter().enumerate() {
            let name: Arc<str> = format!("web-{index}").into();
            let containers = Box::new([ContainerRequests {
                name: "app".into(),
                restartable: false,
                requests: amount(100),
            }]);
            let status = if *ready { ConditionStatus::True } else { ConditionStatus::False };
            pods.push(Arc::new(Pod {
                name: Arc::clone(&name),
                labels: Arc::new(LabelSet::new([("app".into(), "web".into())])),
                requests: Arc::new(PodRequests { containers, ..PodRequests::default() }),
                phase: Phase::Running,
                terminating: false,
                ready: Some(ReadyCondition { status, since: Some(start) }),
                start_time: Some(start),
            }));
            usages.extend(used.map(|used| PodUsage {
                pod: name,
                timestamp: Some(self.now),
                window_nanos: 15_000_000_000,
                containers: Box::new([ContainerUsage { name: "app".into(), usage: amount(used) }]),
            }));
        }
        let settings = Settings::default();
        let hpa = Hpa {
            namespace: "shop",
            name: "web",
            generation: self.hpa.generation,
            spec: &self.hpa.spec,
            status: &self.hpa.status,
        };
        let scale = match &self.replicas {
            Ok(count) => Ok(Scale::new(*count, *count, "app=web", Version::default()).unwrap()),
            Err(message) => {
                Err(ScaleFailure { class: ScaleFailureClass::from_text(message), message: message.clone() })
            }
        };
        let plan = plan(&hpa, scale, |_| Overlap::None, &settings);
        let usages: Arc<[PodUsage]> = usages.into();
        let metrics = plan.queries().map(|_| Some(Ok(Answer::Resource(Arc::clone(&usages))))).collect();
        let answers = Answers { metrics, pods: &pods };
        let decision = decide(&hpa, &plan, &answers, &self.history, &settings, self.now);
        let outcome = match decision.verdict() {
            autoscaling::Verdict::Rescale { to, .. } => {
                if self.write == WriteOutcome::Done {
                    self.replicas = Ok(*to);
                }
                self.write.clone()
            }
            _ => WriteOutcome::NotNeeded,
        };
        let conclusion = conclude(&hpa, decision, &outcome, &settings, self.now);
        self.history.commit(&conclusion.changes);
        let (hpa, at) = (&self.hpa, self.now);
        self.record.concluded(&ConcludedSync {
            hpa,
            at,
            ended: at,
            set: SignedDuration::ZERO,
            answers: &answers,
            outcome: &outcome,
            conclusion: &conclusion,
            withholds_status: false,
            policy: self.policy.as_ref(),
            rules: None,
            sources: &[],
        });
        conclusion
    }

    fn decisions(&self) -> Vec<DecisionEntry> {
        self.record.decisions(&self.hpa.uid)
    }

    fn sentences(&self) -> Vec<String> {
        self.decisions().into_iter().map(|entry| entry.result.sentence).collect()
    }
}

fn spec(metrics: &Value, behavior: &Value) -> Arc<Spec> {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 10, "metrics": metrics, "behavior": behavior,
    });
    Arc::new(serde_json::from_value(spec).unwrap())
}

fn cpu(percent: i32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

#[test]
fn steady_syncs_are_one_entry_with_the_range_of_ratios() {
    let mut stage = Stage::new(40);
    for used in [50, 48, 52, 51] {
        stage.cpu(used);
        stage.sync();
    }
    let last = stage.sync();
    let [entry] = stage.decisions().try_into().unwrap();
    assert_eq!(entry.syncs, 5);
    assert_eq!(entry.last_at.duration_since(entry.first_at), SignedDuration::from_mins(1));
    assert_eq!(entry.result.sentence, last.explanation.sentence(stage.now));
    assert_eq!((entry.result.action, entry.result.outcome), (ActionTaken::None, Outcome::NotNeeded));
    assert_eq!(entry.result.limiting_step.as_deref(), Some("tolerance"));
    assert_eq!(entry.result.winner.as_deref(), Some("cpu"));
    assert_eq!((entry.result.from, entry.result.to, entry.generation), (Some(4), Some(4), Some(1)));
    assert_eq!(entry.explanation, last.explanation.condensed(LISTED_PODS));
    let [moved] = entry.ratios.try_into().unwrap();
    assert_eq!((moved.metric.as_str(), moved.lowest, moved.highest), ("cpu", 0.96, 1.04));
}

#[test]
fn every_change_is_an_entry_newest_first() {
    let mut stage = Stage::new(40);
    stage.sync();
    stage.cpu(80);
    stage.sync();
    stage.pods = vec![(Some(50), true); 7];
    stage.sync();
    stage.sync();
    stage.cpu(30);
    stage.sync();
    let decisions = stage.decisions();
    let entries: Vec<_> = decisions
        .iter()
        .map(|entry| (entry.result.from, entry.result.to, entry.result.limiting_step.as_deref(), entry.syncs))
        .collect();
    assert_eq!(
        entries,
        [
            (Some(7), Some(7), Some("scaleDownWindow"), 1),
            (Some(7), Some(7), Some("tolerance"), 2),
            (Some(4), Some(7), None, 1),
            (Some(4), Some(4), Some("tolerance"), 1),
        ]
    );
    for entry in &decisions {
        assert_eq!(entry.result.sentence, entry.explanation.sentence(entry.last_at));
    }
    let rescale = &decisions[2];
    assert_eq!((rescale.result.action, rescale.result.outcome), (ActionTaken::ScaleUp, Outcome::Done));
    assert_eq!(rescale.events, ["SuccessfulRescale"]);
    assert_eq!(rescale.ratios, []);
}

#[test]
fn floor_in_preview_above_the_count_is_an_entry() {
    let mut stage = Stage::new(40);
    for floor in [None, Some(3), Some(7), Some(9), Some(4)] {
        let forecast = json!({"applies": false, "state": "Pays", "floor": floor, "candidate": "", "reason": "",
            "band": null, "benefit": null});
        let forecast = Some(serde_json::from_value(forecast).unwrap());
        stage.policy = Some(PolicyEffect { applied: Some(4), forecast, ..PolicyEffect::default() });
        stage.sync();
    }
    let floors: Vec<_> = stage
        .decisions()
        .into_iter()
        .map(|entry| (entry.policy.and_then(|policy| policy.forecast?.floor), entry.syncs))
        .collect();
    assert_eq!(floors, [(Some(4), 1), (Some(9), 2), (Some(3), 2)]);
}

#[test]
fn done_write_is_never_merged_but_withheld_and_failed_ones_are() {
    let mut stage = Stage::new(40);
    stage.cpu(80);
    for _ in 0..3 {
        stage.replicas = Ok(4);
        stage.sync();
    }
    assert_eq!(stage.decisions().len(), 3);

    let mut stage = Stage::new(40);
    stage.cpu(80);
    for write in [WriteOutcome::Withheld, WriteOutcome::Failed("conflict".to_owned())] {
        stage.write = write;
        stage.sync();
        stage.sync();
    }
    let [failed, withheld] = stage.decisions().try_into().unwrap();
    assert_eq!(
        (failed.syncs, failed.result.outcome, failed.result.action),
        (2, Outcome::Failed, ActionTaken::None)
    );
    assert_eq!(failed.error.as_deref(), Some("conflict"));
    assert_eq!(failed.events, ["FailedRescale"]);
    assert_eq!(
        (withheld.syncs, withheld.result.outcome, withheld.result.action),
        (2, Outcome::Withheld, ActionTaken::ScaleUp)
    );
    assert_eq!(withheld.error, None);
}

#[test]
fn another_spec_is_a_change_without_an_effect() {
    let mut stage = Stage::new(40);
    stage.sync();
    stage.hpa.generation = Some(2);
    stage.sync();
    // The server sets no generation.
    stage.hpa.generation = None;
    stage.sync();
    stage.hpa.spec = spec(&json!([cpu(51)]), &Value::Null);
    stage.sync();
    stage.sync();
    let generations: Vec<_> = stage.decisions().iter().map(|entry| entry.generation).collect();
    assert_eq!(generations, [None, None, Some(2), Some(1)]);
}

#[test]
fn failed_metric_is_a_change_and_its_recovery_too() {
    let mut stage = Stage::new(40);
    stage.sync();
    let samples = std::mem::take(&mut stage.pods);
    stage.sync();
    stage.sync();
    stage.replicas = Err("not found".to_owned());
    stage.sync();
    stage.replicas = Ok(4);
    stage.pods = samples;
    stage.sync();
    let decisions = stage.decisions();
    let entries: Vec<_> =
        decisions.iter().map(|entry| (entry.result.limiting_step.as_deref(), entry.syncs)).collect();
    assert_eq!(
        entries,
        [(Some("tolerance"), 1), (Some("failure"), 1), (Some("failure"), 2), (Some("tolerance"), 1)]
    );
    assert_eq!((decisions[1].result.from, decisions[1].result.to), (None, None));
    assert!(decisions[1].result.sentence.ends_with("not found"), "{}", decisions[1].result.sentence);
    assert_eq!(
        (decisions[2].result.from, decisions[2].result.to, &decisions[2].result.winner),
        (Some(4), None, &None)
    );
    assert_eq!(decisions[2].events, ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]);
}

#[test]
fn every_step_round_trips_as_condensed() {
    let behavior = json!({
        "scaleUp": {"stabilizationWindowSeconds": 30, "selectPolicy": "Min", "tolerance": "0.05", "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]},
        "scaleDown": {"stabilizationWindowSeconds": 20, "selectPolicy": "Max", "policies": [
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ]},
    });
    let mut stage = Stage::new(1000);
    for behavior in [Value::Null, behavior] {
        stage.hpa.spec = spec(&json!([cpu(50), cpu(70)]), &behavior);
        for used in [50, 80, 95, 10, 0, 55] {
            for odd in [(None, true), (Some(20), false), (None, false)] {
                stage.pods = vec![(Some(used), true); 6];
                stage.pods.extend([odd; LISTED_PODS + 1]);
                stage.pods.extend([(Some(used), true); 2]);
                for _ in 0..3 {
                    let conclusion = stage.sync();
                    let kept = stage.decisions().swap_remove(0).explanation;
                    let expected = conclusion.explanation.condensed(LISTED_PODS);
                    assert_eq!(kept, expected);
                }
            }
        }
    }
    assert!(stage.decisions().len() > 20, "{:#?}", stage.sentences());
}

#[test]
fn oldest_entry_is_dropped_beyond_the_capacity() {
    let mut stage = Stage::new(3);
    for generation in 1..=5 {
        stage.hpa.generation = Some(generation);
        stage.sync();
        stage.sync();
    }
    let kept: Vec<_> = stage.decisions().iter().map(|entry| (entry.generation, entry.syncs)).collect();
    assert_eq!(kept, [(Some(5), 2), (Some(4), 2), (Some(3), 2)]);
}

/// Returns resource metrics. Those in `valid` have the name `cpu` and samples. All others have names of 200 bytes.
fn many_resources(count: usize, valid: &[usize]) -> Value {
    let name = |index| if valid.contains(&index) { "cpu".to_owned() } else { format!("{index:0>200}") };
    let metric = |index| {
        json!({"type": "Resource", "resource": {
            "name": name(index), "target": {"type": "Utilization", "averageUtilization": 50 + index % 7},
        }})
    };
    (0..count).map(metric).collect()
}

#[test]
fn metrics_beyond_the_size_of_an_entry_are_counted() {
    let mut stage = Stage::new(40);
    stage.hpa.spec = spec(&many_resources(1000, &[500, 999]), &Value::Null);
    stage.cpu(90);
    let decided = stage.sync().explanation;
    assert_eq!((decided.metrics.len(), decided.failed_count(), decided.unlisted), (1000, 998, None));
    let bytes = stage.record.bytes(&stage.hpa.uid);
    assert!((32 << 10..64 << 10).contains(&bytes), "{bytes}");

    let [entry] = stage.decisions().try_into().unwrap();
    let kept = entry.explanation;
    assert_eq!((kept.metric_count(), kept.failed_count()), (1000, 998));
    assert_eq!(kept.unlisted.unwrap().valid, 0);
    assert_eq!(kept.winning_metric(), decided.condensed(LISTED_PODS).winning_metric());
    assert_eq!(entry.result.sentence, decided.sentence(stage.now));
    assert_eq!(entry.events.len(), 101);
}

#[test]
fn ratios_belong_to_the_metrics_of_the_entry() {
    let mut stage = Stage::new(40);
    stage.hpa.spec = spec(&(0..1000).map(|index| cpu(50 + index % 3)).collect(), &Value::Null);
    for used in [50, 49, 51] {
        stage.cpu(used);
        stage.sync();
    }
    let [entry] = stage.decisions().try_into().unwrap();
    assert_eq!(entry.syncs, 3);
    let (kept, unlisted) = (entry.explanation.metrics.len(), entry.explanation.unlisted.unwrap());
    assert!(kept > 100 && entry.ratios.len() == kept, "{kept}");
    assert_eq!(usize::try_from(unlisted.valid).unwrap() + kept, 1000);
    for (metric, ratio) in entry.explanation.metrics.iter().zip(&entry.ratios) {
        let last = metric.reading().unwrap().ratio;
        assert!(ratio.lowest < last && (last - ratio.highest).abs() < 1e-9, "{ratio:?} {last}");
    }
    let bytes = stage.record.bytes(&stage.hpa.uid);
    assert!(bytes < 64 << 10, "{bytes}");
}

#[test]
fn oldest_entries_are_dropped_beyond_the_size_of_a_record() {
    let mut stage = Stage::new(1000);
    stage.hpa.spec = spec(&many_resources(400, &[]), &Value::Null);
    for generation in 1..=40 {
        stage.hpa.generation = Some(generation);
        stage.sync();
        let bytes = stage.record.bytes(&stage.hpa.uid);
        assert!(bytes <= 512 << 10, "{bytes}");
    }
    let kept: Vec<_> = stage.decisions().iter().filter_map(|entry| entry.generation).collect();
    assert!(kept.len() >= 8 && kept[0] == 40, "{kept:?}");
    let json = serde_json::to_vec(&stage.decisions()).unwrap();
    assert!(json.len() < 4 << 20, "{} bytes", json.len());
}

#[test]
fn policies_that_determine_the_count_are_kept() {
    let slow = json!({"type": "Pods", "value": 1, "periodSeconds": 1800});
    let fast = json!({"type": "Pods", "value": 3, "periodSeconds": 60});
    let mut policies = vec![slow; 20_000];
    policies.push(fast);
    let mut stage = Stage::new(40);
    stage.hpa.spec = spec(&json!([cpu(50)]), &json!({"scaleUp": {"policies": policies}}));
    stage.cpu(100);
    let decided = stage.sync().explanation;
    let bytes = stage.record.bytes(&stage.hpa.uid);
    assert!(bytes < 8 << 10, "{bytes}");
    let [entry] = stage.decisions().try_into().unwrap();
    let step = entry.explanation.limit.unwrap();
    assert_eq!((step.after, step.policies.len()), (7, 100));
    assert_eq!(step.policies[0].allows, 7);
    assert_eq!(entry.result.sentence, decided.sentence(stage.now));
}

#[test]
fn deleted_hpa_is_dropped_and_recreated_one_starts_empty() {
    let mut stage = Stage::new(40);
    stage.sync();
    stage.hpa.uid = "uid-2".into();
    stage.sync();
    assert_eq!((stage.record.len(), stage.decisions().len()), (2, 1));
    stage.record.forgotten(&stage.hpa.key, "uid-1");
    assert!(stage.record.decisions("uid-1").is_empty() && stage.record.last("uid-1").is_none());
    assert_eq!(stage.decisions().len(), 1);
    stage.record.forgotten(&stage.hpa.key, "uid-2");
    assert!(stage.record.is_empty());
}

#[test]
fn json_round_trips() {
    let mut stage = Stage::new(40);
    for used in [50, 80, 10, 0] {
        stage.cpu(used);
        stage.sync();
    }
    let decisions = stage.decisions();
    let json = serde_json::to_string(&decisions).unwrap();
    assert_eq!(serde_json::from_str::<Vec<DecisionEntry>>(&json).unwrap(), decisions);
}

#[test]
fn documented_example_is_a_decision_list() {
    let example = include_str!("../../../../docs/reference/decisions.json");
    let list: DecisionList = serde_json::from_str(example).unwrap();
    let written: Value = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(&list).unwrap(), written);
    let entry = &list.decisions[0];
    assert_eq!(entry.explanation.sentence(entry.last_at), entry.result.sentence);
    assert_eq!(
        entry.explanation.limiting_step().map(LimitingStep::as_str),
        entry.result.limiting_step.as_deref()
    );
}

fn round_trip(text: &str) -> String {
    let bytes = append(&Text::from(text), Vec::new());
    take::<Text<'_>>(&bytes).unwrap().0.into()
}

#[test]
fn long_text_is_cut_between_two_characters() {
    let text = format!("x{}", "ü".repeat(1000));
    assert_eq!(round_trip(&text).strip_suffix('…').unwrap(), &text[..1023]);
    let text = "x".repeat(1024);
    assert_eq!(round_trip(&text), text);
}

#[test]
fn usual_texts_are_short() {
    for text in
        ["Resource", "ContainerResource", "cpu", "cpu resource utilization (percentage of request)", ""]
    {
        let bytes = append(&Text::from(text), Vec::new());
        assert!(bytes.len() <= 11, "{text}: {}", bytes.len());
        assert_eq!(round_trip(text), text);
    }
}

#[test]
fn invalid_text_is_refused() {
    for bytes in [&[12, 0][..], &[0, 9, b'x'], &[0, 1, 0xff]] {
        assert!(take::<Text<'_>>(bytes).is_err());
    }
}
