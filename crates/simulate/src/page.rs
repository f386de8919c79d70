//! The report: one self-contained HTML page. The content security policy of the page allows only the style and the
//! script of the page, by their hashes. It allows no network access. The console uses the same charts for the past of
//! an HPA and for runs to compare. The data for the script contains every sample and decision of the charts, in a
//! compact form.

mod parts;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;

use super::figure::{self, FLOORS, Figure, Ink, scale_of};
use super::past::{Past, PastRun};
use super::run::{Comparison, HpaRun, Run, Sample};
use super::table;
use terminal::explain::{self, Role, Step, Zone};
use terminal::words::{self, hash, html};

/// The maximum number of charts on a page, because many charts make browsers slow. Further HPAs are only in the table
/// of scores.
const CHARTS: usize = 12;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Renders the report of a comparison as HTML. The same comparison gives the same bytes.
pub fn render(comparison: &Comparison) -> String {
    let style = format!("{}{STYLE}", style());
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(&style),
        hash(SCRIPT)
    );
    let groups = table::variants(comparison);
    let (shown, left_out) = groups.split_at(charted(&groups));
    let title = html(comparison.runs.first().map_or("Simulation", |run| run.title.as_str()));
    let header = parts::header(comparison, &groups);
    let scores = parts::scores(&groups, shown.len());
    let mut sections = String::new();
    let mut data = Data::default();
    for (index, group) in shown.iter().enumerate() {
        sections.push_str(&parts::section(index, group, &mut data));
    }
    let notice = parts::notice(shown, left_out, data.left_out());
    let notes = parts::notes(comparison);
    let (data, defs) = (data.json(), parts::defs());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"concertina simulate\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         {defs}\n\
         {header}<main>\n{scores}{sections}{notice}{notes}</main>\n\
         <div id=\"tip\" hidden></div>\n<div id=\"say\" role=\"status\"></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Returns the number of HPAs with charts: the first HPAs whose variants fit into [`CHARTS`], but at least one HPA.
fn charted(groups: &[Vec<(&Run, &HpaRun)>]) -> usize {
    let mut charts = 0;
    let fits = |group: &&Vec<(&Run, &HpaRun)>| {
        charts += group.len();
        charts <= CHARTS
    };
    groups.iter().take_while(fits).count().max(1).min(groups.len())
}

/// Charts for the page of the console.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawing {
    /// The panels as HTML. Texts are escaped.
    pub markup: String,
    /// The samples and decisions for the script. Texts have no control characters.
    pub data: Value,
}

/// Returns the style rules of charts.
pub fn style() -> String {
    format!("{}{}", figure::variables(), figure::STYLE)
}

/// Draws at most the last `longest` of an HPA's past. The markup includes the hatch patterns.
pub fn draw(past: &Past, longest: SignedDuration) -> Drawing {
    let PastRun { run, has_running, has_ready } = past.run(longest);
    let Some(hpa) = run.hpas.first() else { return Drawing { markup: String::new(), data: Value::Null } };
    let mut figure = Figure::new(&run, hpa);
    if let Some(panel) = figure.panels.first_mut() {
        let is_known = |ink: Ink| match ink {
            Ink::Ready => has_ready,
            Ink::Running => has_running,
            _ => true,
        };
        panel.lines.retain(|line| is_known(line.ink));
        panel.areas.retain(|area| is_known(area.ink));
        panel.keys.retain(|(ink, ..)| is_known(*ink));
    }
    let mut data = Data::default();
    let chart = data.add(&run, hpa, &figure);
    let course = parts::course(chart, "What happened, over time", &figure);
    Drawing { markup: format!("<div>{}{course}</div>", parts::defs()), data: json(&data) }
}

/// Draws the desired replicas of all runs in one panel, followed by all panels of the last run.
pub fn compare(runs: &[Run]) -> Drawing {
    let group: Vec<(&Run, &HpaRun)> = runs.iter().filter_map(|run| Some((run, run.hpas.first()?))).collect();
    let mut data = Data::default();
    let figures: Vec<_> = group.iter().map(|(run, hpa)| Figure::new(run, hpa)).collect();
    let charts: Vec<_> =
        group.iter().zip(&figures).map(|((run, hpa), figure)| data.add(run, hpa, figure)).collect();
    let mut markup = String::from("<div>");
    if let Some(overlay) = Figure::overlay(&group) {
        let chart = data.add_overlay(&group, &overlay, charts.clone());
        markup.push_str(&parts::course(chart, "Replicas of all runs, over time", &overlay));
    }
    if let Some((chart, figure)) = charts.last().zip(figures.last()) {
        markup.push_str(&parts::course(*chart, "The run with these fields, over time", figure));
    }
    markup.push_str("</div>");
    Drawing { markup, data: json(&data) }
}

