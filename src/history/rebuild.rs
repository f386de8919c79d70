//! What an HPA's status and its events still tell of rescales, for HPAs whose history is lost.
//!
//! Every controller of HPAs writes `status.lastScaleTime` and sends `SuccessfulRescale`, the built-in one as well as
//! this one; so the rates of `behavior` hold over a restart, and over a change from one to the other. Events are kept
//! for an hour, which is longer than any period of a policy may be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use autoscaling::history::Rescaled;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use crate::api::client::Client;
use crate::api::decode::{DecodeError, Text};
use crate::api::error::ApiError;
use crate::api::list::{Collection, each};
use crate::permissions::check::allowed;
use crate::permissions::{Permission, rescales_told};
use crate::store::HpaRecord;

/// What the events are.
const REASON: &str = "SuccessfulRescale";
/// What they are about.
const KIND: &str = "HorizontalPodAutoscaler";
/// So many events are read in all; more than an hour of 10,000 HPAs holds.
const MOST_EVENTS: usize = 100_000;

/// Why rescales are not known.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The list failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// Not allowed, which the check of permissions tells, too.
    #[error("to list events is not allowed")]
    NotAllowed,
    /// There is a bound to how long leading may be delayed.
    #[error("they could not be read within {0:?}")]
    Late(Duration),
}

/// The rescales of HPAs by their UIDs, as far as events tell them without doubt.
#[derive(Debug, Default)]
pub struct Rescales {
    by_uid: BTreeMap<String, BTreeSet<(Timestamp, i32)>>,
    /// HPAs of which an event stands for several rescales, not all of whose times and counts it tells.
    doubtful: BTreeSet<String>,
}

impl Rescales {
    /// The rescales of one HPA, the oldest first; none if they are in doubt.
    pub fn of(&self, uid: &str) -> Vec<Rescaled> {
        if self.doubtful.contains(uid) {
            return Vec::new();
        }
        let rescales = self.by_uid.get(uid).into_iter().flatten();
        rescales.map(|(at, to)| Rescaled { at: *at, to: *to }).collect()
    }

    /// Adds those of other HPAs.
    pub fn extend(&mut self, others: Self) {
        self.by_uid.extend(others.by_uid);
        self.doubtful.extend(others.doubtful);
    }

    fn add(&mut self, event: &Told<'_>) {
        let uid = event.involved_object.uid.to_string();
        match event.rescales() {
            Some(times) => self.by_uid.entry(uid).or_default().extend(times),
            None => {
                self.doubtful.insert(uid);
            }
        }
    }
}

/// Whether events can tell something about an HPA that still matters: it has rates, and was scaled within the longest
/// period of one.
pub fn matters(hpa: &HpaRecord, now: Timestamp) -> bool {
    let (Some(behavior), Some(scaled)) = (&hpa.spec.behavior, hpa.status.last_scale_time) else {
        return false;
    };
    let policies = behavior.scale_up.policies.iter().chain(&behavior.scale_down.policies);
    let longest = policies.map(|policy| policy.period_seconds).max().unwrap_or(0);
    // A second more: `lastScaleTime` has whole ones.
    now.duration_since(scaled) <= SignedDuration::from_secs(i64::from(longest) + 1)
}

/// Reads the events of rescales, of one namespace or of all.
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
            return Err(DecodeError::new(format!("there are more than {MOST_EVENTS} events of rescales")));
        }
        let event: Told<'_> = serde_json::from_slice(item)?;
        // A server that does not know the field selector would send all.
        if &*event.reason == REASON && &*event.involved_object.kind == KIND {
            rescales.add(&event);
        }
        Ok(())
    };
    let all = async {
        // Asked first, because a request that is refused is one that an audit shows.
        let permission = Permission { namespace: namespace.map(str::to_owned), ..rescales_told() };
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
struct Told<'a> {
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
    /// Only whether there is one counts.
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

impl Told<'_> {
    /// The rescales that it stands for; `None` if it does not tell all of them.
    ///
    /// One that repeats an earlier one (the same count for the same reason) raises `count` and moves `lastTimestamp`, so
    /// two can be told and three cannot. The tenth different one within ten minutes becomes one that is `combined`: its
    /// count is that of the last.
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

/// The count of `New size: N; reason: ...`.
fn new_size(message: &str) -> Option<i32> {
    let (size, _) = message.strip_prefix("New size: ")?.split_once("; reason: ")?;
    size.parse().ok().filter(|size| *size >= 0)
}

#[cfg(test)]
#[cfg(feature = "tools")]
mod tests;
