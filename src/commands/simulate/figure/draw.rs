//! A panel as SVG: its grid, areas and lines, in a box that may be stretched.

use std::convert::Infallible;

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Polygon;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::backend::{FINE, Paths};
use super::ink::Ink;
use super::{Figure, Panel, Zone};

/// How many marks the time axis has at most.
pub(super) const TIMES: usize = 13;
/// How many marks the value axis of the panel of replicas has at most.
const VALUES: usize = 6;
/// How many the other value axes have at most.
const FEW_VALUES: usize = 4;
/// What is shorter is widened to this fraction of the time axis, to be seen at all.
const LEAST_WIDTH: f64 = 0.0015;

/// What is drawn of a panel in a box of this size, from `0 0` at the top left.
pub(super) fn plot(figure: &Figure, panel: &Panel, (width, height): (i32, i32)) -> String {
    let mut svg = String::new();
    // Drawing into a string cannot fail.
    let _ = draw(&mut svg, figure, panel, (fine(width), fine(height)));
    svg
}

/// The marks of a panel's value axis, with their distance from the top as a fraction of its height.
pub(super) fn value_labels(panel: &Panel) -> Vec<(f64, String)> {
    let ticks = panel.values.ticks(most_values(panel));
    ticks.into_iter().map(|(value, label)| (1.0 - panel.values.place(value), label)).collect()
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
        chart.draw_series([Polygon::new(corners, Ink::Happening.stand_in().filled())])?;
    }
    let grid = Ink::Grid.stand_in();
    chart
        .configure_mesh()
        .disable_axes()
        .x_labels(TIMES)
        .y_labels(most_values(panel))
        .max_light_lines(0)
        .bold_line_style(grid)
        .draw()?;
    for area in &panel.areas {
        let ink = area.ink.stand_in();
        for piece in &area.pieces {
            let upper = piece.iter().map(|(at, _, high)| (*at, *high));
            let lower = piece.iter().rev().map(|(at, low, _)| (*at, *low));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), ink.filled())])?;
        }
    }
    for line in &panel.lines {
        let ink = line.ink.stand_in();
        for piece in &line.pieces {
            chart.draw_series(LineSeries::new(piece.iter().copied(), ink))?;
        }
    }
    area.present()
}

/// The ends of a zone, apart enough to be seen.
fn widened(zone: &Zone, length: f64) -> (f64, f64) {
    (zone.from, zone.to.max(zone.from + length * LEAST_WIDTH).min(length))
}