fn json(data: &Data) -> Value {
    // The data always serializes.
    serde_json::to_value(data).unwrap_or_default()
}

/// The limit for the estimated size of the decision steps of one chart, in bytes. Beyond the limit, only decisions that
/// changed the count keep their steps. With this limit, the page for one HPA and one day stays below a megabyte.
const STEPS: usize = 800_000;
/// The estimated size of an index into the list of texts, in bytes.
const INDEX_SIZE: usize = 6;

/// The data of all charts of a page.
#[derive(Debug, Default, Serialize)]
struct Data {
    /// The distinct texts. The charts refer to texts by index.
    texts: Vec<String>,
    courses: Vec<ChartData>,
    /// The index of each text.
    #[serde(skip)]
    indexes: BTreeMap<String, usize>,
    /// The estimated size of the current chart's decision steps.
    #[serde(skip)]
    bytes: usize,
    /// The number of decisions without steps.
    #[serde(skip)]
    left_out: usize,
}

/// The title of a step, and its lines. A line consists of the label, followed by the role and the text of each piece.
/// Titles, labels and texts are indexes into [`Data::texts`].
type StepTexts = (usize, Vec<Vec<usize>>);

/// The data of one chart. Times are seconds since the start of the run, and texts are indexes into [`Data::texts`].
#[derive(Debug, Serialize)]
struct ChartData {
    /// The start of the run, in seconds since 1970.
    start: i64,
    /// The seconds of a period.
    period: f64,
    /// The length of the run in seconds.
    length: f64,
    /// The number of periods.
    samples: usize,
    columns: Vec<Column>,
    /// The time, the sentence and the steps of each decision.
    decisions: Vec<(u64, usize, Vec<StepTexts>)>,
    /// The time of each event of the HPA, whether the event is a warning, and the reason with the message.
    events: Vec<(u64, bool, usize)>,
    /// The start, the end and the description of each event of the scenario and each effect of the scaling policy.
    happenings: Vec<(u64, u64, usize)>,
    /// The indexes of the variants' charts. Empty for any chart other than an overlay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<usize>,
}

/// The values of a curve: one value per period, or only the changes.
#[derive(Debug, Serialize)]
struct Column {
    label: String,
    unit: String,
    ink: &'static str,
    /// The index of the panel.
    panel: usize,
    /// The number of periods.
    count: usize,
    /// For each change, the number of periods since the previous change. `None` if `values` has every period.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Vec<usize>>,
    values: Vec<Option<Short>>,
}

/// A number with the digits of [`words::number`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // A whole number is an integer, because a float would have a trailing `.0`.
        let text = words::number(self.0);
        match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => to.serialize_i64(whole),
            (_, Ok(number)) => to.serialize_f64(number),
            _ => to.serialize_none(),
        }
    }
}

impl ChartData {
    /// Creates a chart of `samples` periods, without decisions and events.
    fn new(run: &Run, interval: Duration, figure: &Figure, samples: usize, columns: Vec<Column>) -> Self {
        Self {
            start: run.start.as_second(),
            period: interval.as_secs_f64(),
            length: figure.time.length(),
            samples,
            columns,
            decisions: Vec::new(),
            events: Vec::new(),
            happenings: Vec::new(),
            variants: Vec::new(),
        }
    }
}

