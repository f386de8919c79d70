//! `handover enable` and `handover disable`: change the label, then wait until the handover is complete.
//!
//! | command | label of the namespace | label of the HPA | change |
//! |---|---|---|---|
//! | enable NAMESPACE | none, `built-in` | any | namespace: this instance |
//! | enable NAMESPACE/NAME | other, none | none | HPA: this instance |
//! | enable NAMESPACE/NAME | any | `built-in` | HPA: this instance |
//! | disable NAMESPACE | any | any | namespace and HPAs: labels with this instance removed |
//! | disable NAMESPACE/NAME | this instance | none, this instance | HPA: `built-in` |
//! | disable NAMESPACE/NAME | other, none | this instance | HPA: label removed |
//!
//! In all other cases `disable` changes nothing. `enable` changes nothing if the namespace or the HPA is already in
//! scope, and fails if the object has the label of another instance.

use std::fmt;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::census::{Census, Metadata};
use super::page::{Comparisons, HpaComparison};
use super::status::{self, Before, Direction, Outcome, Waiting, writes};
use super::{API_VERSION, HandoverError, Session, Verdict, unavailable};
use crate::handover::options::Change;
use cluster::call::Call;
use cluster::client::Clients;
use cluster::error::ApiError;
use coexist::handover::scope::{BUILT_IN, ControllerName, LABEL};
use engine::store::Key;
use terminal::explain::plain;
use terminal::words::counted;

/// Maximum number of attempts at a change. A write of the object between the read and the patch causes a conflict.
const ATTEMPTS: u32 = 5;
/// The field manager of changes of the label.
const MANAGER: &str = "concertina-handover";

/// The answer as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "HandoverChange"))]
pub(super) struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    controller_name: &'a str,
    dry_run: bool,
    labels: &'a [Edit],
    /// The comparisons of shadow mode. Empty for `disable`, or if no comparison is available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    shadow: Vec<HpaComparison>,
    hpas: &'a [Outcome],
    notes: &'a [String],
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
    let before =
        |key: &Key| Some((key.clone(), writes(census.hpas.get(key)?, census.membership(key, &name).is_in())));
    let before: Before = selected.iter().filter_map(before).collect();
    let comparisons = match direction {
        Direction::Enable => Some(Comparisons::read(&mut session.page, &mut notes).await),
        Direction::Disable => None,
    };
    let text = introduction(session, &census, &selected, comparisons.as_ref(), &notes);
    session.say(&text)?;
    for (done, edit) in edits.iter().enumerate() {
        apply(session.clients, edit, change.dry_run, done).await?;
        let suffix = if change.dry_run { " (dry run)" } else { "" };
        let text = session.style().text_line("", format!("{edit}{suffix}"));
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
        session.say(&format!("waiting at most {}\n", terminal::words::duration(wait)))?;
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
        shadow: comparisons.map_or_else(Vec::new, |comparisons| comparisons.rows(&selected)),
        hpas: &outcomes,
        notes: &notes,
    })?;
    Ok(Verdict::good_if(outcomes.iter().all(|outcome| outcome.reason.is_none())))
}

/// Returns the HPAs that the change selects.
fn selected(census: &Census, change: &Change) -> Result<Vec<Key>, HandoverError> {
    let Some(name) = &change.name else { return Ok(census.hpas.keys().cloned().collect()) };
    let key = Key::new(change.namespace.as_str(), name.as_str());
    if census.hpas.contains_key(&key) {
        return Ok(vec![key]);
    }
    let existing = census.hpas.keys().map(|key| key.name.to_string()).collect();
    Err(HandoverError::NotFound { key, existing })
}

/// Returns the changes of labels, in order.
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

