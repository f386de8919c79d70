//! Reads a page in pieces, with bounded memory.

use limits::page;
use memchr::{memchr, memchr_iter};

use crate::entry::{self, Entry, Failure, MetricType, Series, Spans};
use crate::format::PageError;
use crate::lexer::Lexer;

/// Maximum number of bytes that are added to an incomplete entry at once.
const PART: usize = 16 << 10;
/// Maximum number of bytes of an invalid line in an error.
const SHOWN: usize = 64;

/// The limits of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of the whole page, in bytes.
    pub bytes: usize,
    /// The length of a line, and of a series with line breaks in its labels, in bytes.
    pub line: usize,
    /// The number of labels of one series.
    pub labels: usize,
    /// The number of series that a [`Scrape`](crate::Scrape) keeps for each selector.
    pub series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: page::BYTES, line: page::LINE, labels: page::LABELS, series: page::SERIES }
    }
}

/// A reader of a page that arrives in pieces of any size.
///
/// Memory contains at most one incomplete entry, which is shorter than 1.5 times the limit of a line plus 16 KiB. A
/// page is only valid as a whole. If [`Self::push`] or [`Self::finish`] fails, the caller must drop all series of the
/// page.
#[derive(Debug)]
pub struct Page {
    limits: Limits,
    /// The start of an entry whose end has not arrived.
    buffer: Vec<u8>,
    /// The length of the buffer at which an incomplete entry is read again. The length grows in proportion to the
    /// entry, so that a page that arrives byte by byte is read in linear time.
    retry: usize,
    received: usize,
    line: usize,
    metric_type: MetricType,
    labels: Spans,
    ended: bool,
}

impl Page {
    /// Creates an empty page.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            retry: 0,
            received: 0,
            line: 1,
            metric_type: MetricType::Other,
            labels: Vec::new(),
            ended: false,
        }
    }

    /// Adds a piece. Passes each series that the piece completes to `each`.
    pub fn push(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(Series<'_>) -> Result<(), PageError>,
    ) -> Result<(), PageError> {
        self.received = self.received.saturating_add(piece.len());
        if self.received > self.limits.bytes {
            return Err(PageError::TooLarge(self.limits.bytes));
        }
        let mut rest = piece;
        while !rest.is_empty() {
            if self.buffer.is_empty() {
                let read = self.read(rest, false, &mut each)?;
                self.buffer.extend_from_slice(rest.get(read..).unwrap_or_default());
                self.check_line()?;
                break;
            }
            // Most entries end with the next line break.
            let part = rest.get(..PART).unwrap_or(rest);
            let length = memchr(b'\n', part).map_or(part.len(), |line_break| line_break + 1);
            let (part, later) = rest.split_at_checked(length).unwrap_or_default();
            self.buffer.extend_from_slice(part);
            rest = later;
            if self.buffer.len() >= self.retry {
                self.read_buffer(false, &mut each)?;
            }
        }
        Ok(())
    }

    /// Finishes the page. Passes the remaining series to `each`.
    pub fn finish(
        mut self,
        mut each: impl FnMut(Series<'_>) -> Result<(), PageError>,
    ) -> Result<(), PageError> {
        if self.buffer.last() != Some(&b'\n') {
            self.buffer.push(b'\n');
        }
        self.read_buffer(true, &mut each)
    }

    /// Reads the complete entries in the buffer and keeps the rest.
    fn read_buffer(
        &mut self,
        complete: bool,
        each: &mut impl FnMut(Series<'_>) -> Result<(), PageError>,
    ) -> Result<(), PageError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read(&buffer, complete, each)?;
        buffer.drain(..read.min(buffer.len()));
        self.buffer = buffer;
        self.check_line()
    }

    /// Checks the length of the incomplete entry. Sets the length at which the entry is read again.
    fn check_line(&mut self) -> Result<(), PageError> {
        let length = self.buffer.len();
        if length > self.limits.line {
            return Err(PageError::LineTooLong { line: self.line, limit: self.limits.line });
        }
        self.retry = length + length / 2;
        Ok(())
    }

    /// Reads the complete entries at the start of `all`. Returns their length.
    fn read(
        &mut self,
        all: &[u8],
        complete: bool,
        each: &mut impl FnMut(Series<'_>) -> Result<(), PageError>,
    ) -> Result<usize, PageError> {
        let mut start = 0;
        while !self.ended {
            let bytes = all.get(start..).unwrap_or_default();
            if self.line > page::LINES && !bytes.is_empty() {
                return Err(PageError::TooManyLines(page::LINES));
            }
            let mut lexer = Lexer::new(bytes, complete);
            let entry = entry::read(&mut lexer, &mut self.metric_type, &mut self.labels, self.limits.labels);
            let length = lexer.position().min(bytes.len());
            match entry {
                Ok(_) if length > self.limits.line => {
                    return Err(PageError::LineTooLong { line: self.line, limit: self.limits.line });
                }
                Ok(Entry::End) => self.ended = true,
                Ok(Entry::Other) => {}
                Ok(Entry::Series { name, series, value, timestamp }) => each(Series {
                    bytes,
                    name,
                    written: series,
                    labels: &self.labels,
                    metric_type: self.metric_type,
                    line: self.line,
                    value,
                    timestamp,
                })?,
                Err(Failure::Incomplete) => break,
                Err(Failure::TooManyLabels) => {
                    return Err(PageError::TooManyLabels { line: self.line, limit: self.limits.labels });
                }
                Err(Failure::Syntax(error)) => {
                    let shown = bytes.get(..bytes.len().min(length + 1).min(SHOWN)).unwrap_or_default();
                    let shown = shown.split(|byte| *byte == b'\n').next().unwrap_or_default();
                    let at = String::from_utf8_lossy(shown).into_owned();
                    return Err(PageError::Syntax { line: self.line, error, at });
                }
            }
            self.line += memchr_iter(b'\n', bytes.get(..length).unwrap_or_default()).count();
            start += length;
        }
        // Bytes after the end of the page are dropped.
        Ok(if self.ended { all.len() } else { start })
    }
}
