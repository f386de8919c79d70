//! `handover status`: a row per HPA in scope.

use jiff::Timestamp;
use serde::Serialize;

use super::census::{Census, Hpa};
use super::page::{ForeignWrite, GuardState, Page};
use super::{API_VERSION, HandoverError, Session, Verdict, unavailable};
use crate::explain::{Cell, Role, Style, Zone, plain};
use controller::handover::scope::By;
use controller::store::Key;

/// The state of an HPA that the leader does not list, and of all HPAs if the leader's page is unavailable.
const UNKNOWN: &str = "unknown";
const IN_CHARGE: &str = "in_charge";

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    controller_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'a GuardState>,
    hpas: &'a [HpaStatus],
    notes: &'a [String],
}

/// One HPA in scope.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HpaStatus {
    namespace: String,
    name: String,
    by: &'static str,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_foreign_write: Option<ForeignWrite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refused_write: Option<Timestamp>,
}

pub(super) async fn run(session: &mut Session<'_>) -> Result<Verdict, HandoverError> {
    let namespace = session.options.cluster.namespace.clone();
    let page = session.page.read().await;
    let name = session.controller_name(&page)?;
    let census = Census::read(session.clients, namespace.as_deref()).await?;
    let mut notes: Vec<String> = census.unknown_namespaces.iter().cloned().collect();
    let page = match page {
        Ok(page) => Some(page),
        Err(error) => {
            notes.push(unavailable(&error));
            None
        }
    };
    let is_all = page.as_ref().is_some_and(|page| page.scope == "all");
    if is_all {
        notes.push(
            "the leader runs with --scope=all: it is in charge of every HPA, and labels have no effect"
                .to_owned(),
        );
    }
    let mut rows: Vec<HpaStatus> = Vec::new();
    for (key, hpa, by) in census.in_scope(&name).filter(|_| !is_all) {
        rows.push(row(key, hpa, by, page.as_ref()));
    }
    rows.sort_by(|a, b| {
        (a.state == IN_CHARGE, &a.namespace, &a.name).cmp(&(b.state == IN_CHARGE, &b.namespace, &b.name))
    });
    let guard = page.as_ref().map(|page| &page.guard);
    let broken = guard.is_some_and(|guard| guard.state == "broken");
    let text = text(&rows, guard, &notes, session.style(), &session.zone(), session.clock.now());
    session.say(&text)?;
    session.document(&Document {
        api_version: API_VERSION,
        kind: "HandoverStatus",
        controller_name: name.as_str(),
        scope: page.as_ref().map(|page| page.scope.as_str()),
        guard,
        hpas: &rows,
        notes: &notes,
    })?;
    Ok(Verdict::good_if(!broken && rows.iter().all(|row| row.state == IN_CHARGE)))
}

/// Returns the status of one HPA, from the leader's page or else from the managed fields of the HPA.
fn row(key: &Key, hpa: &Hpa, by: By, page: Option<&Page>) -> HpaStatus {
    let own = page.and_then(|page| page.row(key));
    let from_api = || {
        hpa.last_foreign_writer()
            .map(|writer| ForeignWrite { manager: writer.manager.clone(), at: writer.at })
    };
    HpaStatus {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        by: by.as_str(),
        state: own.map_or_else(|| UNKNOWN.to_owned(), |row| row.state.clone()),
        since: own.and_then(|row| row.since),
        last_foreign_write: match own {
            Some(row) => row.last_foreign_write.clone(),
            None => from_api(),
        },
        last_refused_write: own.and_then(|row| row.last_refused_write),
    }
}

/// Formats the leader's report about the guard: `webhook, proven since 12:00:00Z`.
fn guard_text(guard: &GuardState, zone: &Zone, now: Timestamp) -> String {
    let since = guard.since.map(|since| format!(" since {}", zone.time(since, now))).unwrap_or_default();
    let reason = guard.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let kind = if guard.kind.is_empty() { String::new() } else { format!("{}, ", guard.kind) };
    format!("{kind}{}{since}{reason}", guard.state)
}

fn text(
    rows: &[HpaStatus],
    guard: Option<&GuardState>,
    notes: &[String],
    style: Style,
    zone: &Zone,
    now: Timestamp,
) -> String {
    let mut text = String::new();
    if let Some(guard) = guard {
        text.push_str(&style.text_line("guard", guard_text(guard, zone, now)));
    }
    for note in notes {
        text.push_str(&style.text_line("note", note.as_str()));
    }
    if rows.is_empty() {
        text.push_str("no HPA in scope by a label\n");
        return text;
    }
    let time = |at: Option<Timestamp>| at.map(|at| zone.time(at, now)).unwrap_or_default();
    let cells: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let foreign = row
                .last_foreign_write
                .as_ref()
                .map(|write| format!("{} {}", write.manager, time(write.at)).trim_end().to_owned());
            vec![
                state(&row.state),
                plain(row.namespace.as_str()),
                plain(row.name.as_str()),
                plain(row.by),
                plain(time(row.since)),
                plain(foreign.unwrap_or_default()),
                plain(time(row.last_refused_write)),
            ]
        })
        .collect();
    let head =
        ["STATE", "NAMESPACE", "NAME", "LABEL ON", "SINCE", "LAST FOREIGN WRITE", "LAST REFUSED WRITE"];
    text.push_str(&style.table(&head, &cells));
    text
}

/// Returns the cell with the state of an HPA.
pub(super) fn state(state: &str) -> Cell {
    let role = match state {
        IN_CHARGE | "built_in" => Role::Good,
        "contested" => Role::Bad,
        _ => Role::Warn,
    };
    (role, state.to_owned())
}
