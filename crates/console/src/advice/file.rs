//! The file of `--advice`, as it was last read.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use terminal::values::{TextFileError, text_of_file};

use super::{AllAdvice, Report};

/// The largest file in bytes. An HPA takes about 1 kB.
pub(crate) const LARGEST: usize = 32 << 20;
/// The kind of the answer of `advise`.
const KIND: &str = "AdviceReport";

/// The reason why the file of `--advice` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--advice {}: {problem}", path.display())]
pub(crate) struct AdviceError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error("it is not a file")]
    NoFile,
    #[error("it is empty, because concertina advise has not written it yet")]
    Empty,
    #[error("it is not the output of concertina advise -o json: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is not the output of concertina advise -o json: its kind is {0:?}")]
    Kind(String),
}

/// A file, and the state in which it was last read.
#[derive(Debug)]
pub(crate) struct AdviceFile {
    path: PathBuf,
    /// The time of its last change, and its size in bytes.
    last: Option<(SystemTime, u64)>,
}

impl AdviceFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// Reads the file. `None` if it has not changed since the last call.
    pub(crate) fn read(&mut self) -> Option<Result<AllAdvice, AdviceError>> {
        let read = self.changed().transpose()?.and_then(|()| {
            let text = text_of_file(&self.path, LARGEST)?;
            if text.trim().is_empty() {
                return Err(Problem::Empty);
            }
            let report: Report = serde_json::from_str(&text)?;
            if report.kind == KIND { Ok(report.into_advice()) } else { Err(Problem::Kind(report.kind)) }
        });
        Some(read.map_err(|problem| AdviceError { path: self.path.clone(), problem }))
    }

    /// Whether the file has changed. A pipe is refused, because a read of it can wait forever.
    fn changed(&mut self) -> Result<Option<()>, Problem> {
        let last = self.last.take();
        let metadata = fs::metadata(&self.path)?;
        if !metadata.is_file() {
            return Err(Problem::NoFile);
        }
        self.last = Some((metadata.modified()?, metadata.len()));
        Ok((self.last != last).then_some(()))
    }
}
