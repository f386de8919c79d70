//! The bytes of a watch as they arrive, for the fuzz targets.

use super::{Handle, Intake, Line, Sink, Watched};
use crate::api::body::LineBuffer;
use crate::api::error::ApiError;

/// What one line of a watch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// An object or a bookmark of this version.
    Event(String),
    /// The end of the initial events, of this version.
    InitialEventsEnd(String),
    /// Nothing that could be read.
    Skipped,
    /// What ends the watch.
    Failed(ApiError),
}

/// Reads a watch from its pieces up to its first error.
pub fn watch<W, S>(pieces: &[&[u8]], sink: S) -> (S, Vec<Told>)
where
    W: Watched + Default,
    S: for<'a> Sink<W::Object<'a>>,
{
    let handle = Handle::new(W::default().name(), None);
    let mut intake = Intake::<W, S> { sink, handle, watched: W::default() };
    let (mut lines, mut told) = (LineBuffer::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.next() {
            told.push(match intake.line(&line) {
                Ok(Line::Event { resource_version }) => Told::Event(resource_version),
                Ok(Line::InitialEventsEnd { resource_version }) => Told::InitialEventsEnd(resource_version),
                Ok(Line::Skipped) => Told::Skipped,
                Err(error) => {
                    told.push(Told::Failed(error));
                    return (intake.sink, told);
                }
            });
        }
    }
    (intake.sink, told)
}
