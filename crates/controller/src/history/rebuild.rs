//! Rebuilds lost histories from the status of an HPA and its events.
//!
//! Every controller of HPAs, including the built-in one, writes `status.lastScaleTime` and sends `SuccessfulRescale`
//! events. The rates of `behavior` therefore also apply after a restart, and after a change from one controller to
//! another. By default, the API server keeps events for an hour, which is longer than the maximum `periodSeconds`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use autoscaling::history::ObservedRescale;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::store::HpaRecord;
use cluster::client::Client;
use cluster::decode::{DecodeError, Text};
use cluster::error::ApiError;
use cluster::permission::{Permission, allowed, row};
use cluster::watch::{Collection, each};

/// The reason of the events.
const REASON: &str = "SuccessfulRescale";
/// The kind of the events' objects.
const KIND: &str = "HorizontalPodAutoscaler";
/// Maximum number of events to read: ten per hour for each of 10,000 HPAs.
const MOST_EVENTS: usize = 100_000;

/// The reason why rescales cannot be read from events.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The list failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// Listing is not allowed. The permission check at startup also reports this.
    #[error("not allowed to list events")]
    NotAllowed,
    /// The list exceeded its time limit. A new leader must not wait longer before its first sync.
    #[error("listing events did not finish within {0:?}")]
    Late(Duration),
}

/// The rescales of HPAs by UID, as far as events describe them unambiguously.
#[derive(Debug, Default)]
pub struct Rescales {
    by_uid: BTreeMap<String, BTreeSet<(Timestamp, i32)>>,
    /// HPAs with an event that represents several rescales without their times and counts.
    doubtful: BTreeSet<String>,
}

impl Rescales {
    /// Returns the rescales of one HPA, oldest first. Empty if they are ambiguous.
    pub fn for_hpa(&self, uid: &str) -> Vec<ObservedRescale> {
        if self.doubtful.contains(uid) {
            return Vec::new();
        }
        let rescales = self.by_uid.get(uid).into_iter().flatten();
        rescales.map(|(at, to)| ObservedRescale { at: *at, to: *to }).collect()
    }

    /// Adds the rescales of other HPAs.
    pub fn extend(&mut self, others: Self) {
        self.by_uid.extend(others.by_uid);
        self.doubtful.extend(others.doubtful);
    }

    fn add(&mut self, event: &RescaleEvent<'_>) {
        let uid = event.involved_object.uid.to_string();
        match event.rescales() {
            Some(times) => self.by_uid.entry(uid).or_default().extend(times),
            None => {
                self.doubtful.insert(uid);
            }
        }
    }
}

/// Returns whether events can still affect an HPA: the HPA has rate policies, and was scaled within their longest
/// period.
pub fn matters(hpa: &HpaRecord, now: Timestamp) -> bool {
    let (Some(behavior), Some(scaled)) = (&hpa.spec.behavior, hpa.status.last_scale_time) else {
        return false;
    };
    let policies = behavior.scale_up.policies.iter().chain(&behavior.scale_down.policies);
    let longest = policies.map(|policy| policy.period_seconds).max().unwrap_or(0);
    // Add one second, because `lastScaleTime` has whole seconds.
    now.duration_since(scaled) <= SignedDuration::from_secs(i64::from(longest) + 1)
}

/// Lists the rescale events of one namespace or of all.
pub async fn read(
    client: &Client,
    namespace: Option<&str>,
    within: Duration,
) -> Result<Rescales, EventsError> {
    let fields = format!("involvedObject.kind={KIND},reason={REASON}");
    let collection = Collection { group: "", version: "v1", namespace, resource: "events", fields: &fields };
    let mut rescales = Rescales::default();
    let mut count = 0_usize;
    let take = |item: &[u8]| {
        count += 1;
        if count > MOST_EVENTS {
            return Err(DecodeError::new(format!("more than {MOST_EVENTS} events of rescales")));
        }
        let event: RescaleEvent<'_> = serde_json::from_slice(item)?;
        // A server without this field selector sends all events.
        if &*event.reason == REASON && &*event.involved_object.kind == KIND {
            rescales.add(&event);
        }
        Ok(())
    };
    let all = async {
        // Check the permission first, because audit logs record refused requests.
        let permission = Permission { namespace: namespace.map(str::to_owned), ..event_list_permission() };
        if let Ok(false) = allowed(client, &permission, "", "list").await {
            return Err(EventsError::NotAllowed);
        }
        each(client, collection, take).await.map_err(EventsError::Api)
    };
    timeout(within, all).await.map_err(|_| EventsError::Late(within))??;
    Ok(rescales)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RescaleEvent<'a> {
    #[serde(borrow)]
    involved_object: Object<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default)]
    first_timestamp: Option<Timestamp>,
    #[serde(default)]
    last_timestamp: Option<Timestamp>,
    #[serde(default, rename = "eventTime")]
    micro_time: Option<Timestamp>,
    #[serde(default)]
    count: Option<i64>,
    /// Only the presence of the field matters.
    #[serde(default)]
    series: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
}

impl RescaleEvent<'_> {
    /// Returns the rescales that the event represents. `None` unless the event describes all of them.
    ///
    /// A repeated event (the same new size for the same reason) increments `count` and moves `lastTimestamp`. It
    /// therefore describes two rescales but not three. The tenth different event within ten minutes becomes `combined`.
    /// Its message then has another prefix, so the event is ambiguous.
    fn rescales(&self) -> Option<Vec<(Timestamp, i32)>> {
        let to = new_size(&self.message)?;
        let first = self.first_timestamp.or(self.micro_time)?;
        let last = self.last_timestamp.unwrap_or(first);
        match self.count.unwrap_or(1) {
            _ if self.series.is_some() => None,
            ..=1 => Some(vec![(last, to)]),
            2 => Some(vec![(first, to), (last, to)]),
            _ => None,
        }
    }
}

/// Parses the count in `New size: N; reason: ...`.
fn new_size(message: &str) -> Option<i32> {
    let (size, _) = message.strip_prefix("New size: ")?.split_once("; reason: ")?;
    size.parse().ok().filter(|size| *size >= 0)
}

/// Returns the permission to read rescale events in all namespaces.
pub fn event_list_permission() -> Permission {
    Permission {
        why: "to restore rescales from events when this replica becomes the leader",
        without: "behavior policies may block scaling of an HPA with a lost history for up to their longest period \
                  after its last rescale",
        ..row("", "events", &["list"])
    }
}

#[cfg(test)]
mod tests;
