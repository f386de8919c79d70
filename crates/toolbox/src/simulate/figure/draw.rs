//! A panel as SVG: its grid, areas and lines, in a box of any width.

use std::convert::Infallible;

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Polygon;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::backend::{FINE, Paths};
use super::palette::Ink;
use super::{Figure, Panel, Zone};

/// The maximum number of ticks on the time axis.
pub(super) const TIMES: usize = 13;
/// The maximum number of ticks on the value axis of the replica panel.
const VALUES: usize = 6;
/// The maximum number of ticks on the other value axes.
const FEW_VALUES: usize = 4;
/// The smallest width of a zone, as a fraction of the time axis, so that short zones stay visible.
const LEAST_WIDTH: f64 = 0.0015;

/// Draws the content of a panel into a box of the given size, with `0 0` at the top left.
pub(super) fn plot(figure: &Figure, panel: &Panel, (width, height): (i32, i32)) -> String {
    let mut svg = String::new();
    // Drawing into a string cannot fail.
    let _ = draw(&mut svg, figure, panel, (fine(width), fine(height)));
    svg
}

/// The labels of a panel's value axis, with their distance from the top as a fraction of the height.
pub(super) fn value_labels(panel: &Panel) -> Vec<(f64, String)> {
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
    let grid = Ink::Grid.placeholder();
    chart
        .configure_mesh()
        .disable_axes()
        .x_labels(TIMES)
        .y_labels(most_values(panel))
        .max_light_lines(0)
        .bold_line_style(grid)
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