impl Data {
    /// Adds a chart and returns its index.
    fn add(&mut self, run: &Run, hpa: &HpaRun, figure: &Figure) -> usize {
        self.bytes = 0;
        let decisions = hpa.decisions.iter().map(|point| {
            let sentence = self.text(&point.sentence);
            let keeps = point.rescale().is_some() || self.bytes < STEPS;
            self.left_out += usize::from(!keeps);
            let at = run.start.checked_add(point.at).unwrap_or(run.start);
            let mut steps =
                if keeps { explain::steps(&point.explanation, at, &Zone::utc()) } else { Vec::new() };
            steps.extend(point.policy.as_deref().filter(|_| keeps).map(explain::policy_step));
            let steps = steps.iter().map(|step| self.step(step));
            (point.at.as_secs(), sentence, steps.collect())
        });
        let decisions = decisions.collect();
        let events = hpa.events.iter().map(|event| {
            (event.at.as_secs(), event.warning, self.text(&format!("{}: {}", event.reason, event.message)))
        });
        let events = events.collect();
        let happenings =
            run.happenings.iter().map(|it| (it.from.as_secs(), it.to.as_secs(), self.text(&it.what)));
        let mut happenings: Vec<_> = happenings.collect();
        let spans = hpa.policies.iter().map(|span| {
            (span.from.as_secs(), span.to.as_secs(), self.text(&format!("policy: {}", span.what)))
        });
        happenings.extend(spans);
        let shown = last_of_periods(hpa, hpa.interval);
        let columns = columns(hpa, figure, &shown);
        self.push(ChartData {
            decisions,
            events,
            happenings,
            ..ChartData::new(run, hpa.interval, figure, shown.len(), columns)
        })
    }

    /// Adds the overlay chart of the variants and returns its index.
    fn add_overlay(&mut self, group: &[(&Run, &HpaRun)], figure: &Figure, variants: Vec<usize>) -> usize {
        let longest = group.iter().max_by_key(|(_, hpa)| hpa.samples.len());
        let Some((longest, hpa)) = longest else { return 0 };
        let interval = hpa.interval;
        let samples = last_of_periods(hpa, interval).len();
        let columns = group.iter().enumerate().map(|(index, (run, hpa))| {
            let shown = last_of_periods(hpa, interval);
            let samples = shown.iter().filter_map(|index| hpa.samples.get(*index));
            let values = samples.map(|sample| Some(f64::from(sample.wanted)));
            column(&run.variant, "", Ink::variant(index), 0, values.collect())
        });
        let columns = columns.collect();
        self.push(ChartData { variants, ..ChartData::new(longest, interval, figure, samples, columns) })
    }

    fn push(&mut self, chart: ChartData) -> usize {
        self.courses.push(chart);
        self.courses.len() - 1
    }

    fn left_out(&self) -> usize {
        self.left_out
    }

    /// Serializes the data. `<` is escaped, so that no text can end the HTML element of the data.
    fn json(&self) -> String {
        // The data always serializes.
        serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c")
    }

    fn step(&mut self, step: &Step) -> StepTexts {
        let lines = step.lines.iter().map(|line| {
            let mut texts = vec![self.text(&line.label)];
            for piece in &line.pieces {
                texts.extend([role_index(piece.role), self.text(&piece.text)]);
            }
            texts
        });
        let lines: Vec<Vec<usize>> = lines.collect();
        self.bytes += lines.iter().map(|line| (line.len() + 1) * INDEX_SIZE).sum::<usize>();
        (self.text(&step.title), lines)
    }

    fn text(&mut self, text: &str) -> usize {
        let text = words::terminal(text);
        if let Some(index) = self.indexes.get(&*text) {
            return *index;
        }
        let index = self.texts.len();
        self.bytes += text.len();
        self.texts.push(text.clone().into_owned());
        self.indexes.insert(text.into_owned(), index);
        index
    }
}

/// Returns the index of a role in the script's list of classes.
fn role_index(role: Role) -> usize {
    match role {
        Role::Plain => 0,
        Role::Strong => 1,
        Role::Good => 2,
        Role::Warn => 3,
        Role::Bad => 4,
        Role::Dim => 5,
    }
}

/// Returns the index of the last sample of each period, from the first period to that of the last sample. A period
/// without a sample has the previous sample. Syncs take time, so a simulation has slightly fewer syncs than periods.
fn last_of_periods(hpa: &HpaRun, period: Duration) -> Vec<usize> {
    let length = period.as_nanos().max(1);
    let mut indexes = Vec::new();
    for (index, sample) in hpa.samples.iter().enumerate() {
        let number = usize::try_from(sample.at.as_nanos() / length).unwrap_or_default();
        // Periods since the last sample.
        indexes.resize(number.max(indexes.len()), index.saturating_sub(1));
        indexes.truncate(number);
        indexes.push(index);
    }
    indexes
}

