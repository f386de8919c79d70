//! The state of the HPAs: `handover status` with a row per HPA in scope, and the wait until the change of each HPA is
//! complete.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::census::{Census, Hpa, OWN_MANAGER};
use super::page::{ForeignWrite, GuardState, Page, PageError};
use super::{API_VERSION, HandoverError, Session, Verdict, unavailable};
use crate::handover::options::Change;
use coexist::handover::scope::{By, ControllerName, LABEL};
use engine::store::Key;
use terminal::explain::{Cell, Role, Style, Zone, plain};

/// The state of an HPA that the leader does not list, and of all HPAs if the leader's page is unavailable.
const UNKNOWN: &str = "unknown";
const IN_CHARGE: &str = "in_charge";

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HandoverStatus"))]
pub(super) struct Document<'a> {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HpaStatus {
    namespace: String,
    name: String,
    by: &'static str,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_foreign_write: Option<ForeignWrite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
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

/// The interval between two reads of the state.
const POLL: Duration = Duration::from_secs(1);
/// The time after which `disable` is complete without a status write: two default sync periods of the built-in
/// controller and the duration of a sync. By then, the controller has found nothing to change.
const IDLE: Duration = Duration::from_secs(35);

/// The direction of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To Concertina.
    Enable,
    /// To the built-in controller.
    Disable,
}

/// The state of one HPA after the change.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Outcome {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `in_charge`, `built_in`, `claiming`, `contested`, `released`, or `unknown`.
    pub(super) state: String,
    /// The reason why the change is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The reason why the change is complete without a status write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

/// The times of the last status writes of each HPA before the change.
pub(super) type Before = BTreeMap<Key, Writes>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Writes {
    own: Option<Timestamp>,
    foreign: Option<Timestamp>,
    /// Whether the HPA was in scope before the change.
    was_in_scope: bool,
}

/// Returns the times of the last status writes of Concertina and of other controllers.
pub(super) fn writes(hpa: &Hpa, was_in_scope: bool) -> Writes {
    let own = hpa.writers.iter().filter(|writer| writer.manager == OWN_MANAGER);
    Writes {
        own: own.filter_map(|writer| writer.at).max(),
        foreign: hpa.last_foreign_writer().and_then(|writer| writer.at),
        was_in_scope,
    }
}

pub(super) struct Waiting<'a> {
    pub(super) change: &'a Change,
    pub(super) direction: Direction,
    pub(super) name: &'a ControllerName,
    pub(super) selected: &'a [Key],
    pub(super) before: &'a Before,
    /// Whether this command has changed a label.
    pub(super) changed: bool,
}

impl Waiting<'_> {
    /// Reads the state until the change of every HPA is complete, for at most `limit`.
    pub(super) async fn until(
        &self,
        session: &mut Session<'_>,
        limit: Duration,
    ) -> Result<Vec<Outcome>, HandoverError> {
        let started = Instant::now();
        let deadline = started + limit;
        loop {
            let namespace = self.change.namespace.as_str();
            let page = session.page.read().await;
            let census = Census::read(session.clients, Some(namespace)).await?;
            let elapsed = started.elapsed();
            let outcomes: Vec<_> =
                self.selected.iter().filter_map(|key| self.outcome(key, &census, &page, elapsed)).collect();
            let complete = outcomes.iter().all(|outcome| outcome.reason.is_none());
            if complete || Instant::now() + POLL > deadline {
                return Ok(outcomes);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the state of one HPA. `None` if the HPA has been deleted, or if its label excludes it from `enable` of
    /// its namespace.
    fn outcome(
        &self,
        key: &Key,
        census: &Census,
        page: &Result<Page, PageError>,
        elapsed: Duration,
    ) -> Option<Outcome> {
        let hpa = census.hpas.get(key)?;
        let is_in = census.membership(key, self.name).is_in();
        let mut note = None;
        let (state, reason) = match self.direction {
            // An HPA with a label that excludes it does not follow the label of its namespace.
            Direction::Enable if !is_in && self.change.name.is_none() => return None,
            Direction::Enable if !is_in => {
                let label = hpa.label.as_deref().unwrap_or("none");
                ("built_in", Some(format!("out of scope: its label {LABEL} is {label}")))
            }
            Direction::Enable => self.enabled(key, hpa, page),
            Direction::Disable if is_in => ("in_charge", Some("a label still puts it in scope".to_owned())),
            Direction::Disable => match self.disabled(key, hpa, page) {
                ("released", Some(_)) if elapsed >= IDLE => {
                    note = Some(
                        "the built-in controller found nothing to change: it writes the status with its next change",
                    );
                    ("released", None)
                }
                other => other,
            },
        };
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        Some(Outcome { namespace, name, state: state.to_owned(), reason, note })
    }

    /// Returns the state of an HPA in scope after `enable`, and the reason why Concertina is not in charge yet.
    fn enabled(
        &self,
        key: &Key,
        hpa: &Hpa,
        page: &Result<Page, PageError>,
    ) -> (&'static str, Option<String>) {
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                let before = self.before.get(key);
                let own = writes(hpa, false).own;
                let has_written =
                    own > before.and_then(|before| before.own) || (!self.changed && own.is_some());
                let is_last = hpa.last_writer().is_some_and(|writer| writer.manager == OWN_MANAGER);
                if has_written && is_last {
                    return ("in_charge", None);
                }
                return ("unknown", Some(format!("no status write of Concertina yet, and {error}")));
            }
        };
        match page.row(key) {
            Some(row) if row.state == "in_charge" => ("in_charge", None),
            Some(row) if row.state == "contested" => {
                let writer =
                    row.last_foreign_write.as_ref().map_or("another controller", |write| &write.manager);
                let guard = &page.guard;
                let reason = guard.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let text = format!(
                    "{writer} still writes it: the guard is {}{reason}; run concertina handover check",
                    guard.state
                );
                ("contested", Some(text))
            }
            Some(_) => {
                let guard = &page.guard;
                let reason = guard.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                ("claiming", Some(format!("the guard is {}{reason}", guard.state)))
            }
            None => ("unknown", Some("the leader does not list it yet".to_owned())),
        }
    }

    /// Returns the state of an HPA out of scope after `disable`, and the reason why the change is not complete yet.
    fn disabled(
        &self,
        key: &Key,
        hpa: &Hpa,
        page: &Result<Page, PageError>,
    ) -> (&'static str, Option<String>) {
        if page.as_ref().is_ok_and(|page| page.row(key).is_some()) {
            return ("in_charge", Some("the leader still lists it".to_owned()));
        }
        let before = self.before.get(key);
        let was_in_scope = before.is_some_and(|before| before.was_in_scope);
        let foreign = before.and_then(|before| before.foreign);
        if writes(hpa, false).foreign > foreign || !self.changed || !was_in_scope {
            return ("built_in", None);
        }
        let reason = "no status write of the built-in controller yet: it writes only a changed status";
        ("released", Some(reason.to_owned()))
    }
}
