//! Findings about an HPA in addition to its decision, by [`findings::findings`].

#[cfg(test)]
mod tests;

pub(crate) use ::findings::occurrences;
pub use ::findings::{Finding, FindingId, Severity};

use super::Situation;

/// Returns all findings, the most severe first.
pub fn findings(situation: &Situation) -> Vec<Finding> {
    ::findings::findings(&situation.facts())
}
