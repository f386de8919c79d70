//! `handover enable` and `handover disable`: change the label, then wait for the other writer.
//!
//! | command | label of the namespace | label of the HPA | change |
//! |---|---|---|---|
//! | enable NAMESPACE | none, `built-in` | any | namespace: this instance |
//! | enable NAMESPACE/NAME | any | none, `built-in` | HPA: this instance, unless its namespace has it already |
//! | disable NAMESPACE | this instance | this instance | both removed |
//! | disable NAMESPACE/NAME | this instance | any | HPA: `built-in` |
//! | disable NAMESPACE/NAME | other, none | this instance | removed |

mod label;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use self::label::{Edit, Object};
use super::census::{Census, Hpa, OWN_MANAGER};
use super::page::{Page, PageError};
use super::table::{self, plain};
use super::{API_VERSION, HandoverError, Session, Verdict, status, unavailable};
use crate::options::handover::Change;
use crate::words::counted;
use controller::handover::scope::{BUILT_IN, ControllerName, LABEL, Membership};
use controller::store::Key;

/// The interval between two reads of the state.
const POLL: Duration = Duration::from_secs(1);

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To Concertina.
    Enable,
    /// To the built-in controller.
    Disable,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    controller_name: &'a str,
    dry_run: bool,
    labels: &'a [Edit],
    hpas: &'a [Outcome],
    notes: &'a [String],
}

/// The state of one HPA after the change.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    namespace: String,
    name: String,
    /// `in_charge`, `built_in`, `claiming`, `contested`, `released`, or `unknown`.
    state: String,
    /// The reason why the change is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The last status writes before the change.
type Before = BTreeMap<Key, Writes>;

#[derive(Debug, Clone, Copy)]
struct Writes {
    own: Option<Timestamp>,
    foreign: Option<Timestamp>,
}

fn writes(hpa: &Hpa) -> Writes {
    let own = hpa.writers.iter().filter(|writer| writer.manager == OWN_MANAGER);
    Writes {
        own: own.filter_map(|writer| writer.at).max(),
        foreign: hpa.last_foreign_writer().and_then(|writer| writer.at),
    }
}

pub(super) async fn run(
    session: &mut Session<'_>,
    change: &Change,
    direction: Direction,
) -> Result<Verdict, HandoverError> {
    let namespace = change.namespace.as_str();
    let page = session.page.read().await;
    let name = session.controller_name(&page)?;
    if page.as_ref().is_ok_and(|page| page.scope == "all") {
        return Err(HandoverError::ScopeIsAll);
    }
    let mut notes: Vec<String> = page.as_ref().err().map(unavailable).into_iter().collect();
    let census = Census::read(session.clients, Some(namespace)).await?;
    notes.extend(census.unknown_namespaces.clone());
    let selected = selected(&census, change)?;
    let edits = edits(&census, &selected, change, direction, &name)?;
    let before: Before =
        selected.iter().filter_map(|key| Some((key.clone(), writes(census.hpas.get(key)?)))).collect();
    let text = introduction(session, &census, &selected, &notes);
    session.say(&text)?;
    for (done, edit) in edits.iter().enumerate() {
        label::apply(session.clients, edit, change.dry_run, done).await?;
        let suffix = if change.dry_run { " (dry run)" } else { "" };
        let text = table::line(format!("{edit}{suffix}"), session.style());
        session.say(&text)?;
    }
    if edits.is_empty() {
        session.say("no label to change\n")?;
    }
    let wait = if change.dry_run { Duration::ZERO } else { change.timeout };
    let outcomes = if wait.is_zero() {
        Vec::new()
    } else {
        let waiting = Waiting {
            change,
            direction,
            name: &name,
            selected: &selected,
            before: &before,
            changed: !edits.is_empty(),
        };
        session.say(&format!("waiting at most {}\n", crate::words::duration(wait)))?;
        waiting.until(session, wait).await?
    };
    if !outcomes.is_empty() {
        let text = outcome_table(&outcomes, session);
        session.say(&text)?;
    }
    session.document(&Document {
        api_version: API_VERSION,
        kind: "HandoverChange",
        controller_name: name.as_str(),
        dry_run: change.dry_run,
        labels: &edits,
        hpas: &outcomes,
        notes: &notes,
    })?;
    Ok(Verdict::good_if(outcomes.iter().all(|outcome| outcome.reason.is_none())))
}

