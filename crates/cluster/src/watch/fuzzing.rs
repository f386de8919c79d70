//! The watch decoder for the fuzz targets: bytes in, events out.

use super::{Handle, Intake, Line, Sink, Watched};
use crate::body::LineBuffer;
use crate::error::ApiError;

/// The meaning of one line of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedLine {
    /// An object or a bookmark, with its resourceVersion.
    Event(String),
    /// The end of the initial events, with its resourceVersion.
    InitialEventsEnd(String),
    /// A line without a usable resourceVersion, or with an unknown type.
    Skipped,
    /// The error that ends the watch.
    Failed(ApiError),
}

/// Decodes a watch from pieces of its body, up to the first error.
pub fn watch<W, S>(pieces: &[&[u8]], sink: S) -> (S, Vec<DecodedLine>)
where
    W: Watched + Default,
    S: for<'a> Sink<W::Object<'a>>,
{
    let handle = Handle::new(W::default().name(), None);
    let mut intake = Intake::<W, S> { sink, handle, watched: W::default() };
    let (mut lines, mut lines_read) = (LineBuffer::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.take_line() {
            lines_read.push(match intake.line(&line) {
                Ok(Line::Event { resource_version, .. }) => DecodedLine::Event(resource_version),
                Ok(Line::InitialEventsEnd { resource_version }) => {
                    DecodedLine::InitialEventsEnd(resource_version)
                }
                Ok(Line::Skipped) => DecodedLine::Skipped,
                Err(error) => {
                    lines_read.push(DecodedLine::Failed(error));
                    return (intake.sink, lines_read);
                }
            });
        }
    }
    (intake.sink, lines_read)
}
