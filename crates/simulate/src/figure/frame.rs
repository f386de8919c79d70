//! A panel with its axes, labels and marks as SVG. The grid, areas, lines and marks of rescales are in boxes that
//! stretch to the available width. Labels and marks of warnings keep their size, because they are outside of the boxes
//! and their positions are percentages. The axes have ticks at round times of day or at round numbers.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::ops::Range;

use jiff::Timestamp;
use jiff::tz::Offset;
use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Polygon;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::ink::{FINE, Ink, Paths};
use super::{Figure, Mark, MarkKind, Panel, Shape, Zone};
use terminal::words::{self, html};

/// The possible steps between two ticks of the time axis, in seconds. Longer steps are multiples of a week.
const STEPS: [u32; 19] = [
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400,
    604_800,
];

/// The time since the start of a run, with ticks at round times of day in UTC.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct TimeAxis {
    start: Timestamp,
    /// The seconds from midnight to the start.
    into_day: f64,
    /// The length of the run, in seconds, at least 1.
    length: f64,
}

impl TimeAxis {
    /// Creates the axis of a run that starts at `start` and lasts `length` seconds.
    pub(in super::super) fn new(start: Timestamp, length: f64) -> Self {
        let time = Offset::UTC.to_datetime(start).time();
        let seconds =
            i32::from(time.hour()) * 3600 + i32::from(time.minute()) * 60 + i32::from(time.second());
        Self { start, into_day: f64::from(seconds), length: length.max(1.0) }
    }

    pub(in super::super) fn length(&self) -> f64 {
        self.length
    }

    /// Returns at most `most` ticks, as seconds since the start and label.
    pub(in super::super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        self.key_points(most).into_iter().map(|at| (at, self.format_ext(&at))).collect()
    }

    fn step(&self, most: usize) -> Option<f64> {
        let fits = |step: &f64| (self.length / step).floor() + 1.0 <= most as f64;
        let weeks = (1..u32::MAX).map(|weeks| f64::from(weeks) * 604_800.0);
        STEPS.iter().copied().map(f64::from).find(fits).or_else(|| weeks.take(10_000).find(fits))
    }
}

impl Ranged for TimeAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points();
        let Some(step) = self.step(most).filter(|_| most > 0) else { return Vec::new() };
        let first = (self.into_day / step).ceil() * step - self.into_day;
        let steps = (0..).map(|count| first + f64::from(count) * step);
        steps.take(most).take_while(|at| *at <= self.length).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.length
    }
}

impl ValueFormatter<f64> for TimeAxis {
    fn format_ext(&self, value: &f64) -> String {
        let after = jiff::SignedDuration::try_from_secs_f64(*value).unwrap_or_default();
        let at = self.start.checked_add(after).unwrap_or(self.start);
        let time = Offset::UTC.to_datetime(at).time();
        let is_midnight = time.hour() == 0 && time.minute() == 0 && time.second() == 0;
        let format = match (self.length, is_midnight) {
            // In runs of at least 36 hours, the label at midnight is the date, to distinguish the days.
            (129_600.0.., true) => "%-d %b",
            (..600.0, _) => "%H:%M:%S",
            _ => "%H:%M",
        };
        at.strftime(format).to_string()
    }
}

/// A value axis with ticks at round numbers.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct ValueAxis {
    /// The lower end: 0, or the lowest negative value.
    pub(in super::super) bottom: f64,
    /// The upper end, slightly above the highest value.
    pub(in super::super) top: f64,
    /// Whether ticks are limited to whole numbers.
    pub(in super::super) is_whole: bool,
}

impl ValueAxis {
    /// Creates an axis from 0, or from the lowest negative value, to slightly above the highest value.
    pub(in super::super) fn over(values: impl IntoIterator<Item = f64>, is_whole: bool) -> Self {
        let (mut bottom, mut top) = (0.0_f64, 0.0_f64);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            bottom = bottom.min(value);
            top = top.max(value);
        }
        let top = if top <= bottom { bottom + 1.0 } else { top + (top - bottom) * 0.06 };
        Self { bottom, top, is_whole }
    }

    /// Returns the height of a value on the axis: 0 at the bottom, 1 at the top. A value beyond the axis is clamped.
    pub(in super::super) fn fraction(&self, value: f64) -> f64 {
        ((value - self.bottom) / (self.top - self.bottom)).clamp(0.0, 1.0)
    }

    /// Returns at most `most` ticks, as value and label.
    pub(in super::super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        self.key_points(most).into_iter().map(|value| (value, words::short(value))).collect()
    }
}

impl Ranged for ValueAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(&value.clamp(self.bottom, self.top), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let mut points = RangedCoordf64::from(self.range()).key_points(hint.max_num_points());
        points.retain(|point| !self.is_whole || point.fract() == 0.0);
        points
    }

    fn range(&self) -> Range<f64> {
        self.bottom..self.top
    }
}

impl ValueFormatter<f64> for ValueAxis {
    fn format_ext(&self, value: &f64) -> String {
        words::short(*value)
    }
}

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

/// The layout of a frame.
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

/// Returns the labels of a panel's value axis, with their distance from the top as a fraction of the height.
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

/// Returns the ends of a zone, widened to the smallest visible width.
fn widened(zone: &Zone, length: f64) -> (f64, f64) {
    (zone.from, zone.to.max(zone.from + length * LEAST_WIDTH).min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(start: &str, length: f64, most: usize) -> Vec<String> {
        TimeAxis::new(start.parse().unwrap(), length)
            .ticks(most)
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn time_axis_has_ticks_at_round_times_of_day() {
        assert_eq!(labels("2030-01-01T00:00:00Z", 86_400.0, 13)[..3], ["00:00", "02:00", "04:00"]);
        assert_eq!(
            labels("2030-01-01T09:10:00Z", 3600.0, 7),
            ["09:10", "09:20", "09:30", "09:40", "09:50", "10:00", "10:10"]
        );
        assert_eq!(labels("2030-01-01T12:00:00Z", 300.0, 4), ["12:00:00", "12:02:00", "12:04:00"]);
        assert_eq!(labels("2030-01-01T00:00:00Z", 259_200.0, 7)[..3], ["1 Jan", "12:00", "2 Jan"]);
        assert!(!labels("2030-01-01T00:00:00Z", 1e9, 7).is_empty());
    }

    #[test]
    fn value_axis_has_whole_ticks_when_values_are_counts() {
        let axis = ValueAxis::over([3.0], true);
        assert_eq!(
            axis.ticks(5).into_iter().map(|(_, label)| label).collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
        assert_eq!(ValueAxis::over([], false), ValueAxis { bottom: 0.0, top: 1.0, is_whole: false });
        assert_eq!(ValueAxis::over([f64::NAN, 2.0, -1.0], false).bottom, -1.0);
    }
}
