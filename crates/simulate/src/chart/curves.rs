//! The panels of one HPA: replicas as block characters, metrics as lines of braille dots. The panels consist of rows of
//! styled text.

use super::{ChartStyle, GUTTER, time_axis};
use crate::figure::{Figure, MarkKind, scale_of};
use crate::run::{HpaRun, MetricSeries, Run};
use terminal::words;

/// The numbers of rows of the replica panel and of a metric panel.
const ROWS: (usize, usize) = (8, 5);
/// The maximum number of scenario events in a chart.
const ZONES: usize = 4;
/// The number of levels of a block character.
const EIGHTHS: usize = 8;
const BLOCKS: [char; EIGHTHS] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the largest number of desired or ready replicas, at least 1.
pub(super) fn peak(hpa: &HpaRun) -> i32 {
    hpa.samples.iter().map(|sample| sample.wanted.max(sample.ready)).max().unwrap_or(0).max(1)
}

/// Draws the panels over one time axis with `columns` columns. `top` is the upper end of the replica axis, which is the
/// same for all variants.
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

/// Returns the column of an instant. `fraction` is the position of the instant on the time axis, from 0 to 1.
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

/// Groups `values`, one per sample, by column. A column without a sample repeats the last value before the column.
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
        // A column shows its largest numbers of desired and of missing pods, so that missing pods are visible at any
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
        *label = words::short(top);
    }
    // The middle row has a label only if its value is a whole number.
    if let Some(label) = labels.get_mut(ROWS.0 / 2).filter(|_| top % 2.0 == 0.0) {
        *label = words::short(top / 2.0);
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
    rows.extend(grid.rows(&labels));
    rows
}

/// Returns the row above the bars, with the marks of rescales and warnings.
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
        // The dots extend from the mean to a peak above tolerance.
        let peak = if is_above { height(highest) } else { y };
        for dot in end.min(y).min(peak)..=end.max(y).max(peak) {
            grid.dot(x, dot, if is_above { Paint::Bad } else { Paint::Main });
        }
        before = Some(y);
    }
    let mut labels = vec![String::new(); ROWS.1];
    let mut label = |row: usize, value: f64| {
        if let Some(label) = labels.get_mut(row) {
            *label = words::short(value);
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
        .with(Paint::Plain, &format!(" target {}{unit}", words::number(metric.target / scale.by)));
    let mut rows = vec![heading];
    rows.extend(grid.rows(&labels));
    rows
}

/// Rounds the end of an axis to two significant digits.
fn round(value: f64) -> f64 {
    let magnitude = 10_f64.powf(value.abs().max(f64::MIN_POSITIVE).log10().floor() - 1.0);
    (value / magnitude).round() * magnitude
}

/// Draws the first [`ZONES`] events of the scenario. Each event has a bar over its time span, and a label.
fn happenings(figure: &Figure, columns: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let shown = figure.zones.iter().take(ZONES);
    for zone in shown.clone() {
        let from = column(zone.from / figure.time.length(), columns);
        let to = column(zone.to / figure.time.length(), columns).max(from);
        let (bar, width) = ("━".repeat(to - from + 1), zone.label.chars().count());
        let indent = |columns: usize| Row::default().with(Paint::Plain, &" ".repeat(GUTTER + columns));
        // The label is to the right of the bar if it fits there, else to the left or below.
        if to + 2 + width <= columns {
            rows.push(
                indent(from).with(Paint::Lacking, &bar).with(Paint::Plain, &format!(" {}", zone.label)),
            );
        } else if width < from {
            let row = indent(from - width - 1).with(Paint::Plain, &format!("{} ", zone.label));
            rows.push(row.with(Paint::Lacking, &bar));
        } else {
            rows.push(indent(from).with(Paint::Lacking, &bar));
            let from = GUTTER + from.min(columns.saturating_sub(width));
            rows.push(Row::message(from).with(Paint::Plain, &format!("{:from$}{}", "", zone.label)));
        }
    }
    let left_out = figure.zones.len() - shown.len();
    if left_out > 0 {
        rows.push(Row::default().with(Paint::Quiet, &format!("{}and {left_out} more", " ".repeat(GUTTER))));
    }
    rows
}

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Paint {
    #[default]
    Plain,
    Strong,
    Quiet,
    /// Ready pods, and values of metrics.
    Main,
    /// Missing pods, and events of the scenario.
    Lacking,
    /// Values above tolerance, and warnings.
    Bad,
    /// The targets of metrics.
    Target,
}

impl Paint {
    /// Returns the SGR parameter that selects the style.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Strong => "1",
            Self::Quiet => "2",
            Self::Main => "34",
            Self::Lacking => "33",
            Self::Bad => "31",
            Self::Target => "32",
        }
    }
}

/// A line as a list of styled pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Row {
    pieces: Vec<(Paint, String)>,
    /// For a message: the indent of the lines after the first, in columns. `None` for a part of a drawing.
    indent: Option<usize>,
}

/// A character with its style.
type Cell = (Paint, char);

impl Row {
    /// Creates an empty message. `indent` is the indent of its lines after the first, in columns.
    pub(super) fn message(indent: usize) -> Self {
        Self { pieces: Vec::new(), indent: Some(indent) }
    }

    /// Appends a piece. Control characters are escaped, so that no text can move the cursor.
    pub(super) fn with(mut self, paint: Paint, piece: &str) -> Self {
        self.pieces.push((paint, words::terminal(piece).into_owned()));
        self
    }

