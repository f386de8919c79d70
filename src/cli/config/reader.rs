//! Typed access to flags by name.

use std::time::Duration;

use super::super::flags::{FlagError, Raw, Table};
use super::super::values::Value;
use autoscaling::duration::GoDuration;

/// Reads the flags of a table, with their defaults.
pub(super) struct Reader<'a> {
    pub(super) raw: &'a Raw,
    pub(super) table: &'a Table,
}

/// The text of an unreachable error, because the value of a flag has the type that the table declares.
pub(super) const WRONG_TYPE: &str = "has another type";

impl Reader<'_> {
    /// Returns the given value or the default, converted by `check`.
    pub(super) fn checked<T>(
        &self,
        name: &'static str,
        check: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<T, FlagError> {
        let flag = self.table.named(name).ok_or_else(|| FlagError::Unknown(name.to_owned()))?;
        let default = flag.kind.parse_default(flag.default);
        let value = self
            .raw
            .value(name)
            .or(default.as_ref())
            .ok_or_else(|| flag.invalid(flag.default, WRONG_TYPE))?;
        check(value).map_err(|reason| flag.invalid(self.raw.text(name), reason))
    }

    pub(super) fn float<T>(
        &self,
        name: &'static str,
        check: impl FnOnce(f64) -> Result<T, &'static str>,
    ) -> Result<T, FlagError> {
        self.checked(name, |value| match value {
            Value::Float(number) => check(*number).map_err(str::to_owned),
            _ => Err(WRONG_TYPE.to_owned()),
        })
    }

    pub(super) fn duration(&self, name: &'static str) -> Result<Duration, FlagError> {
        self.checked(name, |value| match value {
            Value::Duration(duration) => duration.unsigned().ok_or_else(|| "must be at least 0s".to_owned()),
            _ => Err(WRONG_TYPE.to_owned()),
        })
    }

    pub(super) fn duration_above_zero(&self, name: &'static str) -> Result<Duration, FlagError> {
        self.checked(name, |value| match value {
            Value::Duration(duration) if *duration > GoDuration(0) => {
                duration.unsigned().ok_or_else(|| WRONG_TYPE.to_owned())
            }
            _ => Err("must be greater than 0s".to_owned()),
        })
    }

    pub(super) fn count(&self, name: &'static str) -> Result<usize, FlagError> {
        self.checked(name, |value| match value {
            Value::Int(count) if *count >= 1 => Ok(usize::try_from(*count).unwrap_or(usize::MAX)),
            _ => Err("must be at least 1".to_owned()),
        })
    }

    /// Returns the given text, or `None` if the text is empty or the flag was not given.
    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        match self.raw.value(name) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        }
    }

    /// Creates the error for a flag value that is not allowed.
    pub(super) fn invalid(&self, name: &'static str, reason: String) -> FlagError {
        match self.table.named(name) {
            Some(flag) => flag.invalid(self.raw.text(name), reason),
            None => FlagError::Unknown(name.to_owned()),
        }
    }
}
