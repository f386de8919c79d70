//! Renders metrics in Prometheus' text format 0.0.4, in the form of Kubernetes' components, and in OpenMetrics 1.0.
//! Chooses the format from a scraper's `Accept` header.
//!
//! The encoder of the crate `prometheus` does not support OpenMetrics. Its text format writes `le="0.00000001"` where
//! Go writes `le="1e-08"`, which would rename upstream series.

use std::fmt::{self, Write};

use prometheus::proto::{Metric, MetricFamily, MetricType};

/// The exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the `Content-Type` of a response in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the format that an `Accept` header prefers (RFC 9110, section 12.5.1). The caller joins several headers
    /// by commas. A wildcard selects the text format, never OpenMetrics. Of two equal preferences, the first wins. A
    /// client that accepts neither format gets the text format, as from Kubernetes' components.
    pub fn preferred(accept: &str) -> Self {
        let (mut open_metrics, mut text) = (None::<Preference>, None::<Preference>);
        for (position, range) in split(accept, ',').enumerate() {
            let mut parameters = split(range, ';');
            let kind = parameters.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0, String::new());
            for parameter in parameters {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    // An invalid quality is read as 0.
                    "q" => quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0),
                    "version" => version = value.to_ascii_lowercase(),
                    _ => {}
                }
            }
            let preference = |precision| Preference { precision, quality, position };
            match (kind.as_str(), version.as_str()) {
                ("application/openmetrics-text", "" | "1.0.0") => {
                    Preference::add(&mut open_metrics, preference(if version.is_empty() { 2 } else { 3 }));
                }
                ("text/plain", "" | "0.0.4") => {
                    Preference::add(&mut text, preference(if version.is_empty() { 2 } else { 3 }));
                }
                ("text/*", "") => Preference::add(&mut text, preference(1)),
                ("*/*", "") => Preference::add(&mut text, preference(0)),
                _ => {}
            }
        }
        match (open_metrics, text) {
            (Some(one), None) if one.quality > 0.0 => Self::OpenMetrics,
            (Some(one), Some(other)) if one.is_before(&other) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }
}

/// The preference of an `Accept` header for one format.
#[derive(Debug, Clone, Copy)]
struct Preference {
    /// The precision of the media range: 0 for `*/*`, 1 for `text/*`, 2 for a type, 3 for a type with a version. The
    /// most precise range that includes the format is used.
    precision: u8,
    /// The quality, from 0 (not acceptable) to 1.
    quality: f64,
    /// The position of the media range in the header.
    position: usize,
}

impl Preference {
    fn add(known: &mut Option<Self>, preference: Self) {
        if known.is_none_or(|known| preference.precision > known.precision) {
            *known = Some(preference);
        }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || self.quality > 0.0 && self.quality == other.quality && self.position < other.position
    }
}

/// Splits a header at separators outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
    .map(str::trim)
}

/// Renders the families, which are sorted, like their series.
pub(super) fn render(families: &[MetricFamily], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        // Writing to a string cannot fail.
        let _ = write_family(&mut text, family, format);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_family(text: &mut String, family: &MetricFamily, format: Format) -> fmt::Result {
    write_head(text, family, format)?;
    for series in family.get_metric() {
        let mut sample = Sample { text: &mut *text, name: family.name(), series, format };
        match family.get_field_type() {
            MetricType::HISTOGRAM => {
                let histogram = series.get_histogram();
                let count = histogram.get_sample_count();
                for bucket in histogram.get_bucket() {
                    sample.count("_bucket", Some(bucket.upper_bound()), bucket.cumulative_count())?;
                }
                sample.count("_bucket", Some(f64::INFINITY), count)?;
                sample.float("_sum", histogram.get_sample_sum())?;
                sample.count("_count", None, count)?;
            }
            MetricType::COUNTER => sample.float("", series.get_counter().get_value())?,
            _ => sample.float("", series.get_gauge().get_value())?,
        }
    }
    Ok(())
}

/// Writes the help and the type. For OpenMetrics, also writes the unit if the name ends in `seconds` or `bytes`.
fn write_head(text: &mut String, family: &MetricFamily, format: Format) -> fmt::Result {
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::HISTOGRAM => "histogram",
        _ => "gauge",
    };
    let mut name = family.name();
    let mut help = family.help().replace('\\', "\\\\").replace('\n', "\\n");
    if format == Format::OpenMetrics {
        name = name.strip_suffix("_total").filter(|_| kind == "counter").unwrap_or(name);
        help = help.replace('"', "\\\"");
    }
    write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
    match name.rsplit_once('_') {
        Some((_, unit @ ("seconds" | "bytes"))) if format == Format::OpenMetrics => {
            writeln!(text, "# UNIT {name} {unit}")
        }
        _ => Ok(()),
    }
}

/// Writes the samples of one series.
struct Sample<'a> {
    text: &'a mut String,
    name: &'a str,
    series: &'a Metric,
    format: Format,
}

