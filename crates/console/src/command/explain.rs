//! The explanation of one HPA by `why`, with the HPA as YAML and marks on the fields that affected the decision.

use std::sync::Arc;

use crate::advice::{Settings, Shown};
use crate::whatif::Field;
use crate::{Explain, Subject, Unavailable};
use autoscaling::explanation::{DecisionPath, LimitingStep};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use jiff::Timestamp;
use journal::record::wire::DecisionList;
use rulebook::ANNOTATION;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::Scene;
use super::form::{Form, target_of};
use super::past::{self, LeaderChanges};
use super::what_if;
use clock::SharedClock;
use cluster::client::Clients;
use flags::DecisionFlags;
use simulate::page::{self as timeline, Drawing};
use simulate::{Document, line};
use sources::Sources;
use terminal::explain::{Style, Zone};
use terminal::options::leader::Leader;
use terminal::values::{list, text};
use why::findings::{self, findings};
use why::situation::{EventContent, RecentEvent};
use why::{Question, Reader, Refusals, Scope, Situation, WhyError, render};

/// Explains HPAs, one at a time.
#[derive(Debug, Clone)]
pub(super) struct Explainer {
    pub(super) clients: Clients,
    /// Locked while the state of an HPA is read, because the collected refusals belong to a single read.
    pub(super) refusals: Arc<Mutex<Arc<Refusals>>>,
    leaders: Vec<Leader>,
    pub(super) changes: LeaderChanges,
    flags: DecisionFlags,
    /// The Prometheus servers from which *What if* reads past values.
    pub(super) sources: Option<Arc<Sources>>,
    clock: SharedClock,
}

/// The state of one HPA, and the controller's record of the HPA.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) situation: Situation,
    pub(super) record: Option<DecisionList>,
}

/// The explanation: the document of `why`, and the parts that only the page shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    #[serde(flatten)]
    why: Value,
    /// The steps, the findings and the changes that would give another result, as `why` prints them.
    text: String,
    /// The events about the HPA, latest first.
    recent_events: Vec<Event<'a>>,
    /// The drawing of the recent past. `None` if the HPA itself was not read.
    timeline: Option<Drawing>,
    /// Whether the past comes from the controller's record.
    recorded: bool,
    /// The HPA as YAML, without `managedFields`. `None` if the HPA itself was not read.
    yaml: Option<String>,
    /// The fields that affected the decision, by their lines in the YAML.
    marks: Vec<Mark>,
    /// The current values of the what-if form. `None` if the HPA itself was not read.
    form: Option<Form>,
    /// The advice of the file of `--advice`. `None` if it has none for this HPA.
    advice: Option<Shown>,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(flatten)]
    content: &'a EventContent,
    count: u32,
    last: Timestamp,
    reporter: &'a str,
}

/// A field that affected the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Mark {
    /// The line in the YAML, counted from 1.
    line: u64,
    /// The effect of the field.
    why: String,
}

/// The reason why an HPA cannot be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExplainError {
    /// The state of the HPA cannot be read.
    #[error(transparent)]
    Why(WhyError),
    /// The HPA does not exist any more.
    #[error("the HPA has been deleted")]
    Deleted,
    /// The explanation cannot be encoded.
    #[error("failed to encode the explanation: {0}")]
    Encode(#[from] serde_json::Error),
}

impl Explainer {
    pub(super) fn new(scene: Scene<'_>, changes: LeaderChanges) -> Self {
        Self {
            clients: scene.clients.clone(),
            refusals: Arc::new(Mutex::new(scene.refusals)),
            leaders: scene.leaders,
            changes,
            flags: scene.flags,
            sources: scene.sources,
            clock: scene.clock,
        }
    }

    async fn read(self, subject: Subject) -> Result<Vec<u8>, ExplainError> {
        let refusals = self.refusals.lock().await;
        let answer = self.situation(&refusals, &subject).await?;
        drop(refusals);
        Ok(encode(&answer, &subject, &self.changes)?)
    }

