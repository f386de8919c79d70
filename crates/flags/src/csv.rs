//! Reads and writes one record of comma-separated values like Go's `encoding/csv`, which pflag uses.

/// The reason why a text contains no valid record, with Go's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CsvError {
    /// The text has no line with content.
    #[error("EOF")]
    Empty,
    /// A line is malformed.
    #[error("{}parse error on line {line}, column {column}: {fault}", record(*.start, *.line))]
    Malformed {
        /// The first line of the record, counted from 1.
        start: usize,
        /// The line of the error, counted from 1.
        line: usize,
        /// The column of the error in bytes, counted from 1.
        column: usize,
        /// The error in the line.
        fault: Fault,
    },
}

/// An error in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// An unquoted value contains a quote.
    #[error("bare \" in non-quoted-field")]
    BareQuote,
    /// Text follows a closing quote, or the closing quote is missing.
    #[error("extraneous or missing \" in quoted-field")]
    Quote,
}

fn record(start: usize, line: usize) -> String {
    if start == line { String::new() } else { format!("record on line {start}; ") }
}

/// Splits a text into lines.
struct Lines<'a> {
    rest: &'a str,
    /// The number of calls of [`Lines::next`].
    number: usize,
}

impl Lines<'_> {
    /// Returns the next line with its line feed, and drops a carriage return at the end of the line. Returns `None` at
    /// the end of the text.
    fn next(&mut self) -> Option<String> {
        self.number += 1;
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        let (content, feed) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        Some(content.strip_suffix('\r').unwrap_or(content).to_owned() + feed)
    }
}

/// Reads the first record of a text. Skips empty lines before the record, and ignores lines after it.
///
/// # Errors
/// Returns an error if the text has no record, or if a quote is misplaced.
pub(super) fn read(text: &str) -> Result<Vec<String>, CsvError> {
    let mut lines = Lines { rest: text, number: 0 };
    let mut line = loop {
        match lines.next() {
            None => return Err(CsvError::Empty),
            Some(line) if line.is_empty() || line == "\n" => {}
            Some(line) => break line,
        }
    };
    let start = lines.number;
    let malformed = |line, column, fault| Err(CsvError::Malformed { start, line, column, fault });
    let (mut at_line, mut column) = (start, 1);
    let mut fields = Vec::new();
    loop {
        let Some(quoted) = line.strip_prefix('"') else {
            let (field, after) =
                line.split_once(',').map_or((&*line, None), |(field, after)| (field, Some(after)));
            let field = if after.is_none() { field.strip_suffix('\n').unwrap_or(field) } else { field };
            if let Some(at) = field.find('"') {
                return malformed(lines.number, column + at, Fault::BareQuote);
            }
            fields.push(field.to_owned());
            column += field.len() + 1;
            match after {
                Some(after) => line = after.to_owned(),
                None => return Ok(fields),
            }
            continue;
        };
        column += 1;
        line = quoted.to_owned();
        let mut field = String::new();
        loop {
            if let Some((before, after)) = line.split_once('"') {
                field.push_str(before);
                column += before.len() + 1;
                if let Some(after) = after.strip_prefix('"') {
                    field.push('"');
                    column += 1;
                    line = after.to_owned();
                } else if let Some(after) = after.strip_prefix(',') {
                    fields.push(field);
                    column += 1;
                    line = after.to_owned();
                    break;
                } else if after.is_empty() || after == "\n" {
                    fields.push(field);
                    return Ok(fields);
                } else {
                    return malformed(lines.number, column - 1, Fault::Quote);
                }
            } else if line.is_empty() {
                return malformed(at_line, column, Fault::Quote);
            } else {
                field.push_str(&line);
                column += line.len();
                line = lines.next().unwrap_or_default();
                if !line.is_empty() {
                    (at_line, column) = (at_line + 1, 1);
                }
            }
        }
    }
}

/// Formats a record without a line feed at its end.
pub(super) fn write<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let fields = fields.into_iter().map(|field| {
        let quoted = field == r"\."
            || field.contains(['\n', '\r', '"', ','])
            || field.starts_with(|first: char| first.is_whitespace());
        if quoted { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
    });
    fields.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_like_in_go() {
        for (text, fields) in [
            (r#"a,"b,""c""",,d"#, &["a", "b,\"c\"", "", "d"][..]),
            ("\r\n\na\r\nb", &["a"]),
            ("\"a\r\nb\",", &["a\nb", ""]),
        ] {
            assert_eq!(read(text).unwrap(), fields, "{text:?}");
        }
    }

    #[test]
    fn error_names_line_and_column() {
        for (text, error) in [
            ("\n", "EOF"),
            ("a,b\"c", "parse error on line 1, column 4: bare \" in non-quoted-field"),
            ("\"a\"b", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            (
                "\"a\nb",
                "record on line 1; parse error on line 2, column 2: extraneous or missing \" in quoted-field",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn written_record_is_read_back() {
        let fields = ["", " a", "b,c", "d\"e", "f\ng", r"\."];
        let text = write(fields);
        assert_eq!(text, ",\" a\",\"b,c\",\"d\"\"e\",\"f\ng\",\"\\.\"");
        assert_eq!(read(&text).unwrap(), fields);
    }
}