    /// Prints the line with its line break. A message is wrapped if the style requires it, and never cut. A part of a
    /// drawing is cut to the width of the style. Each character is assumed to be one column wide.
    pub(super) fn print(&self, style: &ChartStyle) -> String {
        let cells = |(paint, piece): &(Paint, String)| {
            let paint = *paint;
            piece.chars().map(move |character| (paint, character)).collect::<Vec<_>>()
        };
        let cells: Vec<Cell> = self.pieces.iter().flat_map(cells).collect();
        let lines = match self.indent {
            Some(indent) if style.wraps => wrapped(&cells, style.width, indent),
            Some(_) => vec![cells],
            None => vec![cut(cells, style)],
        };
        lines.iter().map(|line| printed(line, style)).collect()
    }
}

/// Breaks a message into lines at its spaces. A word that is longer than `width` stays whole.
fn wrapped(cells: &[Cell], width: usize, indent: usize) -> Vec<Vec<Cell>> {
    let indent = indent.min(width / 2);
    let is_space = |cell: &Cell| cell.1 == ' ';
    let (mut lines, mut line) = (Vec::new(), Vec::<Cell>::new());
    for word in cells.split_inclusive(is_space) {
        let length = word.iter().filter(|cell| !is_space(cell)).count();
        if length > 0 && line.len() + length > width && !line.iter().all(is_space) {
            let indented = vec![(Paint::Plain, ' '); indent];
            lines.push(std::mem::replace(&mut line, indented));
        }
        line.extend(word);
    }
    lines.push(line);
    lines
}

/// Cuts a line to the width of the style.
fn cut(mut cells: Vec<Cell>, style: &ChartStyle) -> Vec<Cell> {
    if cells.len() > style.width {
        let ellipsis = if style.ascii { "..." } else { "…" };
        cells.truncate(style.width.saturating_sub(ellipsis.chars().count()));
        cells.extend(ellipsis.chars().map(|character| (Paint::Plain, character)));
    }
    cells
}

/// Prints the cells of one line, with its line break and without spaces at its end.
fn printed(cells: &[Cell], style: &ChartStyle) -> String {
    let mut printed = String::new();
    for cells in cells.chunk_by(|one, other| one.0 == other.0) {
        let paint = cells.first().map_or(Paint::Plain, |(paint, _)| *paint);
        let characters = cells.iter().map(|(_, character)| *character);
        let piece: String = characters.map(|it| if style.ascii { to_ascii(it) } else { it }).collect();
        if style.color && paint != Paint::Plain && !piece.trim().is_empty() {
            printed.extend(["\x1b[", paint.code(), "m", &piece, "\x1b[0m"]);
        } else {
            printed.push_str(&piece);
        }
    }
    let mut printed = printed.trim_end().to_owned();
    printed.push('\n');
    printed
}

/// Returns the ASCII replacement of a character.
fn to_ascii(character: char) -> char {
    match character {
        '█' | '▇' | '▆' | '▅' | '▄' => '#',
        '▃' | '▂' | '▁' => '_',
        '░' => ':',
        '╌' | '─' => '-',
        '━' => '=',
        '│' | '┤' => '|',
        '┬' | '└' => '+',
        '▲' => '^',
        '▼' => 'v',
        '↕' | '◆' => '!',
        '→' => '>',
        '\u{2800}' => ' ',
        '\u{2801}'..='\u{28ff}' => '*',
        _ if character.is_ascii() => character,
        _ => '?',
    }
}

/// The cells of one panel, row by row from the top left.
#[derive(Debug, Clone)]
struct Grid {
    columns: usize,
    cells: Vec<Cell>,
}

impl Grid {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, cells: vec![(Paint::Plain, ' '); columns * rows] }
    }

    fn cell(&mut self, column: usize, row: usize) -> Option<&mut Cell> {
        self.cells.get_mut(row * self.columns + column).filter(|_| column < self.columns)
    }

    /// Sets a cell. A position outside of the grid is ignored.
    fn set(&mut self, column: usize, row: usize, paint: Paint, character: char) {
        if let Some(cell) = self.cell(column, row) {
            *cell = (paint, character);
        }
    }

    /// Adds a braille dot. A cell has two columns of four dots.
    fn dot(&mut self, x: usize, y: usize, paint: Paint) {
        /// The bit of each dot, by row and column.
        const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let (column, row) = (x / 2, y / 4);
        let bit = DOTS.get(y % 4).and_then(|dots| dots.get(x % 2)).copied().unwrap_or(0);
        if let Some(cell) = self.cell(column, row) {
            let (before, had) = match u32::from(cell.1) {
                code @ 0x2800..=0x28ff => (code - 0x2800, cell.0),
                _ => (0, paint),
            };
            let paint = if had == Paint::Bad { had } else { paint };
            *cell = (paint, char::from_u32(0x2800 + (before | bit)).unwrap_or(' '));
        }
    }

    /// Returns the rows, each with its label and the axis on the left.
    fn rows(&self, labels: &[String]) -> Vec<Row> {
        let rows = self.cells.chunks(self.columns.max(1)).enumerate();
        rows.map(|(index, cells)| {
            let label = labels.get(index).map_or("", String::as_str);
            let axis = if label.is_empty() { '│' } else { '┤' };
            let width = GUTTER - 2;
            let mut row = Row::default().with(Paint::Quiet, &format!("{label:>width$} {axis}"));
            for piece in cells.chunk_by(|one, other| one.0 == other.0) {
                let text: String = piece.iter().map(|(_, character)| *character).collect();
                row = row.with(piece.first().map_or(Paint::Plain, |(paint, _)| *paint), &text);
            }
            row
        })
        .collect()
    }
}
