//! The explanation of one HPA, from the record of decisions.

use std::fmt::Write as _;
use std::sync::Arc;

use ::console::{Explain, Subject};
use findings::facts::{EventContent, HpaFacts, RecentEvent, Target};
use findings::{Facts, Finding, findings};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use autoscaling::event::EventKind;
use autoscaling::settings::Settings;
use autoscaling::status::Condition;
use controller::election::LeaderState;
use controller::reconcile::Controller;
use controller::record::Decisions;
use controller::record::wire::{DecisionEntry, Outcome};
use controller::store::{HpaRecord, Key};

/// The reason why the page offers no simulation.
const NO_WHAT_IF: &str =
    "The What if simulation is not available here: it would delay the syncs of the leader";

/// Explains HPAs from the record of this process.
#[derive(Debug, Clone)]
pub(super) struct RecordExplain {
    pub(super) controller: Arc<Controller>,
    /// `None` if no decisions are recorded.
    pub(super) decisions: Option<Decisions>,
    /// The state of the election. `None` without an election.
    pub(super) election: Option<watch::Receiver<LeaderState>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    sentence: String,
    /// The decisions, the latest first.
    text: String,
    /// `None` without a decision.
    findings: Option<Vec<Finding>>,
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
        let standby = self.election.as_ref().and_then(|election| standby(&election.borrow()));
        let decisions = match (&self.decisions, &standby) {
            // Decisions of a replica that is not the leader do not apply.
            (None, _) | (_, Some(_)) => Vec::new(),
            (Some(decisions), None) => decisions.record().decisions(&record.uid),
        };
        let sentence = match (standby, decisions.first()) {
            (Some(standby), _) => standby,
            (None, Some(last)) => last.result.sentence.clone(),
            (None, None) => self.no_decision(),
        };
        let explanation = Explanation {
            sentence,
            text: text(subject, &decisions),
            findings: (!decisions.is_empty()).then(|| found(&record, &decisions, &self.controller.settings)),
            conditions: &record.status.conditions,
            recent_events: [],
            yaml: yaml(&record),
        };
        serde_json::to_vec(&explanation).map_err(|error| format!("failed to encode the explanation: {error}"))
    }

    fn no_decision(&self) -> String {
        match self.decisions {
            None => "No decisions are recorded: --decisions-per-hpa is 0.".to_owned(),
            Some(_) => "This replica has not decided for this HPA: it has just started to lead.".to_owned(),
        }
    }
}

/// The findings about the last decision. The record has neither pods nor answers of metrics APIs. Other HPAs on the
/// same pods are omitted, because the client may lack the permission to read them.
fn found(record: &HpaRecord, decisions: &[DecisionEntry], settings: &Settings) -> Vec<Finding> {
    let Some(last) = decisions.first() else { return Vec::new() };
    let reference = &record.spec.target;
    let target = Target {
        api_version: reference.api_version.clone(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        object: None,
    };
    let hpa = HpaFacts {
        spec: &record.spec,
        raw: record.spec_raw.get(),
        last_scale: record.status.last_scale_time,
    };
    let rescales = rescales(decisions);
    findings(&Facts {
        hpa: Some(hpa),
        sources: &last.sources,
        target: Some(&target),
        recent_events: &rescales,
        ..Facts::new(&record.key.namespace, last.last_at, &last.explanation, settings)
    })
}

/// The text that a standby shows in place of decisions, which only the leader has. `None` for the leader.
fn standby(state: &LeaderState) -> Option<String> {
    match state {
        LeaderState::Leader { .. } => None,
        LeaderState::Standby(Some(holder)) => Some(format!(
            "This replica is a standby. The leader, {}, has the decisions: open the page on the leader's secure port.",
            holder.identity
        )),
        LeaderState::Standby(None) => Some(
            "This replica is a standby, and no leader is known. Decisions start when a replica becomes the leader.".to_owned(),
        ),
    }
}

/// The rescales of recorded decisions, as the events that were sent about them, oldest first.
fn rescales(decisions: &[DecisionEntry]) -> Vec<RecentEvent> {
    let rescale = |decision: &DecisionEntry| {
        let result = &decision.result;
        let to = result.to.filter(|to| result.outcome == Outcome::Done && result.from != Some(*to))?;
        let content = EventContent {
            kind: EventKind::Normal,
            reason: "SuccessfulRescale".to_owned(),
            message: format!("New size: {to}; reason: {}", result.sentence),
        };
        let (first, last) = (decision.first_at, decision.first_at);
        Some(RecentEvent { content, count: 1, first, last, reporter: String::new() })
    };
    decisions.iter().rev().filter_map(rescale).collect()
}

impl Explain for RecordExplain {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        Box::pin(std::future::ready(self.read(&subject)))
    }

    fn style(&self) -> String {
        String::new()
    }
}

/// The decisions, each with its time and its sentence, and the commands for further details.
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
        "\n{NO_WHAT_IF}. Use concertina console.\nWhat would change the count: concertina why {} -n {}",
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

#[cfg(test)]
mod tests;
