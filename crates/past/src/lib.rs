//! The commands that look at the past of a load. None changes a cluster.
//!
//! | module | commands |
//! |---|---|
//! | [`advise`] | `concertina advise`: better settings for the HPAs of a cluster, from Prometheus |
//! | [`forecast`] | `concertina forecast`: tries floors on a recorded load |

pub mod advise;
pub mod forecast;
#[cfg(test)]
#[expect(dead_code, reason = "no document here has an object of another crate")]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;

// Shared files of tests name this crate.
#[cfg(test)]
extern crate self as past;

use std::io;
use std::path::{Path, PathBuf};

/// The error of a file that a flag names for a result.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {} ({flag}): {error}", path.display())]
pub struct WriteError {
    flag: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl WriteError {
    /// Returns what makes an error of the operating system one of a file.
    fn of(flag: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { flag, path: path.to_owned(), error }
    }
}
