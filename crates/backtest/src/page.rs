//! The report of a backtest: one HTML page without scripts, with the scores, the load and the pods of the whole series,
//! and the hours in which the HPA alone lost most.

use std::fmt::Write as _;
use std::ops::Range;

use crate::contest::{Backtest, Contestant};
use crate::number::length;
use crate::replay::Run;
use crate::series::Series;

/// The size of a chart: the part of pods, and the part of lost load below.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LOST: f64 = 50.0;
/// The highest number of columns of a chart.
const COLUMNS: usize = 960;
/// The hours with charts of their own.
const WORST: usize = 3;

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse}th,td{padding:.2rem .8rem;text-align:right}th:first-child{text-align:left}\
thead{border-bottom:1px solid}svg{width:100%;height:auto}text{font-size:12px;fill:currentColor}path{fill:none}\
.grid{stroke:currentColor;opacity:.2}.load{fill:#8fb0d0;opacity:.5}.band{stroke:#888}.alone{stroke:#c0392b}\
.with{stroke:#1f8a4d;stroke-width:1.5}.floor{stroke:#d98a00;stroke-dasharray:4 2}rect.alone{fill:#c0392b;stroke:none}\
rect.with{fill:#1f8a4d;stroke:none}.key span{margin-right:1.2rem}.key svg{width:1.6rem;vertical-align:middle}";

/// Renders the report of a series. The same backtest gives the same bytes.
pub fn render(name: &str, series: &Series, found: &Backtest) -> String {
    let name = escaped(name);
    let floors = &found.floors;
    let reason = escaped(&floors.last.reason.sentence(floors.last.proposed.unwrap_or_default()));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Backtest of {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Backtest of {name}</h1>\n"
    );
    scores(&mut page, found);
    let coverage = floors.coverage * 100.0;
    let rising =
        floors.coverage_rising.map(|share| format!(", and {:.1} % of rising minutes", share * 100.0));
    let _ = writeln!(
        page,
        "<p>Judged from {}. The band covers {coverage:.1} % of these minutes{}. At the end: {reason}</p>",
        found.judged_from,
        rising.unwrap_or_default()
    );
    page.push_str("<p class=\"key\">");
    for (class, text) in [
        ("load", "load"),
        ("band", "expected at most"),
        ("alone", "pods of the HPA alone"),
        ("with", "pods with the floor"),
        ("floor", "floor"),
    ] {
        let _ = write!(
            page,
            "<span><svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><path class=\"{class}\" \
             d=\"M0 5L24 5L24 6L0 6Z\"/></svg> {text}</span>"
        );
    }
    page.push_str("</p>\n<h2>The whole load</h2>\n");
    let chart =
        Chart { series, found, alone: run(found, Contestant::Alone), with: run(found, Contestant::Floor) };
    chart.draw(&mut page, 0..series.loads.len());
    for (hour, [alone, with]) in chart.worst() {
        let _ = writeln!(
            page,
            "<h2>{}</h2>\n<p>In this hour, the HPA alone lost {alone:.1} pod-minutes of load, and with the floor \
             {with:.1}.</p>",
            series.time(hour).strftime("%A, %Y-%m-%d %H:%M UTC")
        );
        chart.draw(&mut page, hour.saturating_sub(30)..(hour + 90).min(series.loads.len()));
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn run(found: &Backtest, contestant: Contestant) -> Option<&Run> {
    found.runs.iter().find(|(other, _)| *other == contestant).map(|(_, run)| run)
}

fn scores(page: &mut String, found: &Backtest) {
    page.push_str(
        "<table>\n<thead><tr><th>Run</th><th>unserved load</th><th>pod-hours</th><th>of the HPA alone</th>\
         <th>rescales</th><th>minutes above 80 %</th></tr></thead>\n<tbody>\n",
    );
    let alone = run(found, Contestant::Alone).map_or(0.0, |run| run.score.pod_hours());
    for (contestant, Run { score, .. }) in &found.runs {
        let share = if alone > 0.0 { score.pod_hours() / alone } else { 1.0 };
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{:.0} ppm</td><td>{:.1}</td><td>× {share:.3}</td><td>{}</td><td>{}</td></tr>",
            contestant.title(),
            score.unserved_ppm(),
            score.pod_hours(),
            score.rescales,
            score.minutes_above_80
        );
    }
    page.push_str("</tbody>\n</table>\n");
}

struct Chart<'a> {
    series: &'a Series,
    found: &'a Backtest,
    alone: Option<&'a Run>,
    with: Option<&'a Run>,
}

impl Chart<'_> {
    fn load(&self, minute: usize) -> Option<f64> {
        self.series.loads.get(minute).copied().flatten()
    }

    /// The hours of the judged part in which the HPA alone lost most, with the lost load of both in pod-minutes.
    fn worst(&self) -> Vec<(usize, [f64; 2])> {
        let offset =
            usize::try_from(self.series.start.as_second().div_euclid(60).rem_euclid(60)).unwrap_or(0);
        let first = self.found.history + (60 - (self.found.history + offset) % 60) % 60;
        let lost = |run: Option<&Run>, hour: usize| {
            let minutes = run.and_then(|run| run.unserved.get(hour..hour + 60));
            minutes.map_or(0.0, |minutes| minutes.iter().sum::<f64>() / 60.0)
        };
        let mut hours: Vec<_> = (first..self.series.loads.len())
            .step_by(60)
            .map(|hour| (hour, [lost(self.alone, hour), lost(self.with, hour)]))
            .filter(|(_, [alone, _])| *alone > 0.0)
            .collect();
        hours.sort_by(|(_, one), (_, other)| other[0].total_cmp(&one[0]));
        hours.truncate(WORST);
        hours
    }

    fn draw(&self, page: &mut String, range: Range<usize>) {
        let counts = |run: Option<&Run>, minute: usize| run?.counts.get(minute).copied().map(f64::from);
        let highest = |of: &dyn Fn(usize) -> Option<f64>| columns(&range, of, f64::max);
        let load = highest(&|minute| self.load(minute));
        let alone = highest(&|minute| counts(self.alone, minute));
        let with = highest(&|minute| counts(self.with, minute));
        let floor = |minute: usize| self.found.floors.floors.get(minute).filter(|floor| **floor > 0);
        let floor = highest(&|minute| floor(minute).copied().map(f64::from));
        let values = load.iter().chain(&alone).chain(&with).flatten();
        let top = values.copied().fold(1.0, f64::max);
        let band = |minute: usize| self.found.floors.uppers.get(minute).copied().flatten();
        let band = highest(&|minute| band(minute).map(|upper| upper.min(top)));
        let (from, to) = (self.series.time(range.start), self.series.time(range.end));
        let _ = writeln!(
            page,
            "<svg viewBox=\"-40 -10 {} {}\" role=\"img\" aria-label=\"Load and pods from {from} to {to}\">",
            WIDTH + 50.0,
            HEIGHT + LOST + 40.0
        );
        for part in [0.0, 0.5, 1.0] {
            let (y, value) = (HEIGHT * (1.0 - part), top * part);
            let _ = writeln!(
                page,
                "<path class=\"grid\" d=\"M0 {y:.0}H{WIDTH}\"/><text x=\"-6\" y=\"{:.0}\" text-anchor=\"end\">{value:.0}</text>",
                y + 4.0
            );
        }
        self.ticks(page, &range);
        let zero = |value: &Option<f64>| Some(value.unwrap_or_default());
        let area = path(&load.iter().map(zero).collect::<Vec<_>>(), top);
        let _ = writeln!(page, "<path class=\"load\" d=\"{area}V{HEIGHT}H0Z\"/>");
        for (class, values) in [("band", &band), ("alone", &alone), ("with", &with), ("floor", &floor)] {
            let _ = writeln!(page, "<path class=\"{class}\" d=\"{}\"/>", path(values, top));
        }
        self.lost(page, &range);
        page.push_str("</svg>\n");
    }

    /// The times below a chart, and the start of the judged part.
    fn ticks(&self, page: &mut String, range: &Range<usize>) {
        let minutes = length(range.len()).max(1);
        let first = self.series.start.as_second().div_euclid(60) + length(range.start);
        let step = [10, 60, 360, 1440, 2 * 1440].into_iter().find(|step| minutes / step <= 15);
        let step = step.unwrap_or(7 * 1440);
        let format = if step < 1440 { "%H:%M" } else { "%m-%d" };
        let mut line = |minute: i64, text: &str| {
            let x = minute as f64 / minutes as f64 * WIDTH;
            let bottom = HEIGHT + LOST + 10.0;
            let _ = writeln!(
                page,
                "<path class=\"grid\" d=\"M{x:.1} 0V{bottom}\"/><text x=\"{x:.1}\" y=\"{}\">{text}</text>",
                bottom + 14.0
            );
        };
        for minute in (0..minutes).filter(|minute| (first + minute).rem_euclid(step) == 0) {
            let at = self.series.time(range.start + usize::try_from(minute).unwrap_or_default());
            line(minute, &at.strftime(format).to_string());
        }
        if range.contains(&self.found.history) && range.start < self.found.history {
            line(length(self.found.history - range.start), "");
        }
    }

    /// The lost load of the HPA alone, and before it that with the floor.
    fn lost(&self, page: &mut String, range: &Range<usize>) {
        let lost = |run: Option<&Run>| {
            let of = |minute: usize| run?.unserved.get(minute).copied().filter(|lost| *lost > 0.0);
            columns(range, &of, |sum, lost| sum + lost)
        };
        let (alone, with) = (lost(self.alone), lost(self.with));
        let top = alone.iter().chain(&with).flatten().copied().fold(0.0, f64::max);
        for (class, values) in [("alone", alone), ("with", with)] {
            let step = WIDTH / values.len().max(1) as f64;
            for (column, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let (x, high) = (column as f64 * step, value / top * LOST);
                let (y, wide) = (HEIGHT + 10.0 + LOST - high, step.max(1.0));
                let _ = writeln!(
                    page,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"/>"
                );
            }
        }
        let _ = writeln!(
            page,
            "<text x=\"-6\" y=\"{:.0}\" text-anchor=\"end\">lost</text>",
            HEIGHT + 10.0 + LOST / 2.0
        );
    }
}

/// One value for each column of a chart. `None` without any value.
fn columns(
    range: &Range<usize>,
    of: &dyn Fn(usize) -> Option<f64>,
    fold: fn(f64, f64) -> f64,
) -> Vec<Option<f64>> {
    let (minutes, columns) = (range.len(), range.len().clamp(1, COLUMNS));
    let start = |column: usize| range.start + column * minutes / columns;
    (0..columns).map(|column| (start(column)..start(column + 1)).filter_map(of).reduce(fold)).collect()
}

/// A line through the columns, interrupted where they have no value.
fn path(values: &[Option<f64>], top: f64) -> String {
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let (mut path, mut pen) = (String::new(), 'M');
    for (column, value) in values.iter().enumerate() {
        let Some(value) = value else {
            pen = 'M';
            continue;
        };
        let _ = write!(path, "{pen}{:.1} {:.1}", column as f64 * step, HEIGHT * (1.0 - value / top));
        pen = 'L';
    }
    path
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
