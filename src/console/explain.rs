//! The explanation of one HPA, from the record of decisions.

use std::fmt::Write as _;
use std::sync::Arc;

use ::console::{Explain, Subject};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use autoscaling::status::Condition;
use controller::reconcile::Controller;
use controller::record::Decisions;
use controller::record::wire::{DecisionEntry, Outcome};
use controller::store::{HpaRecord, Key};

/// Explains HPAs from the record of this process.
#[derive(Debug, Clone)]
pub(super) struct RecordExplain {
    pub(super) controller: Arc<Controller>,
    /// `None` if no decisions are recorded.
    pub(super) decisions: Option<Decisions>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    sentence: String,
    /// The decisions, the latest first.
    text: String,
    findings: [(); 0],
    conditions: &'a [Condition],
    recent_events: [(); 0],
    yaml: Option<String>,
}

impl RecordExplain {
    fn read(&self, subject: &Subject) -> Result<Vec<u8>, String> {
        let key = Key::new(subject.namespace.as_str(), subject.name.as_str());
        let missing = || format!("HPA {} not found in namespace {}", subject.name, subject.namespace);
        let record = self.controller.hpas.get(&key).ok_or_else(missing)?;
        let record = record.unpack().map_err(|error| format!("the stored HPA is damaged: {error}"))?;
        let decisions = self.decisions.as_ref().map(|decisions| decisions.record().decisions(&record.uid));
        let decisions = decisions.unwrap_or_default();
        let explanation = Explanation {
            sentence: decisions
                .first()
                .map_or_else(|| self.no_decision(), |last| last.result.sentence.clone()),
            text: text(subject, &decisions),
            findings: [],
            conditions: &record.status.conditions,
            recent_events: [],
            yaml: yaml(&record),
        };
        serde_json::to_vec(&explanation).map_err(|error| format!("failed to encode the explanation: {error}"))
    }

    fn no_decision(&self) -> String {
        match self.decisions {
            None => "No decisions are recorded: --decisions-per-hpa is 0.".to_owned(),
            Some(_) => {
                "This replica has not decided for this HPA: it is a standby, or has just started.".to_owned()
            }
        }
    }
}

impl Explain for RecordExplain {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        Box::pin(std::future::ready(self.read(&subject)))
    }

    fn style(&self) -> String {
        String::new()
    }
}

/// The decisions, one in a line, and where to read more.
fn text(subject: &Subject, decisions: &[DecisionEntry]) -> String {
    let mut text = String::new();
    for DecisionEntry { first_at, last_at, syncs, result, error, .. } in decisions {
        let counts = match (result.from, result.to) {
            (Some(from), Some(to)) if from != to => format!("{from} -> {to}"),
            (_, Some(to)) => to.to_string(),
            _ => "unknown".to_owned(),
        };
        let outcome = match (result.outcome, error) {
            (Outcome::Failed, Some(error)) => format!(" (the write failed: {error})"),
            (Outcome::Failed, None) => " (the write failed)".to_owned(),
            (Outcome::Withheld, _) => " (not written)".to_owned(),
            _ => String::new(),
        };
        let until = if *syncs > 1 { format!(" until {last_at:.0}, {syncs} syncs") } else { String::new() };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{first_at:.0}{until}\n  {counts}: {}{outcome}", result.sentence);
    }
    let _ = write!(
        text,
        "\nFindings, and what would change the count: concertina why {} -n {}",
        subject.name, subject.namespace
    );
    text
}

fn yaml(record: &HpaRecord) -> Option<String> {
    let object = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": serde_json::from_str::<Value>(record.metadata.get()).ok()?,
        "spec": serde_json::from_str::<Value>(record.spec_raw.get()).ok()?,
        "status": *record.status,
    });
    serde_saphyr::to_string(&object).ok()
}
