//! Errors of pages.

/// The reason why a page is refused as a whole, or the samples of one selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page is too large. Holds the limit in bytes.
    #[error("the page has more than {0} bytes: raise maxBytes, or expose fewer series at this path")]
    TooLarge(usize),
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
        /// The limit.
        limit: usize,
    },
    /// Too many series have the name and labels of the selector. Holds the limit.
    #[error("more than {0} series match: select fewer by their labels")]
    TooManySeries(usize),
    /// Two samples have the same labels. Holds the line number of the second sample.
    #[error("line {0} repeats a series of this page")]
    DuplicateSeries(usize),
    /// The page does not follow its format.
    #[error("line {line} is invalid: {error}, at {at:?}")]
    Syntax {
        /// The number of the line, from 1.
        line: usize,
        /// The syntax error.
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
    /// `HELP`, `TYPE` or `UNIT` without a name.
    #[error("expected a metric name after HELP, TYPE or UNIT")]
    MetadataName,
    /// Another token where the text of `HELP`, `TYPE` or `UNIT` is expected.
    #[error("expected a text after the metric name")]
    MetadataText,
    /// A type that the format does not know.
    #[error("unknown metric type")]
    Type,
    /// A unit that is not the end of the name.
    #[error("the unit is not the last part of the metric name")]
    Unit,
    /// A text or a value that is not UTF-8.
    #[error("text that is not UTF-8")]
    Utf8,
    /// Another token where a label name is expected.
    #[error("expected a label name")]
    LabelName,
    /// Another token where `=` is expected.
    #[error("expected = after a label name")]
    Equal,
    /// Another token where a label value is expected.
    #[error("expected a quoted label value")]
    LabelValue,
    /// Another token where a comma or brace is expected.
    #[error("expected a comma or a closing brace after a label value")]
    Comma,
    /// Two metric names, or none.
    #[error("expected exactly one metric name")]
    MetricName,
    /// Another token where a value is expected.
    #[error("expected a number")]
    Value,
    /// An invalid timestamp.
    #[error("expected a timestamp")]
    Timestamp,
    /// Another token where the end of a line is expected.
    #[error("expected the end of the line")]
    LineEnd,
    /// The page of OpenMetrics does not end with `# EOF`.
    #[error("the page does not end with # EOF, so it is incomplete")]
    MissingEof,
    /// The page continues after the end marker of OpenMetrics.
    #[error("data after # EOF")]
    AfterEof,
}
