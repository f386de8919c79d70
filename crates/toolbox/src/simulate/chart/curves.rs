//! The panels of one HPA: replicas as block characters, metrics as lines of braille dots.

use super::super::figure::{Figure, MarkKind, scale_of};
use super::super::run::{HpaRun, MetricSeries, Run};
use super::super::text;
use super::canvas::{Grid, Paint, Row};
use super::{GUTTER, time_axis};

/// The number of rows of the replica panel, and of each metric panel.
const ROWS: (usize, usize) = (8, 5);
/// The maximum number of scenario events in a chart.
const ZONES: usize = 4;
/// The number of levels of a block character.
const EIGHTHS: usize = 8;
const BLOCKS: [char; EIGHTHS] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The largest number of desired or ready replicas, at least 1.
pub(super) fn peak(hpa: &HpaRun) -> i32 {
    hpa.samples.iter().map(|sample| sample.wanted.max(sample.ready)).max().unwrap_or(0).max(1)
}

/// Draws the panels over one time axis, `columns` wide. The replica axis ends at `top`, so that variants are
/// comparable.
pub(super) fn panels(run: &Run, hpa: &HpaRun, columns: usize, top: i32, with_metrics: bool) -> Vec<Row> {
    let figure = Figure::new(run, hpa);
    let mut rows = replicas(hpa, &figure, columns, f64::from(top));
    if with_metrics {
        for metric in &hpa.metrics {
            rows.extend(values(hpa, metric, &figure, columns));
        }
    }
    rows.extend(time_axis(&figure.time, columns));
    rows.extend(happenings(&figure, columns));
    rows
}

/// The column of an instant, given as a fraction of the time axis.
pub(super) fn column(fraction: f64, columns: usize) -> usize {
    to_count(fraction * columns as f64).min(columns.saturating_sub(1))
}

/// Truncates a number to a count. Negative numbers become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, and NaN gives 0: both are intended"
)]
fn to_count(value: f64) -> usize {
    value as usize
}

/// The samples of each column. A column without samples repeats the previous sample.
fn chunks<T>(hpa: &HpaRun, figure: &Figure, columns: usize, values: &[T]) -> Vec<Vec<T>>
where
    T: Copy,
{
    let mut chunks: Vec<Vec<T>> = vec![Vec::new(); columns];
    for (sample, value) in hpa.samples.iter().zip(values) {
        let index = column(sample.at.as_secs_f64() / figure.time.length(), columns);
        if let Some(chunk) = chunks.get_mut(index) {
            chunk.push(*value);
        }
    }
    let mut last: Option<T> = None;
    for chunk in &mut chunks {
        chunk.extend(last.filter(|_| chunk.is_empty()));
        last = chunk.last().copied();
    }
    chunks
}

fn replicas(hpa: &HpaRun, figure: &Figure, columns: usize, top: f64) -> Vec<Row> {
    let counts: Vec<_> = hpa.samples.iter().map(|sample| (sample.wanted, sample.ready)).collect();
    let chunks = chunks(hpa, figure, columns, &counts);
    let mut grid = Grid::new(columns, ROWS.0);
    let mut is_lacking = false;
    for (column, chunk) in chunks.iter().enumerate() {
        // Shows the most desired and the most missing pods of the column, so that missing pods are visible at any
        // scale.
        let wanted = f64::from(chunk.iter().map(|(wanted, _)| *wanted).max().unwrap_or(0));
        let lacking = chunk.iter().map(|(wanted, ready)| wanted - ready).max().unwrap_or(0);
        let ready = (wanted - f64::from(lacking)).max(0.0);
        is_lacking |= lacking > 0;
        let filled = to_count((ready / top * (ROWS.0 * EIGHTHS) as f64).round());
        let reached = to_count((wanted / top * (ROWS.0 * EIGHTHS) as f64).round());
        for row in 0..ROWS.0 {
            let base = (ROWS.0 - 1 - row) * EIGHTHS;
            let level = filled.saturating_sub(base).min(EIGHTHS);
            if level > 0 {
                let block = BLOCKS.get(level - 1).copied().unwrap_or('█');
                grid.set(column, row, Paint::Main, block);
            } else if reached > base + EIGHTHS / 2 {
                grid.set(column, row, Paint::Lacking, '░');
            }
        }
    }
    let mut labels = vec![String::new(); ROWS.0];
    if let Some(label) = labels.first_mut() {
        *label = text::short(top);
    }
    // Labels the middle row only if half of the axis is a whole number.
    if let Some(label) = labels.get_mut(ROWS.0 / 2).filter(|_| top % 2.0 == 0.0) {
        *label = text::short(top / 2.0);
    }
    let mut heading =
        Row::default().with(Paint::Plain, "replicas  ").with(Paint::Main, "█").with(Paint::Plain, " ready");
    if is_lacking {
        heading = heading.with(Paint::Lacking, "  ░").with(Paint::Plain, " desired, not ready");
    }
    if !figure.marks.is_empty() {
        heading = heading.with(Paint::Plain, "  ▲▼ rescales");
    }
    if figure.marks.iter().any(|mark| mark.kind == MarkKind::Warning) {
        heading = heading.with(Paint::Bad, "  ◆").with(Paint::Plain, " warnings");
    }
    let mut rows = vec![heading, marks(figure, columns)];
    rows.extend(grid.rows(&labels, GUTTER));
    rows
}

