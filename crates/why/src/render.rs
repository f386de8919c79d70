//! The answer as terminal text: all steps of one HPA, or one line per HPA.
//!
//! [`Style`] escapes all text of the cluster with `words::terminal`.

use autoscaling::explanation::Span;

use super::Situation;
use super::counterfactual::counterfactual;
use super::findings::{Finding, Severity, State, unknowns};
use super::situation::{
    ChargeBy, HistoryEntry, InCharge, LastDecision, Memory, Origin, Recorded, Recorder, Source,
};
use coexist::handover::scope::BUILT_IN;
use journal::record::wire::Comparison;
use policies::burst::{BurstStep, BurstWindow};
use policies::steps::Step as PolicyStep;
use terminal::explain::{self, Line, Role, Step, Style, Zone};
use terminal::flag_use::FlagOrigin;
use terminal::words;

/// Maximum number of history entries to list. Only the newest entries are listed.
const PAST: usize = 6;

/// Renders the full explanation: the decision, its steps, the changes that would give another result, the findings, the
/// leader's record, and unknown facts. `details` adds the flags, the history and the explanation of each unknown fact.
pub fn whole(
    situation: &Situation,
    findings: &[Finding],
    style: Style,
    zone: &Zone,
    details: bool,
) -> String {
    let mut text = String::new();
    for line in [verdict(situation), context(situation, zone)] {
        text.push_str(&style.line(&line, 0));
        text.push('\n');
    }
    if let Some(charge) = &situation.in_charge {
        text.push_str(&style.line(&in_charge(charge, &situation.key.namespace), 0));
        text.push('\n');
    }
    let mut steps = explain::steps(&situation.explanation, situation.at, zone);
    // The scaling policy applies after the steps of the HPA.
    if situation.decided().replaced_by().is_some()
        && let Some(result) = steps.last_mut()
    {
        result.title = String::from("Result without the scaling policy");
    }
    steps.extend(super::sources::step(situation));
    steps.extend(burst(situation));
    steps.extend(situation.policy.as_ref().map(explain::policy_step));
    if let Some(found) = counterfactual(situation) {
        steps.extend(found.step(&situation.explanation, situation.at, zone));
    }
    steps.push(found(findings));
    steps.extend(own_record(situation, zone, details));
    steps.extend(not_known(situation, zone, details));
    text.push('\n');
    text.push_str(&explain::terminal(&steps, style));
    text
}

/// Renders the verdict: `shop/web stays at 5: ...`.
fn verdict(situation: &Situation) -> Line {
    let mut line = Line::new("").strong(situation.key.to_string()).plain(" ");
    if situation.blind().next().is_some() {
        line = line.warn("(incomplete data) ");
    }
    let sentence = situation.sentence();
    match sentence.split_once(": ") {
        Some((what, why)) => line.strong(what).plain(format!(": {why}.")),
        None => line.strong(format!("{sentence}.")),
    }
}

/// Renders the target, the age of the last rescale, the time and source of the decision, and the last writer of the
/// status.
fn context(situation: &Situation, zone: &Zone) -> Line {
    let mut parts = Vec::new();
    if let Some(target) = &situation.target {
        parts.push(format!("{}/{}", target.kind, target.name));
    }
    if let Some(at) = situation.last_rescale() {
        parts.push(format!("last rescale {} ago", Span::between(at, situation.at)));
    }
    let at = zone.full(situation.at);
    match &situation.source {
        Source::Cluster { record: Recorded::Read(_), .. } => {
            parts.push(format!("decided here at {at} with the flags and the history of the controller"));
        }
        Source::Cluster { .. } => parts.push(format!("decided here at {at} as a controller would")),
        Source::Record { url, since, syncs, version, .. } => {
            parts.push(format!("decided by Concertina {version} at {at}"));
            if *syncs > 1 {
                parts.push(format!("unchanged for {syncs} syncs since {}", zone.time(*since, situation.at)));
            }
            parts.push(format!("record of {url}"));
        }
    }
    if let Some(writer) = &situation.status_writer {
        let ago =
            writer.time.map(|time| format!(" {} ago", Span::between(time, situation.at))).unwrap_or_default();
        parts.push(format!("status written by {}{ago}", writer.manager));
    }
    Line::new("").dim(parts.join(", "))
}

