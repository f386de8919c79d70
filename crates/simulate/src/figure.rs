//! The figure of one HPA's run: panels over one time axis, each with areas and lines, and the times of events. The page
//! draws the whole figure. The terminal uses only the time axis, the events and the marks of the figure. Curves with
//! many points are downsampled, so that the page stays small.

mod frame;
mod ink;
mod panels;

use std::time::Duration;

pub(super) use self::frame::{Extent, TimeAxis, ValueAxis, frame, key};
pub(super) use self::ink::{Ink, variables};
pub(super) use self::panels::{FLOORS, scale_of};
use super::run::{HpaRun, Run};

/// The style rules for the classes of inks and figures.
pub(super) const STYLE: &str = include_str!("figure/figure.css");

/// The hatch patterns for areas, as SVG definitions.
pub(super) const HATCHES: &str = include_str!("figure/hatches.svg");

/// One HPA's run as panels over a common time axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) time: TimeAxis,
    /// The panels from top to bottom: replicas, metrics, load, queue.
    pub(super) panels: Vec<Panel>,
    /// The events of the scenario, drawn behind the curves of every panel.
    pub(super) zones: Vec<Zone>,
    /// The rescales, followed by the warnings.
    pub(super) marks: Vec<Mark>,
}

/// Areas and lines over one value axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Panel {
    pub(super) title: String,
    /// The unit of the values. Empty for plain numbers.
    pub(super) unit: String,
    /// Whether the panel is the replica panel, which is the largest and has the marks.
    pub(super) is_main: bool,
    pub(super) values: ValueAxis,
    /// The areas, from back to front.
    pub(super) areas: Vec<Area>,
    /// The lines, from back to front.
    pub(super) lines: Vec<Line>,
    /// The legend, in order of importance.
    pub(super) keys: Vec<(Ink, Shape, String)>,
}

/// The shape of a legend symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A stroke.
    Line,
    /// A filled rectangle.
    Area,
}

/// The area between two curves. Each piece is a list of time, lower value and upper value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Area {
    pub(super) ink: Ink,
    pub(super) pieces: Vec<Vec<(f64, f64, f64)>>,
}

/// A curve of values over time. Gaps split the curve into pieces. Each piece is a list of time and value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) ink: Ink,
    pub(super) pieces: Vec<Vec<(f64, f64)>>,
}

/// A period with a description.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Zone {
    /// The start, in seconds since the start of the run.
    pub(super) from: f64,
    /// The end, in seconds since the start of the run. Equal to `from` for an instant.
    pub(super) to: f64,
    pub(super) label: String,
}

/// An event at an instant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    /// The seconds since the start of the run.
    pub(super) at: f64,
    pub(super) kind: MarkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkKind {
    /// `spec.replicas` was raised.
    Up,
    /// `spec.replicas` was lowered.
    Down,
    /// An event of type `Warning` occurred.
    Warning,
}

impl Figure {
    /// Builds the figure of an HPA's run.
    pub(super) fn new(run: &Run, hpa: &HpaRun) -> Self {
        let time = TimeAxis::new(run.start, run.duration.as_secs_f64());
        let panels = panels::build(hpa, time.length());
        let zones = run.happenings.iter().map(|event| Zone {
            from: seconds(event.from, &time),
            to: seconds(event.to, &time),
            label: event.what.clone(),
        });
        let rescales = hpa.rescales().map(|(at, from, to)| Mark {
            at: seconds(at, &time),
            kind: if to > from { MarkKind::Up } else { MarkKind::Down },
        });
        let warnings = hpa.events.iter().filter(|event| event.warning);
        let warnings = warnings.map(|event| Mark { at: seconds(event.at, &time), kind: MarkKind::Warning });
        Self { zones: zones.collect(), marks: rescales.chain(warnings).collect(), time, panels }
    }

    /// Builds a figure with the desired replicas of several variants of one HPA in one panel. `None` without variants.
    pub(super) fn overlay(runs: &[(&Run, &HpaRun)]) -> Option<Self> {
        let (run, _) = runs.first()?;
        let longest = runs.iter().map(|(run, _)| run.duration).max()?;
        let time = TimeAxis::new(run.start, longest.as_secs_f64());
        let panel = panels::overlay(runs, &time);
        Some(Self { time, panels: vec![panel], zones: Vec::new(), marks: Vec::new() })
    }
}

