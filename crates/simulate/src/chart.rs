//! The charts for a terminal: replicas and metrics over time, events, rescales, and the scores.

mod curves;

use std::cmp::Reverse;
use std::io::IsTerminal as _;

use self::curves::{Paint, Row};
use super::figure::TimeAxis;
use super::run::{self, Comparison, EventMark, HpaRun, Run};
use super::table;
use terminal::options::{Color, Size};
use terminal::words::{self, counted};

/// The width of a chart, in columns, if standard output is not a terminal.
const WIDTH: usize = 80;
/// The minimum width of the charts. On a narrower terminal, they are cut.
const LEAST_WIDTH: usize = 40;
/// The maximum number of HPAs with charts. The HTML page has more charts.
const CHARTS: usize = 3;
/// The maximum length of a list of rescales or warnings.
const LISTED: usize = 12;
/// The width of the labels and the axis on the left of the plot, in columns.
const GUTTER: usize = 8;

/// The width, character set and colours of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChartStyle {
    /// The number of columns.
    pub width: usize,
    /// Whether the output is limited to ASCII.
    pub ascii: bool,
    /// Whether the output has colours.
    pub color: bool,
    /// Whether messages are wrapped to the width. A message is never cut.
    pub wraps: bool,
}

impl Default for ChartStyle {
    fn default() -> Self {
        Self { width: WIDTH, ascii: false, color: false, wraps: false }
    }
}

impl ChartStyle {
    /// Returns the style for standard output. On a terminal, its width applies, and messages are wrapped. The output is
    /// limited to ASCII if `ascii` is set, or if the locale is not UTF-8. On Windows, the locale has no effect.
    pub fn stdout(ascii: bool, color: Color) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        // As in POSIX, the first variable with a value determines the locale.
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let is_utf8 = cfg!(windows)
            || locale.is_some_and(|locale| {
                let locale = locale.to_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            });
        Self {
            width: if is_terminal { Size::from_terminal().columns } else { WIDTH },
            ascii: ascii || !is_utf8,
            color: color.applies(is_terminal),
            wraps: is_terminal,
        }
    }

    fn columns(&self) -> usize {
        self.width.max(LEAST_WIDTH)
    }
}

/// Draws the runs as lines for a terminal. The table of scores, and messages that are not wrapped, may be wider than the
/// style allows. Of several
/// variants, only the first has panels of metrics.
pub fn render(comparison: &Comparison, style: &ChartStyle) -> String {
    let mut rows = Vec::new();
    let groups = table::variants(comparison);
    let Some(first) = comparison.runs.first() else { return String::new() };
    rows.extend(title(comparison, first));
    for group in groups.iter().take(CHARTS) {
        let top = group.iter().map(|(_, hpa)| curves::peak(hpa)).max().unwrap_or(1);
        for (index, (run, hpa)) in group.iter().enumerate() {
            rows.push(Row::default());
            let name = format!("{}/{}", hpa.namespace, hpa.name);
            let heading =
                Row::message(2).with(Paint::Strong, &name).with(Paint::Quiet, &format!("  {}", hpa.target));
            rows.push(match run.variant.as_str() {
                "" => heading,
                variant => heading.with(Paint::Plain, &format!("  {variant}")),
            });
            rows.extend(curves::panels(run, hpa, style.columns() - GUTTER - 1, top, index == 0));
            if index == 0 {
                rows.extend(rescales(run, hpa, group.len() > 1));
                rows.extend(warnings(run, hpa));
            }
        }
    }
    if groups.len() > CHARTS {
        let more = groups.len() - CHARTS;
        let more = super::counted(more as u64, "more HPA is", "more HPAs are");
        rows.extend([
            Row::default(),
            Row::message(0).with(Paint::Quiet, &format!("{more} in the table; --report has charts.")),
        ]);
    }
    let mut chart: String = rows.iter().map(|row| row.print(style)).collect();
    chart.push('\n');
    for line in table::scores(comparison).lines() {
        // The table is neither cut nor wrapped, because a truncated score is useless.
        let style = ChartStyle { width: usize::MAX, ..*style };
        chart.push_str(&Row::default().with(Paint::Plain, line).print(&style));
    }
    for (topic, note) in &comparison.notes {
        for line in note.lines() {
            let line = format!("{topic}: {line}");
            chart.push_str(&Row::message(2).with(Paint::Quiet, &line).print(style));
        }
    }
    chart
}

