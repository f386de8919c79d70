//! The figures as one SVG for documents. It follows the light or dark preference of its viewer.

use std::fmt::Write as _;

use super::figure::{self, Extent, Figure, HATCHES, Panel, STYLE};
use super::run::{Comparison, HpaRun, Run};
use super::table::{self, SCORES};
use super::text;
use crate::story::escape::html;

/// The width of the image.
const WIDTH: i32 = 960;
/// The left margin, for labels of the value axis, and the right margin.
const LEFT: i32 = 52;
const RIGHT: i32 = 24;
/// The height of the replica panel, and the height of the other panels.
const HEIGHTS: (i32, i32) = (190, 110);
/// The maximum number of HPAs in one image. The HTML page has room for more.
const CHARTS: usize = 4;

/// Style rules in addition to the figure's rules.
const RULES: &str = ".ground { fill: var(--ground) }\n.title { font-size: 18px; font-weight: 600; fill: var(--desired) }\n\
                     .name { font-size: 13px; font-weight: 600; fill: var(--desired) }\n";

/// Draws the figures of a comparison, one below the other. The same comparison gives the same bytes.
pub fn render(comparison: &Comparison) -> String {
    let mut picture = Picture { svg: String::new(), y: 20 };
    let groups = table::variants(comparison);
    if let Some(run) = comparison.runs.first() {
        picture.text("title", 20, &run.title);
        let facts = format!(
            "{} from {} UTC, a sync every {}, seed {}",
            text::span(run.duration),
            run.start.strftime("%Y-%m-%d %H:%M"),
            text::span(run.period),
            run.seed
        );
        picture.text("", 22, &facts);
    }
    for group in groups.iter().take(CHARTS) {
        picture.group(group);
    }
    if groups.len() > CHARTS {
        let more = text::counted((groups.len() - CHARTS) as u64, "more HPA is", "more HPAs are");
        picture.text("", 24, &format!("{more} not drawn."));
    }
    let style = format!("{RULES}{STYLE}");
    let light = figure::without_variables(&style, false);
    let dark = figure::without_variables(&style, true);
    let (height, body) = (picture.y + 14, picture.svg);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>\n{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n</style>\n{HATCHES}\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

/// An image that grows downwards.
struct Picture {
    svg: String,
    y: i32,
}

impl Picture {
    /// Adds a line of text at a distance below the current position.
    fn text(&mut self, class: &str, below: i32, line: &str) {
        self.y += below;
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "<text class=\"{class}\" x=\"16\" y=\"{}\">{}</text>", self.y, html(line));
    }

    fn group(&mut self, group: &[(&Run, &HpaRun)]) {
        let Some((_, hpa)) = group.first() else { return };
        self.text("name", 30, &format!("{}/{}, scales {}", hpa.namespace, hpa.name, hpa.target));
        let mut figures: Vec<_> = group.iter().map(|(run, hpa)| Figure::new(run, hpa)).collect();
        figure::share_axes(&mut figures);
        if group.len() > 1
            && let Some(overlay) = Figure::overlay(group)
        {
            self.figure(&overlay);
        }
        for (row, figure) in table::rows(group).iter().zip(&figures) {
            if group.len() > 1 {
                self.text("name", 30, &row.run.variant);
            }
            let scores: Vec<_> = SCORES
                .iter()
                .zip(&row.cells)
                .map(|(score, cell)| format!("{} {}", score.title, cell.text))
                .collect();
            self.text("", 18, &scores.join(" · "));
            self.figure(figure);
        }
    }

    fn figure(&mut self, figure: &Figure) {
        let last = figure.panels.len().saturating_sub(1);
        for (index, panel) in figure.panels.iter().enumerate() {
            self.y += 26;
            self.legend(panel);
            self.y += if panel.is_main { 26 } else { 12 };
            let height = if panel.is_main { HEIGHTS.0 } else { HEIGHTS.1 };
            let attributes = format!("x=\"{LEFT}\" y=\"{}\" width=\"{}\"", self.y, WIDTH - LEFT - RIGHT);
            let extent = Extent { attributes, height, with_times: index == last };
            self.svg.push_str(&figure::frame(figure, panel, &extent));
            self.y += height;
        }
        self.y += 24;
    }

    /// Draws the title of a panel and the part of its legend that fits into the width.
    fn legend(&mut self, panel: &Panel) {
        let y = self.y;
        let unit = if panel.unit.is_empty() { String::new() } else { format!(", {}", panel.unit) };
        let title = format!("{}{unit}", panel.title);
        let _ = writeln!(self.svg, "<text class=\"name\" x=\"16\" y=\"{y}\">{}</text>", html(&title));
        let mut x = 16 + extent_of(&title, 8) + 18;
        for (ink, shape, label) in &panel.keys {
            if x + 22 + extent_of(label, 6) > WIDTH - 8 {
                break;
            }
            let _ = writeln!(
                self.svg,
                "<svg x=\"{x}\" y=\"{}\" width=\"16\" height=\"10\">{}</svg><text x=\"{}\" y=\"{y}\">{}</text>",
                y - 9,
                figure::key(*ink, *shape),
                x + 22,
                html(label)
            );
            x += 22 + extent_of(label, 6) + 18;
        }
    }
}

/// An estimate of the width of a text. The font is unknown here.
fn extent_of(text: &str, per_character: i32) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(i32::MAX).saturating_mul(per_character)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn svg_is_self_contained() {
        let svg = render(&sample::outage());
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("var(--") && !svg.contains(" style=") && !svg.contains("<script"));
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("resource metrics API is down"));
        assert!(svg.len() < 200_000, "{}", svg.len());
        assert_eq!(svg, render(&sample::outage()));
    }

    #[test]
    fn svg_escapes_markup_in_names() {
        let svg = render(&sample::many(5));
        assert!(!svg.contains("<script") && !svg.contains("<img") && !svg.contains('\u{1b}'));
        assert!(svg.contains("1 more HPA is not drawn."));
    }
}
