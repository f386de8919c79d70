//! The parts of the report: header, scores, a section for each HPA, and notes.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::figure::{self, Extent, Figure, HATCHES, Panel};
use super::super::run::{self, Comparison, HpaRun, Run};
use super::super::table::{self, Cell, SCORES};
use super::Data;
use terminal::words::{self, counted, html};

/// The heights of the replica panel and of any other panel, in CSS pixels.
const HEIGHTS: (i32, i32) = (200, 116);
/// The maximum number of lines in a list of events. The charts show all events.
const LISTED: usize = 400;
/// The maximum number of HPAs in a table without a scroll bar.
const TALL: usize = 12;

/// The variants of one HPA.
type Group<'a> = Vec<(&'a Run, &'a HpaRun)>;

/// Returns the title and the parameters of the run.
pub(super) fn header(comparison: &Comparison, groups: &[Group<'_>]) -> String {
    let Some(run) = comparison.runs.first() else { return String::new() };
    let mut facts = run::facts(comparison, run).to_vec();
    if comparison.runs.len() > 1 {
        facts.push(counted(comparison.runs.len(), "variant"));
    }
    if groups.len() > 1 {
        facts.push(counted(groups.len(), "HPA"));
    }
    format!(
        "<header>\n<div><h1>{}</h1>\n<p class=\"facts\">{}</p></div>\n\
         <button id=\"theme\" class=\"pill\" type=\"button\" hidden title=\"Light, dark, or the system setting\">Theme: <span>auto</span></button>\n</header>\n",
        html(&run.title),
        facts.join(" · ")
    )
}

/// Returns the scores: large numbers for a single run of one HPA, otherwise a table. `shown` is the number of HPAs with
/// charts.
pub(super) fn scores(groups: &[Group<'_>], shown: usize) -> String {
    match groups {
        [group] if group.len() == 1 => tiles(group),
        _ => score_table(groups, shown),
    }
}

fn tiles(group: &Group<'_>) -> String {
    let mut markup = "<section class=\"tiles\" aria-label=\"Scores\"><dl>\n".to_owned();
    for row in table::rows(group) {
        for (score, cell) in SCORES.iter().zip(&row.cells) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                markup,
                "<div title=\"{}\"><dt>{}</dt><dd>{}</dd></div>",
                html(score.meaning),
                score.title,
                html(&cell.text)
            );
        }
    }
    markup.push_str("</dl></section>\n");
    markup
}

