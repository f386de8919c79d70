//! The explanation of one HPA, by `why`.

use std::sync::Arc;

use ::console::row::Count;
use ::console::{Explain, Subject};
use autoscaling::event::EventKind;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Scene;
use crate::explain::{Style, Zone};
use crate::options::decision::DecisionFlags;
use crate::options::why::Leader;
use crate::process::Process;
use crate::simulate::timeline::{self, Timeline};
use crate::why::findings::{findings, occurrences};
use crate::why::situation::{EventContent, RecentEvent};
use crate::why::{Question, Reader, Refusals, Scope, Situation, WhyError, output, render};
use clock::SharedClock;
use cluster::client::Clients;

/// Explains HPAs, one at a time.
#[derive(Debug, Clone)]
pub(super) struct Explainer {
    clients: Clients,
    /// Locked during an explanation, because the refusals are those of one explanation.
    refusals: Arc<Mutex<Arc<Refusals>>>,
    leaders: Vec<Leader>,
    flags: DecisionFlags,
    process: Process,
    clock: SharedClock,
}

/// The explanation: the document of `why`, and what only the page shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    #[serde(flatten)]
    why: Value,
    /// The steps, the findings and what would change the decision, as `why` prints them.
    text: String,
    /// The events about the HPA, the latest first.
    recent_events: Vec<Event<'a>>,
    /// The counts of the last hour, as markup.
    timeline: String,
    /// The object as YAML, without managedFields.
    yaml: Option<String>,
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
    pub(super) fn new(scene: Scene<'_>) -> Self {
        Self {
            clients: scene.clients.clone(),
            refusals: Arc::new(Mutex::new(scene.refusals)),
            leaders: scene.leaders,
            flags: scene.flags,
            process: scene.process,
            clock: scene.clock,
        }
    }

    async fn read(self, subject: Subject) -> Result<Vec<u8>, String> {
        let Subject { namespace, name, history } = subject;
        let refusals = self.refusals.lock().await;
        let question = Question {
            clients: &self.clients,
            refusals: Arc::clone(&refusals),
            scope: Scope { namespace: Some(namespace), name: Some(name), selector: None },
            process: self.process,
            flags: &self.flags,
            watch: false,
            leaders: self.leaders.clone(),
            clock: Arc::clone(&self.clock),
        };
        // Boxed, because the future of one decision is large.
        let explained = Box::pin(async { Reader::connect(question).await?.round().await });
        let situations = explained.await.map_err(|error: WhyError| error.to_string())?;
        let situation = situations.first().ok_or_else(|| "the HPA has been deleted".to_owned())?;
        encode(situation, &history).map_err(|error| format!("failed to encode the explanation: {error}"))
    }
}

fn encode(situation: &Situation, history: &[Count]) -> Result<Vec<u8>, serde_json::Error> {
    let found = findings(situation);
    let mut recent: Vec<&RecentEvent> = situation.recent_events.iter().collect();
    recent.sort_by_key(|event| std::cmp::Reverse(event.last));
    let recent = recent.into_iter().map(|event| Event {
        content: &event.content,
        count: event.count,
        last: event.last,
        reporter: &event.reporter,
    });
    serde_json::to_vec(&Explanation {
        why: output::document(std::iter::once((situation, found.as_slice())), true)?,
        text: render::whole(situation, &found, Style { colours: false, width: None }, &Zone::utc()),
        recent_events: recent.collect(),
        timeline: timeline::draw(&recent_counts(situation, history)),
        yaml: yaml(situation),
    })
}

/// Collects the counts of the last hour from events and from the watch of the console.
fn recent_counts(situation: &Situation, history: &[Count]) -> Timeline {
    let explanation = &situation.explanation;
    let seen = history.iter().map(|count| (count.at, count.replicas));
    let mut counts: Vec<_> = situation.recent_events.iter().flat_map(occurrences).chain(seen).collect();
    if counts.is_empty() {
        counts.push((Timestamp::MIN, explanation.current));
    }
    counts.sort_unstable();
    counts.dedup_by_key(|(_, count)| *count);
    let warnings = situation.recent_events.iter().filter(|event| event.content.kind == EventKind::Warning);
    let mut warnings: Vec<_> = warnings
        .map(|event| (event.last, format!("{}: {}", event.content.reason, event.content.message)))
        .collect();
    warnings.sort_unstable();
    Timeline { to: situation.at, min: explanation.min, max: explanation.max, counts, warnings }
}

fn yaml(situation: &Situation) -> Option<String> {
    let hpa = situation.hpa.as_ref()?;
    let object = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": serde_json::from_str::<Value>(hpa.metadata.get()).ok()?,
        "spec": serde_json::from_str::<Value>(hpa.spec_raw.get()).ok()?,
        "status": *hpa.status,
    });
    serde_saphyr::to_string(&object).ok()
}

impl Explain for Explainer {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        self.clone().read(subject).boxed()
    }

    fn style(&self) -> String {
        timeline::style()
    }
}
