//! Findings about an HPA in addition to its decision, each with advice.
//!
//! A finding states an observation. Its advice does not claim a cause that was not observed.

mod access;
mod id;
mod limits;
mod metrics;
mod past;
mod pods;
mod target;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub use self::id::FindingId;
pub(crate) use self::past::occurrences;
use super::Situation;
use crate::words::{counted, listed};

/// An observation about an HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The identifier.
    pub code: FindingId,
    /// The severity.
    pub severity: Severity,
    /// The observation, in one sentence.
    pub message: String,
    /// The recommended action, in one or two sentences.
    pub advice: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The HPA does not scale, or does not scale in every direction.
    Error,
    /// The HPA scales, but possibly not as the user intends.
    Warning,
    /// The finding is for information only.
    Info,
}

impl Severity {
    /// Returns the severity's name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Finding {
    pub(super) fn error(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), advice: advice.into() }
    }

    pub(super) fn warning(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message, advice) }
    }

    fn info(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::error(code, message, advice) }
    }
}

/// Returns all findings, the most severe first.
pub fn findings(situation: &Situation) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(target::scale(situation));
    found.extend(target::paused(situation));
    found.extend(target::shared(situation));
    found.extend(access::missing_apis(situation));
    found.extend(access::refused(situation));
    found.extend(metrics::requests(situation));
    found.extend(metrics::failed(situation));
    found.extend(metrics::stale(situation));
    found.extend(super::sources::findings(situation));
    found.extend(pods::foreign(situation));
    found.extend(pods::unready(situation));
    found.extend(pods::missing(situation));
    found.extend(limits::maximum(situation));
    found.extend(limits::fixed(situation));
    found.extend(limits::tolerance(situation));
    found.extend(limits::behavior(situation));
    found.extend(past::flapping(situation));
    found.extend(target::field_managers(situation));
    found.extend(access::skew(situation));
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Returns the target, such as `Deployment/web`, or `the target` if the target is unknown.
fn target_name(situation: &Situation) -> String {
    situation
        .target
        .as_ref()
        .map_or_else(|| "the target".to_owned(), |target| format!("{}/{}", target.kind, target.name))
}