/// The marks of rescales and warnings, above the bars.
fn marks(figure: &Figure, columns: usize) -> Row {
    let mut cells = vec![(Paint::Plain, ' '); columns];
    for mark in &figure.marks {
        let index = column(mark.at / figure.time.length(), columns);
        let Some(cell) = cells.get_mut(index) else { continue };
        *cell = match (mark.kind, cell.1) {
            (MarkKind::Warning, _) | (_, '◆') => (Paint::Bad, '◆'),
            (MarkKind::Up, ' ' | '▲') => (Paint::Plain, '▲'),
            (MarkKind::Down, ' ' | '▼') => (Paint::Plain, '▼'),
            (MarkKind::Up | MarkKind::Down, _) => (Paint::Plain, '↕'),
        };
    }
    let row = Row::default().with(Paint::Plain, &" ".repeat(GUTTER));
    cells.iter().fold(row, |row, (paint, character)| row.with(*paint, &character.to_string()))
}

fn values(hpa: &HpaRun, metric: &MetricSeries, figure: &Figure, columns: usize) -> Vec<Row> {
    let most = metric.values.iter().copied().flatten().fold(metric.target, f64::max);
    let scale = scale_of(metric.unit, most);
    let top = (most.max(metric.target * 1.2) / scale.by).max(f64::MIN_POSITIVE);
    let dots = ROWS.1 * 4;
    let height = |value: f64| {
        let level = to_count((value / scale.by / top * (dots - 1) as f64).round().max(0.0)).min(dots - 1);
        dots - 1 - level
    };
    let mut grid = Grid::new(columns, ROWS.1);
    let target = height(metric.target);
    for column in 0..columns {
        grid.set(column, target / 4, Paint::Target, '╌');
    }
    let chunks = chunks(hpa, figure, columns * 2, &metric.values);
    let mut before: Option<usize> = None;
    for (x, chunk) in chunks.iter().enumerate() {
        let finite: Vec<f64> = chunk.iter().copied().flatten().filter(|value| value.is_finite()).collect();
        if finite.is_empty() {
            before = None;
            continue;
        }
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        let highest = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let is_above = highest > metric.tolerated_to;
        let (end, y) = (before.unwrap_or_else(|| height(mean)), height(mean));
        // The dots extend to a peak above tolerance, because the mean is lower.
        let peak = if is_above { height(highest) } else { y };
        for dot in end.min(y).min(peak)..=end.max(y).max(peak) {
            grid.dot(x, dot, if is_above { Paint::Bad } else { Paint::Main });
        }
        before = Some(y);
    }
    let mut labels = vec![String::new(); ROWS.1];
    let mut label = |row: usize, value: f64| {
        if let Some(label) = labels.get_mut(row) {
            *label = text::short(value);
        }
    };
    label(0, round(top));
    label(ROWS.1 - 1, 0.0);
    label(target / 4, metric.target / scale.by);
    let unit = if scale.unit.is_empty() { String::new() } else { format!(" {}", scale.unit) };
    let name = format!("{}{}{unit}  ", metric.subject, if unit.is_empty() { "" } else { " in" });
    let heading = Row::default()
        .with(Paint::Plain, &name)
        .with(Paint::Target, "╌")
        .with(Paint::Plain, &format!(" target {}{unit}", text::number(metric.target / scale.by)));
    let mut rows = vec![heading];
    rows.extend(grid.rows(&labels, GUTTER));
    rows
}

/// Rounds the end of an axis to two significant digits.
fn round(value: f64) -> f64 {
    let magnitude = 10_f64.powf(value.abs().max(f64::MIN_POSITIVE).log10().floor() - 1.0);
    (value / magnitude).round() * magnitude
}

/// The events of the scenario. Each has a bar over its time span, and a label.
fn happenings(figure: &Figure, columns: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let shown = figure.zones.iter().take(ZONES);
    for zone in shown.clone() {
        let from = column(zone.from / figure.time.length(), columns);
        let to = column(zone.to / figure.time.length(), columns).max(from);
        let (bar, width) = ("━".repeat(to - from + 1), zone.label.chars().count());
        let indent = |columns: usize| Row::default().with(Paint::Plain, &" ".repeat(GUTTER + columns));
        // The label is to the right of the bar, to its left, or below it.
        if to + 2 + width <= columns {
            rows.push(
                indent(from).with(Paint::Lacking, &bar).with(Paint::Plain, &format!(" {}", zone.label)),
            );
        } else if width < from {
            let row = indent(from - width - 1).with(Paint::Plain, &format!("{} ", zone.label));
            rows.push(row.with(Paint::Lacking, &bar));
        } else {
            rows.push(indent(from).with(Paint::Lacking, &bar));
            rows.push(indent(from.min(columns.saturating_sub(width))).with(Paint::Plain, &zone.label));
        }
    }
    let left_out = figure.zones.len() - shown.len();
    if left_out > 0 {
        rows.push(Row::default().with(Paint::Quiet, &format!("{}and {left_out} more", " ".repeat(GUTTER))));
    }
    rows
}