/// Renders the controller in charge: `in charge  instance concertina of Concertina, by the label of the HPA`.
fn in_charge(charge: &InCharge, namespace: &str) -> Line {
    let controller = &charge.controller;
    let controller = match charge.by {
        ChargeBy::StatusWriter => controller.clone(),
        _ if controller == BUILT_IN => "the built-in controller".to_owned(),
        ChargeBy::Hpa | ChargeBy::Namespace => format!("instance {controller} of Concertina"),
    };
    let by = match charge.by {
        ChargeBy::Hpa => "by the label of the HPA".to_owned(),
        ChargeBy::Namespace => format!("by the label of namespace {namespace}"),
        ChargeBy::StatusWriter => "the last writer of the status, without a label".to_owned(),
    };
    Line::new("in charge").dim(format!("{controller}, {by}"))
}

/// Renders the stable and the panic window of `burst`, and the resulting proposal.
fn burst(situation: &Situation) -> Option<Step> {
    let steps = situation.policy.iter().flat_map(|policy| &policy.steps);
    let burst = steps.into_iter().find_map(|step| match step {
        PolicyStep::Burst(burst) => Some(burst),
        _ => None,
    })?;
    let BurstStep { metric, target_milli, ready, stable, panic, reference, replicas, .. } = burst;
    let mut step = Step::new("Burst");
    let (target, mode) = (unit(*target_milli), if burst.is_panic() { "panic" } else { "stable" });
    step.push(Line::new("metric").plain(format!("{metric}, {target} for each of {ready} ready pods")));
    for (name, window) in [("stable", stable), ("panic", panic)] {
        let BurstWindow { average_milli, seconds, replicas } = window;
        let average = unit(*average_milli);
        step.push(Line::new(name).plain(format!("{average} over {seconds} s asks for {replicas}")));
    }
    let instead = if reference == replicas { String::new() } else { format!(" instead of {reference}") };
    step.push(
        Line::new("proposal")
            .strong(format!("{replicas}{instead}"))
            .plain(format!(", in {mode} mode, by {}", burst.limit_text())),
    );
    Some(step)
}

/// Converts milli-units to units.
fn unit(milli: i64) -> f64 {
    milli as f64 / 1000.0
}

fn found(findings: &[Finding]) -> Step {
    let mut step = Step::new("Findings");
    if findings.is_empty() {
        step.push(Line::new("").good("none"));
    }
    for finding in findings {
        let role = role(finding.severity);
        step.push(
            Line::new(finding.severity.as_str())
                .with(role, finding.message.as_str())
                .dim(format!(" [{}]", finding.code)),
        );
        step.push(Line::new("advice").plain(finding.advice.as_str()));
    }
    step
}

fn role(severity: Severity) -> Role {
    match severity {
        Severity::Error => Role::Bad,
        Severity::Warning => Role::Warn,
        Severity::Info => Role::Plain,
    }
}

/// Renders the content of the controller's record, if the decision used it.
fn own_record(situation: &Situation, zone: &Zone, details: bool) -> Option<Step> {
    let Recorder { from, version, last, comparison } = situation.recorder()?;
    let mut step = Step::new(match comparison {
        None => "The controller's own record",
        Some(_) => "The dry run's own record",
    });
    step.push(Line::new("read from").plain(format!("{from}, Concertina {version}")));
    step.push(match last {
        Some(LastDecision { sentence, at, syncs, since }) => {
            let time = |at| zone.time(at, situation.at);
            let same = if *syncs > 1 {
                format!(", unchanged for {syncs} syncs since {}", time(*since))
            } else {
                String::new()
            };
            Line::new("decided").plain(format!("at {}: {sentence}{same}", time(*at)))
        }
        None => Line::new("decided").plain("nothing yet; the first decision follows within one sync period"),
    });
    if let Some(comparison) = comparison {
        step.lines.extend(compared(comparison, situation, zone));
    }
    if !details {
        return Some(step);
    }
    let recorded = situation.flags.iter().filter(|flag| flag.origin == FlagOrigin::Record);
    let flags: Vec<String> = recorded.map(|flag| format!("--{}={}", flag.name, flag.value)).collect();
    if !flags.is_empty() {
        step.push(Line::new("flags").dim(flags.join(" ")));
    }
    step.lines.extend(past(situation, zone));
    Some(step)
}

