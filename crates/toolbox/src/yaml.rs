//! Reads the YAML or JSON documents of a user's file.

use serde::de::DeserializeOwned;
use serde_saphyr::{Options, UserMessageFormatter};

/// The reason why a text is not YAML.
#[derive(Debug)]
pub(crate) struct YamlError {
    /// The line, counted from 1. 0 if it is unknown.
    pub(crate) line: u64,
    /// The problem in one line.
    pub(crate) message: String,
}

/// Reads all YAML documents of a text.
pub(crate) fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    let mut options = Options::default();
    options.with_snippet = false;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| YamlError {
        line: error.location().map_or(0, |location| location.line()),
        message: error
            .render_with_formatter(&UserMessageFormatter)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
}
