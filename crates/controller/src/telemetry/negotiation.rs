//! Chooses the exposition format from a scraper's `Accept` header (RFC 9110, section 12.5.1).

/// The exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The `Content-Type` of a response in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Selects the format that an `Accept` header prefers. Several headers are joined by commas. OpenMetrics
    /// must be named: a wildcard selects the text format. Between equal preferences the first one wins. A
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
                    // An invalid quality counts as 0.
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

/// The preference of a header for one format.
#[derive(Debug, Clone, Copy)]
struct Preference {
    /// The precision of the range that names the format. The most precise range wins.
    precision: u8,
    /// The quality from 0, not acceptable, to 1.
    quality: f64,
    /// The position in the header.
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

#[cfg(test)]
mod tests {
    use super::*;

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
