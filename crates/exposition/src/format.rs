//! The format of a page, from its content type.

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.
    OpenMetrics,
}

impl Format {
    /// The format of a page with this `Content-Type`. `None` for any other type, for version 2 of OpenMetrics,
    /// and for an empty value.
    pub fn from_content_type(value: &str) -> Option<Self> {
        let mut parts = value.split(';').map(str::trim);
        let media_type = parts.next()?;
        if media_type.eq_ignore_ascii_case("text/plain") {
            return Some(Self::Prometheus);
        }
        let version = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("version").then(|| value.trim().trim_matches('"'))
        });
        (media_type.eq_ignore_ascii_case("application/openmetrics-text") && version != Some("2.0.0"))
            .then_some(Self::OpenMetrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_selects_the_format() {
        use Format::{OpenMetrics, Prometheus};
        for (value, expected) in [
            ("text/plain; version=0.0.4; charset=utf-8", Some(Prometheus)),
            ("Text/Plain", Some(Prometheus)),
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", Some(OpenMetrics)),
            ("application/openmetrics-text;version=\"0.0.1\"", Some(OpenMetrics)),
            ("application/openmetrics-text", Some(OpenMetrics)),
            ("application/openmetrics-text; version=2.0.0", None),
            ("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily", None),
            ("text/html; charset=utf-8", None),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(Format::from_content_type(value), expected, "{value}");
        }
    }
}
