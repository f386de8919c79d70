//! The report: one self-contained HTML page. Its content security policy allows only its own style and script, by their
//! hashes, and no network access. The page of the console shows the same charts: the past of an HPA, and runs to
//! compare.

mod data;
mod parts;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::Value;

use self::data::Data;
use super::figure::{self, Figure, HATCHES, Ink};
use super::past::{Past, PastRun};
use super::run::{Comparison, HpaRun, Run};
use super::table;
use crate::explain::escape::html;

/// The maximum number of charts on a page, because many charts make browsers slow. Further HPAs are only in the table
/// of scores.
const CHARTS: usize = 12;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Renders the report of a comparison as HTML. The same comparison gives the same bytes.
pub fn render(comparison: &Comparison) -> String {
    let style = format!("{}{STYLE}", style());
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let groups = table::variants(comparison);
    let (shown, left_out) = groups.split_at(charted(&groups));
    let title = html(comparison.runs.first().map_or("Simulation", |run| run.title.as_str()));
    let header = parts::header(comparison, &groups);
    let scores = parts::scores(&groups, shown.len());
    let mut sections = String::new();
    let mut data = Data::default();
    for (index, group) in shown.iter().enumerate() {
        sections.push_str(&parts::section(index, group, &mut data));
    }
    let notice = parts::notice(shown, left_out, data.left_out());
    let notes = parts::notes(comparison);
    let (data, defs) = (data.json(), defs());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"concertina simulate\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         {defs}\n\
         {header}<main>\n{scores}{sections}{notice}{notes}</main>\n\
         <div id=\"tip\" hidden></div>\n<div id=\"say\" role=\"status\"></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Returns the number of HPAs with charts: the first HPAs whose variants fit into [`CHARTS`], but at least one HPA.
fn charted(groups: &[Vec<(&Run, &HpaRun)>]) -> usize {
    let mut charts = 0;
    let fits = |group: &&Vec<(&Run, &HpaRun)>| {
        charts += group.len();
        charts <= CHARTS
    };
    groups.iter().take_while(fits).count().max(1).min(groups.len())
}

/// Returns the hash of a style or script as a source of a content security policy, such as `sha256-...`.
pub(crate) fn hash(source: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, source.as_bytes())))
}

/// Charts for the page of the console.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drawing {
    /// The panels as HTML. Texts are escaped.
    pub(crate) markup: String,
    /// The samples and decisions for the script. Texts have no control characters.
    pub(crate) data: Value,
}

/// Returns the style rules of charts.
pub(crate) fn style() -> String {
    format!("{}{}", figure::variables(), figure::STYLE)
}

/// Draws the past of an HPA, at most the time `longest` before its end. The markup includes the hatch patterns.
pub(crate) fn draw(past: &Past, longest: SignedDuration) -> Drawing {
    let PastRun { run, has_running, has_ready } = past.run(longest);
    let Some(hpa) = run.hpas.first() else { return Drawing { markup: String::new(), data: Value::Null } };
    let mut figure = Figure::new(&run, hpa);
    if let Some(panel) = figure.panels.first_mut() {
        let is_known = |ink: Ink| match ink {
            Ink::Ready => has_ready,
            Ink::Running => has_running,
            _ => true,
        };
        panel.lines.retain(|line| is_known(line.ink));
        panel.areas.retain(|area| is_known(area.ink));
        panel.keys.retain(|(ink, ..)| is_known(*ink));
    }
    let mut data = Data::default();
    let chart = data.add(&run, hpa, &figure);
    let course = course(chart, "What happened, over time", &figure);
    Drawing { markup: format!("<div>{}{course}</div>", defs()), data: json(&data) }
}

/// Draws the desired replicas of all runs in one panel, followed by all panels of the last run.
pub(crate) fn compare(runs: &[Run]) -> Drawing {
    let group: Vec<(&Run, &HpaRun)> = runs.iter().filter_map(|run| Some((run, run.hpas.first()?))).collect();
    let mut data = Data::default();
    let figures: Vec<_> = group.iter().map(|(run, hpa)| Figure::new(run, hpa)).collect();
    let charts: Vec<_> =
        group.iter().zip(&figures).map(|((run, hpa), figure)| data.add(run, hpa, figure)).collect();
    let mut markup = String::from("<div>");
    if let Some(overlay) = Figure::overlay(&group) {
        let chart = data.add_overlay(&group, &overlay, charts.clone());
        markup.push_str(&course(chart, "Replicas of all runs, over time", &overlay));
    }
    if let Some((chart, figure)) = charts.last().zip(figures.last()) {
        markup.push_str(&course(*chart, "The run with these fields, over time", figure));
    }
    markup.push_str("</div>");
    Drawing { markup, data: json(&data) }
}

fn course(chart: usize, label: &str, figure: &Figure) -> String {
    parts::charts(&format!("class=\"course\" data-course=\"{chart}\""), label, figure)
}

/// Returns the hatch patterns that all charts of a page use.
fn defs() -> String {
    format!("<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{HATCHES}</svg>")
}

fn json(data: &Data) -> Value {
    // The data always serializes.
    serde_json::to_value(data).unwrap_or_default()
}
