//! The scores of all variants in one table.

use std::fmt::Write as _;

use super::run::{Comparison, HpaRun, Run, Scores};
use terminal::words;

/// The minimum difference between the best and the worst value for a mark, as a fraction of the worst value.
const SIGNIFICANT: f64 = 0.01;

/// The definition of a score.
pub(super) struct Score {
    /// The heading.
    pub(super) title: &'static str,
    /// The description, for tooltips.
    pub(super) meaning: &'static str,
    /// The number by which variants are compared.
    pub(super) value: fn(&Scores) -> f64,
    /// The formatted number.
    pub(super) text: fn(&Scores, &Run) -> String,
    /// Whether a lower value is better, all else being equal.
    pub(super) less_is_better: bool,
    /// Whether the value depends on the tolerance, so that it does not compare variants with different tolerances.
    is_of_tolerance: bool,
}

/// The scores in display order.
pub(super) const SCORES: [Score; 7] = [
    Score {
        is_of_tolerance: true,
        ..score(
            "above tolerance",
            "total time with a metric above its target by more than the tolerance",
            |scores| scores.above_target.as_secs_f64(),
            |scores, _| words::span(scores.above_target),
        )
    },
    score(
        "unserved",
        "work beyond the capacity; for a queue, the average queue length",
        |scores| scores.unserved,
        unserved,
    ),
    score(
        "pod-hours",
        "the sum of all pods' lifetimes, in hours",
        |scores| scores.pod_hours,
        |scores, _| words::short((scores.pod_hours * 10.0).round() / 10.0),
    ),
    score(
        "rescales",
        "changes of the replica count",
        |scores| f64::from(scores.rescales),
        |scores, _| scores.rescales.to_string(),
    ),
    score(
        "turns",
        "changes of direction: up after down, or down after up",
        |scores| f64::from(scores.direction_changes),
        |scores, _| scores.direction_changes.to_string(),
    ),
    Score {
        is_of_tolerance: true,
        ..score(
            "longest above",
            "the longest time for which a metric stayed above its target by more than the tolerance",
            |scores| scores.longest_reaction.as_secs_f64(),
            |scores, _| words::span(scores.longest_reaction),
        )
    },
    // A higher peak costs more, but the load may require it.
    Score {
        less_is_better: false,
        ..score(
            "peak",
            "the largest number of pods at once",
            |scores| f64::from(scores.peak),
            |scores, _| scores.peak.to_string(),
        )
    },
];

/// Defines a score of which a lower value is better.
const fn score(
    title: &'static str,
    meaning: &'static str,
    value: fn(&Scores) -> f64,
    text: fn(&Scores, &Run) -> String,
) -> Score {
    Score { title, meaning, value, text, less_is_better: true, is_of_tolerance: false }
}

fn unserved(scores: &Scores, run: &Run) -> String {
    if scores.unserved > 0.0 && scores.unserved_fraction == 0.0 {
        let seconds = run.duration.as_secs_f64().max(1.0);
        return format!("{} waiting", words::short(rounded(scores.unserved / seconds)));
    }
    words::percent(scores.unserved_fraction)
}

fn rounded(value: f64) -> f64 {
    if value >= 10.0 { value.round() } else { value }
}

/// One row of the table: a variant of an HPA.
pub(super) struct Row<'a> {
    pub(super) run: &'a Run,
    pub(super) hpa: &'a HpaRun,
    /// Whether the variant is the baseline.
    pub(super) is_first: bool,
    /// One cell per score.
    pub(super) cells: Vec<Cell>,
}

/// One score of a row.
pub(super) struct Cell {
    pub(super) value: f64,
    /// The formatted number.
    pub(super) text: String,
    /// The difference from the baseline's value, as a fraction of that value. `None` if the baseline's value is 0 or
    /// the values are equal.
    pub(super) change: Option<f64>,
    /// Whether the value is the best of all variants, and the variants differ by more than [`SIGNIFICANT`].
    pub(super) is_best: bool,
}

/// Groups the variants of each HPA. The HPAs are in the order of the first run.
pub(super) fn variants(comparison: &Comparison) -> Vec<Vec<(&Run, &HpaRun)>> {
    let mut groups: Vec<Vec<(&Run, &HpaRun)>> = Vec::new();
    for run in &comparison.runs {
        for hpa in &run.hpas {
            let is_same = |group: &&mut Vec<(&Run, &HpaRun)>| {
                group
                    .first()
                    .is_some_and(|(_, first)| first.namespace == hpa.namespace && first.name == hpa.name)
                    && group.iter().all(|(other, _)| !std::ptr::eq(*other, run))
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.push((run, hpa)),
                None => groups.push(vec![(run, hpa)]),
            }
        }
    }
    groups
}

/// Returns the rows of one HPA's variants.
pub(super) fn rows<'a>(group: &[(&'a Run, &'a HpaRun)]) -> Vec<Row<'a>> {
    let Some((_, first)) = group.first() else { return Vec::new() };
    let row = |(index, (run, hpa)): (usize, &(&'a Run, &'a HpaRun))| Row {
        run,
        hpa,
        is_first: index == 0,
        cells: SCORES.iter().map(|score| cell(score, group, run, &first.scores, &hpa.scores)).collect(),
    };
    group.iter().enumerate().map(row).collect()
}

