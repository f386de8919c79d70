//! The plan of a world: requests, metrics and faults, step by step. A plan is a pure value. Consecutive seeds cover all
//! themes in turn.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::draft::{Draft, KINDS, Pod, Source, Target};
use crate::rng::Rng;
use crate::themes::{THEMES, Theme};

/// A namespace with HPAs and everything they read.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) theme: &'static str,
    pub(crate) namespace: String,
    /// The HPAs, each with the path of its target's Scale.
    pub(crate) hpas: Vec<PlannedHpa>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedHpa {
    pub(crate) name: String,
    /// The path of the Scale that each sync reads first. `None` if the reference to the target is invalid, so that a
    /// sync sends no such request.
    pub(crate) scale: Option<String>,
    /// The properties of the HPA that an intended difference depends on.
    pub(crate) traits: Vec<Trait>,
}

/// A property of an HPA that an intended difference depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    /// A pod of the target is in the phase Succeeded.
    SucceededPods,
    /// A value, a sum or a target exceeds 2^63 milli-units.
    Overflow,
    /// The HPA is deleted and created again under its name, and its rules depend on the history.
    Recreated,
    /// The API server processes a write, and its response is lost.
    LostResponse,
}

/// The inputs of the next syncs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// Changes of HPAs, sent while the HPA is between two syncs.
    pub(crate) hpa_changes: Vec<Call>,
    /// Changes of pods and targets.
    pub(crate) changes: Vec<Call>,
    pub(crate) readings: Readings,
    pub(crate) faults: Vec<Fault>,
    /// Number of syncs of each HPA that exists after the changes.
    pub(crate) syncs: u32,
    /// Indices of HPAs that do not exist during the step.
    pub(crate) absent: Vec<usize>,
}

/// A request to the API server. Texts of the form `@-60` stand for the time 60 s before the request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The responses of the metrics APIs in one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub(crate) usage: Vec<PodUsage>,
    /// The metrics of pods, by name of the metric. Each entry has the pod, its application, and the value.
    pub(crate) pods: BTreeMap<String, Vec<(String, String, String)>>,
    /// The metrics of objects, by path below the namespace.
    pub(crate) objects: BTreeMap<String, String>,
    /// The values of external metrics, by name.
    pub(crate) external: BTreeMap<String, Vec<String>>,
    /// The responses that replace all responses of an API group.
    pub(crate) failures: BTreeMap<&'static str, Answer>,
}

#[derive(Clone, Debug)]
pub(crate) struct PodUsage {
    pub(crate) pod: String,
    pub(crate) app: String,
    /// Age of the measurement in seconds.
    pub(crate) age: i64,
    /// For each container, its name and the quantity of each resource.
    pub(crate) containers: Vec<(String, Vec<(&'static str, String)>)>,
}

/// A fault between the controller and the API server. It affects the next `times` requests of its class.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    pub(crate) times: u32,
    pub(crate) action: Action,
}

/// Classes of requests within a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    ScaleGet,
    ScalePut,
    StatusPut,
    /// POST and PATCH.
    Event,
    Metrics,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Answers without the API server.
    Answer(Answer),
    /// Closes the connection before the API server receives the request.
    CutBefore,
    /// Closes the connection after the API server has processed the request.
    CutAfter,
    /// Closes the connection within the body of the response.
    CutWithin,
    /// Changes the object before the request arrives.
    Interfere,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<u32>,
    pub(crate) media: &'static str,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn text(code: u16, body: &str) -> Self {
        Self { code, retry_after: None, media: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    /// A `metav1.Status`.
    pub(crate) fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Self { code, retry_after: None, media: "application/json", body: body.to_string() }
    }

