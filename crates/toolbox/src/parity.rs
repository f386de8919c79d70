//! `concertina parity`: compares a dry run with the built-in controller.
//!
//! `read` fetches the comparison of the dry run, `summary` aggregates the comparison, and `text` and `page`
//! render the result.

pub mod page;
mod read;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod text;

use std::io::{self, ErrorKind, IsTerminal, Write};

use tokio_util::sync::CancellationToken;

pub use self::read::ReadError;
pub use self::summary::Summary;
use crate::explain::{Style, Zone};
use crate::options::ParityOptions;
use crate::options::parity::Output;
use controller::shadow::wire::ShadowReport;

/// The reason why no report is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// The comparison cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error("failed to write the report: {0}")]
    Write(#[from] io::Error),
    /// The command was interrupted before it had a report.
    #[error("interrupted")]
    Interrupted,
}

/// Writes the report to standard output. Returns whether there are differences.
///
/// # Errors
/// Returns a [`ParityError`] if the comparison cannot be read, the report cannot be written, or `stop` is
/// cancelled first.
pub async fn run(options: &ParityOptions, stop: CancellationToken) -> Result<bool, ParityError> {
    let reading = stop.run_until_cancelled(read::report(&options.source)).await;
    let report = reading.ok_or(ParityError::Interrupted)??;
    let mut out = io::stdout();
    let is_terminal = out.is_terminal();
    match show(&report, options, is_terminal, &mut out) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        shown => Ok(shown?),
    }
}

/// Writes the report. Returns whether there are differences.
///
/// # Errors
/// Returns the error if `out` cannot be written.
pub fn show(
    report: &ShadowReport,
    options: &ParityOptions,
    is_terminal: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let summary = Summary::new(report, options.since, options.namespace.as_deref());
    let colours = options.color.applies(is_terminal);
    let zone = Zone::local(options.utc);
    let text = match options.output {
        Output::Text => text::render(&summary, Style { colours, width: None }, &zone),
        Output::Html => page::render(&summary, &zone),
        Output::Json => serde_json::to_string_pretty(&summary)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&summary).map_err(io::Error::other)?,
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(summary.counts.differences() > 0)
}
