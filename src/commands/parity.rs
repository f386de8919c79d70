//! `concertina parity`: whether a dry run would have done what the built-in controller did.
//!
//! `read` fetches what the dry run has compared, `summary` makes of it what people ask, `text` and `page` show it.

pub mod page;
mod read;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod text;

use std::io::{self, ErrorKind, IsTerminal, Write};

use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

pub use self::read::ReadError;
pub use self::summary::Summary;
use crate::cli::ParityOptions;
use crate::cli::answer::Color;
use crate::cli::parity::Output;
use crate::commands::story::{Style, Zone};
use crate::shadow::wire::ShadowReport;

/// Why there is no report. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// What was compared cannot be had.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be shown.
    #[error("the report cannot be written: {0}")]
    Write(#[from] io::Error),
    /// It was interrupted before there was a report.
    #[error("interrupted")]
    Interrupted,
}

/// Writes the report to standard output; whether it tells of differences.
///
/// # Errors
/// What [`ParityError`] lists.
pub async fn run(options: &ParityOptions, stop: CancellationToken) -> Result<bool, ParityError> {
    let reading = stop.run_until_cancelled(read::report(&options.source)).await;
    let report = reading.ok_or(ParityError::Interrupted)??;
    let mut out = io::stdout();
    let is_terminal = out.is_terminal();
    match show(&report, options, is_terminal, &mut out) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        shown => Ok(shown?),
    }
}

/// Writes the report; whether it tells of differences.
///
/// # Errors
/// What writing fails with.
pub fn show(
    report: &ShadowReport,
    options: &ParityOptions,
    is_terminal: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let summary = Summary::of(report, options.since, options.namespace.as_deref());
    let wanted = || is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let colours = match options.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => wanted(),
    };
    let zone = if options.utc { Zone::utc() } else { Zone::new(TimeZone::system()) };
    let text = match options.output {
        Output::Text => text::render(&summary, Style { colours, width: None }, &zone),
        Output::Html => page::render(&summary, &zone),
        Output::Json => serde_json::to_string_pretty(&summary)? + "\n",
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(summary.counts.differences() > 0)
}
