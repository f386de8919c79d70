//! Status writes that did not store what was written.
//!
//! A CustomResourceDefinition of an older release drops fields that it does not know, or has no status subresource. A
//! status that stays different must not be written every few seconds for ever, and must not delay that of others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::objects::PolicyName;
use super::status::PolicyStatus;

/// Time after which a status that the server did not keep is written again. The definition may be replaced.
pub(super) const KEPT_OUT: Duration = Duration::from_mins(10);
/// Time after which a write that failed is repeated.
pub(super) const FAILED: Duration = Duration::from_mins(1);

/// The writes that are not repeated at once, by policy object.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    attempts: BTreeMap<PolicyName, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// What was written, without times.
    written: PolicyStatus,
    /// What the server has stored, without times.
    stored: PolicyStatus,
    /// The time from which the same write is made again.
    until: Instant,
}

impl Attempts {
    /// Whether to write a status over the stored one. False for a write that was made before and changed nothing.
    pub(super) fn is_due(
        &self,
        name: &PolicyName,
        stored: &PolicyStatus,
        status: &PolicyStatus,
        now: Instant,
    ) -> bool {
        self.attempts.get(name).is_none_or(|attempt| {
            now >= attempt.until
                || attempt.written != status.without_times()
                || attempt.stored != stored.without_times()
        })
    }

    /// Postpones the same write, which left a status in the server that differs from it.
    pub(super) fn postpone(
        &mut self,
        name: PolicyName,
        stored: &PolicyStatus,
        status: &PolicyStatus,
        until: Instant,
    ) {
        let (written, stored) = (status.without_times(), stored.without_times());
        self.attempts.insert(name, Attempt { written, stored, until });
    }

    /// Forgets policies that do not exist any more.
    pub(super) fn retain(&mut self, names: &BTreeSet<&PolicyName>) {
        self.attempts.retain(|name, _| names.contains(name));
    }
}
