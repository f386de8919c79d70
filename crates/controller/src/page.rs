//! The paths of a controller's HTTP pages, independent of the server of the secure port. Contains the page
//! `/handover`, which shows the state of each HPA in scope as JSON.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use coexist::handover::charges::{ChargeRow, Charges, GuardProof};
use coexist::handover::scope::Scope;
use journal::record::{Answer, JsonPage};

/// The path of the shadow report.
pub const PARITY: &str = "/parity";
/// The path of the page about the handover.
pub const HANDOVER: &str = "/handover";
/// The content type of JSON pages.
pub const JSON: &str = "application/json";

/// Returns the page [`HANDOVER`]. `charges` is `None` if all HPAs are in scope. `guard` is `--handover-guard`.
pub fn page(charges: Option<Arc<Charges>>, guard: &'static str) -> JsonPage {
    Arc::new(move |_| {
        let report = charges.as_deref().map_or_else(Report::of_all, |charges| Report::new(charges, guard));
        Answer::ok(&report)
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<String>,
    /// Whether this replica is the leader. A standby is in charge of no HPA.
    #[serde(skip_serializing_if = "Option::is_none")]
    leads: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<GuardReport>,
    hpas: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct GuardReport {
    /// `--handover-guard`.
    kind: &'static str,
    #[serde(flatten)]
    state: GuardProof,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: Arc<str>,
    name: Arc<str>,
    by: &'static str,
    state: &'static str,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_foreign_write: Option<Write>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refused_write: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct Write {
    manager: Arc<str>,
    at: Timestamp,
}

impl Report {
    fn of_all() -> Self {
        Self { scope: Scope::All.as_str(), controller: None, leads: None, guard: None, hpas: Vec::new() }
    }

    fn new(charges: &Charges, kind: &'static str) -> Self {
        let guard = GuardReport { kind, state: charges.guard_proof() };
        Self {
            scope: Scope::Labelled.as_str(),
            controller: Some(charges.name().to_string()),
            leads: Some(charges.leads()),
            guard: Some(guard),
            hpas: charges.rows().into_iter().map(Row::from).collect(),
        }
    }
}

impl From<ChargeRow> for Row {
    fn from(row: ChargeRow) -> Self {
        Self {
            namespace: row.key.namespace,
            name: row.key.name,
            by: row.by.as_str(),
            state: row.state.as_str(),
            since: row.since,
            last_foreign_write: row
                .last_foreign_write
                .map(|write| Write { manager: write.manager, at: write.at }),
            last_refused_write: row.last_refused_write,
        }
    }
}
