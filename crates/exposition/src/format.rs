//! The text format 0.0.4 of Prometheus: its content type, its numbers as Go reads and prints them, and the errors of
//! pages.

/// Whether a `Content-Type` is that of the text format.
pub fn is_text_format(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/plain"))
}

/// Parses a number as Prometheus does, which is like Go's `strconv.ParseFloat` without hexadecimal floats and
/// underscores. A number that is too large for a 64-bit float is invalid.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let signless = text.strip_prefix(['+', '-']).unwrap_or(text);
    let first = signless.bytes().next()?;
    let value: f64 = text.parse().ok()?;
    if first.is_ascii_alphabetic() {
        // Go does not accept a sign before NaN.
        return (value.is_infinite() || text.len() == signless.len()).then_some(value);
    }
    value.is_finite().then_some(value)
}

/// Returns a value of the label `le` or `quantile` as Prometheus stores it: `1` becomes `1.0`. `None` for a text that
/// is not a number, and for hexadecimal floats, which no exporter prints.
pub(crate) fn canonical_label(text: &str) -> Option<String> {
    let value = parse_float(text.as_bytes())?;
    Some(if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else if value == 0.0 {
        "0.0".to_owned()
    } else {
        let mut printed = shortest(value);
        if !printed.contains(['e', '.']) {
            printed.push_str(".0");
        }
        printed
    })
}

/// Formats a finite value like Go's `strconv.FormatFloat(value, 'g', -1, 64)`.
fn shortest(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(-4..=5) | Err(_) => format!("{value}"),
        Ok(exponent) => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// The reason why a whole page or the samples of one selector are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page is too large. Contains the limit in bytes.
    #[error("the page has more than {0} bytes: raise maxBytes, or expose fewer series at this path")]
    TooLarge(usize),
    /// The page has too many lines. Contains the limit.
    #[error("the page has more than {0} lines: expose fewer series at this path")]
    TooManyLines(usize),
    /// A line, or a series with line breaks in its labels, is too long.
    #[error("line {line} has more than {limit} bytes")]
    LineTooLong {
        /// The number of the line, from 1.
        line: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A series has too many labels.
    #[error("line {line} has more than {limit} labels")]
    TooManyLabels {
        /// The number of the line, from 1.
        line: usize,
        /// The maximum number of labels.
        limit: usize,
    },
    /// Too many series have the name and labels of the selector. The value is the limit.
    #[error("more than {0} series match: select fewer by their labels")]
    TooManySeries(usize),
    /// The page takes too many comparisons with the names and labels of the selectors. The value is the limit.
    #[error(
        "it takes more than {0} comparisons to find the series: expose fewer series at this path, or select them by fewer labels"
    )]
    TooManyComparisons(usize),
    /// Two samples have the same labels. The value is the line number of the second sample.
    #[error("line {0} repeats a series of this page")]
    DuplicateSeries(usize),
    /// A series has two labels with one name, or a label `__name__` in addition to its name.
    #[error("line {line} has the label {label} twice")]
    RepeatedLabel {
        /// The number of the line, from 1.
        line: usize,
        /// The name of the label.
        label: String,
    },
    /// The page does not follow its format.
    #[error("line {line} is invalid: {error}, at {at:?}")]
    Syntax {
        /// The number of the line, from 1.
        line: usize,
        /// The kind of the error.
        error: SyntaxError,
        /// The start of the line up to the error, at most 64 bytes.
        at: String,
    },
}

/// A syntax error in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The line starts with none of the known tokens.
    #[error("expected a metric name or a comment")]
    Start,
    /// `HELP` or `TYPE` is not followed by a name.
    #[error("expected a metric name after HELP or TYPE")]
    MetadataName,
    /// The text of `HELP` or `TYPE` is missing.
    #[error("expected a text after the metric name")]
    MetadataText,
    /// The format does not define the type.
    #[error("unknown metric type")]
    Type,
    /// A text or a label value is not UTF-8.
    #[error("text that is not UTF-8")]
    Utf8,
    /// A label name is missing or invalid.
    #[error("expected a label name")]
    LabelName,
    /// A label name is not followed by `=`.
    #[error("expected = after a label name")]
    Equal,
    /// A label value is missing or invalid.
    #[error("expected a quoted label value")]
    LabelValue,
    /// A series has two metric names, or no metric name.
    #[error("expected exactly one metric name")]
    MetricName,
    /// The value of a series is missing or invalid.
    #[error("expected a number")]
    Value,
    /// A timestamp is invalid.
    #[error("expected a timestamp")]
    Timestamp,
    /// The line continues where its end is expected.
    #[error("expected the end of the line")]
    LineEnd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_is_that_of_text() {
        for (value, expected) in [
            ("text/plain; version=0.0.4; charset=utf-8", true),
            ("Text/Plain", true),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", false),
            ("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily", false),
            ("text/html; charset=utf-8", false),
            ("", false),
        ] {
            assert_eq!(is_text_format(value), expected, "{value}");
        }
    }

    #[test]
    fn numbers_are_those_of_go() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("-0.5e3", Some(-500.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+Inf", Some(f64::INFINITY)),
            ("-infinity", Some(f64::NEG_INFINITY)),
            ("1e308", Some(1e308)),
            ("1e-400", Some(0.0)),
            ("1e400", None),
            ("infi", None),
            ("+nan", None),
            ("0x10", None),
            ("0x1p3", None),
            ("1_000", None),
            ("1e", None),
            (".", None),
            ("-", None),
            ("", None),
            ("\u{0661}", None),
        ] {
            assert_eq!(parse_float(text.as_bytes()), expected, "{text}");
        }
        assert!(parse_float(b"NaN").is_some_and(f64::is_nan));
        assert_eq!(parse_float(b"\xff"), None);
    }

    #[test]
    fn label_values_of_buckets_are_canonical() {
        for (text, expected) in [
            ("1", Some("1.0")),
            ("1.0", Some("1.0")),
            ("-0", Some("0.0")),
            ("0.005", Some("0.005")),
            ("0.00001", Some("1e-05")),
            ("100000", Some("100000.0")),
            ("1000000", Some("1e+06")),
            ("1.234567e6", Some("1.234567e+06")),
            ("1e100", Some("1e+100")),
            ("+Inf", Some("+Inf")),
            ("inf", Some("+Inf")),
            ("nan", Some("NaN")),
            ("many", None),
        ] {
            assert_eq!(canonical_label(text).as_deref(), expected, "{text}");
        }
    }
}
