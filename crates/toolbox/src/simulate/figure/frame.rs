//! A panel with its labels and marks as SVG. Curves are in a box that stretches to the available width.
//! Labels and marks keep their size, because they are positioned in percent.

use std::fmt::Write as _;

use super::draw::{self, TIMES};
use super::{Figure, Ink, Mark, MarkKind, Panel, Shape};
use crate::explain::escape::html;

/// The width of the box in its own units.
const WIDTH: i32 = 1000;
/// The height of the strip of marks above the replica panel.
const STRIP: i32 = 12;
/// The smallest distance between labels of zones, as a fraction of the time axis.
const LABEL_ROOM: f64 = 0.16;

/// The size of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Extent {
    pub(in super::super) height: i32,
    /// Whether the labels of the time axis are below the panel.
    pub(in super::super) with_times: bool,
}

/// Draws a panel for the page.
pub(in super::super) fn frame(figure: &Figure, panel: &Panel, extent: Extent) -> String {
    let Extent { height, with_times } = extent;
    let (bottom, top) = (panel.values.bottom, panel.values.top);
    let mut svg = format!(
        "<svg class=\"plot\" width=\"100%\" height=\"{height}\" overflow=\"visible\" data-bottom=\"{bottom}\" data-top=\"{top}\">\n"
    );
    boxed(&mut svg, (0, height), &draw::plot(figure, panel, (WIDTH, height)));
    if panel.is_main {
        boxed(&mut svg, (-STRIP - 3, STRIP), &strip(figure));
        warnings(&mut svg, figure);
        zones(&mut svg, figure);
    }
    for (top, label) in draw::value_labels(panel) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text class=\"value\" x=\"-8\" y=\"{}\" dy=\".32em\">{label}</text>",
            percent(top)
        );
    }
    if with_times {
        for (count, (at, label)) in figure.time.ticks(TIMES).into_iter().enumerate() {
            let class = if count % 2 == 0 { "time" } else { "time odd" };
            let x = percent(at / figure.time.length());
            let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"100%\" dy=\"1.5em\">{label}</text>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The symbol of an ink in a legend, 16 wide and 10 high.
pub(in super::super) fn key(ink: Ink, shape: Shape) -> String {
    match shape {
        Shape::Line => format!("<path class=\"s-{}\" d=\"M0 5h16\"/>", ink.name()),
        Shape::Area => format!("<path class=\"f-{}\" d=\"M0 0h16v10h-16z\"/>", ink.name()),
    }
}

fn boxed(svg: &mut String, (y, height): (i32, i32), content: &str) {
    let _ = writeln!(
        svg,
        "<svg y=\"{y}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\">\n{content}</svg>"
    );
}

/// Draws rescales as a row of strokes, up or down from the middle.
fn strip(figure: &Figure) -> String {
    let strokes = |kind: MarkKind, stroke: &str| {
        let mut path = String::new();
        for mark in figure.marks.iter().filter(|mark| mark.kind == kind) {
            let _ = write!(
                path,
                "M{:.1} {}v{stroke}",
                mark.at / figure.time.length() * f64::from(WIDTH),
                STRIP / 2
            );
        }
        path
    };
    let (up, down) = (strokes(MarkKind::Up, "-6"), strokes(MarkKind::Down, "6"));
    let mut svg = String::new();
    for (class, path) in [("s-up", up), ("s-down", down)] {
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    svg
}

fn warnings(svg: &mut String, figure: &Figure) {
    let mut before = f64::NEG_INFINITY;
    for Mark { at, .. } in figure.marks.iter().filter(|mark| mark.kind == MarkKind::Warning) {
        // Repeated warnings would overlap.
        if at - before > figure.time.length() / 200.0 {
            let x = percent(at / figure.time.length());
            let _ = writeln!(svg, "<use href=\"#warning\" x=\"{x}\" y=\"{}\"/>", -STRIP / 2 - 3);
            before = *at;
        }
    }
}

/// Draws the names of zones where they do not overlap.
fn zones(svg: &mut String, figure: &Figure) {
    let length = figure.time.length();
    let mut free_from = f64::NEG_INFINITY;
    for zone in &figure.zones {
        let (from, to) = (zone.from / length, zone.to / length);
        if from < free_from {
            continue;
        }
        free_from = from + LABEL_ROOM;
        let (class, x) = if from > 0.7 { ("zone left", to) } else { ("zone", from) };
        let label = html(&zone.label);
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{}\" y=\"13\">{label}</text>", percent(x));
    }
}

fn percent(fraction: f64) -> String {
    format!("{:.2}%", fraction * 100.0)
}
