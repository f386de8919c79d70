//! Reads lines in the form that exporters write, without a lexer.
//!
//! [`Lines::read`] accepts a part of the grammar, with the same result as [`crate::entry::read`]. All other lines,
//! valid or not, fall back to [`crate::entry::read`]. Lines of one family share most of their labels. Labels at the
//! start of a line that equal those of the previous line are not read again.

use memchr::{memchr, memchr2};

use crate::entry::{Entry, MetricType, Span, Spans};
use crate::format::{Format, parse_float};
use crate::lexer::is_name_start;
use crate::page::Limits;

/// Maximum length of a decimal number that is certainly in the range of floats, in bytes.
const PLAIN_NUMBER: usize = 300;
/// Maximum length of a timestamp that is certainly in the range of 64-bit integers, in bytes.
const TIMESTAMP: usize = 18;

/// The state that the lines of one buffer share.
#[derive(Debug, Default)]
pub(crate) struct Lines<'b> {
    /// The previous series up to the end of its last label value, or up to the byte after its name. Empty if
    /// [`Self::read`] did not read the previous entry.
    previous: &'b [u8],
    /// The length of the previous series' name.
    name: usize,
    /// Whether the previous series' name is selected.
    wanted: bool,
}

impl<'b> Lines<'b> {
    /// Reads the line at the start of `bytes`. Returns the entry, and the length of the line with its line break.
    /// `None` for an incomplete line, and for a line that needs the lexer. `labels` must be unchanged since the last
    /// call, or [`Self::forget`] must be called.
    pub(crate) fn read(
        &mut self,
        bytes: &'b [u8],
        (format, limits): (Format, &Limits),
        metric_type: &mut MetricType,
        labels: &mut Spans,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<(Entry, usize)> {
        let end = memchr(b'\n', bytes)?;
        let line = bytes.get(..end)?;
        if end >= limits.line {
            return None;
        }
        let entry = match line.first()? {
            b'#' => {
                // In OpenMetrics, NUL bytes after a line of metadata are part of the metadata.
                if format == Format::OpenMetrics && *bytes.get(end.checked_add(1)?)? == 0 {
                    return None;
                }
                comment(line, format, metric_type)?
            }
            byte if is_name_start(*byte) => self.series(line, format, limits.labels, labels, wants)?,
            _ => return None,
        };
        Some((entry, end.checked_add(1)?))
    }

    /// Forgets the previous series. Must be called if another reader has changed the labels.
    pub(crate) const fn forget(&mut self) {
        self.previous = &[];
    }

    fn series(
        &mut self,
        line: &'b [u8],
        format: Format,
        max_labels: usize,
        labels: &mut Spans,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<Entry> {
        // The bit 0x80 is set if the line contains NUL or a byte beyond ASCII.
        let high = line.iter().fold(0, |all, byte| all | byte | byte.wrapping_sub(1)) & 0x80;
        let ascii = high == 0;
        if !ascii && memchr(0, line).is_some() {
            return None;
        }
        let shared = shared_length(self.previous, line);
        // The byte after the name must be shared too, because it ends the name.
        if !self.previous.is_empty() && shared > self.name {
            let same = labels.iter().take_while(|(_, value)| value.end < shared).count();
            labels.truncate(same);
        } else {
            labels.clear();
            self.name = run(line, 0, is_name_part);
            self.wanted = wants(line.get(..self.name)?);
        }
        let name = Span { start: 0, end: self.name };
        let mut at = self.name;
        let mut head = at.saturating_add(1);
        if line.get(at) == Some(&b'{') {
            at = read_labels(line, ascii, self.name, max_labels, labels)?;
            head = labels.last().map_or(head, |(_, value)| value.end.saturating_add(1));
        }
        let series = Span { start: 0, end: at };
        if line.get(at) != Some(&b' ') {
            return None;
        }
        let rest = line.get(at.checked_add(1)?..)?;
        let (number, timestamp) = match memchr(b' ', rest) {
            None => (rest, None),
            Some(_) if format == Format::OpenMetrics => return None,
            Some(blank) => (rest.get(..blank)?, Some(timestamp(rest.get(blank.checked_add(1)?..)?)?)),
        };
        let value = if !self.wanted && is_plain_number(number) { 0.0 } else { parse_float(number)? };
        self.previous = line.get(..head)?;
        Some(if self.wanted { Entry::Series { name, series, value, timestamp } } else { Entry::Other })
    }
}

/// Reads the labels after those that `labels` already contains. Returns the position after the closing brace.
fn read_labels(
    line: &[u8],
    ascii: bool,
    brace: usize,
    max_labels: usize,
    labels: &mut Spans,
) -> Option<usize> {
    let mut at = labels.last().map_or(brace, |(_, value)| value.end).checked_add(1)?;
    loop {
        if !labels.is_empty() {
            match line.get(at)? {
                b',' => at = at.checked_add(1)?,
                b'}' => return at.checked_add(1),
                _ => return None,
            }
        }
        let start = at;
        let first = *line.get(start)?;
        if first == b'}' {
            return at.checked_add(1);
        }
        let end = run(line, start, |byte| is_name_part(byte) && byte != b':');
        if end == start || first.is_ascii_digit() || line.get(end..end.checked_add(2)?)? != b"=\"" {
            return None;
        }
        let name = Span { start, end };
        let start = end.checked_add(2)?;
        let end = quote(line, start)?;
        if !ascii && std::str::from_utf8(line.get(start..end)?).is_err() {
            return None;
        }
        if labels.len() >= max_labels {
            return None;
        }
        labels.push((name, Span { start, end }));
        at = end.checked_add(1)?;
    }
}

/// Returns the position of the quote that ends a text. The line has no NUL byte and no line break, which would be
/// invalid in an escape.
fn quote(line: &[u8], mut start: usize) -> Option<usize> {
    loop {
        let found = start.checked_add(memchr2(b'"', b'\\', line.get(start..)?)?)?;
        if line.get(found) == Some(&b'"') {
            return Some(found);
        }
        start = found.checked_add(2)?;
    }
}

/// Reads a comment, or metadata with exactly one blank between its parts.
fn comment(line: &[u8], format: Format, metric_type: &mut MetricType) -> Option<Entry> {
    if memchr(0, line).is_some() {
        return None;
    }
    let (word, rest) = (line.get(..7).unwrap_or_default(), line.get(7..).unwrap_or_default());
    if !matches!(word, b"# HELP " | b"# TYPE ") {
        // A line with this start may be metadata with additional blanks.
        let other = !matches!(line, [b'#', b' ' | b'\t', b'H' | b'T' | b' ' | b'\t', ..]);
        return (other && format == Format::Prometheus).then_some(Entry::Other);
    }
    if !is_name_start(*rest.first()?) {
        return None;
    }
    let name = run(rest, 0, is_name_part);
    let text = rest.get(name..)?.strip_prefix(b" ")?;
    if matches!(text.first()?, b' ' | b'\t') {
        return None;
    }
    if word == b"# HELP " {
        return std::str::from_utf8(text).is_ok().then_some(Entry::Other);
    }
    *metric_type = match text {
        b"counter" | b"gauge" => MetricType::Other,
        b"histogram" => MetricType::Histogram,
        b"summary" => MetricType::Summary,
        _ => return None,
    };
    Some(Entry::Other)
}

fn timestamp(digits: &[u8]) -> Option<i64> {
    if digits.len() > TIMESTAMP || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns whether a text is certainly a number, so that its value need not be computed.
fn is_plain_number(text: &[u8]) -> bool {
    let mut point = false;
    let part = |byte: &u8| byte.is_ascii_digit() || (*byte == b'.' && !std::mem::replace(&mut point, true));
    text.first().is_some_and(u8::is_ascii_digit) && text.len() <= PLAIN_NUMBER && text.iter().all(part)
}

/// Returns the position of the first byte from `start` on for which `part` is false.
fn run(bytes: &[u8], start: usize, part: impl Fn(u8) -> bool) -> usize {
    let length = bytes.get(start..).unwrap_or_default().iter().take_while(|byte| part(**byte)).count();
    start.saturating_add(length)
}

const fn is_name_part(byte: u8) -> bool {
    is_name_start(byte) || byte.is_ascii_digit()
}

/// Returns the length of the common prefix.
fn shared_length(one: &[u8], other: &[u8]) -> usize {
    let ((words, _), (other_words, _)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let equal = words.iter().zip(other_words).take_while(|(one, other)| one == other).count();
    let start = equal.saturating_mul(8);
    let rest = (one.get(start..).unwrap_or_default().iter()).zip(other.get(start..).unwrap_or_default());
    start.saturating_add(rest.take_while(|(one, other)| one == other).count())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry;
    use crate::lexer::Lexer;

    /// Lines with few different names and labels, so that successive lines share them.
    const LINES: [&str; 25] = [
        "# HELP a b\n\0\0a 1\n",
        "a{x=\"1\",y=\"2\"} 1\n",
        "a{x=\"1\",y=\"22\"} 2\n",
        "a{x=\"1\",y=\"2\",z=\"3\"} 2\n",
        "a{x=\"1\",} 2\n",
        "a{x=\"12\",y=\"2\"} 2\n",
        "a{x=\"1\",y2=\"2\"} 2\n",
        "a{x=\"1\"y=\"2\"} 2\n",
        "ab{x=\"1\"} 1\n",
        "a:{x=\"\\\"\"} 1\n",
        "a{x=\"é\"} -1.5\n",
        "a{x=\"é\",y=\"\"} 1e5\n",
        "a{1x=\"1\"} 1\n",
        "a{} 1\n",
        "a 1\n",
        "a 1 17\n",
        "ab 1.5.2\n",
        "{\"a\"} 1\n",
        "\n",
        "# HELP a b\n",
        "# TYPE a counter\n",
        "# TYPE a histogram\n",
        "# UNIT a_b b\n",
        "# a comment\n",
        "# EOF\n",
    ];
    /// Text fragments that are inserted into the lines.
    const PARTS: [&str; 38] = [
        "a",
        "1",
        ":",
        "{",
        "}",
        "x=",
        "\"v\"",
        "\"",
        "x=\"y\"",
        ",",
        ",}",
        " ",
        "  ",
        "\t",
        "\n",
        "\0",
        "\0\0",
        "\\",
        "\\\"",
        "-2.5e3",
        "NaN",
        "+Inf",
        "1e400",
        "1_0",
        "9999999999999999999",
        "# HELP a ",
        "# TYPE a",
        "#",
        "# ",
        "#  TYPE ",
        "# T",
        "# {",
        "\u{ff}",
        "é",
        "\r",
        " # {x=\"1\"} 1",
        "gaugehistogram",
        " 1",
    ];

    fn pages() -> impl Strategy<Value = Vec<u8>> {
        let lines = prop::collection::vec(prop::sample::select(&LINES[..]), 1..6);
        let part = prop_oneof![
            prop::sample::select(&PARTS[..]).prop_map(|part| part.as_bytes().to_vec()),
            any::<u8>().prop_map(|byte| vec![byte]),
        ];
        let changes = prop::collection::vec((part, any::<prop::sample::Index>(), 0..3_usize), 0..3);
        (lines, changes).prop_map(|(lines, changes)| {
            let mut page = lines.concat().into_bytes();
            for (part, at, removed) in changes {
                let at = at.index(page.len());
                let end = (at + removed).min(page.len());
                page.splice(at..end, part);
            }
            page
        })
    }

    /// Compares the entry of each line that [`Lines`] reads with the entry from its tokens. Returns the number of these
    /// lines.
    fn compare(page: &[u8], format: Format, wanted: bool) -> usize {
        let limits = Limits { labels: 3, line: 60, ..Limits::default() };
        let (mut lines, mut start, mut count) = (Lines::default(), 0, 0);
        let (mut metric_type, mut labels) = (MetricType::Other, Spans::new());
        while start < page.len() {
            let (mut expected_type, mut expected_labels) = (metric_type, Spans::new());
            let mut lexer = Lexer::new(&page[start..], true, format);
            let expected =
                entry::read(&mut lexer, format, &mut expected_type, &mut expected_labels, limits.labels);
            let length = lexer.position().min(page.len() - start);
            let line =
                lines.read(&page[start..], (format, &limits), &mut metric_type, &mut labels, |_| wanted);
            if let Some((entry, line_length)) = line {
                count += 1;
                assert_eq!((line_length, metric_type), (length, expected_type));
                match (entry, expected.unwrap()) {
                    (
                        entry @ Entry::Series { value, .. },
                        Entry::Series { value: expected_value, name, series, timestamp },
                    ) => {
                        let expected = Entry::Series { value, name, series, timestamp };
                        assert_eq!(format!("{entry:?}"), format!("{expected:?}"));
                        assert_eq!(value.to_bits(), expected_value.to_bits());
                        assert_eq!(labels, expected_labels);
                    }
                    (Entry::Other, Entry::Other) => {}
                    (Entry::Other, Entry::Series { .. }) => assert!(!wanted),
                    (entry, expected) => assert_eq!(format!("{entry:?}"), format!("{expected:?}")),
                }
            } else {
                lines.forget();
                (metric_type, labels) = (expected_type, expected_labels);
                if expected.is_err() || length == 0 {
                    return count;
                }
            }
            start += length;
        }
        count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn line_equals_its_tokens(page in pages(), openmetrics in any::<bool>(), wanted in any::<bool>()) {
            compare(&page, if openmetrics { Format::OpenMetrics } else { Format::Prometheus }, wanted);
        }
    }

    #[test]
    fn lines_of_exporters_need_no_tokens() {
        let page = b"# HELP a b c\n# TYPE a histogram\na{x=\"1\",le=\"2\"} 1\na{x=\"1\",le=\"+Inf\"} 2\n\
            a_sum{x=\"1\"} 1e3\nb 1\nb_total{x=\"\\\"\",y=\"\xc3\xa9\",} NaN\n";
        for (format, count) in [(Format::Prometheus, 7), (Format::OpenMetrics, 7)] {
            for wanted in [false, true] {
                assert_eq!(compare(page, format, wanted), count);
            }
        }
    }
}
