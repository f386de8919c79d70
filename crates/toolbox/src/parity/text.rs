//! The report as terminal text.

use std::fmt::Write;

use super::summary::{self, Answer, Summary};
use crate::explain::{Line, Role, Style, Zone};
use controller::shadow::wire::{Change, Counts, InconclusiveReason, Verdict};

/// Maximum number of changes to list per section.
const MOST: usize = 50;

/// Renders the report.
pub fn render(summary: &Summary, style: Style, zone: &Zone) -> String {
    let mut text = String::new();
    let mut put = |line: Line, indent: usize| {
        text.push_str(&style.line(&line, indent));
        text.push('\n');
    };
    let role = match summary.verdict {
        Answer::Same => Role::Good,
        Answer::Different => Role::Bad,
        Answer::Nothing => Role::Warn,
    };
    put(Line::new("").with(role, summary.sentence.clone()), 0);
    put(Line::new("").dim(facts(summary, zone)), 0);
    if summary.is_by_hours {
        put(Line::new("").dim("There were more changes than are kept: counts cover whole hours"), 0);
    }
    if !summary.differences.is_empty() {
        put(Line::new(""), 0);
        put(Line::new("").strong("Differences"), 0);
        for change in summary.differences.iter().take(MOST) {
            for (indent, line) in lines(change, summary, zone) {
                put(line, indent);
            }
        }
        more(summary.counts.differences(), summary.differences.len().min(MOST), &mut put);
        put(Line::new("").dim(hint(summary)), 2);
    }
    if summary.counts.unknown > 0 {
        put(Line::new(""), 0);
        put(Line::new("").strong("Not judged"), 0);
        for (doubt, count) in &summary.doubts {
            put(Line::new("").plain(format!("{count} × {}", doubt.as_str())), 2);
            if *doubt == InconclusiveReason::NoSign {
                put(Line::new("").dim("is the built-in controller enabled?"), 4);
            }
        }
    }
    if !summary.namespaces.is_empty() {
        text.push('\n');
        table(summary, style, &mut text);
    }
    text
}

fn facts(summary: &Summary, zone: &Zone) -> String {
    let scope = summary.namespace.as_ref().map(|name| format!(", namespace {name}")).unwrap_or_default();
    let mut text = format!(
        "{} to {}, {} HPAs{scope}, Concertina {}",
        zone.full(summary.from),
        zone.full(summary.until),
        summary.hpas,
        summary.controller.version,
    );
    if summary.is_younger {
        // Writing to a string cannot fail.
        let _ = write!(text, "; running for {} only", summary.span());
    }
    text
}

/// Returns the hint that different flags are a common cause of differences.
fn hint(summary: &Summary) -> String {
    let flags = summary::flags(&summary.controller);
    let flags: Vec<_> = flags.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "both controllers must run with the same --horizontal-pod-autoscaler-… flags; the dry run has {}",
        flags.join(" ")
    )
}

fn lines(change: &Change, summary: &Summary, zone: &Zone) -> Vec<(usize, Line)> {
    let [builtin, ours] = summary::counts(change);
    let mut lines = vec![(
        2,
        Line::new("")
            .dim(zone.time(change.at, summary.until))
            .plain(" ")
            .strong(format!("{}/{}", change.namespace, change.name))
            .plain(" ")
            .bad(what(change.result)),
    )];
    let nothing = || "changed nothing".to_owned();
    let mut reasons = summary::builtin_reasons(change).join("; ");
    if !reasons.is_empty() {
        reasons.insert_str(0, ": ");
    }
    lines.push((4, Line::new("built-in").plain(builtin.unwrap_or_else(nothing)).dim(reasons)));
    let sentence = change.ours.as_ref().map_or("", |ours| ours.sentence.as_str());
    // The sentence of a decision already contains the counts.
    let ours = if sentence.is_empty() { ours.unwrap_or_else(nothing) } else { sentence.to_owned() };
    lines.push((4, Line::new("dry run").plain(ours)));
    lines
}

/// Describes the result of a change.
pub(super) fn what(result: Verdict) -> &'static str {
    match result {
        Verdict::Same => "the same",
        Verdict::Different => "another count",
        Verdict::OnlyOurs => "a change by the dry run only",
        Verdict::OnlyBuiltin => "a change by the built-in controller only",
        Verdict::Unknown => "not judged",
    }
}

fn more(all: u64, listed: usize, put: &mut impl FnMut(Line, usize)) {
    let rest = all.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
    if rest > 0 {
        put(Line::new("").dim(format!("and {rest} more")), 2);
    }
}

fn table(summary: &Summary, style: Style, text: &mut String) {
    let mut rows = vec![["NAMESPACE", "HPA", "SAME", "DIFFERENT", "NOT JUDGED"].map(str::to_owned)];
    let row = |namespace: &str, hpa: &str, counts: &Counts| {
        let hpa = if hpa.is_empty() { "(others)" } else { hpa };
        let count = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
        let counts = [counts.same, counts.differences(), counts.unknown].map(count);
        let [same, different, unknown] = counts;
        [namespace.to_owned(), hpa.to_owned(), same, different, unknown]
    };
    for namespace in &summary.namespaces {
        // HPAs with the most differences come first.
        let mut hpas: Vec<_> = namespace.hpas.iter().collect();
        hpas.sort_by_key(|hpa| std::cmp::Reverse(hpa.counts.differences()));
        rows.extend(hpas.into_iter().map(|hpa| row(&namespace.name, &hpa.name, &hpa.counts)));
    }
    let mut widths = [0; 5];
    for cells in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    for (index, cells) in rows.iter().enumerate() {
        let mut line = Line::new("");
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let padded = if column < 2 { format!("{cell:width$}  ") } else { format!("{cell:>width$}  ") };
            let role = match (index, column, cell.as_str()) {
                (0, ..) | (_, _, "-") => Role::Dim,
                (_, 3, _) => Role::Bad,
                _ => Role::Plain,
            };
            line = line.with(role, padded);
        }
        text.push_str(style.cut(&line).trim_end());
        text.push('\n');
    }
}
