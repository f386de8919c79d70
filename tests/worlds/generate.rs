//! Generates worlds from seeds. Consecutive seeds run through all themes.

use serde_json::{Value, json};

use crate::draft::{Draft, KINDS, Pod, Source, Target};
use crate::plan::{Plan, Step};
use crate::rng::Rng;
use crate::themes::{THEMES, Theme};

/// Loads in percent. None is close to a tolerance.
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

/// Rules that do not depend on the duration of a run: windows and periods are far longer, or zero.
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
        // Without policies, the API server sets some with a period of 15 s.
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
