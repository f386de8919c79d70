//! What cannot be known from outside of the controller, said plainly.

use std::fmt;

use super::situation::{FlagOrigin, Situation, Source};
use crate::cli::decision::EMULATED_VERSION;

/// Something that the decision depends on and that was not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// What was recommended at the syncs that left no trace.
    Recommendations,
    /// By how many pods the target was scaled, of at least one rescale that counts for a policy.
    Amounts,
    /// The flags of the controller.
    Flags,
    /// The version of the controller.
    Version,
    /// What the user may not read.
    Reads,
}

impl Unknown {
    /// In kebab-case; does not change between versions.
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
                "what the controller recommended between the entries of the history: a stabilization window may hold \
                 other counts, or let go at another time"
            }
            Self::Amounts => "by how many pods some rescales changed the count: each counts as all that its policies allow",
            Self::Flags => "the flags of the running controller: the defaults are assumed where none is given",
            Self::Version => "the version of the running controller",
            Self::Reads => "what you may not read: the controller may well decide otherwise",
        })
    }
}

/// What was not known for a decision, the gravest first.
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
    if behaves && situation.past.entries.iter().any(super::situation::Remembered::lacks_amount) {
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
