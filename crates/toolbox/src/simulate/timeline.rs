//! Drawings of runs for the page of the console: the past of an HPA, and a comparison of runs. The drawings are the
//! figures of the report, with the same decision data.

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;

use super::figure::{self, Figure, HATCHES, Ink};
use super::page::{self, Data};
use super::past::{Past, PastRun};
use super::run::{HpaRun, Run};

/// A drawing with its data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drawing {
    /// The panels as markup. Texts are escaped.
    pub(crate) markup: String,
    /// The samples and decisions. Texts have no control characters.
    pub(crate) data: Value,
}

/// Returns the style rules of drawings.
pub(crate) fn style() -> String {
    format!("{}{}", figure::variables(), figure::STYLE)
}

/// Draws the past of an HPA, at most `longest`, with the patterns that all drawings of a page share.
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
    let label = "What happened, over time";
    let defs = format!("<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{HATCHES}</svg>");
    Drawing { markup: format!("<div>{defs}{}</div>", course(chart, label, &figure)), data: json(&data) }
}

/// Draws the counts of several runs in one panel, and below it the last run with all its panels.
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

/// The panels of a figure, in an element that receives the focus.
fn course(chart: usize, label: &str, figure: &Figure) -> String {
    format!(
        "<div class=\"course\" data-course=\"{chart}\" tabindex=\"0\" role=\"group\" \
         aria-label=\"{label}: arrow keys move through time\">\n{}</div>\n",
        page::panels(figure)
    )
}

/// These types always serialize.
fn json(data: &Data) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}