/// Renders the comparison of a dry run with the active controller.
fn compared(comparison: &Comparison, situation: &Situation, zone: &Zone) -> impl Iterator<Item = Line> {
    let Comparison { since, same, different, unknown, last_difference } = comparison;
    let time = |at| zone.time(at, situation.at);
    let counts =
        format!("{same} changes the same, {different} different, {unknown} unknown, since {}", time(*since));
    let line = Line::new("compared");
    let difference = last_difference
        .as_ref()
        .map(|last| Line::new("differed").plain(format!("at {}: {}", time(last.at), last.sentence)));
    let line = if *different > 0 { line.warn(counts) } else { line.plain(counts) };
    [line].into_iter().chain(difference)
}

/// Renders the newest entries of the history.
fn past(situation: &Situation, zone: &Zone) -> impl Iterator<Item = Line> {
    let entries = &situation.past.entries;
    let newest = entries.get(entries.len().saturating_sub(PAST)..).unwrap_or(entries);
    newest.iter().map(|entry| Line::new("remembered").dim(entry_text(entry, situation, zone)))
}

/// Renders the names of the unknown facts in one line. With `details`, renders each unknown fact and the assumed values
/// of flags, and without a record also the rebuilt history.
fn not_known(situation: &Situation, zone: &Zone, details: bool) -> Option<Step> {
    let unknown = unknowns(situation);
    if unknown.is_empty() {
        return None;
    }
    if !details {
        let names: Vec<&str> = unknown.iter().map(|unknown| unknown.name()).collect();
        let mut step = Step::new("Not known");
        let missing = match &situation.source {
            Source::Cluster { record: Recorded::Missing(reason), .. } => format!(", because {reason}"),
            _ => String::new(),
        };
        step.push(Line::new("").plain(names.join(", ")).plain(missing).dim("; -v 1 explains it"));
        return Some(step);
    }
    let mut step = Step::new("What cannot be known from outside the controller");
    if let Source::Cluster { record: Recorded::NoLeader(reason) | Recorded::Missing(reason), .. } =
        &situation.source
    {
        step.push(Line::new("no record").plain(reason.as_str()));
    }
    step.lines.extend(unknown.iter().map(|unknown| Line::new("not known").plain(unknown.to_string())));
    let assumed: Vec<String> = situation
        .flags
        .iter()
        .filter(|flag| matches!(flag.origin, FlagOrigin::Assumed | FlagOrigin::Server))
        .map(|flag| format!("--{}={}", flag.name, flag.value))
        .collect();
    if !assumed.is_empty() {
        step.push(Line::new("assumed").dim(assumed.join(" ")));
    }
    if situation.recorder().is_none() {
        step.lines.extend(past(situation, zone));
    }
    Some(step)
}

fn entry_text(entry: &HistoryEntry, situation: &Situation, zone: &Zone) -> String {
    let what = match entry.what {
        Memory::Recommendation { replicas } => format!("{replicas} recommended"),
        Memory::Rescale { from: Some(from), to } => format!("{from} → {to}"),
        Memory::Rescale { from: None, to } => format!("scaled to {to}"),
        Memory::UnknownRescale => "scaled by an unknown amount".to_owned(),
    };
    let at = zone.time(entry.at, situation.at);
    let when = match entry.earliest {
        Some(earliest) if zone.time(earliest, situation.at) != at => {
            format!("between {} and {at}", zone.time(earliest, situation.at))
        }
        _ => format!("at {at}"),
    };
    let origin = match &entry.origin {
        Origin::LastScaleTime => "from status.lastScaleTime".to_owned(),
        Origin::Event => "from an event".to_owned(),
        Origin::Condition(reason) => format!("from the condition {reason}"),
        Origin::Record => "from the controller's record".to_owned(),
        Origin::Here => "decided here".to_owned(),
    };
    format!("{what} {when}, {origin}")
}

