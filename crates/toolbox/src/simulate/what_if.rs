//! Runs the recent past of an HPA with its fields as they are and with others.
//!
//! The scenario is that of `simulate --from-cluster`. Its load follows the recorded values of the HPA's metrics where
//! they are known, and is constant otherwise. The run with the fields as they are shows how well the scenario agrees
//! with what happened.

use std::thread;
use std::time::Duration;

use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::from_cluster::{self, ClusterObjects, FromClusterError};
use super::past::Past;
use super::run::{HpaRun, Run, Scores};
use super::runner::{self, Progress, RunError, RunOutput};
use super::scenario::{Node, Problem, Scenario};
use super::table::SCORES;
use super::text;
use super::timeline::{self, Drawing};
use crate::pointer;
use crate::process::Process;
use cluster::client::Clients;

/// The shortest past that is played.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// The longest time that is played.
pub(crate) const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// The objects of a cluster that the scenario needs.
#[derive(Debug, Clone)]
pub(crate) struct Objects(ClusterObjects);

/// The question what an HPA would have done.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) objects: Objects,
    pub(crate) past: Past,
    /// The time to play, which ends at the end of the past.
    pub(crate) length: SignedDuration,
    /// The HPA with other fields.
    pub(crate) changed: Value,
    /// Flags of the controller, with values as on a command line.
    pub(crate) flags: Vec<(&'static str, String)>,
    pub(crate) process: Process,
}

/// What would have happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The difference in one sentence, without a full stop.
    pub(crate) sentence: String,
    pub(crate) drawing: Drawing,
    /// The headings of the scores, each with its meaning.
    pub(crate) heads: Vec<(&'static str, &'static str)>,
    /// The scores of each run. A score of what happened may be unknown.
    pub(crate) rows: Vec<ScoreRow>,
    /// What the scenario assumes.
    pub(crate) notes: Vec<String>,
}

