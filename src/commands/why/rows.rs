//! Many HPAs, one line each: those that need attention first.

use std::fmt::Write as _;

use super::findings::Severity;
use super::tell::{Told, View};
use crate::commands::story::escape;

/// Columns as kubectl aligns them.
const GAP: &str = "   ";
const HEADER: [&str; 5] = ["STATE", "NAMESPACE", "NAME", "REPLICAS", "WHY"];

/// One line each.
pub(super) fn table(told: &[&Told], view: &View) -> String {
    let mut told = told.to_vec();
    told.sort_by_key(|told| (told.worst().unwrap_or(Severity::Info), told.situation.key.clone()));
    let rows: Vec<_> = told.iter().map(|told| (told.worst(), cells(told))).collect();
    let width = |column: usize| {
        let header = HEADER.get(column).map_or(0, |text| text.len());
        let widest = rows.iter().filter_map(|(_, cells)| cells.get(column)).map(|cell| cell.chars().count());
        widest.chain([header]).max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3].map(width);
    let mut text = String::new();
    line(&mut text, &HEADER.map(str::to_owned), widths, "");
    for (worst, cells) in &rows {
        let colour = match worst {
            Some(Severity::Error) if view.colours => "\u{1b}[31m",
            Some(Severity::Warning) if view.colours => "\u{1b}[33m",
            _ => "",
        };
        line(&mut text, cells, widths, colour);
    }
    text
}

fn line(text: &mut String, cells: &[String; 5], widths: [usize; 4], colour: &str) {
    let reset = if colour.is_empty() { "" } else { "\u{1b}[0m" };
    for (place, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let (colour, reset) = if place == 0 { (colour, reset) } else { ("", "") };
        // Infallible: it is a String.
        let _ = write!(text, "{colour}{cell:width$}{reset}{GAP}");
    }
    let [.., why] = cells;
    text.push_str(why);
    text.push('\n');
}

fn cells(told: &Told) -> [String; 5] {
    let situation = &told.situation;
    let explanation = &situation.explanation;
    let state = match told.worst() {
        Some(Severity::Error) => "error",
        Some(Severity::Warning) => "warning",
        Some(Severity::Info) | None => "ok",
    };
    let replicas = match explanation.desired {
        Some(desired) if desired != explanation.current => format!("{} -> {desired}", explanation.current),
        _ => explanation.current.to_string(),
    };
    let codes: Vec<_> =
        told.findings.iter().filter(|finding| finding.severity <= Severity::Warning).collect();
    let codes: Vec<_> = codes.into_iter().map(|finding| finding.code).collect();
    let mut why = situation.sentence();
    if !codes.is_empty() {
        let _ = write!(why, " [{}]", codes.join(", "));
    }
    let clean = |text: &str| escape::terminal(text).into_owned();
    [state.to_owned(), clean(&situation.key.namespace), clean(&situation.key.name), replicas, clean(&why)]
}