/// The HPAs of the change.
fn selected(census: &Census, change: &Change) -> Result<Vec<Key>, HandoverError> {
    let Some(name) = &change.name else { return Ok(census.hpas.keys().cloned().collect()) };
    let key = Key::new(change.namespace.as_str(), name.as_str());
    if census.hpas.contains_key(&key) {
        return Ok(vec![key]);
    }
    let existing = census.hpas.keys().map(|key| key.name.to_string()).collect();
    Err(HandoverError::NotFound { key, existing })
}

/// The labels to change, in order.
fn edits(
    census: &Census,
    selected: &[Key],
    change: &Change,
    direction: Direction,
    name: &ControllerName,
) -> Result<Vec<Edit>, HandoverError> {
    let own = name.as_str();
    let namespace = Object::Namespace(change.namespace.clone());
    let namespace_label = census.namespace_label(&change.namespace);
    let label = |key: &Key| census.hpas.get(key).and_then(|hpa| hpa.label.as_deref());
    let hpas = selected.iter().map(|key| (Object::Hpa(key.clone()), label(key)));
    let mut edits = Vec::new();
    match (direction, &change.name) {
        (Direction::Enable, None) => match namespace_label {
            Some(label) if label == own => {}
            Some(label) if label != BUILT_IN => return Err(other(&namespace, label)),
            label => edits.push(Edit::new(namespace, label, Some(own))),
        },
        (Direction::Enable, Some(_)) => {
            for (object, label) in hpas {
                match label {
                    None if namespace_label == Some(own) => {}
                    Some(label) if label == own => {}
                    Some(label) if label != BUILT_IN => return Err(other(&object, label)),
                    label => edits.push(Edit::new(object, label, Some(own))),
                }
            }
        }
        (Direction::Disable, None) => {
            let labelled = hpas.filter(|(_, label)| *label == Some(own));
            edits.extend(labelled.map(|(object, label)| Edit::new(object, label, None)));
            if namespace_label == Some(own) {
                edits.push(Edit::new(namespace, namespace_label, None));
            }
        }
        (Direction::Disable, Some(_)) => {
            for (object, label) in hpas {
                let in_namespace = namespace_label == Some(own);
                match label {
                    Some(label) if label == own => {
                        edits.push(Edit::new(object, Some(label), in_namespace.then_some(BUILT_IN)));
                    }
                    None if in_namespace => edits.push(Edit::new(object, None, Some(BUILT_IN))),
                    _ => {}
                }
            }
        }
    }
    Ok(edits)
}

fn other(object: &Object, label: &str) -> HandoverError {
    HandoverError::OtherInstance { object: object.to_string(), value: label.to_owned() }
}

/// Renders the HPAs before the change.
fn introduction(session: &Session<'_>, census: &Census, selected: &[Key], notes: &[String]) -> String {
    let (style, zone, now) = (session.style(), session.zone(), session.clock.now());
    let mut text = String::new();
    for note in notes {
        text.push_str(&table::labelled("note", note.as_str(), style));
    }
    let hpas = selected.iter().filter_map(|key| Some((key, census.hpas.get(key)?)));
    let rows: Vec<_> = hpas
        .clone()
        .map(|(key, hpa)| {
            let writer = hpa.last_writer().map(|writer| {
                let at = writer.at.map(|at| format!(" {}", zone.time(at, now))).unwrap_or_default();
                format!("{}{at}", writer.manager)
            });
            vec![
                plain(&*key.namespace),
                plain(&*key.name),
                plain(format!("{}/{}", hpa.target.kind, hpa.target.name)),
                plain(hpa.label.clone().unwrap_or_default()),
                plain(writer.unwrap_or_default()),
            ]
        })
        .collect();
    if rows.is_empty() {
        text.push_str("no HPA in this namespace yet\n");
    } else {
        text.push_str(&table::render(
            &["NAMESPACE", "NAME", "TARGET", "LABEL", "STATUS LAST WRITTEN BY"],
            &rows,
            style,
        ));
    }
    for (key, hpa) in hpas {
        if let Some((kind, name)) = &hpa.owner {
            let note = format!(
                "{key} is managed by {kind}/{name}, which may reset its labels: set the label there, too"
            );
            text.push_str(&table::labelled("note", note, style));
        }
    }
    text
}

