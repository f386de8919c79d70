//! Renders metrics in Prometheus' text format 0.0.4, in the form of Kubernetes' components.
//!
//! The encoder of the crate `prometheus` writes `le="0.00000001"` where Go writes `le="1e-08"`, which would rename
//! upstream series.

use std::fmt::{self, Write};

use prometheus::proto::{Metric, MetricFamily, MetricType};

/// The `Content-Type` of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders the families, which are sorted, like their series.
pub(super) fn render(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families {
        // Writing to a string cannot fail.
        let _ = write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &MetricFamily) -> fmt::Result {
    write_head(text, family)?;
    for series in family.get_metric() {
        let mut sample = Sample { text: &mut *text, name: family.name(), series };
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

/// Writes the help and the type.
fn write_head(text: &mut String, family: &MetricFamily) -> fmt::Result {
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::HISTOGRAM => "histogram",
        _ => "gauge",
    };
    let (name, help) = (family.name(), family.help().replace('\\', "\\\\").replace('\n', "\\n"));
    write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// Writes the samples of one series.
struct Sample<'a> {
    text: &'a mut String,
    name: &'a str,
    series: &'a Metric,
}

impl Sample<'_> {
    fn float(&mut self, suffix: &str, value: f64) -> fmt::Result {
        self.write(suffix, None, &go_float(value))
    }

    /// Writes a count. `bound` is the upper bound of the bucket, if any.
    fn count(&mut self, suffix: &str, bound: Option<f64>, count: u64) -> fmt::Result {
        self.write(suffix, bound, &go_float(count as f64))
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
            write!(self.text, "{separator}le=\"{}\"", go_float(bound))?;
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        writeln!(self.text, "{end} {value}")
    }
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
        assert_eq!(render(&families()), expected);
    }
}
