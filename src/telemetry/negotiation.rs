//! Which of the two formats a scraper wants, from its `Accept` header (RFC 9110, section 12.5.1).

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The `Content-Type` of an answer in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header prefers; several headers are joined by commas. OpenMetrics must be named, a
    /// wildcard means the text format. Of two equal wishes the first counts. Who accepts neither gets the text format,
    /// as from Kubernetes' components.
    pub fn preferred(accept: &str) -> Self {
        let (mut open_metrics, mut text) = (None::<Wish>, None::<Wish>);
        for (place, range) in split(accept, ',').enumerate() {
            let mut parameters = split(range, ';');
            let kind = parameters.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0, String::new());
            for parameter in parameters {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    // What is no number is no wish.
                    "q" => quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0),
                    "version" => version = value.to_ascii_lowercase(),
                    _ => {}
                }
            }
            let wish = |precision| Wish { precision, quality, place };
            match (kind.as_str(), version.as_str()) {
                ("application/openmetrics-text", "" | "1.0.0") => {
                    Wish::add(&mut open_metrics, wish(if version.is_empty() { 2 } else { 3 }));
                }
                ("text/plain", "" | "0.0.4") => {
                    Wish::add(&mut text, wish(if version.is_empty() { 2 } else { 3 }));
                }
                ("text/*", "") => Wish::add(&mut text, wish(1)),
                ("*/*", "") => Wish::add(&mut text, wish(0)),
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

/// What a header says of one format.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// How precisely it names the format: the most precise range counts.
    precision: u8,
    /// From 0, not at all, to 1.
    quality: f64,
    /// Where it stands in the header.
    place: usize,
}

impl Wish {
    fn add(known: &mut Option<Self>, wish: Self) {
        if known.is_none_or(|known| wish.precision > known.precision) {
            *known = Some(wish);
        }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || self.quality > 0.0 && self.quality == other.quality && self.place < other.place
    }
}

/// The parts of a header between separators outside quotes.
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
    fn the_format_is_the_one_that_the_scraper_prefers() {
        let open_metrics = [
            // Prometheus 3, without protocol buffers; 2.49; an agent of OpenTelemetry.
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
            // Prometheus 2.5 to 2.22 know a draft only.
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=2.0.0",
            // A wildcard with more weight than the name.
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
