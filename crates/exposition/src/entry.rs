//! An entry of a page, which is a series or a line without a value.

use std::borrow::Cow;

use crate::format::{SyntaxError, canonical_label, parse_float};
use crate::lexer::{Incomplete, Lexer, Token};

/// The type that the page declared last. Only the types that affect the form of label values are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MetricType {
    #[default]
    Other,
    Histogram,
    Summary,
}

/// A range of bytes in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    fn inner(start: usize, end: usize) -> Self {
        Self { start: start.saturating_add(1), end: end.saturating_sub(1) }
    }
}

/// Up to this number of labels, a comparison of each with all others is faster than a sort.
const FEW: usize = 8;

/// The names and values of the labels of the current entry. The next entry reuses the memory.
pub(crate) type Spans = Vec<(Span, Span)>;

#[derive(Debug)]
pub(crate) enum Entry {
    /// A series with a value.
    Series { name: Span, series: Span, value: f64, timestamp: Option<i64> },
    /// Metadata, a comment or an empty line.
    Other,
    /// The end of the page.
    End,
}

#[derive(Debug)]
pub(crate) enum Failure {
    Incomplete,
    Syntax(SyntaxError),
    TooManyLabels,
}

impl From<Incomplete> for Failure {
    fn from(_: Incomplete) -> Self {
        Self::Incomplete
    }
}

impl From<SyntaxError> for Failure {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

/// A series of a page with its value.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) name: Span,
    pub(crate) written: Span,
    pub(crate) labels: &'a [(Span, Span)],
    pub(crate) metric_type: MetricType,
    /// The line on which the entry starts, from 1.
    pub line: usize,
    /// The value on the page, which may be NaN or infinite.
    pub value: f64,
    /// The timestamp on the page, in milliseconds since the Unix epoch. Usually absent.
    pub timestamp: Option<i64>,
}

impl<'a> Series<'a> {
    /// Returns the name of the series, which is the name of a metric, with a suffix such as `_bucket` for parts of a
    /// histogram. A quoted name may contain any bytes.
    pub fn name(&self) -> Cow<'a, [u8]> {
        unescape(self.slice(self.name))
    }

    /// Returns the name and the labels as on the page.
    pub fn as_written(&self) -> &'a [u8] {
        self.slice(self.written)
    }

    /// Returns the labels in their order on the page. A quoted name may contain any bytes.
    ///
    /// The values of `le` in histograms and of `quantile` in summaries have the form in which Prometheus stores them,
    /// such as `1.0` for `1`.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, Cow<'a, str>)> {
        let series = *self;
        self.labels.iter().map(move |(name, value)| {
            let name = unescape(series.slice(*name));
            let value = series.value_of(&name, *value);
            (name, value)
        })
    }

    /// Returns the value of a label that is not empty. Adds the number of labels that it looks at to `compared`. Only the
    /// value of this label is decoded.
    pub(crate) fn label(&self, wanted: &[u8], compared: &mut usize) -> Option<Cow<'a, str>> {
        let mut spans = self.labels.iter().inspect(|_| *compared += 1);
        let (_, value) =
            spans.find(|(name, value)| value.start < value.end && *unescape(self.slice(*name)) == *wanted)?;
        Some(self.value_of(wanted, *value))
    }

    fn value_of(&self, name: &[u8], value: Span) -> Cow<'a, str> {
        let value = match unescape(self.slice(value)) {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        };
        let is_bound = match self.metric_type {
            MetricType::Histogram => name == b"le",
            MetricType::Summary => name == b"quantile",
            MetricType::Other => false,
        };
        let canonical = if is_bound { canonical_label(&value) } else { None };
        canonical.map_or(value, Cow::Owned)
    }

    /// Returns the name of a label that the series has twice, among labels that are not empty. The name of the series is
    /// its label `__name__`. Prometheus refuses a page with such a series.
    pub fn repeated_label(&self) -> Option<Cow<'a, [u8]>> {
        let set = || {
            let set = self.labels.iter().filter(|(_, value)| value.start < value.end);
            set.map(|(name, _)| self.slice(*name))
        };
        // Names have no escapes, except for quoted ones.
        if set().count() > FEW || set().any(|name| name.contains(&b'\\')) {
            let mut names: Vec<_> =
                set().map(unescape).chain([Cow::Borrowed(b"__name__".as_slice())]).collect();
            names.sort_unstable();
            return names.windows(2).find_map(|pair| match pair {
                [one, other] if one == other => Some(one.clone()),
                _ => None,
            });
        }
        let repeated = set()
            .enumerate()
            .find(|(index, name)| *name == b"__name__" || set().take(*index).any(|earlier| earlier == *name));
        repeated.map(|(_, name)| Cow::Borrowed(name))
    }

    fn slice(&self, span: Span) -> &'a [u8] {
        self.bytes.get(span.start..span.end).unwrap_or_default()
    }
}

/// Replaces the escapes `\"`, `\\` and `\n`. Other backslashes are kept.
fn unescape(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'\\') {
        return Cow::Borrowed(bytes);
    }
    let mut result = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let replaced = match (byte, rest.peek()) {
            (b'\\', Some(b'"')) => Some(b'"'),
            (b'\\', Some(b'\\')) => Some(b'\\'),
            (b'\\', Some(b'n')) => Some(b'\n'),
            _ => None,
        };
        if replaced.is_some() {
            rest.next();
        }
        result.push(replaced.unwrap_or(byte));
    }
    Cow::Owned(result)
}