/// The scores of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ScoreRow {
    pub(crate) name: String,
    pub(crate) cells: Vec<Option<String>>,
}

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlayError {
    /// The scenario is invalid.
    #[error("the scenario of the HPA cannot be built: {0}")]
    Scenario(#[from] Problem),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Objects {
    /// Reads the objects of an HPA.
    pub(crate) async fn read(
        clients: &Clients,
        namespace: &str,
        name: &str,
    ) -> Result<Self, FromClusterError> {
        from_cluster::read_objects(clients, namespace, name).await.map(Self)
    }

    /// The HPA as read.
    pub(crate) fn hpa(&self) -> &Value {
        &self.0.hpa
    }
}

/// Plays the past with both sets of fields. `stop` ends the runs.
pub(crate) fn play(question: &Question, stop: &CancellationToken) -> Result<Answer, PlayError> {
    let Plan { document, changed, start, length, mut notes, is_past } = Plan::new(question);
    let scenario = |document: &Node, name| Scenario::read(document, name, None, question.process);
    let scenarios = [scenario(&document, "as it is")?, scenario(&changed, "with these fields")?];
    notes.extend(scenarios.iter().flat_map(|scenario| scenario.notes.values().cloned()));
    notes.sort();
    notes.dedup();
    let mut runs: Vec<Run> = run_all(&scenarios, stop)?.into_iter().map(|output| output.run).collect();
    if is_past {
        let mut happened = question.past.run(length).run;
        // Both start at the same second.
        happened.start = start;
        runs.insert(0, happened);
    }
    let group: Vec<(&Run, &HpaRun)> = runs.iter().filter_map(|run| Some((run, run.hpas.first()?))).collect();
    let row = |(index, (run, hpa)): (usize, &(&Run, &HpaRun))| ScoreRow {
        name: run.variant.clone(),
        cells: SCORES
            .iter()
            // The cluster does not show which work was lost.
            .map(|score| {
                let is_known = !(is_past && index == 0 && score.title == "unserved");
                is_known.then(|| (score.text)(&hpa.scores, run))
            })
            .collect(),
    };
    let rows = group.iter().enumerate().map(row).collect();
    let sentence = match group.as_slice() {
        [.., (_, before), (run, after)] => difference(&before.scores, &after.scores, run),
        _ => String::new(),
    };
    let heads = SCORES.iter().map(|score| (score.title, score.meaning)).collect();
    Ok(Answer { sentence, drawing: timeline::compare(&runs), heads, rows, notes })
}

/// The difference between two runs: the costs first, then the harm.
fn difference(before: &Scores, after: &Scores, run: &Run) -> String {
    let pods = |scores: &Scores| text::short((scores.pod_hours * 10.0).round() / 10.0);
    let score = |title: &str, scores: &Scores| {
        let score = SCORES.iter().find(|score| score.title == title);
        score.map(|score| (score.text)(scores, run)).unwrap_or_default()
    };
    let instead = |now: String, then: &str| {
        if now == then { format!("{now} as before") } else { format!("{now} instead of {then}") }
    };
    format!(
        "pod-hours {}, unserved {}, rescales {}, above target {}",
        instead(pods(after), &pods(before)),
        instead(score("unserved", after), &score("unserved", before)),
        instead(after.rescales.to_string(), &before.rescales.to_string()),
        instead(text::span(after.above_target), &text::span(before.above_target)),
    )
}

/// The scenarios and what they assume.
struct Plan {
    document: Node,
    changed: Node,
    start: Timestamp,
    length: SignedDuration,
    notes: Vec<String>,
    /// Whether the load follows the past.
    is_past: bool,
}

impl Plan {
    fn new(question: &Question) -> Self {
        let Question { objects: Objects(objects), past, changed, flags, .. } = question;
        let known = past.to.duration_since(past.since());
        let asked = question.length.clamp(SHORTEST, LONGEST);
        let mut notes = objects.policies.notes.clone();
        let mut is_past = known >= SHORTEST;
        let length = if is_past { asked.min(known) } else { asked };
        let start = past.to.checked_sub(length).unwrap_or(past.to);
        let start = Timestamp::from_second(start.as_second()).unwrap_or(start);
        let mut document = from_cluster::scenario(objects, past.to);
        let plain = document.json();
        if is_past {
            let loads = Loads { past, start, plain: &plain };
            let (followed, loads) = loads.read();
            is_past = followed.is_some();
            if let Some(metrics) = followed {
                put(&mut document, "load", &loads);
                notes.push(format!(
                    "The load follows the recorded values of {metrics}; between two records it changes evenly. A value \
                     that the pods limit, such as cpu at its limit, hides the load beyond it."
                ));
            }
        }
        if !is_past {
            notes.push(
                "The load is constant, as in simulate --from-cluster: no values of the past are known."
                    .to_owned(),
            );
        } else if known < asked {
            let covered = Duration::try_from(known).unwrap_or_default();
            notes.push(format!("The known past covers {} only.", text::span(covered)));
        }
        if is_past && let Some(mut workload) = plain.pointer("/workloads/0").cloned() {
            if let Some(fields) = workload.as_object_mut() {
                fields.insert("replicas".to_owned(), json!(past.wanted(start).max(0)));
            }
            put(&mut document, "workloads", &json!([workload]));
        }
        put(&mut document, "start", &json!(start.to_string()));
        put(&mut document, "duration", &json!(format!("{}s", length.as_secs())));
        let flags: serde_json::Map<_, _> =
            flags.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        put(&mut document, "flags", &Value::Object(flags));
        // The capacity of a pod depends on the target as it is, so only the HPA is replaced.
        let other = ClusterObjects { hpa: changed.clone(), ..objects.clone() };
        let mut with_changes = document.clone();
        if let Some(hpas) = from_cluster::scenario(&other, past.to).get("hpas") {
            with_changes.put("hpas", hpas.clone());
        }
        Self { document, changed: with_changes, start, length, notes, is_past }
    }
}

fn put(document: &mut Node, name: &str, value: &Value) {
    document.put(name, Node::from_json(&"the scenario from the cluster".into(), value));
}

/// The loads of a scenario, with curves of the past.
struct Loads<'a> {
    past: &'a Past,
    start: Timestamp,
    /// The scenario with constant loads.
    plain: &'a Value,
}

