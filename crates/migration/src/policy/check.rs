//! `policy check`: the policy fields without effect, and the effect of all other fields on HPAs.

use std::io::Write;
use std::sync::Arc;

use jiff::Timestamp;
use policies::bounds::ActiveBound;
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::spec::{ForecastSpec, Mode, ProblemReason};
use serde::Serialize;

use super::document::{Document, FieldProblem, SourcesDocument};
use super::import::FileObject;
use super::world::World;
use super::{PolicyError, Verdict};
use crate::policy::options::CheckOptions;
use cluster::client::Clients;
use terminal::explain::{Cell, Line, Role, Style, Zone, plain};
use terminal::progress::Progress;
use terminal::words::counted;

/// Maximum number of HPAs in text output. Documents have all HPAs.
const SHOWN: usize = 200;

/// Checks the objects of files, and prints the answer. Without clients, the policies are matched with the HPAs of the
/// files only.
pub(super) async fn run(
    options: &CheckOptions,
    default_namespace: &str,
    read: &[FileObject],
    clients: Option<&Clients>,
    now: Timestamp,
    colours: bool,
    out: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let (mut documents, mut sources) = (Vec::new(), Vec::new());
    for read in read {
        match SourcesDocument::new(read) {
            Some(found) => sources.push(found),
            None => documents.extend(Document::new(read, default_namespace, now)),
        }
    }
    if documents.is_empty() && sources.is_empty() {
        let what = "ScalingPolicy, ClusterScalingPolicy, annotation concertina.dev/policy or metric sources";
        return Err(PolicyError::Nothing { files: super::names(&options.files), what });
    }
    let mut world = World::default();
    if let Some(clients) = clients {
        let reading = world.read(clients, options.cluster.namespace.as_deref());
        Progress::on_terminal().during("reading HPAs and policies", reading).await?;
    }
    world.add_files(read, &documents, default_namespace);
    let rows = rows(&world, now);
    let report = Report { documents: &documents, sources: &sources, rows: &rows, notes: &world.notes, now };
    let text = match options.output.encode(&report.document())? {
        Some(document) => document,
        None => report.text(&Zone::local(options.utc), Style { colours, width: None }),
    };
    writeln!(out, "{}", text.trim_end())?;
    out.flush()?;
    let is_good = documents.iter().all(|document| document.problems.is_empty())
        && sources.iter().all(|found| found.problem.is_none())
        && rows.iter().all(|row| row.problems.is_empty());
    Ok(Verdict::good_if(is_good))
}

/// The effect of the policies of one HPA, at the time of the check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Row {
    namespace: String,
    name: String,
    /// The policies in the order of their precedence.
    policies: Vec<String>,
    /// The mode, or `Invalid` for an invalid mode, which keeps the count.
    mode: &'static str,
    /// The pinned count. `None` in other modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    /// The end of the mode. `None` if the mode is permanent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    until: Option<Timestamp>,
    min_replicas: i32,
    max_replicas: i32,
    /// The changes of the HPA's bounds by schedules, as sentences.
    bounds: Vec<String>,
    /// The time of the next change by a schedule or by the end of the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    next_change: Option<Timestamp>,
    /// The fields without effect because an older policy of the same kind sets them, as sentences. At least one of the
    /// two policies is in a file.
    overridden: Vec<String>,
    /// The fields of the files' policies that exceed the limits of a ClusterScalingPolicy.
    problems: Vec<PolicyProblem>,
}

/// A field without effect on an HPA.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PolicyProblem {
    policy: String,
    #[serde(flatten)]
    problem: FieldProblem,
}