/// Gives panels with the same title and unit the same value axis, so that variants can be compared by eye.
pub(super) fn share_axes(figures: &mut [Figure]) {
    let all: Vec<_> = figures
        .iter()
        .flat_map(|figure| &figure.panels)
        .map(|panel| (panel.title.clone(), panel.unit.clone(), panel.values.clone()))
        .collect();
    for panel in figures.iter_mut().flat_map(|figure| &mut figure.panels) {
        for (_, _, values) in
            all.iter().filter(|(title, unit, _)| *title == panel.title && *unit == panel.unit)
        {
            panel.values.top = panel.values.top.max(values.top);
            panel.values.bottom = panel.values.bottom.min(values.bottom);
        }
        panels::raise_bands(panel);
    }
}

fn seconds(after: Duration, time: &TimeAxis) -> f64 {
    after.as_secs_f64().min(time.length())
}

/// The number of columns of a downsampled curve. A column is a few pixels wide on a screen.
const COLUMNS: f64 = 480.0;
/// The maximum average number of points per column of a curve that is not downsampled.
const FEW: usize = 3;

/// A curve and the range of its values. In a downsampled curve, the range keeps noise visible without hiding the mean.
#[derive(Debug, Clone, PartialEq)]
struct Downsampled {
    /// The points as time and value. A downsampled curve has the first point, the mean of each column, and the last
    /// point.
    line: Vec<(f64, f64)>,
    /// The time, the lowest and the highest value of each point of `line`.
    range: Vec<(f64, f64, f64)>,
    is_reduced: bool,
}

/// Downsamples points of time and value, if they are too many for a time axis of `length` seconds.
fn downsample(points: &[(f64, f64)], length: f64) -> Downsampled {
    let column = |at: f64| (at / length * COLUMNS).floor();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Downsampled { line: Vec::new(), range: Vec::new(), is_reduced: false };
    };
    let columns = column(last.0) - column(first.0) + 1.0;
    if points.len() as f64 <= columns * FEW as f64 {
        let range = points.iter().map(|(at, value)| (*at, *value, *value)).collect();
        return Downsampled { line: points.to_vec(), range, is_reduced: false };
    }
    let mut reduced =
        Downsampled { line: vec![*first], range: vec![(first.0, first.1, first.1)], is_reduced: true };
    for chunk in points.chunk_by(|one, other| column(one.0) == column(other.0)) {
        let (Some(left), Some(right)) = (chunk.first(), chunk.last()) else { continue };
        let middle = f64::midpoint(left.0, right.0);
        let values = || chunk.iter().map(|(_, value)| *value);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        reduced.line.push((middle, values().sum::<f64>() / chunk.len() as f64));
        reduced.range.push((middle, low, high));
    }
    reduced.line.push(*last);
    reduced.range.push((last.0, last.1, last.1));
    reduced
}

/// Builds a step curve, in which each value applies until the next value. The last value applies until `end`. Gaps in
/// the values split the curve into pieces. Consecutive equal values become one step.
fn steps<V: Copy + PartialEq>(
    values: impl IntoIterator<Item = (f64, Option<V>)>,
    end: f64,
) -> Vec<Vec<(f64, V)>> {
    let mut pieces: Vec<Vec<(f64, V)>> = Vec::new();
    let mut held: Option<V> = None;
    for (at, value) in values {
        match (held, value) {
            (Some(before), Some(now)) if before == now => {}
            (Some(before), _) => {
                if let Some(piece) = pieces.last_mut() {
                    piece.push((at, before));
                    piece.extend(value.map(|now| (at, now)));
                }
            }
            (None, Some(now)) => pieces.push(vec![(at, now)]),
            (None, None) => {}
        }
        held = value;
    }
    if let (Some(last), Some(piece)) = (held, pieces.last_mut()) {
        piece.push((end, last));
    }
    pieces
}

/// Builds the area between two step curves, as pieces of time, lower and upper value.
fn bands(values: impl IntoIterator<Item = (f64, Option<(f64, f64)>)>, end: f64) -> Vec<Vec<(f64, f64, f64)>> {
    let flat = |piece: Vec<_>| piece.into_iter().map(|(at, (low, high))| (at, low, high)).collect();
    steps(values, end).into_iter().map(flat).collect()
}

