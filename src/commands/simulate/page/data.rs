//! What the page's script reads: every sample and decision of the charts, in little space.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::figure::{Figure, Ink, scale_of};
use super::super::run::{Comparison, HpaRun, MetricSeries, Run, Sample};
use super::super::text;
use super::moment;

/// Steps take most of the space. Once a page has so many bytes of them, only decisions that changed the count keep theirs.
const STEPS: usize = 1_500_000;

/// Everything, for all charts of the page.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    /// Each text once.
    texts: Vec<String>,
    courses: Vec<Course>,
    #[serde(skip)]
    places: BTreeMap<String, usize>,
    #[serde(skip)]
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Course {
    /// Namespace, name and variant.
    name: String,
    /// Seconds since 1970.
    start: i64,
    /// Seconds between samples.
    period: f64,
    /// Seconds in all.
    length: f64,
    /// How many samples.
    samples: usize,
    columns: Vec<Column>,
    /// When, its sentence, its steps: each a title and, in turn, labels and lines.
    decisions: Vec<(u64, usize, Vec<Vec<usize>>)>,
    /// When, whether it warns, reason and message.
    events: Vec<(u64, bool, usize)>,
    /// From, to, what.
    happenings: Vec<(u64, u64, usize)>,
}

/// One value per sample, or only where it changes.
#[derive(Debug, Serialize)]
struct Column {
    label: String,
    unit: String,
    ink: &'static str,
    panel: usize,
    /// If only changes are listed: how many samples after the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Vec<usize>>,
    values: Vec<Option<Short>>,
}

/// A number with as many digits as people read, without `.0` at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Through the text, which rounds; whole numbers as such, because a float would print its `.0`.
        let text = text::number(self.0);
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => to.serialize_i64(whole),
            (_, Ok(number)) => to.serialize_f64(number),
            _ => to.serialize_none(),
        }
    }
}

impl Data {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { texts: Vec::new(), courses: Vec::new(), places: BTreeMap::new(), bytes: 0 }
    }

    /// Adds a chart; its place.
    pub(super) fn add(&mut self, run: &Run, hpa: &HpaRun, figure: &Figure) -> usize {
        let decisions = hpa.decisions.iter().map(|point| {
            let sentence = self.text(&point.sentence);
            let changed =
                point.explanation.desired.is_some_and(|desired| desired != point.explanation.current);
            let steps =
                if changed || self.bytes < STEPS { moment::steps(&point.explanation) } else { Vec::new() };
            let steps = steps.into_iter().map(|step| {
                let mut texts = vec![self.text(&step.title)];
                for (label, line) in &step.lines {
                    texts.extend([self.text(label), self.text(line)]);
                }
                texts
            });
            (point.at.as_secs(), sentence, steps.collect())
        });
        let decisions = decisions.collect();
        let events = hpa.events.iter().map(|event| {
            (event.at.as_secs(), event.warning, self.text(&format!("{}: {}", event.reason, event.message)))
        });
        let events = events.collect();
        let happenings =
            run.happenings.iter().map(|it| (it.from.as_secs(), it.to.as_secs(), self.text(&it.what)));
        let happenings = happenings.collect();
        let name = text::clean(format!("{}/{}  {}", hpa.namespace, hpa.name, run.variant).trim_end());
        self.courses.push(Course {
            name,
            start: run.start.as_second(),
            period: run.period.as_secs_f64(),
            length: figure.time.length(),
            samples: hpa.samples.len(),
            columns: columns(hpa, figure),
            decisions,
            events,
            happenings,
        });
        self.courses.len() - 1
    }

    /// As JSON that cannot end the element in which it stands.
    pub(super) fn json(&self) -> String {
        // Maps and numbers of our own always serialize.
        serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c")
    }

    fn text(&mut self, text: &str) -> usize {
        let text = text::clean(text);
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.texts.len();
        self.bytes += text.len();
        self.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }
}

fn columns(hpa: &HpaRun, figure: &Figure) -> Vec<Column> {
    let count = |label: &str, ink: Ink, value: fn(&Sample) -> Option<i32>| {
        let values = hpa.samples.iter().map(|sample| value(sample).map(f64::from));
        column(label.to_owned(), String::new(), ink, 0, values.collect())
    };
    let mut columns = vec![
        count("wanted", Ink::Wanted, |sample| Some(sample.wanted)),
        count("ready", Ink::Ready, |sample| Some(sample.ready)),
        count("running", Ink::Running, |sample| Some(sample.running)),
    ];
    let place = |title: &str| figure.panels.iter().position(|panel| panel.title == title);
    for metric in &hpa.metrics {
        let panel = place(&metric.subject.to_string()).unwrap_or(usize::MAX);
        let most = metric.values.iter().copied().flatten().fold(metric.target, f64::max);
        let scale = scale_of(metric.unit, most);
        let values = metric.values.iter().map(|value| value.map(|value| value / scale.by));
        columns.push(column(title(metric), scale.unit, Ink::Value, panel, values.collect()));
    }
    if let Some(panel) = place("Load") {
        let values =
            |value: fn(&Sample) -> f64| hpa.samples.iter().map(|sample| Some(value(sample))).collect();
        columns.push(column(
            "load".to_owned(),
            String::new(),
            Ink::Demand,
            panel,
            values(|sample| sample.demand),
        ));
        let capacity = values(|sample| sample.capacity);
        columns.push(column("capacity".to_owned(), String::new(), Ink::Capacity, panel, capacity));
    }
    if let Some(panel) = place("Queue") {
        let values = hpa.samples.iter().map(|sample| Some(sample.queued)).collect();
        columns.push(column("waiting".to_owned(), String::new(), Ink::Queue, panel, values));
    }
    columns
}

fn title(metric: &MetricSeries) -> String {
    text::clean(&metric.subject.to_string())
}

fn column(label: String, unit: String, ink: Ink, panel: usize, values: Vec<Option<f64>>) -> Column {
    let values: Vec<_> =
        values.into_iter().map(|value| value.filter(|value| value.is_finite()).map(Short)).collect();
    let (mut after, mut changes) = (Vec::new(), Vec::new());
    let (mut last_place, mut last) = (0, None);
    for (place, value) in values.iter().enumerate() {
        if last != Some(*value) {
            after.push(place - last_place);
            changes.push(*value);
            (last_place, last) = (place, Some(*value));
        }
    }
    let ink = ink.name();
    if changes.len() * 2 < values.len() {
        return Column { label, unit, ink, panel, after: Some(after), values: changes };
    }
    Column { label, unit, ink, panel, after: None, values }
}
