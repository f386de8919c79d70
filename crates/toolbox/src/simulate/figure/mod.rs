//! The figure of one HPA's run: panels over one time axis, each with areas and lines, and the times of events. The page
//! and the terminal draw the same figure.

mod axis;
mod downsample;
mod frame;
mod ink;
mod panels;

use std::time::Duration;

pub(super) use self::axis::{TimeAxis, ValueAxis};
pub(super) use self::frame::{Extent, frame, key};
pub(super) use self::ink::{Ink, variables};
pub(super) use self::panels::scale_of;
use super::run::{HpaRun, Run};

/// The style rules for the classes of inks and figures.
pub(super) const STYLE: &str = include_str!("figure.css");

/// The hatch patterns for areas, as SVG definitions.
pub(super) const HATCHES: &str = include_str!("hatches.svg");

/// One HPA's run as panels over a common time axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) time: TimeAxis,
    /// The panels from top to bottom: replicas, metrics, load, queue.
    pub(super) panels: Vec<Panel>,
    /// The events of the scenario, drawn behind every panel.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::run::Comparison;
    use crate::simulate::sample;

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
}
