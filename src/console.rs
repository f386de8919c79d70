//! `--console`: the page with all HPAs on the secure port.
//!
//! The rows come from the controller's watch, and the explanation of an HPA from the record of decisions. The state of
//! the controller comes from the leader election, the metrics, `/handover` and `/parity` of this process.
//! `crate::serve` authorizes the clients.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ::console::controller::{ControllerState, Handover, Inspect, LeaseState, Missing, Numbers, Parity};
use ::console::pages::Pages;
use ::console::store::Store;
use ::console::{Explain, Subject};
use findings::facts::{EventContent, HpaFacts, RecentEvent, Target};
use findings::{Facts, Finding, findings};
use futures::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use autoscaling::event::EventKind;
use autoscaling::settings::Settings;
use autoscaling::status::Condition;
use clock::SharedClock;
use cluster::decode::HpaObject;
use controller::assembly::Assembly;
use controller::election::LeaderState;
use controller::page::JsonPage;
use controller::reconcile::{ConcludedSync, Controller, Observer};
use controller::record::Decisions;
use controller::record::wire::{DecisionEntry, Outcome};
use controller::store::{HpaRecord, Key};
use controller::telemetry::metrics::Metrics;

/// The rows of the page, filled from the controller's watch. Clones share the rows.
#[derive(Debug, Clone)]
pub struct Rows {
    store: Store,
    /// The UID of each row. The watch may report a recreated HPA before the deletion of the HPA with the previous UID.
    uids: Arc<Mutex<BTreeMap<Key, Arc<str>>>>,
}

/// The parts of the process that the page shows.
pub struct Shown<'a> {
    /// The controller and its parts.
    pub assembly: &'a Assembly,
    /// The metrics of the process.
    pub telemetry: Metrics,
    /// The content of `/handover`.
    pub handover: JsonPage,
    /// The content of `/parity`.
    pub parity: JsonPage,
    /// The identity of this replica.
    pub identity: String,
    /// The namespace and the name of the Lease, and the state of the election. `None` without an election.
    pub election: Option<(String, Arc<str>, watch::Receiver<LeaderState>)>,
}

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Rows {
    /// Creates an empty set of rows.
    pub fn new(clock: SharedClock) -> Self {
        Self { store: Store::new(clock), uids: Arc::default() }
    }

    /// Creates the page with these rows.
    pub fn pages(self, shown: Shown<'_>) -> Pages {
        let Shown { assembly, telemetry, handover, parity, identity, election } = shown;
        let explain = RecordExplain {
            controller: Arc::clone(&assembly.controller),
            decisions: assembly.decisions.clone(),
            election: election.as_ref().map(|(.., election)| election.clone()),
        };
        let state = OwnState { telemetry, handover, parity, identity, election };
        Pages::new(self.store, assembly.hpas.clone(), Arc::new(explain), Arc::new(state))
    }
}

impl Observer for Rows {
    fn concluded(&self, _: &ConcludedSync<'_>) {}

    fn seen(&self, _: Option<&HpaRecord>, new: &HpaRecord) {
        // The store packs a large spec, so the record lacks the metrics until it is unpacked.
        let whole = new.packed.as_ref().map(|_| Arc::new(new.clone()).unpack());
        let whole = whole.and_then(Result::ok);
        self.uids.lock().insert(new.key.clone(), Arc::clone(&new.uid));
        self.store.put(&object(whole.as_deref().unwrap_or(new)));
    }

    fn forgotten(&self, key: &Key, uid: &str) {
        let mut uids = self.uids.lock();
        if uids.get(key).is_some_and(|shown| **shown == *uid) {
            uids.remove(key);
            self.store.remove(&key.namespace, &key.name);
        }
    }
}

/// Converts a record of the store to an object of the watch.
fn object(record: &HpaRecord) -> HpaObject {
    let writers = record.status_writers.iter().map(|writer| (writer.manager.to_string(), writer.at));
    HpaObject {
        namespace: record.key.namespace.to_string(),
        name: record.key.name.to_string(),
        uid: record.uid.to_string(),
        resource_version: record.resource_version.clone(),
        generation: record.generation,
        metadata: record.metadata.clone(),
        status_writers: writers.collect(),
        spec_raw: Arc::clone(&record.spec_raw),
        spec: Arc::clone(&record.spec),
        status: Arc::clone(&record.status),
    }
}

/// The state of this replica.
struct OwnState {
    telemetry: Metrics,
    handover: JsonPage,
    parity: JsonPage,
    identity: String,
    election: Option<(String, Arc<str>, watch::Receiver<LeaderState>)>,
}

impl std::fmt::Debug for OwnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnState").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl OwnState {
    fn read(&self) -> ControllerState {
        let mut state =
            ControllerState { from: Some(format!("replica {}", self.identity)), ..Default::default() };
        state.lease = self.election.as_ref().map(|(namespace, name, election)| {
            let (holder, transitions) = match &*election.borrow() {
                LeaderState::Leader { term, .. } => (self.identity.clone(), Some(*term)),
                LeaderState::Standby(Some(holder)) => (holder.identity.clone(), Some(holder.term)),
                LeaderState::Standby(None) => (String::new(), None),
            };
            LeaseState {
                namespace: namespace.clone(),
                name: name.to_string(),
                holder,
                acquired: None,
                renewed: None,
                transitions,
                seconds: 0,
            }
        });
        let mut unreadable = |part, error: String| {
            state.missing.push(Missing { part, reason: error, advice: String::new() });
        };
        match Numbers::parse(self.telemetry.render().as_bytes()) {
            Ok(numbers) => state.numbers = Some(numbers),
            Err(error) => unreadable("metrics", error.to_string()),
        }
        match Handover::parse(&(self.handover)(None).json) {
            Ok(handover) => state.handover = Some(handover),
            Err(error) => unreadable("handover", error.to_string()),
        }
        let parity = (self.parity)(None);
        if parity.status == StatusCode::OK {
            match Parity::parse(&parity.json) {
                Ok(parity) => state.parity = Some(parity),
                Err(error) => unreadable("parity", error.to_string()),
            }
        }
        state
    }
}

impl Inspect for OwnState {
    fn inspect(&self) -> BoxFuture<'static, ControllerState> {
        Box::pin(std::future::ready(self.read()))
    }
}

/// The reason why the page offers no What if simulation.
const NO_WHAT_IF: &str =
    "The What if simulation is not available here: it would delay the syncs of the leader";

/// Explains HPAs from the record of decisions of this process.
#[derive(Debug, Clone)]
struct RecordExplain {
    controller: Arc<Controller>,
    /// `None` if no decisions are recorded.
    decisions: Option<Decisions>,
    /// The state of the election. `None` without an election.
    election: Option<watch::Receiver<LeaderState>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    sentence: String,
    /// The decisions as text, latest first.
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
            // The decisions of a standby have no effect, so the page does not show them.
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

/// Returns the findings about the last decision. They lack pods and responses of metrics APIs, which the record does
/// not contain. They also lack other HPAs on the same pods, because the client may lack the permission to read those
/// HPAs.
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

/// Returns the text that a standby shows in place of decisions. Returns `None` for the leader.
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

/// Returns the events about the rescales of recorded decisions, oldest first.
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

/// Formats the decisions, each with its time and its sentence, and the commands for further details.
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
