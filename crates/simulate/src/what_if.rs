//! Simulates the recent past of an HPA with its current fields and with changed fields.
//!
//! The scenario is that of `simulate --from-cluster`, except for the load. The load follows the known values of the
//! HPA's metrics, from Prometheus, the controller's record or the watch. Without such values, the load is constant. The
//! run with the current fields shows how well the scenario matches the actual past.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::from_cluster::measure::Loads;
pub use super::from_cluster::measure::{MetricLoad, PastError, SourceLoads};
use super::from_cluster::{self, ClusterObjects, FromClusterError};
use super::page::{self, Drawing};
use super::past::Past;
use super::run::{HpaRun, Run, Scores};
use super::runner::{self, Progress, RunError};
use super::scenario::{CLUSTER, Node, Problem, Scenario};
use super::table::SCORES;
use cluster::client::Clients;
use sources::TimeRange;
use terminal::words;

/// The minimum length of a simulated run, and of the known past for a load that follows the past.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// The maximum length of a simulated run.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// The objects of a cluster from which the scenario is built.
#[derive(Debug, Clone)]
pub struct Objects(ClusterObjects);

/// The changes of an HPA to simulate, and the inputs of the simulation.
#[derive(Debug, Clone)]
pub struct Question {
    /// The objects of the cluster.
    pub objects: Objects,
    /// The past of the HPA.
    pub past: Past,
    /// The requested length of the run. The run ends at the end of the past.
    pub length: SignedDuration,
    /// The past values of metrics, from Prometheus.
    pub sources: SourceLoads,
    /// The HPA with changed fields.
    pub changed: Value,
    /// The flags of the controller, each with its name, without dashes, and its value.
    pub flags: Vec<(&'static str, String)>,
}

/// The result of the simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The differences between the simulated runs in one sentence, without a full stop.
    pub sentence: String,
    /// The charts of the runs.
    pub drawing: Drawing,
    /// The headings of the scores, each with its meaning.
    pub heads: Vec<(&'static str, &'static str)>,
    /// The scores of each run: of the actual past if the load follows the past, and of both simulated runs.
    pub rows: Vec<ScoreRow>,
    /// The origin of each metric's load, in the order of the spec.
    pub loads: Vec<MetricLoad>,
    /// The assumptions of the scenario.
    pub notes: Vec<String>,
}

/// The scores of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreRow {
    /// The name of the run.
    pub name: String,
    /// The formatted scores, one per heading. `None` for an unknown score.
    pub cells: Vec<Option<String>>,
}

/// The reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The scenario is invalid.
    #[error("the scenario of the HPA cannot be built: {0}")]
    Scenario(#[from] Problem),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Objects {
    /// Reads the objects of an HPA from a cluster.
    ///
    /// # Errors
    /// Returns a [`FromClusterError`] if an object cannot be read.
    pub async fn read(clients: &Clients, namespace: &str, name: &str) -> Result<Self, FromClusterError> {
        from_cluster::read_objects(clients, namespace, name).await.map(Self)
    }

    /// Returns the HPA as it was read from the cluster.
    pub fn hpa(&self) -> &Value {
        &self.0.hpa
    }
}

/// Simulates the past with the current and with the changed fields. `stop` cancels the runs.
pub fn play(question: &Question, stop: &CancellationToken) -> Result<Answer, PlayError> {
    let Plan { document, changed, start, length, mut notes, origins, is_past } = Plan::new(question);
    let scenario = |document: &Node, name| Scenario::read(document, name, None);
    let scenarios = [scenario(&document, "as it is")?, scenario(&changed, "with these fields")?];
    notes.extend(scenarios.iter().flat_map(|scenario| scenario.notes.values().cloned()));
    notes.sort();
    notes.dedup();
    let outputs = runner::run_all(&scenarios, || Stop(stop))?;
    let mut runs: Vec<Run> = outputs.into_iter().map(|output| output.run).collect();
    if is_past {
        let mut happened = question.past.run(length).run;
        // The actual past and the simulated runs start at the same second.
        happened.start = start;
        runs.insert(0, happened);
    }
    let group: Vec<(&Run, &HpaRun)> = runs.iter().filter_map(|run| Some((run, run.hpas.first()?))).collect();
    let row = |(index, (run, hpa)): (usize, &(&Run, &HpaRun))| {
        let cells = SCORES.iter().map(|score| {
            // The amount of lost work in the cluster is unknown.
            let is_known = !(is_past && index == 0 && score.title == "unserved");
            is_known.then(|| (score.text)(&hpa.scores, run))
        });
        ScoreRow { name: run.variant.clone(), cells: cells.collect() }
    };
    let rows = group.iter().enumerate().map(row).collect();
    let sentence = match group.as_slice() {
        [.., (_, before), (run, after)] => difference(&before.scores, &after.scores, run),
        _ => String::new(),
    };
    let heads = SCORES.iter().map(|score| (score.title, score.meaning)).collect();
    Ok(Answer { sentence, drawing: page::compare(&runs), heads, rows, loads: origins, notes })
}