fn cell(score: &Score, group: &[(&Run, &HpaRun)], run: &Run, first: &Scores, scores: &Scores) -> Cell {
    let values = || group.iter().map(|(_, hpa)| (score.value)(&hpa.scores));
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let (value, base) = ((score.value)(scores), (score.value)(first));
    Cell {
        value,
        text: (score.text)(scores, run),
        change: (base > 0.0 && value != base).then(|| value / base - 1.0),
        is_best: score.less_is_better
            && value == least
            && most - least > most * SIGNIFICANT
            && !(score.is_of_tolerance && has_tolerances(group)),
    }
}

/// Returns whether the variants differ in the tolerance of a metric.
fn has_tolerances(group: &[(&Run, &HpaRun)]) -> bool {
    let tolerances = |hpa: &HpaRun| {
        let relative = hpa.metrics.iter().map(|metric| metric.tolerated_to / metric.target);
        // Far more digits than a tolerance has, so that rounding errors do not count.
        relative.map(|relative| format!("{relative:.9}")).collect::<Vec<_>>()
    };
    let mut all = group.iter().map(|(_, hpa)| tolerances(hpa));
    let first = all.next();
    all.any(|other| Some(&other) != first.as_ref())
}

/// Formats the scores of all variants as an aligned table in plain text. `*` marks the best of several variants.
pub fn scores(comparison: &Comparison) -> String {
    let groups = variants(comparison);
    let has_variants = groups.iter().any(|group| group.len() > 1);
    let has_hpas = groups.len() > 1;
    let mut head: Vec<String> = Vec::new();
    head.extend(has_hpas.then(|| "hpa".to_owned()));
    head.extend(has_variants.then(|| "variant".to_owned()));
    let labels = head.len();
    head.extend(SCORES.iter().map(|score| score.title.to_owned()));
    let mut lines = vec![head];
    let mut has_best = false;
    for row in groups.iter().flat_map(|group| rows(group)) {
        let mut line = Vec::new();
        if has_hpas {
            let key = format!("{}/{}", row.hpa.namespace, row.hpa.name);
            line.push(if row.is_first { words::terminal(&key).into_owned() } else { String::new() });
        }
        if has_variants {
            line.push(words::terminal(&row.run.variant).into_owned());
        }
        has_best |= row.cells.iter().any(|cell| cell.is_best);
        let mark = |cell: Cell| if cell.is_best { cell.text + "*" } else { cell.text };
        line.extend(row.cells.into_iter().map(mark));
        lines.push(line);
    }
    let mut table = aligned(&lines, labels);
    if has_best {
        table.push_str("* best of the variants\n");
    }
    table
}

/// Formats lines with aligned columns: the first `labels` columns to the left, all others to the right.
fn aligned(lines: &[Vec<String>], labels: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let cell_width =
        |line: &Vec<String>, column: usize| line.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<_> = (0..columns)
        .map(|column| lines.iter().map(|line| cell_width(line, column)).max().unwrap_or(0))
        .collect();
    let mut table = String::new();
    for line in lines {
        let mut printed = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if column < labels {
                write!(printed, "{gap}{cell:<width$}")
            } else {
                write!(printed, "{gap}{cell:>width$}")
            };
        }
        table.push_str(printed.trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn table_has_one_row_when_there_is_one_run() {
        let table = scores(&sample::day());
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 2, "{table}");
        assert!(lines[0].starts_with("above tolerance") && lines[0].ends_with("peak"), "{table}");
        assert!(!table.contains('*'));
    }

    #[test]
    fn table_marks_the_best_of_several_variants() {
        let table = scores(&sample::variants());
        assert_eq!(table.lines().count(), 5, "{table}");
        assert!(table.contains("scaleDown.stabilizationWindowSeconds=60"), "{table}");
        assert!(table.contains('*') && table.ends_with("* best of the variants\n"), "{table}");
        // The lowest peak is not marked as the best.
        let capped = table.lines().find(|line| line.starts_with("maxReplicas=10")).unwrap();
        assert!(capped.ends_with("10"), "{table}");
    }

    #[test]
    fn time_above_tolerance_has_no_best_variant_when_tolerances_differ() {
        let mut comparison = sample::variants();
        let best = |comparison: &Comparison| {
            let rows = variants(comparison).iter().flat_map(|group| rows(group)).collect::<Vec<_>>();
            rows.iter().any(|row| row.cells[0].is_best)
        };
        assert!(best(&comparison));
        comparison.runs[1].hpas[0].metrics[0].tolerated_to *= 1.01;
        assert!(!best(&comparison));
    }

    #[test]
    fn table_marks_nothing_when_variants_are_equal() {
        let profile = sample::Profile { hours: 1, variant: "a", ..sample::usual() };
        let table = scores(&sample::compare(&[profile.clone(), sample::Profile { variant: "b", ..profile }]));
        assert!(!table.contains('*'), "{table}");
    }

    #[test]
    fn table_escapes_control_characters_in_names() {
        let table = scores(&sample::many(5));
        assert!(table.contains("\\u{1b}[31mred") && !table.contains('\u{1b}'), "{table}");
    }
}