fn outcome_table(outcomes: &[Outcome], session: &Session<'_>) -> String {
    let rows: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            vec![
                status::state(&outcome.state),
                plain(outcome.namespace.as_str()),
                plain(outcome.name.as_str()),
                plain(outcome.reason.clone().unwrap_or_default()),
            ]
        })
        .collect();
    let mut text = table::render(&["STATE", "NAMESPACE", "NAME", "REASON"], &rows, session.style());
    let open = outcomes.iter().filter(|outcome| outcome.reason.is_some()).count();
    if open > 0 {
        let line =
            format!("{} not complete; concertina handover status shows the state", counted(open, "HPA"));
        text.push_str(&table::line(line, session.style()));
    }
    text
}

/// The wait for the other writer.
struct Waiting<'a> {
    change: &'a Change,
    direction: Direction,
    name: &'a ControllerName,
    selected: &'a [Key],
    before: &'a Before,
    /// Whether a label was changed.
    changed: bool,
}

impl Waiting<'_> {
    /// Reads the state until every HPA has its writer, at most until `limit`.
    async fn until(&self, session: &mut Session<'_>, limit: Duration) -> Result<Vec<Outcome>, HandoverError> {
        let deadline = Instant::now() + limit;
        loop {
            let namespace = self.change.namespace.as_str();
            let page = session.page.read().await;
            let census = Census::read(session.clients, Some(namespace)).await?;
            let outcomes: Vec<_> =
                self.selected.iter().filter_map(|key| self.outcome(key, &census, &page)).collect();
            let complete = outcomes.iter().all(|outcome| outcome.reason.is_none());
            if complete || Instant::now() + POLL > deadline {
                return Ok(outcomes);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The state of one HPA. `None` if the HPA was deleted in the meantime, or is not affected.
    fn outcome(&self, key: &Key, census: &Census, page: &Result<Page, PageError>) -> Option<Outcome> {
        let hpa = census.hpas.get(key)?;
        let is_in = census.membership(key, self.name).is_in();
        let (state, reason) = match self.direction {
            Direction::Enable => {
                if let Membership::Out(_) = census.membership(key, self.name) {
                    let label = hpa.label.as_deref().unwrap_or("none");
                    ("built_in", Some(format!("out of scope: its label {LABEL} is {label}")))
                } else {
                    self.enabled(key, hpa, page)
                }
            }
            Direction::Disable if is_in => ("in_charge", Some("a label still puts it in scope".to_owned())),
            Direction::Disable => self.disabled(key, hpa, page),
        };
        // An HPA that is excluded from its namespace is not part of the change of the namespace.
        if self.direction == Direction::Enable && self.change.name.is_none() && !is_in {
            return None;
        }
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        Some(Outcome { namespace, name, state: state.to_owned(), reason })
    }

    /// Whether Concertina is in charge of an HPA.
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
                let own = writes(hpa).own;
                let has_written =
                    own > before.and_then(|before| before.own) || (!self.changed && own.is_some());
                let is_last = hpa.last_writer().is_some_and(|writer| writer.manager == OWN_MANAGER);
                if has_written && is_last {
                    return ("in_charge", None);
                }
                return ("unknown", Some(format!("no status write of Concertina yet, and {error}")));
            }
        };
        let same = |row: &&super::page::Row| row.namespace == *key.namespace && row.name == *key.name;
        match page.hpas.iter().find(same) {
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

    /// Whether the built-in controller has written an HPA after its release.
    fn disabled(
        &self,
        key: &Key,
        hpa: &Hpa,
        page: &Result<Page, PageError>,
    ) -> (&'static str, Option<String>) {
        let same = |row: &super::page::Row| row.namespace == *key.namespace && row.name == *key.name;
        if page.as_ref().is_ok_and(|page| page.hpas.iter().any(same)) {
            return ("in_charge", Some("the leader still lists it".to_owned()));
        }
        let before = self.before.get(key).and_then(|before| before.foreign);
        if writes(hpa).foreign > before || !self.changed {
            return ("built_in", None);
        }
        let reason = "no status write of the built-in controller yet: it writes only a changed status";
        ("released", Some(reason.to_owned()))
    }
}
