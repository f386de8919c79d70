//! A field of the source file: the checks of its value, and the errors of the file.

use std::path::PathBuf;
use std::time::Duration;

/// An unusable source file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The file is not YAML, or has an unknown field or a value of another type.
    #[error("{} is invalid: {reason}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The cause, with the line and the field.
        reason: String,
    },
    /// A field has an invalid value.
    #[error("{}: {field} {reason}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The path of the field.
        field: String,
        /// The reason.
        reason: String,
    },
}

/// A field of the file, for its errors.
pub(crate) struct Field<'a> {
    pub(crate) file: &'a PathBuf,
    pub(crate) path: String,
}

impl Field<'_> {
    pub(crate) fn error(&self, name: &str, reason: impl Into<String>) -> FileError {
        let (path, field) = (self.file.clone(), format!("{}{name}", self.path));
        FileError::Field { path, field, reason: reason.into() }
    }

    /// A time such as `500ms`, `5s` or `1m`, from 100 ms to 5 min.
    pub(crate) fn time(
        &self,
        name: &str,
        text: Option<&str>,
        default: Duration,
    ) -> Result<Duration, FileError> {
        let Some(text) = text else { return Ok(default) };
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let unit = match text.get(digits.len()..).unwrap_or_default() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            _ => 0,
        };
        let millis = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
        let time = millis.map(|millis| Duration::from_millis(millis.into()));
        time.filter(|time| (Duration::from_millis(100)..=Duration::from_mins(5)).contains(time)).ok_or_else(
            || self.error(name, format!("must be a time from 100ms to 5m, such as 5s, not {text:?}")),
        )
    }

    pub(crate) fn bytes(&self, name: &str, text: Option<&str>, default: usize) -> Result<usize, FileError> {
        let Some(text) = text else { return Ok(default) };
        let quantity = text.parse::<autoscaling::quantity::Quantity>().ok();
        let bytes = quantity.and_then(|quantity| usize::try_from(quantity.value()).ok());
        bytes.filter(|bytes| (1_024..=256 << 20).contains(bytes)).ok_or_else(|| {
            self.error(name, format!("must be a size from 1Ki to 256Mi, such as 4Mi, not {text:?}"))
        })
    }

    pub(crate) fn count(
        &self,
        name: &str,
        count: Option<u32>,
        default: usize,
        most: u32,
    ) -> Result<usize, FileError> {
        let Some(count) = count else { return Ok(default) };
        let valid = Some(count).filter(|count| (1..=most).contains(count));
        valid
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| self.error(name, format!("must be from 1 to {most}, not {count}")))
    }
}
