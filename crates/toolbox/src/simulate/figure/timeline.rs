//! The recent counts of an HPA in a cluster, as a figure of one panel.

use jiff::{SignedDuration, Timestamp};

use super::{Figure, Ink, Line, Mark, MarkKind, Panel, Shape, TimeAxis, ValueAxis, downsample};

/// The longest time that a timeline shows.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// The shortest one.
const SHORTEST: SignedDuration = SignedDuration::from_mins(1);
/// The largest `maxReplicas` that is drawn, as a multiple of the peak.
const BOUND_IN_SIGHT: i32 = 2;

/// The recent counts of an HPA.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    /// The end, usually the current time.
    pub(crate) to: Timestamp,
    /// `minReplicas`.
    pub(crate) min: i32,
    /// `maxReplicas`.
    pub(crate) max: i32,
    /// Desired counts, each from its time to the next one, oldest first.
    pub(crate) counts: Vec<(Timestamp, i32)>,
    /// Warning events, each with its text, oldest first.
    pub(crate) warnings: Vec<(Timestamp, String)>,
}

impl Figure {
    /// Builds the figure of the last hour. It starts at the first count if that is later.
    pub(in super::super) fn from_timeline(timeline: &Timeline) -> Self {
        let to = timeline.to;
        let before = |length| to.checked_sub(length).unwrap_or(Timestamp::MIN);
        let first = timeline.counts.first().map_or(to, |(at, _)| *at);
        let start = first.clamp(before(LONGEST), before(SHORTEST));
        let time = TimeAxis::new(start, to.duration_since(start).as_secs_f64());
        let seconds = |at: &Timestamp| at.duration_since(start).as_secs_f64();
        let counts: Vec<(f64, i32)> =
            timeline.counts.iter().map(|(at, count)| (seconds(at), *count)).collect();
        let is_shown = |at: f64| at >= 0.0 && at <= time.length();
        let rescales = counts.iter().zip(counts.iter().skip(1)).filter(|(_, (at, _))| is_shown(*at));
        let rescales = rescales.filter(|((_, old), (_, new))| old != new);
        let rescales = rescales.map(|((_, old), (at, new))| Mark {
            at: *at,
            kind: if new > old { MarkKind::Up } else { MarkKind::Down },
            label: format!("{old} to {new} replicas"),
        });
        let warnings = timeline.warnings.iter().map(|(at, text)| (seconds(at), text));
        let warnings = warnings.filter(|(at, _)| is_shown(*at));
        let warnings = warnings.map(|(at, text)| Mark { at, kind: MarkKind::Warning, label: text.clone() });
        let marks = rescales.chain(warnings).collect();
        Self { panels: vec![panel(timeline, &counts, time.length())], zones: Vec::new(), marks, time }
    }
}

fn panel(timeline: &Timeline, counts: &[(f64, i32)], length: f64) -> Panel {
    let peak = counts.iter().map(|(_, count)| *count).max().unwrap_or(0).max(timeline.min);
    let with_max = timeline.max <= peak.saturating_mul(BOUND_IN_SIGHT);
    let highest = if with_max { peak.max(timeline.max) } else { peak };
    // The count at the start is the last one before it.
    let held = counts.iter().rev().find(|(at, _)| *at <= 0.0).map(|(_, count)| (0.0, *count));
    let later = counts.iter().filter(|(at, _)| *at > 0.0 && *at <= length);
    let points = held.into_iter().chain(later.copied()).map(|(at, count)| (at, Some(f64::from(count))));
    let bound = |count: i32| Line {
        ink: Ink::Bound,
        pieces: vec![vec![(0.0, f64::from(count)), (length, f64::from(count))]],
    };
    let mut lines = vec![bound(timeline.min)];
    if with_max {
        lines.push(bound(timeline.max));
    }
    lines.push(Line { ink: Ink::Desired, pieces: downsample::steps(points, length) });
    let bounds = if with_max { "min and max" } else { "min" };
    let keys =
        vec![(Ink::Desired, Shape::Line, "desired".to_owned()), (Ink::Bound, Shape::Line, bounds.to_owned())];
    Panel {
        title: "Replicas".to_owned(),
        unit: String::new(),
        is_main: true,
        values: ValueAxis::over([f64::from(highest)], true),
        areas: Vec::new(),
        lines,
        keys,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(10_000 + seconds).unwrap()
    }

    fn timeline(counts: &[(i64, i32)]) -> Timeline {
        let counts = counts.iter().map(|(seconds, count)| (at(*seconds), *count)).collect();
        let warnings = vec![(at(-9_000), "old".to_owned()), (at(-30), "FailedGetScale".to_owned())];
        Timeline { to: at(0), min: 1, max: 9, counts, warnings }
    }

    fn desired(figure: &Figure) -> Vec<(f64, f64)> {
        figure.panels[0].lines.last().unwrap().pieces.concat()
    }

    #[test]
    fn hour_starts_with_the_count_before_it() {
        let figure = Figure::from_timeline(&timeline(&[(-9_000, 2), (-5_000, 3), (-1_800, 6), (-60, 4)]));
        assert_eq!(figure.time.length(), 3_600.0);
        let expected =
            [(0.0, 3.0), (1_800.0, 3.0), (1_800.0, 6.0), (3_540.0, 6.0), (3_540.0, 4.0), (3_600.0, 4.0)];
        assert_eq!(desired(&figure), expected);
        let kinds: Vec<_> = figure.marks.iter().map(|mark| mark.kind).collect();
        assert_eq!(kinds, [MarkKind::Up, MarkKind::Down, MarkKind::Warning]);
        assert_eq!(figure.marks[0].label, "3 to 6 replicas");
    }

    #[test]
    fn short_history_starts_at_its_first_count() {
        assert_eq!(Figure::from_timeline(&timeline(&[(-300, 2)])).time.length(), 300.0);
        assert_eq!(Figure::from_timeline(&timeline(&[(-5, 2)])).time.length(), 60.0);
        assert_eq!(Figure::from_timeline(&timeline(&[])).time.length(), 60.0);
        assert_eq!(desired(&Figure::from_timeline(&timeline(&[]))), []);
    }

    #[test]
    fn maximum_out_of_sight_is_not_drawn() {
        let mut far = timeline(&[(-300, 2)]);
        assert_eq!(Figure::from_timeline(&far).panels[0].lines.len(), 2);
        far.max = 4;
        assert_eq!(Figure::from_timeline(&far).panels[0].lines.len(), 3);
    }
}