impl Sample<'_> {
    fn float(&mut self, suffix: &str, value: f64) -> fmt::Result {
        self.write(suffix, None, &float(value, self.format))
    }

    /// Writes a count, which is an integer in OpenMetrics. `bound` is the upper bound of the bucket, if any.
    fn count(&mut self, suffix: &str, bound: Option<f64>, count: u64) -> fmt::Result {
        let count = match self.format {
            Format::OpenMetrics => count.to_string(),
            Format::Text => go_float(count as f64),
        };
        self.write(suffix, bound, &count)
    }

    fn write(&mut self, suffix: &str, bound: Option<f64>, value: &str) -> fmt::Result {
        write!(self.text, "{}{suffix}", self.name)?;
        let mut separator = '{';
        for label in self.series.get_label() {
            let value = label.value().replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
            write!(self.text, "{separator}{}=\"{value}\"", label.name())?;
            separator = ',';
        }
        if let Some(bound) = bound {
            write!(self.text, "{separator}le=\"{}\"", float(bound, self.format))?;
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        writeln!(self.text, "{end} {value}")
    }
}

/// Formats a number. OpenMetrics requires a dot or an exponent in every finite number.
fn float(value: f64, format: Format) -> String {
    let mut text = go_float(value);
    if format == Format::OpenMetrics && value.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

/// Formats a number as Go's registry does: the shortest digits, with an exponent of at least two digits below 1e-4 and
/// from 1e6 on.
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
    use prometheus::{Gauge, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

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

    /// Returns the families of a registry with every type of metric.
    fn families() -> Vec<MetricFamily> {
        let registry = Registry::new();
        let options = HistogramOpts::new("z_seconds", "Time. \"Really\".").buckets(vec![1.0]);
        let times = HistogramVec::new(options, &["host"]).unwrap();
        times.with_label_values(&["b"]).observe(0.5);
        times.with_label_values(&["b"]).observe(2.0);
        times.with_label_values(&["a"]);
        let counts = IntCounterVec::new(Opts::new("a_seconds_total", "Count"), &["x"]).unwrap();
        counts.with_label_values(&["y \\\" } \nz"]).inc_by(3);
        let empty = IntCounterVec::new(Opts::new("empty", "Nothing"), &["x"]).unwrap();
        let level = Gauge::new("g", "Level \\ \n").unwrap();
        level.set(-7.0);
        registry.register(Box::new(times)).unwrap();
        registry.register(Box::new(counts)).unwrap();
        registry.register(Box::new(empty)).unwrap();
        registry.register(Box::new(level)).unwrap();
        registry.gather()
    }

    #[test]
    fn text_format_is_that_of_gos_registry() {
        let expected = r#"# HELP a_seconds_total Count
# TYPE a_seconds_total counter
a_seconds_total{x="y \\\" } \nz"} 3
# HELP g Level \\ \n
# TYPE g gauge
g -7
# HELP z_seconds Time. "Really".
# TYPE z_seconds histogram
z_seconds_bucket{host="a",le="1"} 0
z_seconds_bucket{host="a",le="+Inf"} 0
z_seconds_sum{host="a"} 0
z_seconds_count{host="a"} 0
z_seconds_bucket{host="b",le="1"} 1
z_seconds_bucket{host="b",le="+Inf"} 2
z_seconds_sum{host="b"} 2.5
z_seconds_count{host="b"} 2
"#;
        assert_eq!(render(&families(), Format::Text), expected);
    }

    #[test]
    fn openmetrics_has_units_and_integer_counts() {
        let expected = r#"# HELP a_seconds Count
# TYPE a_seconds counter
# UNIT a_seconds seconds
a_seconds_total{x="y \\\" } \nz"} 3.0
# HELP g Level \\ \n
# TYPE g gauge
g -7.0
# HELP z_seconds Time. \"Really\".
# TYPE z_seconds histogram
# UNIT z_seconds seconds
z_seconds_bucket{host="a",le="1.0"} 0
z_seconds_bucket{host="a",le="+Inf"} 0
z_seconds_sum{host="a"} 0.0
z_seconds_count{host="a"} 0
z_seconds_bucket{host="b",le="1.0"} 1
z_seconds_bucket{host="b",le="+Inf"} 2
z_seconds_sum{host="b"} 2.5
z_seconds_count{host="b"} 2
# EOF
"#;
        assert_eq!(render(&families(), Format::OpenMetrics), expected);
    }

    #[test]
    fn format_is_the_one_that_the_scraper_prefers() {
        let open_metrics = [
            // Prometheus 3 without protocol buffers, Prometheus 2.49 and an OpenTelemetry agent.
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; Version=\"1.0.0\"",
            "application/openmetrics-text, text/plain",
            "text/plain;q=0.2, application/openmetrics-text;q=0.3",
            "application/openmetrics-text;version=1.0.0;q=0.1, text/plain;q=0",
        ];
        for accept in open_metrics {
            assert_eq!(Format::preferred(accept), Format::OpenMetrics, "{accept}");
        }
        let text = [
            "",
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.4",
            "text/plain, application/openmetrics-text",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0, text/plain;q=0",
            "application/openmetrics-text;q=NaN",
            "application/openmetrics-text;q=7",
            // Prometheus 2.5 to 2.22 support only a draft of OpenMetrics.
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=2.0.0",
            // The wildcard has a higher quality than the name.
            "application/openmetrics-text;q=0.5, */*;q=0.8",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            "x=\"application/openmetrics-text,application/openmetrics-text\"",
            ";;;,,,=;q=,\"",
        ];
        for accept in text {
            assert_eq!(Format::preferred(accept), Format::Text, "{accept}");
        }
    }
}