    /// Reads the state of an HPA, and the controller's record if it is readable. Also adds the last change of the
    /// leader to the known changes.
    pub(super) async fn situation(
        &self,
        refusals: &MutexGuard<'_, Arc<Refusals>>,
        subject: &Subject,
    ) -> Result<Answer, ExplainError> {
        let Subject { namespace, name, .. } = subject;
        let scope = Scope { namespace: Some(namespace.clone()), name: Some(name.clone()), selector: None };
        let question = Question {
            clients: &self.clients,
            refusals: Arc::clone(refusals),
            scope,
            flags: &self.flags,
            watch: false,
            leaders: self.leaders.clone(),
            clock: Arc::clone(&self.clock),
        };
        // Boxed, because the future of one decision is large.
        let explained = Box::pin(async {
            let mut reader = Reader::connect(question).await?;
            let situation = reader.round().await?.into_iter().next();
            let record = situation.as_ref().and_then(|situation| reader.record(situation)).cloned();
            Ok((situation, record))
        });
        let (situation, record) = explained.await.map_err(ExplainError::Why)?;
        let situation = situation.ok_or(ExplainError::Deleted)?;
        self.changes.read(&self.clients.core.unobserved(), &self.leaders).await;
        if let Some(at) = record.as_ref().and_then(|record| record.history.inherited) {
            self.changes.add(at, None);
        }
        Ok(Answer { situation, record })
    }
}

fn encode(answer: &Answer, subject: &Subject, changes: &LeaderChanges) -> Result<Vec<u8>, serde_json::Error> {
    let (situation, record) = (&answer.situation, answer.record.as_ref());
    let found = findings(situation);
    let mut recent: Vec<&RecentEvent> = situation.recent_events.iter().collect();
    recent.sort_by_key(|event| std::cmp::Reverse(event.last));
    let recent = recent.into_iter().map(|event| Event {
        content: &event.content,
        count: event.count,
        last: event.last,
        reporter: &event.reporter,
    });
    let object = object(situation);
    let yaml = object.as_ref().and_then(|object| serde_saphyr::to_string(object).ok());
    let marked = object.as_ref().zip(yaml.as_ref());
    let marked = marked.map(|(object, yaml)| marks(situation, object, yaml));
    let past = past::past(situation, record, subject, changes);
    serde_json::to_vec(&Explanation {
        why: findings::document(std::iter::once((situation, found.as_slice())), true)?,
        text: render::whole(situation, &found, Style::default(), &Zone::utc(), true),
        recent_events: recent.collect(),
        timeline: past.map(|past| timeline::draw(&past, past::longest(record))),
        recorded: record.is_some(),
        marks: marked.unwrap_or_default(),
        form: object.as_ref().map(Form::new),
        advice: object.as_ref().and_then(|object| advice(situation, object, subject)),
        yaml,
    })
}

impl Explain for Explainer {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, Unavailable>> {
        self.clone().read(subject).err_into().boxed()
    }

    fn style(&self) -> String {
        timeline::style()
    }
}

/// Returns the HPA without `managedFields`. `None` if the HPA itself was not read.
fn object(situation: &Situation) -> Option<Value> {
    let hpa = situation.hpa.as_ref()?;
    let mut metadata = serde_json::from_str::<Value>(hpa.metadata.get()).ok()?;
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("managedFields");
    }
    Some(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": serde_json::from_str::<Value>(hpa.spec_raw.get()).ok()?,
        "status": *hpa.status,
    }))
}

/// Returns the advice for an HPA, with the command that changes the HPA.
fn advice(situation: &Situation, object: &Value, subject: &Subject) -> Option<Shown> {
    let (advice, spec) = (subject.advice.as_ref()?, &situation.hpa.as_ref()?.spec);
    let target = format!("{}/{}", spec.target.kind, spec.target.name);
    let settings = Settings::new(spec);
    let is_cpu = |metric: &Value| text(metric, "/resource/name") == "cpu";
    let cpu = list(object, "/spec/metrics").iter().rposition(is_cpu).unwrap_or_default();
    let fields = advice.fields(&target, settings, cpu).into_iter();
    let fields: Vec<_> = fields.map(|(name, value)| Field { name, value }).collect();
    let command = what_if::change(&subject.namespace, &subject.name, object, &fields);
    Some(advice.shown(&target, settings, command))
}