/// Returns the HPAs to which a policy of a file applies, sorted by namespace and name.
fn rows(world: &World, now: Timestamp) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((namespace, name), hpa) in &world.hpas {
        let Some(applicable) = world.applicable(namespace, hpa).filter(|found| found.is_checked) else {
            continue;
        };
        let policy = Arc::new(Policy::merge(applicable.sources));
        let rules = resolve(&policy, now);
        let bounded = rules.bounds.apply(hpa.min, hpa.max);
        let is_in_files =
            |index: usize| policy.sources.get(index).is_some_and(|source| world.is_in_files(source, hpa));
        let shown = |index: usize| policy.sources.get(index).map(Source::to_string).unwrap_or_default();
        let overridden =
            policy.overridden.iter().filter(|field| is_in_files(field.source) || is_in_files(field.by));
        let overridden = overridden.map(|field| {
            format!("{} of {} has no effect: {} is older", field.field, shown(field.source), shown(field.by))
        });
        // `Document::problems` has all other problems.
        let limited = policy.problems.iter().filter(|(index, problem)| {
            matches!(problem.reason, ProblemReason::Limited { .. }) && is_in_files(*index)
        });
        let problems =
            limited.map(|(index, problem)| PolicyProblem { policy: shown(*index), problem: problem.into() });
        rows.push(Row {
            namespace: namespace.clone(),
            name: name.clone(),
            policies: policy.sources.iter().map(Source::to_string).collect(),
            mode: rules.mode.mode.map_or("Invalid", Mode::as_str),
            replicas: (rules.mode.mode == Some(Mode::Pinned)).then_some(rules.mode.replicas),
            until: rules.mode.until,
            min_replicas: bounded.min,
            max_replicas: bounded.max,
            bounds: bounded.steps.iter().map(ToString::to_string).collect(),
            next_change: rules.next_edge,
            overridden: overridden.collect(),
            problems: problems.collect(),
        });
    }
    rows
}

fn forecast(spec: &ForecastSpec) -> String {
    if spec.applies() {
        format!("forecast as a floor up to {:.0} % of maxReplicas", spec.settings.maximum_floor * 100.0)
    } else {
        "forecast as a preview".to_owned()
    }
}

/// The result of a check, for output.
struct Report<'a> {
    documents: &'a [Document],
    sources: &'a [SourcesDocument],
    rows: &'a [Row],
    notes: &'a [String],
    now: Timestamp,
}

/// The answer as a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "PolicyCheck"))]
pub(super) struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    at: Timestamp,
    policies: Vec<PolicyAnswer<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sources: &'a [SourcesDocument],
    hpas: &'a [Row],
    notes: &'a [String],
}

/// One policy of the files.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PolicyAnswer<'a> {
    location: &'a str,
    policy: &'a str,
    valid: bool,
    problems: &'a [FieldProblem],
    notes: &'a [String],
    /// The number of HPAs that the policy matches. `None` for an annotation, and if the object is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<usize>,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    next_change: Option<Timestamp>,
}

impl Report<'_> {
    fn document(&self) -> Answer<'_> {
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
            sources: self.sources,
            hpas: self.rows,
            notes: self.notes,
        }
    }

    /// Returns the number of HPAs that a policy object matches.
    fn matched(&self, document: &Document) -> Option<usize> {
        document.object.as_ref()?;
        let has = |row: &&Row| row.policies.contains(&document.title);
        Some(self.rows.iter().filter(has).count())
    }

    fn text(&self, zone: &Zone, style: Style) -> String {
        let mut text = String::new();
        let mut push = |line: &Line, indent: usize| {
            text.push_str(&style.line(line, indent));
            text.push('\n');
        };
        for found in self.sources {
            push(&found.line(), 0);
        }
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

    /// Formats the mode, the bounds and the next change of one policy at the time of the check.
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
        parts.extend(rules.policy.spec.forecast.as_deref().map(forecast));
        if parts.is_empty() {
            parts.push("no mode and no schedule is active".to_owned());
        }
        if let Some(next) = rules.next_edge {
            parts.push(format!("next change {}", zone.time(next, self.now)));
        }
        format!("now: {}", parts.join(", "))
    }

    /// Renders a table of the HPAs, and a line for each changed bound, overridden field and problem.
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
        let mut text = format!("\n{}", style.table(&head, &rows));
        if let Some(more) = self.rows.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            text.push_str(
                &style.text_line("", format!("and {}: -o json lists them", counted(more, "more HPA"))),
            );
        }
        for row in shown {
            let problems = row
                .problems
                .iter()
                .map(|found| format!("{}: {}: {}", found.policy, found.problem.field, found.problem.message));
            for line in row.bounds.iter().cloned().chain(row.overridden.iter().cloned()).chain(problems) {
                text.push_str(&style.text_line("", format!("{}/{}: {line}", row.namespace, row.name)));
            }
        }
        text
    }
}

fn mode(rules: &Rules) -> &'static str {
    rules.mode.mode.map_or("Invalid", Mode::as_str)
}
