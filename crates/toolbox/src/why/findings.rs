//! Findings about an HPA in addition to its decision, by [`findings::findings`], and unknown facts.

use std::fmt;

pub(crate) use ::findings::occurrences;
pub use ::findings::{Finding, FindingId, Severity};

use super::situation::{FlagOrigin, HistoryEntry, Situation, Source};
use crate::options::decision::EMULATED_VERSION;

/// Returns all findings, the most severe first.
pub fn findings(situation: &Situation) -> Vec<Finding> {
    ::findings::findings(&situation.facts())
}

/// A fact on which the decision depends and that is not visible outside the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The recommendations between the entries of the history.
    Recommendations,
    /// The size of a rescale that counts for a policy.
    Amounts,
    /// The flags of the controller.
    Flags,
    /// The version of the controller.
    Version,
    /// Objects that the user is not allowed to read.
    Reads,
}

impl Unknown {
    /// Returns the code in kebab-case, stable across versions.
    pub fn code(self) -> &'static str {
        match self {
            Self::Recommendations => "recommendations",
            Self::Amounts => "amounts",
            Self::Flags => "flags",
            Self::Version => "version",
            Self::Reads => "reads",
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recommendations => {
                "the controller's recommendations between the entries of the history: a stabilization window may hold \
                 other counts, or expire at another time"
            }
            Self::Amounts => "the size of some rescales: each counts as the full allowance of its policies",
            Self::Flags => "the flags of the running controller: defaults are assumed for flags that are not given",
            Self::Version => "the version of the running controller",
            Self::Reads => "the objects that you may not read: the controller may decide otherwise",
        })
    }
}

/// Returns the unknown facts of a decision, the most severe first.
pub fn unknowns(situation: &Situation) -> Vec<Unknown> {
    let mut found = Vec::new();
    if situation.blind().next().is_some() {
        found.push(Unknown::Reads);
    }
    if matches!(situation.source, Source::Record { .. }) {
        return found;
    }
    let behaves = situation.hpa.as_ref().is_some_and(|hpa| hpa.spec.behavior.is_some());
    if !situation.past.complete {
        found.push(Unknown::Recommendations);
    }
    if behaves && situation.past.entries.iter().any(HistoryEntry::lacks_amount) {
        found.push(Unknown::Amounts);
    }
    let assumed = |version: bool| {
        let mut flags = situation.flags.iter().filter(|flag| (flag.name == EMULATED_VERSION) == version);
        flags.any(|flag| matches!(flag.origin, FlagOrigin::Assumed | FlagOrigin::Server))
    };
    if assumed(false) {
        found.push(Unknown::Flags);
    }
    if assumed(true) {
        found.push(Unknown::Version);
    }
    found
}

#[cfg(test)]
mod tests;