/// Describes the difference between two runs in four of their scores.
fn difference(before: &Scores, after: &Scores, run: &Run) -> String {
    let pods = |scores: &Scores| words::short((scores.pod_hours * 10.0).round() / 10.0);
    let score = |title: &str, scores: &Scores| {
        let score = SCORES.iter().find(|score| score.title == title);
        score.map(|score| (score.text)(scores, run)).unwrap_or_default()
    };
    let instead = |now: String, then: &str| {
        if now == then { format!("{now} as before") } else { format!("{now} instead of {then}") }
    };
    format!(
        "pod-hours {}, unserved {}, rescales {}, above tolerance {}",
        instead(pods(after), &pods(before)),
        instead(score("unserved", after), &score("unserved", before)),
        instead(after.rescales.to_string(), &before.rescales.to_string()),
        instead(words::span(after.above_target), &words::span(before.above_target)),
    )
}

/// The time range of the simulated runs.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: Timestamp,
    length: SignedDuration,
    /// The length of the known past.
    known: SignedDuration,
    /// The requested length, limited to the range from [`SHORTEST`] to [`LONGEST`].
    asked: SignedDuration,
    /// Whether the known past has at least the length [`SHORTEST`].
    is_known: bool,
}

impl Span {
    fn new(past: &Past, length: SignedDuration) -> Self {
        let known = past.to.duration_since(past.since());
        let asked = length.clamp(SHORTEST, LONGEST);
        let is_known = known >= SHORTEST;
        let length = if is_known { asked.min(known) } else { asked };
        let start = past.to.checked_sub(length).unwrap_or(past.to);
        let start = Timestamp::from_second(start.as_second()).unwrap_or(start);
        Self { start, length, known, asked, is_known }
    }
}

/// Returns the time range of a run of `length`. `None` if the known past is shorter than `SHORTEST`.
pub fn range(past: &Past, length: SignedDuration) -> Option<TimeRange> {
    let span = Span::new(past, length);
    span.is_known.then_some(TimeRange { start: span.start, end: past.to })
}

/// The scenarios of a question, and their assumptions.
struct Plan {
    /// The scenario with the current fields of the HPA.
    document: Node,
    /// The scenario with the changed fields.
    changed: Node,
    start: Timestamp,
    length: SignedDuration,
    notes: Vec<String>,
    /// The origin of each metric's load.
    origins: Vec<MetricLoad>,
    /// Whether the load follows the past.
    is_past: bool,
}

impl Plan {
    fn new(question: &Question) -> Self {
        let Question { objects: Objects(objects), past, changed, flags, sources, .. } = question;
        let Span { start, length, known, asked, is_known } = Span::new(past, question.length);
        let mut notes = objects.policies.notes.clone();
        let mut document = from_cluster::scenario(objects, past.to);
        let plain = document.json();
        let loads = Loads { past, sources, start, plain: &plain, is_known };
        let (origins, loads) = loads.read();
        let followed: Vec<&str> =
            origins.iter().filter(|load| load.origin.is_past()).map(|load| load.metric.as_str()).collect();
        let is_past = !followed.is_empty();
        if is_past {
            put(&mut document, "load", &loads);
            notes.push(format!(
                "The load follows the recorded values of {}; between two values it changes evenly. A value that the \
                 pods limit, such as cpu at its limit, hides the load beyond it.",
                words::listed(&followed, 3)
            ));
        } else {
            notes.push(
                "The load is constant, as in simulate --from-cluster: no values of the past are known."
                    .to_owned(),
            );
        }
        if is_past && known < asked {
            let covered = Duration::try_from(known).unwrap_or_default();
            notes.push(format!("The known past covers {} only.", words::span(covered)));
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
        // Only the HPA is replaced. A new scenario would derive the capacity of a pod from the target of the changed
        // HPA.
        let other = ClusterObjects { hpa: changed.clone(), ..objects.clone() };
        let mut with_changes = document.clone();
        if let Some(hpas) = from_cluster::scenario(&other, past.to).get("hpas") {
            with_changes.put("hpas", hpas.clone());
        }
        Self { document, changed: with_changes, start, length, notes, origins, is_past }
    }
}

fn put(document: &mut Node, name: &str, value: &Value) {
    document.put(name, Node::from_json(&CLUSTER.into(), value));
}

/// A [`Progress`] that stops a run when the token is cancelled.
struct Stop<'a>(&'a CancellationToken);

impl Progress for Stop<'_> {
    fn advance(&self, _: Duration, _: Duration) {}

    fn is_stopped(&self) -> bool {
        self.0.is_cancelled()
    }
}

#[cfg(test)]
mod tests;
