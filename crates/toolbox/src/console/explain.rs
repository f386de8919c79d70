//! The explanation of one HPA, by `why`.

use std::sync::Arc;

use ::console::{Explain, Subject};
use controller::record::wire::DecisionList;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::Scene;
use super::form::Form;
use super::leaders::LeaderChanges;
use super::object::{self, Mark};
use super::past;
use crate::explain::{Style, Zone};
use crate::options::decision::DecisionFlags;
use crate::options::why::Leader;
use crate::process::Process;
use crate::simulate::page::{self as timeline, Drawing};
use crate::why::findings::findings;
use crate::why::situation::{EventContent, RecentEvent};
use crate::why::{Question, Reader, Refusals, Scope, Situation, WhyError, output, render};
use clock::SharedClock;
use cluster::client::Clients;
use sources::Sources;

/// Explains HPAs, one at a time.
#[derive(Debug, Clone)]
pub(super) struct Explainer {
    pub(super) clients: Clients,
    /// Locked during an explanation, because the refusals belong to one explanation.
    pub(super) refusals: Arc<Mutex<Arc<Refusals>>>,
    leaders: Vec<Leader>,
    pub(super) changes: LeaderChanges,
    flags: DecisionFlags,
    /// The servers whose values *what if* replays.
    pub(super) sources: Option<Arc<Sources>>,
    pub(super) process: Process,
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
    /// The events about the HPA, the latest first.
    recent_events: Vec<Event<'a>>,
    /// The recent past.
    timeline: Option<Drawing>,
    /// Whether the past comes from the controller's record.
    recorded: bool,
    /// The object as YAML, without managedFields.
    yaml: Option<String>,
    /// The lines of the YAML that affected the decision.
    marks: Vec<Mark>,
    /// The fields of the what-if form.
    form: Option<Form>,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(flatten)]
    content: &'a EventContent,
    count: u32,
    last: Timestamp,
    reporter: &'a str,
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
            process: scene.process,
            clock: scene.clock,
        }
    }

    async fn read(self, subject: Subject) -> Result<Vec<u8>, String> {
        let refusals = self.refusals.lock().await;
        let answer = self.situation(&refusals, &subject).await?;
        drop(refusals);
        encode(&answer, &subject, &self.changes)
            .map_err(|error| format!("failed to encode the explanation: {error}"))
    }

    /// Reads the state of an HPA, and the controller's record if it is readable.
    pub(super) async fn situation(
        &self,
        refusals: &MutexGuard<'_, Arc<Refusals>>,
        subject: &Subject,
    ) -> Result<Answer, String> {
        let Subject { namespace, name, .. } = subject;
        let scope = Scope { namespace: Some(namespace.clone()), name: Some(name.clone()), selector: None };
        let question = Question {
            clients: &self.clients,
            refusals: Arc::clone(refusals),
            scope,
            process: self.process,
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
        let (situation, record) = explained.await.map_err(|error: WhyError| error.to_string())?;
        let situation = situation.ok_or_else(|| "the HPA has been deleted".to_owned())?;
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
    let object = object::object(situation);
    let yaml = object.as_ref().and_then(|object| serde_saphyr::to_string(object).ok());
    let marks = object.as_ref().zip(yaml.as_ref());
    let marks = marks.map(|(object, yaml)| object::marks(situation, object, yaml));
    let past = past::past(situation, record, subject, changes);
    serde_json::to_vec(&Explanation {
        why: output::document(std::iter::once((situation, found.as_slice())), true)?,
        text: render::whole(situation, &found, Style { colours: false, width: None }, &Zone::utc()),
        recent_events: recent.collect(),
        timeline: past.map(|past| timeline::draw(&past, past::longest(record))),
        recorded: record.is_some(),
        marks: marks.unwrap_or_default(),
        form: object.as_ref().map(Form::new),
        yaml,
    })
}

impl Explain for Explainer {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        self.clone().read(subject).boxed()
    }

    fn style(&self) -> String {
        timeline::style()
    }
}