/// Reads the entry at the start of the lexer's bytes.
pub(crate) fn read(
    lexer: &mut Lexer<'_>,
    metric_type: &mut MetricType,
    labels: &mut Spans,
    max_labels: usize,
) -> Result<Entry, Failure> {
    labels.clear();
    let mut parser = Parser { lexer, labels, max_labels };
    match parser.lexer.token()? {
        Token::End => Ok(Entry::End),
        Token::LineBreak => Ok(Entry::Other),
        Token::Comment => match parser.lexer.token()? {
            Token::LineBreak => Ok(Entry::Other),
            _ => Err(SyntaxError::LineEnd.into()),
        },
        token @ (Token::Help | Token::Type) => parser.metadata(token, metric_type),
        Token::BraceOpen => {
            let name = parser.labels(None)?.ok_or(SyntaxError::MetricName)?;
            let series = Span { start: 0, end: parser.lexer.position() };
            let token = parser.lexer.token()?;
            parser.value(name, series, token)
        }
        Token::Name => {
            // As in Prometheus, blanks at the start of the entry belong to the name.
            let name = Span { start: 0, end: parser.lexer.position() };
            let mut series = name;
            let mut token = parser.lexer.token()?;
            if token == Token::BraceOpen {
                parser.labels(Some(name))?;
                series.end = parser.lexer.position();
                token = parser.lexer.token()?;
            }
            parser.value(name, series, token)
        }
        _ => Err(SyntaxError::Start.into()),
    }
}

struct Parser<'l, 'a, 's> {
    lexer: &'l mut Lexer<'a>,
    labels: &'s mut Spans,
    max_labels: usize,
}

impl Parser<'_, '_, '_> {
    fn metadata(&mut self, kind: Token, metric_type: &mut MetricType) -> Result<Entry, Failure> {
        if self.lexer.token()? != Token::Name {
            return Err(SyntaxError::MetadataName.into());
        }
        if self.lexer.token()? != Token::Text {
            return Err(SyntaxError::MetadataText.into());
        }
        let text = self.lexer.text();
        // The token includes the blank before the text.
        let text = text.get(1..).unwrap_or_default();
        if kind == Token::Type {
            *metric_type = match text {
                b"histogram" => MetricType::Histogram,
                b"summary" => MetricType::Summary,
                b"counter" | b"gauge" | b"untyped" => MetricType::Other,
                _ => return Err(SyntaxError::Type.into()),
            };
        } else if std::str::from_utf8(text).is_err() {
            return Err(SyntaxError::Utf8.into());
        }
        if self.lexer.token()? != Token::LineBreak {
            return Err(SyntaxError::LineEnd.into());
        }
        Ok(Entry::Other)
    }

    /// Reads labels up to the closing brace. Returns the name of the metric, which may be given between the braces.
    fn labels(&mut self, mut metric: Option<Span>) -> Result<Option<Span>, Failure> {
        let mut token = self.lexer.token()?;
        loop {
            let (start, end) = self.lexer.bounds();
            match token {
                Token::BraceClose => return Ok(metric),
                Token::LabelName | Token::Quoted => {}
                _ => return Err(SyntaxError::LabelName.into()),
            }
            let quoted = token == Token::Quoted;
            token = self.lexer.token()?;
            if quoted && matches!(token, Token::Comma | Token::BraceClose) {
                if metric.replace(Span::inner(start, end)).is_some() {
                    return Err(SyntaxError::MetricName.into());
                }
                if token == Token::BraceClose {
                    return Ok(metric);
                }
                token = self.lexer.token()?;
                continue;
            }
            let name = if quoted { Span::inner(start, end) } else { Span { start, end } };
            token = self.label_value(name, token)?;
        }
    }

    /// Reads `="value"` and an optional comma. Returns the next token.
    fn label_value(&mut self, name: Span, token: Token) -> Result<Token, Failure> {
        if token != Token::Equal {
            return Err(SyntaxError::Equal.into());
        }
        if self.lexer.token()? != Token::LabelValue {
            return Err(SyntaxError::LabelValue.into());
        }
        if std::str::from_utf8(self.lexer.text()).is_err() {
            return Err(SyntaxError::Utf8.into());
        }
        if self.labels.len() >= self.max_labels {
            return Err(Failure::TooManyLabels);
        }
        let (start, end) = self.lexer.bounds();
        self.labels.push((name, Span::inner(start, end)));
        match self.lexer.token()? {
            Token::Comma => Ok(self.lexer.token()?),
            // As in Prometheus, the comma is optional.
            token => Ok(token),
        }
    }

    /// Reads the value and the timestamp of a series.
    fn value(&mut self, name: Span, series: Span, token: Token) -> Result<Entry, Failure> {
        if token != Token::Value {
            return Err(SyntaxError::Value.into());
        }
        let value = parse_float(self.lexer.text()).ok_or(SyntaxError::Value)?;
        let mut next = self.lexer.token()?;
        let mut timestamp = None;
        if next == Token::Timestamp {
            let text = std::str::from_utf8(self.lexer.text()).ok();
            timestamp = Some(text.and_then(|text| text.parse().ok()).ok_or(SyntaxError::Timestamp)?);
            next = self.lexer.token()?;
        }
        if next != Token::LineBreak {
            return Err(SyntaxError::LineEnd.into());
        }
        Ok(Entry::Series { name, series, value, timestamp })
    }
}