impl Loads<'_> {
    /// The loads, and the metrics that they follow. `None` if they are all constant.
    fn read(&self) -> (Option<String>, Value) {
        let mut followed = Vec::new();
        let mut loads: Vec<Value> = pointer::list(self.plain, "/load").to_vec();
        if loads.is_empty() && self.cpu().is_some() {
            // The usage of the pods cannot be read, but the HPA has shown it.
            loads.push(json!({"cpu": "0"}));
        }
        for load in &mut loads {
            let is_cpu = load.get("cpu").is_some();
            let name = pointer::text(load, "/metrics/0/name").to_owned();
            let found = if is_cpu { self.cpu() } else { self.custom(&name) };
            let Some((index, factor)) = found else { continue };
            let Some(points) = self.points(index, factor) else { continue };
            if let Some(fields) = load.as_object_mut() {
                fields.insert(if is_cpu { "cpu" } else { "demand" }.to_owned(), json!({ "points": points }));
            }
            if let Some(metric) = self.past.spec.metrics.get(index) {
                followed.push(metric.subject().to_string());
            }
        }
        let names: Vec<&str> = followed.iter().map(String::as_str).collect();
        ((!names.is_empty()).then(|| crate::words::listed(&names, 3)), Value::Array(loads))
    }

    /// The index of the first metric of cpu, and the cores of one unit of its total.
    fn cpu(&self) -> Option<(usize, f64)> {
        let containers = pointer::list(self.plain, "/workloads/0/containers");
        let request = |only: Option<&str>| {
            let requests = containers
                .iter()
                .filter(|container| only.is_none_or(|name| pointer::text(container, "/name") == name))
                .filter_map(|container| pointer::quantity(pointer::at(container, "/requests/cpu")));
            Some(requests.sum::<f64>()).filter(|cores| *cores > 0.0)
        };
        let cores = |target: &ResourceTarget, only: Option<&str>| match target {
            ResourceTarget::Utilization(_) => request(only).map(|cores| cores / 100.0),
            ResourceTarget::AverageValue(_) => Some(1.0),
        };
        self.past.spec.metrics.iter().enumerate().find_map(|(index, metric)| match metric {
            MetricSource::Resource { resource, target } if &**resource == "cpu" => {
                Some((index, cores(target, None)?))
            }
            MetricSource::ContainerResource { resource, container, target } if &**resource == "cpu" => {
                Some((index, cores(target, Some(&**container))?))
            }
            _ => None,
        })
    }

    fn custom(&self, name: &str) -> Option<(usize, f64)> {
        let has_name = |metric: &MetricSource| match metric {
            MetricSource::Pods { metric, .. }
            | MetricSource::Object { metric, .. }
            | MetricSource::External { metric, .. } => &*metric.name == name,
            _ => false,
        };
        self.past.spec.metrics.iter().position(has_name).map(|index| (index, 1.0))
    }

    /// The curve of a metric's total. `None` without two values.
    fn points(&self, index: usize, factor: f64) -> Option<Vec<Value>> {
        let totals = self.past.totals(index);
        let before = totals.iter().rev().find(|(at, _)| *at <= self.start).map(|(_, total)| (0, *total));
        let later = totals.iter().filter(|(at, _)| *at > self.start);
        let later = later.map(|(at, total)| (at.duration_since(self.start).as_secs(), *total));
        let mut points: Vec<(i64, f64)> = before.into_iter().chain(later).collect();
        points.dedup_by_key(|(second, _)| *second);
        let rounded = |total: f64| (total * factor * 1e6).round() / 1e6;
        let points = points
            .iter()
            .map(|(second, total)| json!({"at": format!("{second}s"), "value": rounded(*total)}));
        let points: Vec<_> = points.collect();
        (points.len() >= 2).then_some(points)
    }
}

/// Stops runs.
struct Stop<'a>(&'a CancellationToken);

impl Progress for Stop<'_> {
    fn advance(&self, _: Duration, _: Duration) {}

    fn is_stopped(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Runs the scenarios at once, each in its thread.
fn run_all(scenarios: &[Scenario; 2], stop: &CancellationToken) -> Result<Vec<RunOutput>, RunError> {
    let [first, second] = scenarios;
    thread::scope(|scope| {
        let one = scope.spawn(|| runner::run_scenario(first, &Stop(stop)));
        let other = runner::run_scenario(second, &Stop(stop));
        let one = one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(vec![one?, other?])
    })
}

#[cfg(test)]
mod tests;