/// Renders the notes, and the HPAs before the change.
fn introduction(
    session: &Session<'_>,
    census: &Census,
    selected: &[Key],
    comparisons: Option<&Comparisons>,
    notes: &[String],
) -> String {
    let (style, zone, now) = (session.style(), session.zone(), session.clock.now());
    let mut text = String::new();
    for note in notes {
        text.push_str(&style.text_line("note", note.as_str()));
    }
    let hpas = selected.iter().filter_map(|key| Some((key, census.hpas.get(key)?)));
    let rows: Vec<_> = hpas
        .clone()
        .map(|(key, hpa)| {
            let writer = hpa.last_writer().map(|writer| {
                let at = writer.at.map(|at| format!(" {}", zone.time(at, now))).unwrap_or_default();
                format!("{}{at}", writer.manager)
            });
            let mut row = vec![
                plain(&*key.namespace),
                plain(&*key.name),
                plain(format!("{}/{}", hpa.target.kind, hpa.target.name)),
                plain(hpa.label.clone().unwrap_or_default()),
                plain(writer.unwrap_or_default()),
            ];
            row.extend(comparisons.map(|comparisons| plain(comparisons.text(key))));
            row
        })
        .collect();
    if rows.is_empty() {
        text.push_str("no HPA in this namespace yet\n");
    } else {
        let mut head = vec!["NAMESPACE", "NAME", "TARGET", "LABEL", "STATUS LAST WRITTEN BY"];
        head.extend(comparisons.map(|_| "IN SHADOW MODE"));
        text.push_str(&style.table(&head, &rows));
    }
    for (key, hpa) in hpas {
        if let Some((kind, name)) = &hpa.owner {
            let note = format!(
                "{key} is managed by {kind}/{name}, which may reset its labels: set the label there, too"
            );
            text.push_str(&style.text_line("note", note));
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
                plain(outcome.reason.as_deref().or(outcome.note).unwrap_or_default()),
            ]
        })
        .collect();
    let mut text = session.style().table(&["STATE", "NAMESPACE", "NAME", "REASON"], &rows);
    let open = outcomes.iter().filter(|outcome| outcome.reason.is_some()).count();
    if open > 0 {
        let line =
            format!("{} not complete; concertina handover status shows the state", counted(open, "HPA"));
        text.push_str(&session.style().text_line("", line));
    }
    text
}

/// An object that can have the label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Object {
    Namespace(String),
    Hpa(Key),
}

impl Object {
    fn path(&self) -> Vec<&str> {
        match self {
            Self::Namespace(name) => vec!["api", "v1", "namespaces", name],
            Self::Hpa(key) => {
                vec![
                    "apis",
                    "autoscaling",
                    "v2",
                    "namespaces",
                    &key.namespace,
                    "horizontalpodautoscalers",
                    &key.name,
                ]
            }
        }
    }

    fn about(&self, call: Call) -> Call {
        match self {
            Self::Namespace(name) => call.about("namespaces", name),
            Self::Hpa(key) => call.about("horizontalpodautoscalers.autoscaling", &key.name),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Hpa(key) => write!(f, "HPA {key}"),
        }
    }
}

/// A change of the label.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Edit {
    #[serde(serialize_with = "as_text")]
    #[cfg_attr(test, schemars(with = "String"))]
    object: Object,
    /// The value before the change.
    from: Option<String>,
    /// The value after the change. `None` removes the label.
    to: Option<String>,
}

fn as_text<S: Serializer>(object: &Object, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(object)
}

impl Edit {
    fn new(object: Object, from: Option<&str>, to: Option<&str>) -> Self {
        Self { object, from: from.map(str::to_owned), to: to.map(str::to_owned) }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Some(value) => write!(f, "{}: label {LABEL}={value} set", self.object),
            None => write!(f, "{}: label {LABEL} removed", self.object),
        }
    }
}

/// Changes the label if it still has the value `edit.from`. The change is retried if another field was written
/// concurrently. `done` is the number of preceding changes, for the error.
async fn apply(clients: &Clients, edit: &Edit, dry_run: bool, done: usize) -> Result<(), HandoverError> {
    let mut attempt = 1;
    loop {
        match once(clients, edit, dry_run).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            result => {
                return result.map_err(|error| HandoverError::Change {
                    object: edit.object.to_string(),
                    error: Box::new(error),
                    done,
                });
            }
        }
    }
}

async fn once(clients: &Clients, edit: &Edit, dry_run: bool) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Labelled {
        metadata: Metadata,
    }
    let object = &edit.object;
    let Labelled { metadata } = clients.core.json(&object.about(Call::get(object.path()))).await?;
    let label = metadata.labels.and_then(|mut labels| labels.remove(LABEL));
    if label == edit.to {
        return Ok(());
    }
    if label != edit.from {
        let now = label.unwrap_or_else(|| "none".to_owned());
        return Err(ApiError::Request(format!("the label was changed to {now} in the meantime")));
    }
    let body = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "labels": {LABEL: edit.to},
    }});
    let patch = "application/merge-patch+json";
    let call = Call::send(Method::PATCH, object.path(), patch, body.to_string().into_bytes());
    let call = call.query("dryRun", if dry_run { "All" } else { "" }).query("fieldManager", MANAGER);
    clients.core.bytes(&object.about(call)).await.map(drop)
}