/// Returns the fields that affected the decision, sorted by line.
fn marks(situation: &Situation, object: &Value, yaml: &str) -> Vec<Mark> {
    let Some(document) = Document::read(yaml) else { return Vec::new() };
    let mut marks: Vec<Mark> = Vec::new();
    for (path, why) in fields(situation, object) {
        if let Some(line) = line(&document, &path)
            && !marks.iter().any(|mark| mark.line == line)
        {
            marks.push(Mark { line, why });
        }
    }
    marks.sort_by_key(|mark| mark.line);
    marks
}

/// Returns the pointers to the fields that affected the decision, each with the effect of the field.
fn fields(situation: &Situation, object: &Value) -> Vec<(String, String)> {
    let explanation = &situation.explanation;
    let mut fields = Vec::new();
    let mut field = |path: &str, why: String| fields.push((path.to_owned(), why));
    if let (Some(path), Some(proposal)) =
        (explanation.winner.and_then(|index| target_of(object, index)), explanation.proposal)
    {
        field(&path, format!("the metrics ask for {proposal}"));
    }
    if explanation.path == DecisionPath::NoScale {
        field("/spec/scaleTargetRef/name", "the scale of this target cannot be read".to_owned());
    }
    for (index, metric) in explanation.metrics.iter().enumerate() {
        if metric.reading().is_none()
            && let Some(path) = target_of(object, index)
        {
            field(&path, "this metric cannot be read".to_owned());
        }
    }
    let step = explanation.limiting_step();
    let held = |window: &str| format!("the {window} window holds the count");
    match step {
        Some(LimitingStep::ScaleUpWindow) => {
            field("/spec/behavior/scaleUp/stabilizationWindowSeconds", held("scale-up"));
        }
        Some(LimitingStep::ScaleDownWindow) => {
            field("/spec/behavior/scaleDown/stabilizationWindowSeconds", held("scale-down"));
        }
        Some(LimitingStep::Maximum) => {
            field("/spec/maxReplicas", format!("the count stops at {}", explanation.max));
        }
        Some(LimitingStep::Minimum) => {
            field("/spec/minReplicas", format!("the count stops at {}", explanation.min));
        }
        Some(LimitingStep::Tolerance) => {
            for rules in ["scaleUp", "scaleDown"] {
                let path = format!("/spec/behavior/{rules}/tolerance");
                field(&path, "the value is within tolerance".to_owned());
            }
        }
        Some(LimitingStep::ScaleUpPolicy | LimitingStep::ScaleDownPolicy) => {
            let rules = if step == Some(LimitingStep::ScaleUpPolicy) { "scaleUp" } else { "scaleDown" };
            let limit = explanation.limit.as_ref();
            let used = limit.map(|limit| limit.policies.as_slice()).unwrap_or_default();
            let allows = limit.and_then(|limit| limit.rate_allows);
            for (index, policy) in used.iter().enumerate() {
                if Some(policy.allows) == allows {
                    let path = format!("/spec/behavior/{rules}/policies/{index}/value");
                    field(&path, format!("this rate allows {}", policy.allows));
                }
            }
            field(&format!("/spec/behavior/{rules}/selectPolicy"), "selects among the rates".to_owned());
        }
        Some(LimitingStep::Failure | LimitingStep::MissingPods) | None => {}
    }
    if let Some(sentence) = situation.policy.as_ref().and_then(policies::steps::PolicyEffect::sentence) {
        let key = ANNOTATION.replace('~', "~0").replace('/', "~1");
        field(&format!("/metadata/annotations/{key}"), sentence);
    }
    fields
}

#[cfg(test)]
mod tests;