fn score_table(groups: &[Group<'_>], shown: usize) -> String {
    let has_variants = groups.iter().any(|group| group.len() > 1);
    let has_hpas = groups.len() > 1;
    let mut head = String::new();
    for label in [has_hpas.then_some("HPA"), has_variants.then_some("variant")].into_iter().flatten() {
        let _ = write!(head, "<th scope=\"col\">{label}</th>");
    }
    for score in &SCORES {
        let _ = write!(
            head,
            "<th scope=\"col\" class=\"n\" title=\"{}\">{}</th>",
            html(score.meaning),
            score.title
        );
    }
    let mut body = String::new();
    for (index, group) in groups.iter().enumerate() {
        // Each HPA has its own `tbody`, which the script moves as a whole when it sorts the table.
        body.push_str("<tbody>\n");
        for row in table::rows(group) {
            body.push_str("<tr>");
            if has_hpas {
                let name = format!("{}/{}", row.hpa.namespace, row.hpa.name);
                let name = html(&name);
                let _ = match (row.is_first, index < shown) {
                    (true, true) => write!(body, "<th scope=\"row\"><a href=\"#hpa{index}\">{name}</a></th>"),
                    (true, false) => write!(body, "<th scope=\"row\">{name}</th>"),
                    (false, _) => write!(body, "<td></td>"),
                };
            }
            if has_variants {
                let _ = write!(body, "<th scope=\"row\" class=\"variant\">{}</th>", html(&row.run.variant));
            }
            for cell in &row.cells {
                body.push_str(&number(cell));
            }
            body.push_str("</tr>\n");
        }
        body.push_str("</tbody>\n");
    }
    let class = if groups.len() > TALL { "wide tall" } else { "wide" };
    let changes = if has_variants {
        "; small type shows the difference to the first variant, bold type the best value"
    } else {
        ""
    };
    format!(
        "<section class=\"scores\"><h2>Scores</h2>\n<div class=\"{class}\"><table>\n<thead><tr>{head}</tr></thead>\n{body}</table></div>\n\
         <p class=\"note\">Lower is better, except for the peak{changes}.</p></section>\n"
    )
}

fn number(cell: &Cell) -> String {
    let class = if cell.is_best { "n best" } else { "n" };
    // A change of 1,000 % or more is omitted, because the numbers are easier to compare.
    let percent =
        cell.change.filter(|change| change.abs() < 10.0).map_or(0.0, |change| (change * 100.0).round());
    let change = if percent == 0.0 {
        String::new()
    } else {
        let sign = if percent < 0.0 { "−" } else { "+" };
        format!(" <small>{sign}{} %</small>", percent.abs())
    };
    format!("<td class=\"{class}\" data-value=\"{}\">{}{change}</td>", cell.value, html(&cell.text))
}

/// Returns the charts of an HPA with its variants, and the lists of events.
pub(super) fn section(index: usize, group: &Group<'_>, data: &mut Data) -> String {
    let Some((_, hpa)) = group.first() else { return String::new() };
    let name = format!("{}/{}", hpa.namespace, hpa.name);
    let mut markup = format!(
        "<section class=\"hpa\" id=\"hpa{index}\"><h2>{} <small>scales {}</small></h2>\n",
        html(&name),
        html(&hpa.target)
    );
    let mut figures: Vec<_> = group.iter().map(|(run, hpa)| Figure::new(run, hpa)).collect();
    figure::share_axes(&mut figures);
    let indexes: Vec<_> =
        group.iter().zip(&figures).map(|((run, hpa), figure)| data.add(run, hpa, figure)).collect();
    if group.len() > 1
        && let Some(overlay) = Figure::overlay(group)
    {
        let chart = data.add_overlay(group, &overlay, indexes.clone());
        let label = format!("Replicas of {name} in all variants");
        let attributes = format!("class=\"course overlay\" id=\"c{chart}\" data-course=\"{chart}\"");
        markup.push_str(&charts(&attributes, &html(&label), &overlay));
    }
    markup.push_str("<div class=\"variants\">\n");
    for (((run, hpa), figure), chart) in group.iter().zip(&figures).zip(indexes) {
        markup.push_str("<div class=\"one\">\n");
        if group.len() > 1 {
            let _ = writeln!(markup, "<h3>{}</h3>", html(&run.variant));
        }
        let name = format!("Charts of {name} {}", run.variant);
        let attributes = format!("class=\"course\" id=\"c{chart}\" data-course=\"{chart}\"");
        markup.push_str(&charts(&attributes, &html(name.trim_end()), figure));
        markup.push_str(&event_list(run, hpa, chart));
        markup.push_str("</div>\n");
    }
    markup.push_str("</div></section>\n");
    markup
}

/// Returns the panels of a figure, in an element that handles pointer and key events. `attributes` are those of the
/// element.
pub(super) fn charts(attributes: &str, label: &str, figure: &Figure) -> String {
    format!(
        "<div {attributes} tabindex=\"0\" role=\"group\" \
         aria-label=\"{label}: arrow keys move through time\">\n{}</div>\n",
        panels(figure)
    )
}

/// Draws the panels of a figure, each with its title and legend.
fn panels(figure: &Figure) -> String {
    let last = figure.panels.len().saturating_sub(1);
    let mut markup = String::new();
    for (index, panel) in figure.panels.iter().enumerate() {
        let extent =
            Extent { height: if panel.is_main { HEIGHTS.0 } else { HEIGHTS.1 }, with_times: index == last };
        let class = match (panel.is_main, index == last) {
            (true, true) => "panel main last",
            (true, false) => "panel main",
            (false, true) => "panel last",
            (false, false) => "panel",
        };
        let _ = write!(
            markup,
            "<figure class=\"{class}\"><figcaption>{}</figcaption>\n<div class=\"frame\">{}</div></figure>\n",
            caption(figure, panel),
            figure::frame(figure, panel, extent)
        );
    }
    markup
}

/// Returns the title and legend of a panel.
fn caption(figure: &Figure, panel: &Panel) -> String {
    let mut markup = format!("<b>{}</b>", html(&panel.title));
    if !panel.unit.is_empty() {
        let _ = write!(markup, " <span class=\"unit\">{}</span>", html(&panel.unit));
    }
    markup.push_str("<ul>");
    let mut key = |sign: &str, label: &str| {
        let _ = write!(
            markup,
            "<li><svg class=\"key\" width=\"16\" height=\"10\" aria-hidden=\"true\">{sign}</svg>{}</li>",
            html(label)
        );
    };
    for (ink, shape, label) in &panel.keys {
        key(&figure::key(*ink, *shape), label);
    }
    if panel.is_main && !figure.marks.is_empty() {
        key("<path class=\"s-up\" d=\"M5 6v-6\"/><path class=\"s-down\" d=\"M11 5v6\"/>", "rescale up, down");
        if figure.marks.iter().any(|mark| mark.kind == figure::MarkKind::Warning) {
            key("<use href=\"#warning\" x=\"8\" y=\"5\"/>", "warning");
        }
    }
    markup.push_str("</ul>");
    markup
}

/// Returns the list of rescales with their reasons, warnings, events of the scenario and effects of the scaling policy,
/// oldest first.
fn event_list(run: &Run, hpa: &HpaRun, chart: usize) -> String {
    let mut lines: Vec<(Duration, &str, String, String)> = Vec::new();
    for point in &hpa.decisions {
        if let Some((from, to)) = point.rescale() {
            let sign = if to > from { "up" } else { "down" };
            lines.push((point.at, sign, format!("{from} → {to}"), words::reason(&point.sentence).to_owned()));
        }
    }
    let rescales = lines.len();
    for event in hpa.events.iter().filter(|event| event.warning) {
        lines.push((event.at, "warned", event.reason.clone(), event.message.clone()));
    }
    for event in &run.happenings {
        let length = event.to.saturating_sub(event.from);
        let length = if length.is_zero() { String::new() } else { format!(", for {}", words::span(length)) };
        lines.push((event.from, "scenario", "scenario".to_owned(), format!("{}{length}", event.what)));
    }
    for span in &hpa.policies {
        let why = format!("{}, for {}", span.what, words::span(span.to.saturating_sub(span.from)));
        lines.push((span.from, "policy", span.reason.as_str().to_owned(), why));
    }
    lines.sort_by_key(|(at, ..)| *at);
    if lines.is_empty() {
        return "<p class=\"note\">No rescales and no events.</p>\n".to_owned();
    }
    let left_out = lines.len().saturating_sub(LISTED);
    let mut rows = String::new();
    for (at, class, what, why) in lines.iter().take(LISTED) {
        let time = run::time_of_day(run, *at);
        let _ = writeln!(
            rows,
            "<tr class=\"{class}\"><td><a href=\"#c{chart}@{}\">{time}</a></td><td>{}</td><td>{}</td></tr>",
            at.as_secs(),
            html(what),
            html(why)
        );
    }
    if left_out > 0 {
        let _ = writeln!(rows, "<tr><td></td><td></td><td>The chart shows {left_out} more.</td></tr>");
    }
    let others = lines.len() - rescales;
    let mut title = match rescales {
        0 => "No rescales".to_owned(),
        _ => counted(rescales, "rescale"),
    };
    if others > 0 {
        let _ = write!(title, ", {}", counted(others, "other event"));
    }
    format!(
        "<details><summary>{title}</summary>\n<div class=\"wide\"><table class=\"happened\"><tbody>\n{rows}</tbody></table></div></details>\n"
    )
}

/// Returns the notice about omitted charts of HPAs and omitted steps of decisions. `sentences` is the number of
/// decisions without steps.
pub(super) fn notice(shown: &[Group<'_>], left_out: &[Group<'_>], sentences: usize) -> String {
    let mut markup = String::new();
    if !left_out.is_empty() {
        let shown = counted(shown.len(), "HPA");
        let more = crate::counted(left_out.len() as u64, "more is", "more are");
        let _ = writeln!(
            markup,
            "<p class=\"notice\">Charts are limited to the first {shown}; {more} only in the table of scores.</p>"
        );
    }
    if sentences > 0 {
        let which = crate::counted(
            sentences as u64,
            "decision without effect shows only its sentence",
            "decisions without effect show only their sentence",
        );
        let _ =
            writeln!(markup, "<p class=\"notice\">To keep the page small, {which}, without the steps.</p>");
    }
    markup
}

/// Returns the notes of the comparison, and the footer.
pub(super) fn notes(comparison: &Comparison) -> String {
    let mut markup = String::new();
    if !comparison.notes.is_empty() {
        markup.push_str("<section class=\"notes\"><h2>Notes</h2>\n<dl>\n");
        for (topic, note) in &comparison.notes {
            let _ = writeln!(markup, "<dt>{}</dt><dd>{}</dd>", html(topic), html(note));
        }
        markup.push_str("</dl></section>\n");
    }
    markup.push_str(
        "<footer>Generated by <b>concertina simulate</b>. Times are in UTC. \
         <span class=\"screen\">Point at a chart, or focus it and press the arrow keys, to see the decision; click or press Enter to pin it.</span></footer>\n",
    );
    markup
}

pub(super) fn course(chart: usize, label: &str, figure: &Figure) -> String {
    charts(&format!("class=\"course\" data-course=\"{chart}\""), label, figure)
}

/// Returns the hatch patterns that all charts of a page use.
pub(super) fn defs() -> String {
    format!("<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{HATCHES}</svg>")
}
