//! An error in a scenario, with its location.

use std::fmt;

use super::document::Location;

/// An error in a scenario, with its file, line and field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    location: Location,
    /// The field. Empty for an error about the whole document.
    field: String,
    message: String,
}

impl Problem {
    pub(crate) fn new(location: Location, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { location, field: field.into(), message: message.into() }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}
