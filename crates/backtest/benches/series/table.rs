//! The results of all contestants as a table and as a chart.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The unserved load and the pods of a contestant on one series, relative to the HPA alone.
type Relative = [f64; 2];

/// The groups of classes.
const GROUPS: [(&str, &str); 3] =
    [("pattern, shortages recur", "recurring, pattern"), ("others that are short", ""), ("calm", "calm")];

/// The results by group and contestant, in the order of the contestants.
#[derive(Default)]
pub(crate) struct Table {
    names: Vec<&'static str>,
    results: BTreeMap<(usize, usize), Vec<Relative>>,
    series: [usize; GROUPS.len()],
}

fn spread(results: &[Relative], column: usize) -> [f64; 3] {
    let mut values: Vec<f64> = results.iter().map(|result| result[column]).collect();
    values.sort_by(f64::total_cmp);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    [f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]), mean, values[values.len() - 1]]
}

impl Table {
    /// Adds the results of a series.
    pub(crate) fn add(&mut self, class: &str, results: &[(&'static str, Relative)]) {
        let group = GROUPS.iter().position(|(_, start)| class.starts_with(start) && !start.is_empty());
        let group = group.unwrap_or(1);
        self.series[group] += 1;
        self.names = results.iter().map(|(name, _)| *name).collect();
        for (at, (_, result)) in results.iter().enumerate() {
            self.results.entry((group, at)).or_default().push(*result);
        }
    }

    /// Median, mean and worst in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = "| relative to the HPA alone |".to_owned();
        for ((name, _), series) in GROUPS.iter().zip(self.series).take(2) {
            let _ = write!(text, " {name} ({series}): unserved | pod-hours |");
        }
        let _ = writeln!(text, " calm ({}): pod-hours |\n|---|---|---|---|---|---|", self.series[2]);
        for (at, name) in self.names.iter().enumerate() {
            let _ = write!(text, "| {name} |");
            for (group, column) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)] {
                let results = self.results.get(&(group, at)).map_or(&[][..], Vec::as_slice);
                if results.is_empty() {
                    text.push_str(" |");
                    continue;
                }
                let [median, mean, worst] = spread(results, column);
                let _ = match column {
                    0 => write!(text, " {median:.2}/{mean:.2}/{worst:.2} |"),
                    _ => write!(text, " {median:.3}/{mean:.3}/{worst:.3} |"),
                };
            }
            text.push('\n');
        }
        text
    }

    /// The means of both groups of short series: pods to the right, unserved load upwards.
    pub(crate) fn chart(&self) -> String {
        let mut text = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 460\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <title>Unserved load and pod-hours of forecasts, relative to the HPA alone</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
            .to_owned();
        for (group, left) in [(0, 50.0), (1, 480.0)] {
            let x = |pods: f64| left + (pods.clamp(1.0, 2.0) - 1.0) * 350.0;
            let y = |unserved: f64| 40.0 + (1.0 - unserved.clamp(0.0, 1.0)) * 280.0;
            let _ = writeln!(
                text,
                "<text x=\"{left}\" y=\"22\" font-size=\"13\">{}, means of {} series</text>",
                GROUPS[group].0, self.series[group]
            );
            for step in [0.0, 0.25, 0.5, 0.75, 1.0] {
                let (bottom, at, over) = (y(0.0), x(1.0 + step), y(step));
                let _ = writeln!(
                    text,
                    "<path d=\"M{left} {over}h350M{at} {bottom}v-280\" stroke=\"#e5e5e5\" fill=\"none\"/>\
                     <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} %</text>\
                     <text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{:.2}</text>",
                    left - 4.0,
                    over + 4.0,
                    100.0 * step,
                    bottom + 16.0,
                    1.0 + step
                );
            }
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"356\" text-anchor=\"middle\">pod-hours; upwards: unserved load</text>",
                left + 175.0
            );
            for at in 0..self.names.len() {
                let Some(results) = self.results.get(&(group, at)) else { continue };
                self.mark(&mut text, at, x(spread(results, 1)[1]), y(spread(results, 0)[1]));
            }
        }
        for (at, name) in self.names.iter().enumerate() {
            let (left, top) = (60.0 + 270.0 * (at / 5) as f64, 380.0 + 17.0 * (at % 5) as f64);
            self.mark(&mut text, at, left, top);
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\">{}</text>",
                left + 14.0,
                top + 4.0,
                name.replace("**", "")
            );
        }
        text + "</svg>\n"
    }

    /// Marks a contestant with its number.
    fn mark(&self, text: &mut String, at: usize, x: f64, y: f64) {
        let color = if self.names[at].contains("**") { "#0b6bcb" } else { "#7d8793" };
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\" fill=\"{color}\" stroke=\"#fff\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\" fill=\"#fff\">{}</text>",
            y + 3.5,
            at + 1
        );
    }
}