/// Renders one line per HPA, those in the most urgent state first.
pub fn table<'a>(answers: impl Iterator<Item = (&'a Situation, &'a [Finding])>, style: Style) -> String {
    let mut rows: Vec<(State, &Situation, &[Finding])> =
        answers.map(|(situation, findings)| (State::of(findings), situation, findings)).collect();
    rows.sort_by(|(a, one, _), (b, other, _)| (a, &one.key).cmp(&(b, &other.key)));
    let namespace = column("NAMESPACE", rows.iter().map(|(_, situation, _)| &*situation.key.namespace));
    let name = column("NAME", rows.iter().map(|(_, situation, _)| &*situation.key.name));
    let counts: Vec<String> = rows.iter().map(|(_, situation, _)| counts(situation)).collect();
    let count = column("REPLICAS", counts.iter().map(String::as_str));
    let head = Line::new("")
        .strong(format!("{:8} {:namespace$} {:name$} {:count$} ", "STATE", "NAMESPACE", "NAME", "REPLICAS"));
    let mut text = style.row(&head, &Line::new("").strong("WHY")) + "\n";
    for ((state, situation, findings), counts) in rows.iter().zip(&counts) {
        let sentence = situation.sentence();
        let why = sentence.split_once(": ").map_or(sentence.as_str(), |(_, why)| why);
        let codes: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.severity < Severity::Info)
            .map(|finding| finding.code.as_str())
            .collect();
        let codes = if codes.is_empty() { String::new() } else { format!(" [{}]", codes.join(", ")) };
        let columns = Line::new("")
            .with(role_of(*state), format!("{:8}", state.as_str()))
            .plain(format!(" {} ", padded(&situation.key.namespace, namespace)))
            .strong(padded(&situation.key.name, name))
            .plain(format!(" {} ", padded(counts, count)));
        text.push_str(&style.row(&columns, &Line::new("").plain(why).dim(codes)));
        text.push('\n');
    }
    let mut missing = rows.iter().filter_map(|(_, situation, _)| match &situation.source {
        Source::Cluster { record: Recorded::Missing(reason), .. } => Some(reason),
        _ => None,
    });
    if let Some(reason) = missing.next() {
        let more = match missing.count() {
            0 => String::new(),
            more => format!(" (and of {more} more)"),
        };
        let line = Line::new("").dim(format!(
            "Without the controller's own record{more}: {reason}. Flags and history are assumptions."
        ));
        text.push_str(&style.line(&line, 0));
        text.push('\n');
    }
    text
}

/// Renders the number of HPAs and of those in each state: `300 HPAs: 2 errors, 5 warnings, 293 ok`. The input is the
/// state of each HPA and whether the HPA is shown.
pub(super) fn summary(states: impl Iterator<Item = (State, bool)>) -> Line {
    let states: Vec<(State, bool)> = states.collect();
    let mut line = Line::new("").plain(format!("{}: ", words::counted(states.len(), "HPA")));
    let mut separator = "";
    for state in State::ALL {
        let number = states.iter().filter(|(other, _)| *other == state).count();
        let text = match (number, state) {
            (0, _) => continue,
            (_, State::Ok) => format!("{number} ok"),
            _ => words::counted(number, state.as_str()),
        };
        line = line.plain(separator).with(role_of(state), text);
        separator = ", ";
    }
    match states.iter().filter(|(_, is_shown)| !is_shown).count() {
        0 => line,
        hidden => line.dim(format!(" ({hidden} not shown)")),
    }
}

fn role_of(state: State) -> Role {
    match state {
        State::Error => Role::Bad,
        State::Warning => Role::Warn,
        State::Ok => Role::Good,
    }
}

/// Formats the counts: `5`, or `5 → 8`, or `?` if the current count is unknown.
fn counts(situation: &Situation) -> String {
    match (situation.current(), situation.decided().count()) {
        (None, _) => "?".to_owned(),
        (Some(current), Some(count)) if count != current => format!("{current} → {count}"),
        (Some(current), _) => current.to_string(),
    }
}

/// Returns the width of a column, which is the width of its widest escaped cell.
fn column<'a>(head: &str, cells: impl Iterator<Item = &'a str>) -> usize {
    let widest = cells.map(|cell| words::terminal(cell).chars().count()).max().unwrap_or(0);
    widest.max(head.len())
}

/// Pads a cell by its escaped width.
fn padded(cell: &str, width: usize) -> String {
    let taken = words::terminal(cell).chars().count();
    format!("{cell}{}", " ".repeat(width.saturating_sub(taken)))
}

#[cfg(test)]
mod tests;
