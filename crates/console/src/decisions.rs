//! The last decisions of a controller's record, for the rows of all HPAs.
//!
//! The record is read at intervals, and only while a page is open. After several consecutive failures, rows show only
//! the status of the HPA until a read succeeds.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use crate::Key;
use crate::store::Store;

/// The pause between two reads.
const INTERVAL: Duration = Duration::from_secs(15);
/// The pause after a failed read.
const AFTER_FAILURE: Duration = Duration::from_mins(1);
/// Maximum number of consecutive failed reads after which rows keep their decisions.
const MAX_FAILURES: u32 = 2;
/// The number of sync periods without a sync after which a decision is late.
const LATE_AFTER: i32 = 3;

/// The last decisions of a record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decisions {
    /// The last decision of each HPA.
    pub by_key: BTreeMap<Key, LastDecision>,
}

/// The last decision about an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDecision {
    /// The decision in one sentence, without remaining times.
    pub sentence: String,
    /// The time of the first sync with this decision.
    pub since: Timestamp,
    /// The time of the last sync, if the next one is late.
    pub late_since: Option<Timestamp>,
}

impl LastDecision {
    /// Creates the last decision from an entry of the record. `first` and `last` are the times of the first and the
    /// last sync with this decision, `now` is the current time of the controller's clock, and `period` is the sync
    /// period.
    pub fn new(sentence: &str, first: Timestamp, last: Timestamp, now: Timestamp, period: Duration) -> Self {
        // A remaining time at the end of a sentence changes with each sync. The row shows the time since the first
        // sync.
        let sentence = sentence.split_once(", for another ").map_or(sentence, |(lasting, _)| lasting);
        let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
        let is_late = now.duration_since(last) > period.saturating_mul(LATE_AFTER);
        Self { sentence: sentence.to_owned(), since: first, late_since: is_late.then_some(last) }
    }
}

/// Reads the last decisions of a controller.
pub trait Record: Debug + Send + Sync + 'static {
    /// Returns the last decision of each HPA, or the reason why the record cannot be read. Returns `None` if no record
    /// can ever be read.
    fn last_decisions(&self) -> BoxFuture<'static, Result<Option<Decisions>, String>>;
}

/// Reads the record at intervals. Returns if no record can ever be read.
pub(crate) async fn follow(store: Store, record: std::sync::Arc<dyn Record>) {
    let mut failures = 0;
    loop {
        store.watched().await;
        match record.last_decisions().await {
            Ok(None) => return,
            Ok(Some(decisions)) => {
                failures = 0;
                store.decided(decisions);
                sleep(INTERVAL).await;
            }
            Err(reason) => {
                tracing::debug!(%reason, "failed to read the record of the controller");
                failures += 1;
                if failures > MAX_FAILURES {
                    store.decided(Decisions::default());
                }
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn decision(sentence: &str, last: i64, now: i64) -> LastDecision {
        let at = |second| Timestamp::from_second(second).unwrap();
        LastDecision::new(sentence, at(0), at(last), at(now), Duration::from_secs(15))
    }

    #[test]
    fn decision_is_late_after_three_periods() {
        assert_eq!(decision("stays at 4", 100, 145).late_since, None);
        assert_eq!(decision("stays at 4", 100, 146).late_since, Some(Timestamp::from_second(100).unwrap()));
        assert_eq!(
            decision("stays at 4", 100, 0).late_since,
            None,
            "a clock that is behind makes no decision late"
        );
    }

    #[test]
    fn sentence_has_no_time_that_passes() {
        let held = "stays at 7: cpu asks for 3, but the 5 min scale-down window still holds 7, for another 4 min 15 s";
        let expected = "stays at 7: cpu asks for 3, but the 5 min scale-down window still holds 7";
        assert_eq!(decision(held, 0, 0).sentence, expected);
        assert_eq!(decision("stays at 4: x", 0, 0).sentence, "stays at 4: x");
    }
}