    pub(crate) fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

/// Loads in percent of the target. No load is close to a limit of the default tolerance, 90 % or 110 %.
const LOADS: [i64; 9] = [0, 20, 60, 100, 103, 140, 200, 350, 1000];
const STEPS: usize = 5;

pub(crate) fn generate(seed: u64) -> Plan {
    let number = usize::try_from(seed).unwrap_or_default() % THEMES.len();
    let Theme { name, prepare, alter } = THEMES[number];
    let mut dice = Rng::for_purpose(seed, 1);
    let kind = dice.pick(&KINDS);
    let replicas = dice.between(1, 6).cast_signed();
    let mut draft = Draft {
        namespace: format!("w{seed}-{name}"),
        target: Target { kind, name: "web".to_owned(), replicas },
        hpas: Vec::new(),
        pods: Vec::new(),
        sources: sources(&mut dice),
        steps: Vec::new(),
        next: Step::default(),
        dice,
    };
    prepare(&mut draft);
    let target = draft.target.clone();
    draft.create_target(&target, "web");
    while draft.pods.len() < usize::try_from(target.replicas).unwrap_or(0).min(6) {
        let pod = pod(&mut draft, "web");
        draft.create_pod(pod);
    }
    if draft.hpas.is_empty() {
        let spec = spec(&mut draft);
        draft.add_hpa("web", spec);
    }
    alter(&mut draft, 0);
    let first = loads(&mut draft);
    draft.step(&first);
    for number in 1..STEPS {
        churn(&mut draft);
        alter(&mut draft, number);
        let next = loads(&mut draft);
        draft.step(&next);
    }
    draft.plan(seed, name)
}

fn loads(draft: &mut Draft) -> Vec<i64> {
    (0..draft.sources.len()).map(|_| draft.dice.pick(&LOADS)).collect()
}

fn sources(dice: &mut Rng) -> Vec<Source> {
    let mut sources = vec![source(dice)];
    for _ in 0..dice.pick(&[0, 0, 1, 2]) {
        sources.push(source(dice));
    }
    sources
}

fn source(dice: &mut Rng) -> Source {
    let average = dice.percent(50);
    match dice.below(7) {
        0 | 1 => Source::Cpu { utilization: average },
        2 => Source::Memory,
        3 => Source::Container,
        4 => Source::Pods("requests".to_owned()),
        5 => Source::Object { name: "main".to_owned(), metric: "hits".to_owned(), average },
        _ => Source::External { metric: "queue".to_owned(), average },
    }
}

/// The spec of an HPA with the sources of the world.
pub(crate) fn spec(draft: &mut Draft) -> Value {
    let metrics: Vec<_> = draft.sources.iter().map(Source::spec).collect();
    let mut spec = json!({"maxReplicas": draft.dice.between(4, 20), "metrics": metrics});
    if draft.dice.percent(60) {
        spec["minReplicas"] = json!(draft.dice.between(1, 3));
    }
    if draft.dice.percent(60) {
        spec["behavior"] = behavior(&mut draft.dice);
    }
    spec
}

/// Rules whose results do not depend on the duration of a run. A window or period is zero or much longer than a run.
pub(crate) fn behavior(dice: &mut Rng) -> Value {
    let mut rules = || {
        let mut rules = json!({"stabilizationWindowSeconds": if dice.percent(70) { 0 } else { 3000 }});
        let policies: Vec<_> = (0..dice.between(1, 2))
            .map(|_| {
                let pods = dice.percent(50);
                let value = if pods { dice.pick(&[1, 2, 5, 1000]) } else { dice.pick(&[10, 50, 100, 5000]) };
                let kind = if pods { "Pods" } else { "Percent" };
                json!({"type": kind, "value": value, "periodSeconds": 1800})
            })
            .collect();
        // Without policies, the API server sets default policies with a period of 15 s.
        rules["policies"] = json!(policies);
        rules["selectPolicy"] = json!(dice.pick(&["Max", "Max", "Max", "Min", "Disabled"]));
        if dice.percent(20) {
            rules["tolerance"] = json!(dice.pick(&["0", "0.01", "500m", "1"]));
        }
        rules
    };
    json!({"scaleUp": rules(), "scaleDown": rules()})
}

/// A pod that is ready in most cases.
pub(crate) fn pod(draft: &mut Draft, app: &str) -> Pod {
    let number = draft.dice.below(1_000_000);
    let dice = &mut draft.dice;
    Pod {
        name: format!("{app}-{number}"),
        app: app.to_owned(),
        phase: "Running",
        ready: if dice.percent(90) { "True" } else { "False" },
        age: dice.pick(&[120, 3600, 3600]),
        requests: ("100m", "64Mi"),
        deleted: false,
        measured: dice.percent(92),
        measured_before: dice.pick(&[0, 0, 0, 1000]),
    }
}

/// Changes pods and counts as a workload controller or a user does.
fn churn(draft: &mut Draft) {
    let target = draft.target.clone();
    if draft.dice.percent(40) && draft.pods.len() < 8 {
        let pod = pod(draft, "web");
        draft.create_pod(pod);
    }
    if draft.dice.percent(20) && draft.pods.len() > 1 {
        let index = draft.dice.index(draft.pods.len());
        draft.delete_pod(index);
    }
    if draft.dice.percent(30) {
        let replicas = draft.dice.between(1, 8).cast_signed();
        draft.target_status(&target, replicas, "app=web");
    }
    if draft.dice.percent(15) {
        let replicas = draft.dice.between(1, 25).cast_signed();
        draft.scale_target(&target, replicas);
    }
}
