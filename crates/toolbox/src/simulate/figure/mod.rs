//! The drawing of one HPA's run, as values: panels over one time axis, each with areas and lines, and the
//! times of events. The page and the terminal draw the same figure.

mod axis;
mod backend;
mod downsample;
mod draw;
mod frame;
mod palette;
mod panels;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(super) use self::axis::{TimeAxis, ValueAxis};
pub(super) use self::frame::{Extent, frame, key};
pub(super) use self::palette::{Ink, variables};
pub(super) use self::panels::scale_of;
use super::run::{HpaRun, Run};

/// The style rules of the ink classes. The page adds its own rules.
pub(super) const STYLE: &str = include_str!("figure.css");

/// The hatch patterns for areas, defined once per document.
pub(super) const HATCHES: &str = include_str!("hatches.svg");

/// One HPA's run as panels over a common time axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// The common time axis.
    pub(super) time: TimeAxis,
    /// The panels from top to bottom: replicas, metrics, load, queue.
    pub(super) panels: Vec<Panel>,
    /// The events of the scenario, drawn behind every panel.
    pub(super) zones: Vec<Zone>,
    /// Rescales and warnings.
    pub(super) marks: Vec<Mark>,
}

/// Areas and lines over one value axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Panel {
    pub(super) title: String,
    /// The unit of its values; empty for plain numbers.
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

/// The area between two curves, in pieces of time, lower value and upper value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Area {
    pub(super) ink: Ink,
    pub(super) pieces: Vec<Vec<(f64, f64, f64)>>,
}

/// A curve of values over time. Gaps split the curve into pieces.
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
    /// The end; equal to `from` for an instant.
    pub(super) to: f64,
    /// The description.
    pub(super) label: String,
}

/// An event at an instant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    /// The seconds since the start.
    pub(super) at: f64,
    pub(super) kind: MarkKind,
    /// The description.
    pub(super) label: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MarkKind {
    /// `spec.replicas` was raised.
    Up,
    /// `spec.replicas` was lowered.
    Down,
    /// A warning event.
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
        let rescales = hpa
            .samples
            .iter()
            .zip(hpa.samples.iter().skip(1))
            .filter(|(before, after)| before.wanted != after.wanted);
        let rescales = rescales.map(|(before, after)| Mark {
            at: seconds(after.at, &time),
            kind: if after.wanted > before.wanted { MarkKind::Up } else { MarkKind::Down },
            label: format!("{} to {} replicas", before.wanted, after.wanted),
        });
        let warnings = hpa.events.iter().filter(|event| event.warning).map(|event| Mark {
            at: seconds(event.at, &time),
            kind: MarkKind::Warning,
            label: format!("{}: {}", event.reason, event.message),
        });
        Self { zones: zones.collect(), marks: rescales.chain(warnings).collect(), time, panels }
    }

    /// The desired replicas of several variants of one HPA in one panel.
    pub(super) fn overlay(runs: &[(&Run, &HpaRun)]) -> Option<Self> {
        let (run, _) = runs.first()?;
        let longest = runs.iter().map(|(run, _)| run.duration).max()?;
        let time = TimeAxis::new(run.start, longest.as_secs_f64());
        let panel = panels::overlay(runs, &time);
        Some(Self { time, panels: vec![panel], zones: Vec::new(), marks: Vec::new() })
    }
}

/// Sets the same value axis for panels with the same title and unit, so that variants can be compared by eye.
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