/// Splits values at gaps. Unlike in a step curve, straight lines connect the values of a piece.
fn pieces<V: Copy>(values: impl IntoIterator<Item = (f64, Option<V>)>) -> Vec<Vec<(f64, V)>> {
    let mut pieces: Vec<Vec<(f64, V)>> = Vec::new();
    let mut is_open = false;
    for (at, value) in values {
        match (value, pieces.last_mut().filter(|_| is_open)) {
            (Some(value), Some(piece)) => piece.push((at, value)),
            (Some(value), None) => pieces.push(vec![(at, value)]),
            (None, _) => {}
        }
        is_open = value.is_some();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Comparison;
    use crate::sample;

    fn figure(comparison: &Comparison) -> Figure {
        let run = &comparison.runs[0];
        Figure::new(run, &run.hpas[0])
    }

    #[test]
    fn figure_has_panels_of_replicas_metrics_and_load() {
        let figure = figure(&sample::day());
        let titles: Vec<_> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["Replicas", "cpu", "Load"]);
        let inks: Vec<_> = figure.panels[0].keys.iter().map(|(ink, ..)| *ink).collect();
        assert!(inks.contains(&Ink::Window) && inks.contains(&Ink::Rate), "{inks:?}");
        assert!(figure.marks.iter().any(|mark| mark.kind == MarkKind::Up));
    }

    #[test]
    fn figure_shows_an_outage_as_zone_and_missing_values() {
        let figure = figure(&sample::outage());
        assert_eq!(
            figure.zones,
            [Zone { from: 39_600.0, to: 43_200.0, label: "resource metrics API is down".to_owned() }]
        );
        let missing = figure.panels[1].areas.iter().find(|area| area.ink == Ink::Missing).unwrap();
        assert_eq!((missing.pieces.len(), missing.pieces[0][0].0), (1, 39_600.0));
        assert!(figure.marks.iter().any(|mark| mark.kind == MarkKind::Warning));
    }

    #[test]
    fn figure_has_a_queue_panel_when_the_load_is_a_queue() {
        assert!(figure(&sample::queue()).panels.iter().any(|panel| panel.title == "Queue"));
    }

    #[test]
    fn variants_share_their_value_axes() {
        let comparison = sample::variants();
        let mut figures: Vec<_> = comparison.runs.iter().map(|run| Figure::new(run, &run.hpas[0])).collect();
        assert_ne!(figures[0].panels[0].values, figures[2].panels[0].values);
        share_axes(&mut figures);
        assert_eq!(figures[0].panels[0].values, figures[2].panels[0].values);
    }

    #[test]
    fn plot_of_a_day_is_smaller_than_60_kb() {
        let figure = figure(&sample::day());
        let sizes: Vec<_> =
            figure.panels.iter().map(|panel| frame::plot(&figure, panel, (1000, 200)).len()).collect();
        assert!(sizes.iter().all(|size| *size < 60_000), "{sizes:?}");
    }

    #[test]
    fn steps_merge_equal_samples_and_split_at_gaps() {
        let values = [1.0, 1.0, 2.0].map(Some).into_iter().chain([None, Some(3.0), Some(3.0)]);
        let pieces = steps((0..).map(f64::from).zip(values), 6.0);
        assert_eq!(
            pieces,
            [vec![(0.0, 1.0), (2.0, 1.0), (2.0, 2.0), (3.0, 2.0)], vec![(4.0, 3.0), (6.0, 3.0)]]
        );
    }

    #[test]
    fn downsample_keeps_mean_and_range_of_many_points() {
        let wave: Vec<_> = (0..86_400).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        let reduced = downsample(&wave, 86_400.0);
        assert!(reduced.is_reduced && reduced.line.len() <= 482, "{}", reduced.line.len());
        assert!(reduced.line[1..481].iter().all(|(_, mean)| (mean - 3.0).abs() < 0.1));
        assert!(reduced.range[1..481].iter().all(|(_, low, high)| (*low, *high) == (0.0, 6.0)));
        assert_eq!(reduced.line.last(), wave.last());
    }

    #[test]
    fn downsample_keeps_all_points_when_there_are_few() {
        let points = [(0.0, 1.0), (15.0, 5.0), (30.0, 2.0)];
        assert_eq!(downsample(&points, 3600.0).line, points);
        assert!(downsample(&[], 3600.0).line.is_empty());
    }
}
