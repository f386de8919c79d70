//! The answer of `policy check`, as text and as a document.

use jiff::Timestamp;
use policies::bounds::ActiveBound;
use policies::resolve::Rules;
use policies::spec::Mode;
use serde::Serialize;

use super::document::{Document, FieldProblem};
use super::matches::Row;
use crate::explain::{Line, Role, Style, Zone};
use crate::handover::table::{self, Cell, plain};
use crate::words::counted;

/// The maximum number of HPAs in text output. Documents have all HPAs.
const SHOWN: usize = 200;

/// The result of a check.
pub(super) struct Report<'a> {
    pub(super) documents: &'a [Document],
    pub(super) rows: &'a [Row],
    pub(super) notes: &'a [String],
    pub(super) now: Timestamp,
}

/// The answer as a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    at: Timestamp,
    policies: Vec<PolicyAnswer<'a>>,
    hpas: &'a [Row],
    notes: &'a [String],
}

/// One policy of the files.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyAnswer<'a> {
    location: &'a str,
    policy: &'a str,
    valid: bool,
    problems: &'a [FieldProblem],
    notes: &'a [String],
    /// The number of HPAs that the policy matches. Absent for an annotation, and if the object is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<usize>,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_change: Option<Timestamp>,
}

impl Report<'_> {
    /// The answer as a document.
    pub(super) fn document(&self) -> Answer<'_> {
        let policies = self.documents.iter().map(|document| PolicyAnswer {
            location: &document.location,
            policy: &document.title,
            valid: document.problems.is_empty(),
            problems: &document.problems,
            notes: &document.notes,
            matched: self.matched(document),
            mode: mode(&document.rules),
            next_change: document.rules.next_edge,
        });
        Answer {
            api_version: "concertina/v1",
            kind: "PolicyCheck",
            at: self.now,
            policies: policies.collect(),
            hpas: self.rows,
            notes: self.notes,
        }
    }

    /// The number of HPAs that a policy object matches.
    fn matched(&self, document: &Document) -> Option<usize> {
        document.object.as_ref()?;
        let has = |row: &&Row| row.policies.contains(&document.title);
        Some(self.rows.iter().filter(has).count())
    }

    /// The answer as text.
    pub(super) fn text(&self, zone: &Zone, style: Style) -> String {
        let mut text = String::new();
        let mut push = |line: &Line, indent: usize| {
            text.push_str(&style.line(line, indent));
            text.push('\n');
        };
        for document in self.documents {
            let head = Line::new("")
                .plain(format!("{}: ", document.location))
                .strong(document.title.as_str())
                .plain(": ");
            push(
                &match document.problems.len() {
                    0 => head.good("valid"),
                    number => head.bad(counted(number, "problem")),
                },
                0,
            );
            for FieldProblem { field, message } in &document.problems {
                let field = if field.is_empty() { "the policy" } else { field.as_str() };
                let separator = if field == "the policy" { " " } else { ": " };
                push(&Line::new("").bad(field).plain(format!("{separator}{message}")), 2);
            }
            for note in &document.notes {
                push(&Line::new("").warn("note: ").plain(note.as_str()), 2);
            }
            push(&Line::new("").plain(self.state(&document.rules, zone)), 2);
            if let Some(matched) = self.matched(document) {
                push(&Line::new("").plain(format!("matches {}", counted(matched, "HPA"))), 2);
            }
        }
        for note in self.notes {
            push(&Line::new("").warn("note: ").plain(note.as_str()), 0);
        }
        text.push_str(&self.hpas(zone, style));
        text
    }

    /// The state of one policy at the time of the check.
    fn state(&self, rules: &Rules, zone: &Zone) -> String {
        let mut parts = Vec::new();
        if rules.mode.mode != Some(Mode::Auto) {
            let count = if rules.mode.mode == Some(Mode::Pinned) {
                format!(" at {}", rules.mode.replicas)
            } else {
                String::new()
            };
            let until = rules.mode.until.map(|until| format!(" until {}", zone.time(until, self.now)));
            parts.push(format!("mode {}{count}{}", mode(rules), until.unwrap_or_default()));
        }
        let bound = |name: &str, bound: &ActiveBound| {
            let until = bound.until.map(|until| format!(" until {}", zone.time(until, self.now)));
            format!("{name} {} (schedule {}{})", bound.replicas, bound.schedule, until.unwrap_or_default())
        };
        parts.extend(rules.bounds.floor.as_ref().map(|floor| bound("minReplicas", floor)));
        parts.extend(rules.bounds.ceiling.as_ref().map(|ceiling| bound("maxReplicas", ceiling)));
        if parts.is_empty() {
            parts.push("no mode and no schedule is active".to_owned());
        }
        if let Some(next) = rules.next_edge {
            parts.push(format!("next change {}", zone.time(next, self.now)));
        }
        format!("now: {}", parts.join(", "))
    }

    /// A table of the HPAs, and a line for each changed bound, overridden field and problem.
    fn hpas(&self, zone: &Zone, style: Style) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown = self.rows.get(..SHOWN).unwrap_or(self.rows);
        let cells = |row: &Row| -> Vec<Cell> {
            let count = row.replicas.map(|replicas| format!(" {replicas}")).unwrap_or_default();
            let next = row.next_change.map(|next| zone.time(next, self.now)).unwrap_or_default();
            let role = if row.mode == Mode::Auto.as_str() { Role::Plain } else { Role::Warn };
            vec![
                plain(format!("{}/{}", row.namespace, row.name)),
                (role, format!("{}{count}", row.mode)),
                plain(row.min_replicas.to_string()),
                plain(row.max_replicas.to_string()),
                plain(next),
                plain(row.policies.join(", ")),
            ]
        };
        let rows: Vec<Vec<Cell>> = shown.iter().map(cells).collect();
        let head = ["HPA", "MODE", "MIN", "MAX", "NEXT CHANGE", "POLICIES"];
        let mut text = format!("\n{}", table::render(&head, &rows, style));
        if let Some(more) = self.rows.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            text.push_str(&table::line(
                format!("and {}: -o json lists them", counted(more, "more HPA")),
                style,
            ));
        }
        for row in shown {
            let problems = row
                .problems
                .iter()
                .map(|found| format!("{}: {}: {}", found.policy, found.problem.field, found.problem.message));
            for line in row.bounds.iter().cloned().chain(row.overridden.iter().cloned()).chain(problems) {
                text.push_str(&table::line(format!("{}/{}: {line}", row.namespace, row.name), style));
            }
        }
        text
    }
}

fn mode(rules: &Rules) -> &'static str {
    rules.mode.mode.map_or("Invalid", Mode::as_str)
}
