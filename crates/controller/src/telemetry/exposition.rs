//! Renders metrics in Prometheus' text format 0.0.4, in the form of Kubernetes' components, and in
//! OpenMetrics 1.0.
//!
//! prometheus-client writes only OpenMetrics, with series in the order of a hash map. This module parses that
//! output and renders it again, sorted like Go's registry. Scrapers and dashboards of the text format would
//! notice three differences in the original output: a dot after the help, the type of `x_total` declared for
//! `x`, and `le` written as `1.0`.

use std::cmp::Ordering;
use std::fmt::Write;

use super::declarations::Declaration;
use super::negotiation::Format;

/// All series of one metric.
#[derive(Debug, Default)]
pub(super) struct Family {
    name: String,
    help: String,
    kind: String,
    series: Vec<Series>,
}

#[derive(Debug, Default)]
struct Series {
    /// Rendered labels, without `le` and without braces.
    labels: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    /// The suffix of the family's name: empty, `_bucket`, `_sum` or `_count`.
    suffix: &'static str,
    /// The bucket's upper bound.
    bound: Option<f64>,
    value: f64,
}

impl Family {
    /// Creates a family of one series without labels.
    pub(super) fn single(declaration: &Declaration, value: f64) -> Self {
        let samples = vec![Sample { suffix: "", bound: None, value }];
        Self {
            name: declaration.name.to_owned(),
            help: declaration.help.to_owned(),
            kind: declaration.kind.as_str().to_owned(),
            series: vec![Series { labels: String::new(), samples }],
        }
    }
}

/// Parses the output of prometheus-client.
pub(super) fn parse(openmetrics: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            let help = help.strip_suffix('.').unwrap_or(help);
            families.push(Family { name: name.to_owned(), help: help.to_owned(), ..Family::default() });
        } else if let Some(family) = families.last_mut() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                kind.rsplit_once(' ').map_or("", |(_, kind)| kind).clone_into(&mut family.kind);
                if family.kind == "counter" {
                    family.name.push_str("_total");
                }
            } else if !line.starts_with('#') {
                family.read_sample(line);
            }
        }
    }
    families
}

/// Renders the families that have a series, sorted by name.
pub(super) fn render(mut families: Vec<Family>, format: Format) -> String {
    let mut text = String::new();
    families.sort_by(|one, other| one.name.cmp(&other.name));
    for family in &mut families {
        if family.series.is_empty() {
            continue;
        }
        family.series.sort_by(|one, other| one.labels.cmp(&other.labels));
        family.write_head(&mut text, format);
        for Series { labels, samples } in &mut family.series {
            samples.sort_by(Sample::in_go_order);
            for sample in samples {
                sample.write(&mut text, &family.name, labels, format);
            }
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

impl Family {
    /// Writes the help and the type. OpenMetrics also gets the unit, which is the last word of the name.
    fn write_head(&self, text: &mut String, format: Format) {
        let Self { name, help, kind, .. } = self;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = match format {
            Format::Text => write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n"),
            Format::OpenMetrics => {
                let name = name.strip_suffix("_total").filter(|_| kind == "counter").unwrap_or(name);
                let help = help.replace('"', "\\\"");
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
                match name.rsplit_once('_') {
                    Some((_, unit @ ("seconds" | "bytes"))) => writeln!(text, "# UNIT {name} {unit}"),
                    _ => Ok(()),
                }
            }
        };
    }
}

impl Family {
    fn read_sample(&mut self, line: &str) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            return;
        };
        let Ok(value) = value.parse() else { return };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.strip_suffix('}').unwrap_or(labels);
        let suffix = match name.strip_prefix(&*self.name) {
            Some("_bucket") => "_bucket",
            Some("_sum") => "_sum",
            Some("_count") => "_count",
            _ => "",
        };
        let (bound, labels) = match labels.strip_prefix("le=\"").and_then(|rest| rest.split_once('"')) {
            Some((bound, rest)) => (bound.parse().ok(), rest.strip_prefix(',').unwrap_or(rest)),
            None => (None, labels),
        };
        let sample = Sample { suffix, bound, value };
        // The samples of one series are adjacent.
        match self.series.last_mut().filter(|last| last.labels == labels) {
            Some(last) => last.samples.push(sample),
            None => self.series.push(Series { labels: labels.to_owned(), samples: vec![sample] }),
        }
    }
}

impl Sample {
    fn write(&self, text: &mut String, name: &str, labels: &str, format: Format) {
        let bound = self.bound.map(|bound| format!("le=\"{}\"", float(bound, format)));
        let comma = if bound.is_some() && !labels.is_empty() { "," } else { "" };
        let inner = format!("{labels}{comma}{}", bound.unwrap_or_default());
        let braced = if inner.is_empty() { inner } else { format!("{{{inner}}}") };
        let value = match (format, self.suffix) {
            // OpenMetrics writes counts as integers.
            (Format::OpenMetrics, "_bucket" | "_count") => format!("{:.0}", self.value),
            _ => float(self.value, format),
        };
        let _ = writeln!(text, "{name}{}{braced} {value}", self.suffix);
    }

    /// Orders samples like Go's registry: buckets, then sum, then count.
    fn in_go_order(&self, other: &Self) -> Ordering {
        let rank = |sample: &Self| match sample.suffix {
            "_sum" => 1,
            "_count" => 2,
            _ => 0,
        };
        rank(self).cmp(&rank(other)).then_with(|| match (self.bound, other.bound) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => Ordering::Equal,
        })
    }
}

