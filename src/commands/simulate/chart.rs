//! The chart on the terminal: replicas and metrics over the time of day, what happened, and the scores.

mod canvas;
mod curves;
#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;

use self::canvas::{Paint, Row};
use super::figure::TimeAxis;
use super::run::{Comparison, EventMark, HpaRun, Run};
use super::{table, text};
use crate::commands::demo::terminal_columns;

/// How wide a chart is where nobody knows better.
const WIDTH: usize = 80;
/// Narrower, it would show nothing.
const LEAST_WIDTH: usize = 40;
/// HPAs that have charts; there is a page for more.
const CHARTS: usize = 3;
/// Rescales and warnings that are listed.
const LISTED: usize = 12;
/// Columns before the plot: labels and the axis.
const GUTTER: usize = 8;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChartStyle {
    /// How many columns there are.
    pub width: usize,
    /// Whether only ASCII may be used.
    pub ascii: bool,
    /// Whether colours may be used.
    pub color: bool,
}

impl Default for ChartStyle {
    fn default() -> Self {
        Self { width: WIDTH, ascii: false, color: false }
    }
}

impl ChartStyle {
    /// What standard output can show: colours on a terminal unless `NO_COLOR` is set, its width, and ASCII alone where the
    /// locale is not UTF-8 or `--ascii` asks for it.
    pub fn stdout(ascii: bool) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        // The first that is set counts, as for every other program.
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let is_utf8 = cfg!(windows)
            || locale.is_some_and(|locale| {
                let locale = locale.to_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            });
        Self {
            width: if is_terminal { terminal_columns() } else { WIDTH },
            ascii: ascii || !is_utf8,
            color: is_terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    fn columns(&self) -> usize {
        self.width.max(LEAST_WIDTH)
    }
}

/// The runs as lines of a terminal, each at most as wide as the style says. Of several variants the first has its metrics
/// too, the others their replicas.
pub fn render(comparison: &Comparison, style: &ChartStyle) -> String {
    let mut rows = Vec::new();
    let groups = table::variants(comparison);
    let Some(first) = comparison.runs.first() else { return String::new() };
    rows.extend(title(first));
    for group in groups.iter().take(CHARTS) {
        let top = group.iter().map(|(_, hpa)| curves::peak(hpa)).max().unwrap_or(1);
        for (place, (run, hpa)) in group.iter().enumerate() {
            rows.push(Row::default());
            let name = format!("{}/{}", hpa.namespace, hpa.name);
            let heading =
                Row::default().with(Paint::Strong, &name).with(Paint::Quiet, &format!("  {}", hpa.target));
            rows.push(match run.variant.as_str() {
                "" => heading,
                variant => heading.with(Paint::Plain, &format!("  {variant}")),
            });
            rows.extend(curves::of(run, hpa, style.columns() - GUTTER - 1, top, place == 0));
            if place == 0 {
                rows.extend(rescales(run, hpa, group.len() > 1));
                rows.extend(warnings(run, hpa));
            }
        }
    }
    if groups.len() > CHARTS {
        let more = groups.len() - CHARTS;
        let more = text::counted(more as u64, "more HPA is", "more HPAs are");
        rows.extend([
            Row::default(),
            Row::default().with(Paint::Quiet, &format!("{more} in the table; --report has charts.")),
        ]);
    }
    let mut chart: String = rows.iter().map(|row| row.print(style)).collect();
    chart.push('\n');
    for line in table::scores(comparison).lines() {
        // Tables are not cut: a score that cannot be read is none.
        chart.push_str(
            &Row::default().with(Paint::Plain, line).print(&ChartStyle { width: usize::MAX, ..*style }),
        );
    }
    for (topic, note) in &comparison.notes {
        chart.push_str(&Row::default().with(Paint::Quiet, &format!("{topic}: {note}")).print(style));
    }
    chart
}

fn title(run: &Run) -> [Row; 2] {
    let facts = format!(
        "{} from {} UTC, a sync every {}, seed {}",
        text::span(run.duration),
        run.start.strftime("%Y-%m-%d %H:%M"),
        text::span(run.period),
        run.seed
    );
    [Row::default().with(Paint::Strong, &run.title), Row::default().with(Paint::Quiet, &facts)]
}

/// The largest rescales, in the order in which they came.
fn rescales(run: &Run, hpa: &HpaRun, is_compared: bool) -> Vec<Row> {
    let change = |from: i32, to: i32| i64::from(to).abs_diff(i64::from(from));
    let mut changed: Vec<_> = hpa
        .decisions
        .iter()
        .filter_map(|point| {
            let (current, desired) = (point.explanation.current, point.explanation.desired?);
            (current != desired).then(|| (point, change(current, desired)))
        })
        .collect();
    let total = changed.len();
    if total > LISTED {
        changed.sort_by_key(|(point, change)| (std::cmp::Reverse(*change), point.at));
        changed.truncate(LISTED);
        changed.sort_by_key(|(point, _)| point.at);
    }
    let heading = match total {
        0 => "no rescales".to_owned(),
        _ if is_compared => return Vec::new(),
        _ if total > LISTED => format!("the {LISTED} largest of {total} rescales"),
        _ => text::counted(total as u64, "rescale", "rescales"),
    };
    let long = run.duration.as_secs() > 86_400;
    let lines = changed.iter().map(|(point, _)| {
        let time = text::time_of_day(run.start, point.at, long);
        let (from, to) = (point.explanation.current, point.explanation.desired.unwrap_or_default());
        Row::default()
            .with(Paint::Quiet, &format!("  {time}  "))
            .with(Paint::Strong, &format!("{from:>3} → {to:<3}  "))
            .with(Paint::Plain, text::reason(&point.sentence))
    });
    [Row::default().with(Paint::Strong, &heading)].into_iter().chain(lines).collect()
}

/// Warnings, those of one reason together.
fn warnings(run: &Run, hpa: &HpaRun) -> Vec<Row> {
    let mut reasons: Vec<(&EventMark, &EventMark, u64)> = Vec::new();
    for event in hpa.events.iter().filter(|event| event.warning) {
        match reasons.iter_mut().find(|(first, ..)| first.reason == event.reason) {
            Some((_, last, count)) => (*last, *count) = (event, *count + 1),
            None => reasons.push((event, event, 1)),
        }
    }
    let long = run.duration.as_secs() > 86_400;
    let lines = reasons.into_iter().take(LISTED).map(|(first, last, count)| {
        let time = text::time_of_day(run.start, first.at, long);
        let until = text::time_of_day(run.start, last.at, long);
        let until = if count == 1 { String::new() } else { format!(" ({count} times until {until})") };
        Row::default()
            .with(Paint::Quiet, &format!("  {time}  "))
            .with(Paint::Bad, &first.reason)
            .with(Paint::Plain, &format!("{until}: {}", first.message))
    });
    let mut rows: Vec<_> = lines.collect();
    if !rows.is_empty() {
        rows.insert(0, Row::default().with(Paint::Strong, "warnings"));
    }
    rows
}

/// The axis below the panels, with its labels.
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
