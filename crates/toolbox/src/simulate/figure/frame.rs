//! A panel with its labels and marks as SVG. The grid, areas and lines are in a box that stretches to the available
//! width. Labels and marks keep their size, because they are outside of the box and their positions are percentages.

use std::convert::Infallible;
use std::fmt::Write as _;

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Polygon;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::ink::{FINE, Ink, Paths};
use super::{Figure, Mark, MarkKind, Panel, Shape, Zone};
use crate::explain::escape::html;

/// The width of the box, in SVG units.
const WIDTH: i32 = 1000;
/// The height of the strip of marks above the replica panel.
const STRIP: i32 = 12;
/// The smallest distance between labels of zones, as a fraction of the time axis.
const LABEL_ROOM: f64 = 0.16;

/// The maximum number of ticks on the time axis.
const TIMES: usize = 13;
/// The maximum number of ticks on the value axis of the replica panel.
const VALUES: usize = 6;
/// The maximum number of ticks on the other value axes.
const FEW_VALUES: usize = 4;
/// The smallest width of a zone, as a fraction of the time axis, so that short zones stay visible.
const LEAST_WIDTH: f64 = 0.0015;

/// The size of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct Extent {
    /// The height of the box, in CSS pixels.
    pub(in super::super) height: i32,
    /// Whether the panel has labels of the time axis.
    pub(in super::super) with_times: bool,
}

/// Draws a panel for the page.
pub(in super::super) fn frame(figure: &Figure, panel: &Panel, extent: Extent) -> String {
    let Extent { height, with_times } = extent;
    let (bottom, top) = (panel.values.bottom, panel.values.top);
    let mut svg = format!(
        "<svg class=\"plot\" width=\"100%\" height=\"{height}\" overflow=\"visible\" data-bottom=\"{bottom}\" data-top=\"{top}\">\n"
    );
    boxed(&mut svg, (0, height), &plot(figure, panel, (WIDTH, height)));
    if panel.is_main {
        boxed(&mut svg, (-STRIP - 3, STRIP), &strip(figure));
        warnings(&mut svg, figure);
        zones(&mut svg, figure);
    }
    for (top, label) in value_labels(panel) {
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

/// Returns the symbol of an ink in a legend. The symbol is 16 pixels wide and 10 high.
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

/// Draws rescales as a row of strokes, up or down from the middle of the strip.
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
        // Marks that would overlap are omitted.
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

/// Draws the grid, areas and lines of a panel into a box of the given size. The top left corner of the box is `0 0`.
pub(super) fn plot(figure: &Figure, panel: &Panel, (width, height): (i32, i32)) -> String {
    let mut svg = String::new();
    // Drawing into a string cannot fail.
    let _ = draw(&mut svg, figure, panel, (fine(width), fine(height)));
    svg
}

/// The labels of a panel's value axis, with their distance from the top as a fraction of the height.
fn value_labels(panel: &Panel) -> Vec<(f64, String)> {
    let ticks = panel.values.ticks(most_values(panel));
    ticks.into_iter().map(|(value, label)| (1.0 - panel.values.fraction(value), label)).collect()
}

fn most_values(panel: &Panel) -> usize {
    if panel.is_main { VALUES } else { FEW_VALUES }
}

fn fine(units: i32) -> u32 {
    units.saturating_mul(FINE).unsigned_abs()
}

fn draw(
    svg: &mut String,
    figure: &Figure,
    panel: &Panel,
    size: (u32, u32),
) -> Result<(), DrawingAreaErrorKind<Infallible>> {
    let area = Paths::new(svg, size).into_drawing_area();
    let mut chart = ChartBuilder::on(&area).build_cartesian_2d(figure.time.clone(), panel.values.clone())?;
    let (bottom, top) = (panel.values.bottom, panel.values.top);
    for zone in &figure.zones {
        let (from, to) = widened(zone, figure.time.length());
        let corners = vec![(from, bottom), (to, bottom), (to, top), (from, top)];
        chart.draw_series([Polygon::new(corners, Ink::Happening.placeholder().filled())])?;
    }
    chart
        .configure_mesh()
        .disable_axes()
        .x_labels(TIMES)
        .y_labels(most_values(panel))
        .max_light_lines(0)
        .bold_line_style(Ink::Grid.placeholder())
        .draw()?;
    for area in &panel.areas {
        let ink = area.ink.placeholder();
        for piece in &area.pieces {
            let upper = piece.iter().map(|(at, _, high)| (*at, *high));
            let lower = piece.iter().rev().map(|(at, low, _)| (*at, *low));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), ink.filled())])?;
        }
    }
    for line in &panel.lines {
        let ink = line.ink.placeholder();
        for piece in &line.pieces {
            chart.draw_series(LineSeries::new(piece.iter().copied(), ink))?;
        }
    }
    area.present()
}

/// The ends of a zone, widened to the smallest visible width.
fn widened(zone: &Zone, length: f64) -> (f64, f64) {
    (zone.from, zone.to.max(zone.from + length * LEAST_WIDTH).min(length))
}
