//! Fields of a policy that have no effect, and why.

use std::fmt;

use crate::schedule::ScheduleError;

/// A field that has no effect, or not the stated one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field: `schedules[2].start`. Empty for the policy as a whole.
    pub path: String,
    /// The reason.
    pub reason: ProblemReason,
}

/// The reason why a field has no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemReason {
    /// The text is too long.
    #[error("has {bytes} bytes, at most {maximum} are allowed; the policy is ignored")]
    TooLarge {
        /// The length.
        bytes: usize,
        /// The maximum length.
        maximum: usize,
    },
    /// The text is neither YAML nor JSON.
    #[error("cannot be read: {0}; the policy is ignored")]
    Unreadable(String),
    /// The list is too long.
    #[error("has {entries} entries, at most {maximum} are allowed; the field is ignored")]
    TooMany {
        /// The number of entries.
        entries: usize,
        /// The maximum number.
        maximum: usize,
    },
    /// The field does not exist.
    #[error("is unknown and has no effect{}", suggestion.map(|field| format!("; did you mean {field}?")).unwrap_or_default())]
    Unknown {
        /// The known field with the most similar name.
        suggestion: Option<&'static str>,
    },
    /// The field exists in other kinds of policies only.
    #[error("has an effect in a ClusterScalingPolicy only")]
    ClusterOnly,
    /// The value is invalid.
    #[error("must be {expected}, not {value}")]
    Invalid {
        /// The valid values.
        expected: String,
        /// The value.
        value: String,
    },
    /// Another field is missing.
    #[error("is missing; {0}")]
    Missing(&'static str),
    /// The field contradicts another one.
    #[error("{0}")]
    Conflict(&'static str),
    /// The schedule is invalid. Its error names the field.
    #[error("{0}")]
    Schedule(ScheduleError),
    /// The mode is invalid, or its end is.
    #[error("{0}; the count is held")]
    Held(String),
    /// The value exceeds a limit of a ClusterScalingPolicy.
    #[error("exceeds {limit} of ClusterScalingPolicy {policy}; {effect}")]
    Limited {
        /// The limit: `highestCeiling 100`.
        limit: String,
        /// The policy with the limit.
        policy: String,
        /// The value that applies instead.
        effect: String,
    },
    /// The selector of the policy is invalid.
    #[error("{0}; the policy applies to no HPA")]
    Selector(String),
    /// Further problems.
    #[error("{0} more problems")]
    More(usize),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "the policy {}", self.reason)
        } else {
            write!(f, "{}: {}", self.path, self.reason)
        }
    }
}
