//! Finds problems of an HPA. Each finding states an observation and gives advice. No advice claims a cause that was not
//! observed.
//!
//! The caller supplies [`Facts`], such as the pods and the responses of the metrics APIs. A missing fact causes no
//! finding. `concertina why` and `concertina console` supply them.
//!
//! To add a finding: a row in `id.rs`, a function in `limits.rs`, `metrics.rs` or `target.rs` with a test in its file, a
//! line in [`findings`], and `UPDATE_DOCS=1 cargo test -p findings findings_page`. A fact that is missing is a field of
//! [`Facts`], which `Situation::facts` of the crate `why` fills.
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

pub mod facts;
mod id;
mod limits;
mod metrics;
mod owner;
mod target;

use std::fmt;

use autoscaling::explanation::Span;
use serde::Serialize;

pub use self::facts::Facts;
use self::facts::{Refused, SKEW};
pub use self::id::{FindingId, Reference};
pub use self::limits::occurrences;

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
    /// The HPA cannot scale in at least one direction, or the explained decision may differ from the controller's.
    Error,
    /// The HPA scales, but possibly not as the user intends.
    Warning,
    /// The finding is for information only.
    Info,
}

impl Severity {
    /// Returns the severity in lowercase, such as `error`.
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
    found.extend(metrics::missing_apis(facts));
    found.extend(refused(facts));
    found.extend(metrics::requests(facts));
    found.extend(metrics::failed(facts));
    found.extend(metrics::other_namespace(facts));
    found.extend(metrics::stale(facts));
    found.extend(metrics::sources(facts));
    found.extend(target::foreign_pods(facts));
    found.extend(target::unready_pods(facts));
    found.extend(target::surplus_pods(facts));
    found.extend(target::pods_without_samples(facts));
    found.extend(limits::policy(facts));
    found.extend(limits::forecast(facts));
    found.extend(limits::maximum(facts));
    found.extend(limits::fixed(facts));
    found.extend(limits::tolerance(facts));
    found.extend(limits::behavior(facts));
    found.extend(limits::flapping(facts));
    found.extend(target::field_managers(facts));
    found.extend(skew(facts));
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Returns the target, such as `Deployment/web`, or `the target` if the target is unknown.
fn target_name(facts: &Facts<'_>) -> String {
    facts.target.map_or_else(|| "the target".to_owned(), |target| format!("{}/{}", target.kind, target.name))
}

/// Reports the reads that the server refused to the current user.
fn refused(facts: &Facts<'_>) -> Vec<Finding> {
    facts
        .refused
        .iter()
        .map(|refused| {
            let what = what(refused);
            let advice = format!(
                "Request a role that allows \"{}\" on {}; the controller itself may have this permission.",
                refused.verb,
                resource(refused)
            );
            if refused.decides {
                let message = format!("you may not {what}, so this decision is not the controller's");
                Finding::error(FindingId::Forbidden, message, advice)
            } else {
                Finding::info(
                    FindingId::Forbidden,
                    format!("you may not {what}, so some checks were skipped"),
                    advice,
                )
            }
        })
        .collect()
}

fn resource(refused: &Refused) -> String {
    if refused.group.is_empty() {
        refused.resource.clone()
    } else {
        format!("{}.{}", refused.resource, refused.group)
    }
}

fn what(refused: &Refused) -> String {
    let name = refused.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let scope = match &refused.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".to_owned(),
    };
    format!("{} {}{name} {scope}", refused.verb, resource(refused))
}

/// Finds a difference of more than [`SKEW`] between the local clock and the clock of the API server.
fn skew(facts: &Facts<'_>) -> Option<Finding> {
    let skew = facts.skew.filter(|skew| skew.abs() > SKEW)?;
    let by = Span::seconds(skew.abs().as_secs());
    let which = if skew.is_positive() { "behind" } else { "ahead of" };
    Some(Finding::warning(
        FindingId::ClockSkew,
        format!("the clock of this machine is {by} {which} the API server's"),
        "Times and waits here follow the server's clock. Correct the clock of this machine; if the server's clock is \
         wrong, windows and sample ages are affected too.",
    ))
}

/// Formats a count with its noun: `1 pod`, `2 pods`, and `no pods` for a negative number.
pub fn counted(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("no {what}s"),
    }
}

/// Formats at most `most` of the names and the number of the others, such as `a, b, c and 4 more`.
pub fn listed(names: &[&str], most: usize) -> String {
    let first = names.get(..most).unwrap_or(names);
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