fn title(comparison: &Comparison, run: &Run) -> [Row; 2] {
    let facts = run::facts(comparison, run).join(", ");
    [Row::message(0).with(Paint::Strong, &run.title), Row::message(0).with(Paint::Quiet, &facts)]
}

/// Returns a heading and the largest rescales, oldest first. If variants are compared, returns nothing, except for the
/// heading `no rescales`.
fn rescales(run: &Run, hpa: &HpaRun, is_compared: bool) -> Vec<Row> {
    let rescales = hpa.decisions.iter().filter_map(|point| Some((point, point.rescale()?)));
    let mut changed: Vec<_> = rescales.collect();
    let total = changed.len();
    if total > LISTED {
        changed.sort_by_key(|(point, (from, to))| (Reverse(to.abs_diff(*from)), point.at));
        changed.truncate(LISTED);
        changed.sort_by_key(|(point, _)| point.at);
    }
    let heading = match total {
        0 => "no rescales".to_owned(),
        _ if is_compared => return Vec::new(),
        _ if total > LISTED => format!("the {LISTED} largest of {total} rescales"),
        _ => counted(total, "rescale"),
    };
    let lines = changed.iter().map(|(point, (from, to))| {
        let time = format!("  {}  ", run::time_of_day(run, point.at));
        let counts = format!("{from:>3} → {to:<3}  ");
        Row::message(time.chars().count() + counts.chars().count())
            .with(Paint::Quiet, &time)
            .with(Paint::Strong, &counts)
            .with(Paint::Plain, words::reason(&point.sentence))
    });
    [Row::default().with(Paint::Strong, &heading)].into_iter().chain(lines).collect()
}

/// Returns a heading and the warnings, grouped by reason. The list is empty without warnings.
fn warnings(run: &Run, hpa: &HpaRun) -> Vec<Row> {
    let mut reasons: Vec<(&EventMark, &EventMark, u64)> = Vec::new();
    for event in hpa.events.iter().filter(|event| event.warning) {
        match reasons.iter_mut().find(|(first, ..)| first.reason == event.reason) {
            Some((_, last, count)) => (*last, *count) = (event, *count + 1),
            None => reasons.push((event, event, 1)),
        }
    }
    let lines = reasons.into_iter().take(LISTED).map(|(first, last, count)| {
        let time = format!("  {}  ", run::time_of_day(run, first.at));
        let until = run::time_of_day(run, last.at);
        let until = if count == 1 { String::new() } else { format!(" ({count} times until {until})") };
        Row::message(time.chars().count())
            .with(Paint::Quiet, &time)
            .with(Paint::Bad, &first.reason)
            .with(Paint::Plain, &format!("{until}: {}", first.message))
    });
    let mut rows: Vec<_> = lines.collect();
    if !rows.is_empty() {
        rows.insert(0, Row::default().with(Paint::Strong, "warnings"));
    }
    rows
}

/// Returns the time axis below the panels, and the row of its labels.
fn time_axis(time: &TimeAxis, columns: usize) -> [Row; 2] {
    let mut axis = vec!['─'; columns];
    let mut labels = vec![' '; columns + GUTTER];
    let mut free_from = 0;
    for (at, label) in time.ticks((columns / 9).max(2)) {
        let column = curves::column(at / time.length(), columns);
        if let Some(cell) = axis.get_mut(column) {
            *cell = '┬';
        }
        let from = (column + GUTTER).saturating_sub(label.chars().count() / 2).max(free_from);
        if from + label.chars().count() <= labels.len() {
            for (cell, character) in labels.iter_mut().skip(from).zip(label.chars()) {
                *cell = character;
            }
            free_from = from + label.chars().count() + 1;
        }
    }
    let (axis, labels): (String, String) = (axis.into_iter().collect(), labels.into_iter().collect());
    let gutter = " ".repeat(GUTTER - 1);
    [
        Row::default().with(Paint::Quiet, &format!("{gutter}└{axis}")),
        Row::default().with(Paint::Quiet, labels.trim_end()),
    ]
}
