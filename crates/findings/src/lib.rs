//! Finds problems of an HPA: each finding states an observation, with advice. The advice does not claim a cause that
//! was not observed.
//!
//! [`Facts`] contains the facts that a caller knows, such as the answers of metrics APIs and the pods. An unknown fact
//! causes no finding. `concertina why` and `concertina console` know most facts. The controller's own console knows
//! only the facts from its record and its watch.
//!
//! # Example
//!
//! ```
//! use autoscaling::explanation::Explanation;
//! use autoscaling::settings::Settings;
//! use findings::{Facts, FindingId, findings};
//!
//! let explanation = Explanation { path: autoscaling::explanation::DecisionPath::Disabled, ..Explanation::default() };
//! let (at, settings) = ("2026-01-01T00:00:00Z".parse().unwrap(), Settings::default());
//! let found = findings(&Facts::new("shop", at, &explanation, &settings));
//! assert_eq!(found[0].code, FindingId::Paused);
//! ```

mod access;
pub mod facts;
mod id;
mod limits;
mod metrics;
mod past;
mod pods;
mod sources;
mod target;
pub mod words;

use std::fmt;

use serde::Serialize;

pub use self::facts::Facts;
pub use self::id::{FindingId, Reference};
pub use self::past::occurrences;
use self::words::{counted, listed};

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
    /// The HPA does not scale, or not in every direction, or the explained decision is not the controller's.
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
    fn error(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), advice: advice.into() }
    }

    fn warning(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message, advice) }
    }

    fn info(code: FindingId, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::error(code, message, advice) }
    }
}

/// Returns all findings, the most severe first.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(target::scale(facts));
    found.extend(target::paused(facts));
    found.extend(target::shared(facts));
    found.extend(access::missing_apis(facts));
    found.extend(access::refused(facts));
    found.extend(metrics::requests(facts));
    found.extend(metrics::failed(facts));
    found.extend(metrics::stale(facts));
    found.extend(sources::findings(facts));
    found.extend(pods::foreign(facts));
    found.extend(pods::unready(facts));
    found.extend(pods::missing(facts));
    found.extend(limits::maximum(facts));
    found.extend(limits::fixed(facts));
    found.extend(limits::tolerance(facts));
    found.extend(limits::behavior(facts));
    found.extend(past::flapping(facts));
    found.extend(target::field_managers(facts));
    found.extend(access::skew(facts));
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Returns the target, such as `Deployment/web`, or `the target` if the target is unknown.
fn target_name(facts: &Facts<'_>) -> String {
    facts.target.map_or_else(|| "the target".to_owned(), |target| format!("{}/{}", target.kind, target.name))
}
