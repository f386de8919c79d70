//! Notes about an imported object: fields without a counterpart, fields with another effect, and further steps.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// A statement about a field of an imported object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The location of the object: `web.yaml: document 2`.
    pub location: Arc<str>,
    /// The object: `ScaledObject shop/web`.
    pub object: Arc<str>,
    /// The path of the field. Empty for the object as a whole.
    pub field: String,
    /// The statement.
    pub remark: Remark,
}

/// The result of the import for a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// Policies have no such field, for this reason.
    NoCounterpart(&'static str),
    /// The field is invalid in the imported object.
    Invalid {
        /// The valid values.
        expected: &'static str,
        /// The value.
        value: String,
    },
    /// The field is required in the imported object.
    Missing,
    /// The field would be invalid in a policy, for this reason.
    Refused(String),
    /// The field is imported, but its effect differs.
    Differs(Cow<'static, str>),
    /// The field keeps its effect, because the other autoscaler stays in place.
    Kept(&'static str),
    /// A step that completes the import.
    Next(String),
}

impl Remark {
    /// Whether the field has no effect after the import.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::NoCounterpart(_) | Self::Invalid { .. } | Self::Missing | Self::Refused(_) => true,
            Self::Differs(_) | Self::Kept(_) | Self::Next(_) => false,
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounterpart(reason) => write!(f, "not imported: {reason}"),
            Self::Invalid { expected, value } => write!(f, "not imported: must be {expected}, not {value}"),
            Self::Missing => f.write_str("not imported: is missing"),
            Self::Refused(reason) => write!(f, "not imported: {reason}"),
            Self::Differs(difference) => write!(f, "imported with a difference: {difference}"),
            Self::Kept(reason) => write!(f, "stays in effect: {reason}"),
            Self::Next(step) => write!(f, "next step: {step}"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, object, field, remark } = self;
        write!(f, "{location}: {object}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        remark.fmt(f)
    }
}

/// A value in a note.
pub(super) fn shown(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(LONGEST).collect::<String>()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_without_effect_is_lost() {
        let lost = [
            Remark::NoCounterpart("no"),
            Remark::Invalid { expected: "a number", value: "x".to_owned() },
            Remark::Missing,
            Remark::Refused("no".to_owned()),
        ];
        let kept = [Remark::Differs("later".into()), Remark::Kept("stays"), Remark::Next("apply".to_owned())];
        assert!(lost.iter().all(Remark::is_lost) && !kept.iter().any(Remark::is_lost));
    }
}