/// Returns the columns of an HPA, with the values of the samples `shown`.
fn columns(hpa: &HpaRun, figure: &Figure, shown: &[usize]) -> Vec<Column> {
    let samples = || shown.iter().filter_map(|index| hpa.samples.get(*index));
    let count = |label: &str, ink: Ink, value: fn(&Sample) -> Option<i32>| {
        let values = samples().map(|sample| value(sample).map(f64::from));
        column(label, "", ink, 0, values.collect())
    };
    let mut columns = vec![count("desired", Ink::Desired, |sample| Some(sample.wanted))];
    // The figure of an HPA's past lacks curves of pods if their numbers are unknown.
    let main = figure.panels.first();
    if main.is_some_and(|panel| panel.lines.iter().any(|line| line.ink == Ink::Ready)) {
        columns.push(count("ready", Ink::Ready, |sample| Some(sample.ready)));
    }
    if main.is_some_and(|panel| panel.areas.iter().any(|area| area.ink == Ink::Running)) {
        columns.push(count("running", Ink::Running, |sample| Some(sample.running)));
    }
    for (applies, ink, label) in FLOORS {
        if main.is_some_and(|panel| panel.lines.iter().any(|line| line.ink == ink)) {
            let values = samples().map(|sample| sample.floor(applies).map(f64::from));
            columns.push(column(label, "", ink, 0, values.collect()));
        }
    }
    let panel_index = |title: &str| figure.panels.iter().position(|panel| panel.title == title);
    for metric in &hpa.metrics {
        let panel = panel_index(&metric.subject.to_string()).unwrap_or(usize::MAX);
        let most = metric.values.iter().copied().flatten().fold(metric.target, f64::max);
        let scale = scale_of(metric.unit, most);
        let values = shown.iter().map(|index| metric.values.get(*index).copied().flatten());
        let values = values.map(|value| value.map(|value| value / scale.by));
        columns.push(column(&metric.subject.to_string(), &scale.unit, Ink::Value, panel, values.collect()));
    }
    if let Some(panel) = panel_index("Load") {
        let values = |value: fn(&Sample) -> f64| samples().map(|sample| Some(value(sample))).collect();
        columns.push(column("load", &hpa.unit, Ink::Demand, panel, values(|sample| sample.demand)));
        columns.push(column("capacity", &hpa.unit, Ink::Capacity, panel, values(|sample| sample.capacity)));
    }
    if let Some(panel) = panel_index("Queue") {
        let values = samples().map(|sample| Some(sample.queued)).collect();
        columns.push(column("waiting", "", Ink::Queue, panel, values));
    }
    columns
}

fn column(label: &str, unit: &str, ink: Ink, panel: usize, values: Vec<Option<f64>>) -> Column {
    let [label, unit] = [label, unit].map(|text| words::terminal(text).into_owned());
    let values: Vec<_> =
        values.into_iter().map(|value| value.filter(|value| value.is_finite()).map(Short)).collect();
    let (mut after, mut changes) = (Vec::new(), Vec::new());
    let (mut last_index, mut last) = (0, None);
    for (index, value) in values.iter().enumerate() {
        if last != Some(*value) {
            after.push(index - last_index);
            changes.push(*value);
            (last_index, last) = (index, Some(*value));
        }
    }
    let (ink, count) = (ink.name(), values.len());
    if changes.len() * 2 < values.len() {
        return Column { label, unit, ink, panel, count, after: Some(after), values: changes };
    }
    Column { label, unit, ink, panel, count, after: None, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_period_has_its_last_sample_or_the_one_before() {
        let mut comparison = sample::day();
        let hpa = &mut comparison.runs[0].hpas[0];
        hpa.samples.truncate(5);
        // The fourth period has no sync, and the last has two.
        for (sample, millis) in hpa.samples.iter_mut().zip([40, 22_000, 44_999, 60_001, 74_000]) {
            sample.at = Duration::from_millis(millis);
        }
        assert_eq!(last_of_periods(hpa, Duration::from_secs(15)), [0, 1, 2, 2, 4]);
        hpa.samples.clear();
        assert_eq!(last_of_periods(hpa, Duration::from_secs(15)), [0; 0]);
    }
}