/// Formats a number. OpenMetrics requires a dot or an exponent in every float.
fn float(value: f64, format: Format) -> String {
    let mut text = go_float(value);
    if format == Format::OpenMetrics && value.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

/// Formats a number like Go's registry, `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits, with
/// an exponent of at least two digits below 1e-4 and from 1e6 on.
fn go_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_like_those_of_gos_registry() {
        let numbers = [
            (0.0, "0"),
            (-1.0, "-1"),
            (0.001, "0.001"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e-8, "1e-08"),
            (16.384, "16.384"),
            (100_000.0, "100000"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (67_433_736.0, "6.7433736e+07"),
            (1.5e21, "1.5e+21"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (number, text) in numbers {
            assert_eq!(go_float(number), text);
        }
    }

    #[test]
    fn openmetrics_is_rendered_as_the_text_format() {
        let openmetrics = "\
# HELP z_seconds Time. Really..
# TYPE z_seconds histogram
z_seconds_sum{host=\"b\"} 2.5
z_seconds_count{host=\"b\"} 2
z_seconds_bucket{le=\"1.0\",host=\"b\"} 1
z_seconds_bucket{le=\"+Inf\",host=\"b\"} 2
z_seconds_sum{host=\"a\"} 0.0
z_seconds_count{host=\"a\"} 0
z_seconds_bucket{le=\"1.0\",host=\"a\"} 0
z_seconds_bucket{le=\"+Inf\",host=\"a\"} 0
# HELP empty Nothing.
# TYPE empty gauge
# HELP a Count.
# TYPE a counter
a_total{x=\"y \\\" } z\"} 3
# HELP g Level.
# TYPE g gauge
g -7
# EOF
";
        let expected = "\
# HELP a_total Count
# TYPE a_total counter
a_total{x=\"y \\\" } z\"} 3
# HELP g Level
# TYPE g gauge
g -7
# HELP z_seconds Time. Really.
# TYPE z_seconds histogram
z_seconds_bucket{host=\"a\",le=\"1\"} 0
z_seconds_bucket{host=\"a\",le=\"+Inf\"} 0
z_seconds_sum{host=\"a\"} 0
z_seconds_count{host=\"a\"} 0
z_seconds_bucket{host=\"b\",le=\"1\"} 1
z_seconds_bucket{host=\"b\",le=\"+Inf\"} 2
z_seconds_sum{host=\"b\"} 2.5
z_seconds_count{host=\"b\"} 2
";
        assert_eq!(render(parse(openmetrics), Format::Text), expected);
    }

    #[test]
    fn openmetrics_is_rendered_sorted_and_with_units() {
        let openmetrics = "\
# HELP z_seconds Time. \"Really\"..
# TYPE z_seconds histogram
z_seconds_sum 2.5
z_seconds_count 2000000
z_seconds_bucket{le=\"1.0\"} 1
z_seconds_bucket{le=\"+Inf\"} 2000000
# HELP a_seconds Count.
# TYPE a_seconds counter
a_seconds_total{x=\"y\"} 3
# HELP b_info Build.
# TYPE b_info gauge
b_info{x=\"y\"} 1
# EOF
";
        let expected = "\
# HELP a_seconds Count
# TYPE a_seconds counter
# UNIT a_seconds seconds
a_seconds_total{x=\"y\"} 3.0
# HELP b_info Build
# TYPE b_info gauge
b_info{x=\"y\"} 1.0
# HELP z_seconds Time. \\\"Really\\\".
# TYPE z_seconds histogram
# UNIT z_seconds seconds
z_seconds_bucket{le=\"1.0\"} 1
z_seconds_bucket{le=\"+Inf\"} 2000000
z_seconds_sum 2.5
z_seconds_count 2000000
# EOF
";
        assert_eq!(render(parse(openmetrics), Format::OpenMetrics), expected);
    }
}
