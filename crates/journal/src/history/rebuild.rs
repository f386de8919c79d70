//! Rebuilds lost histories from the status of an HPA and its events.
//!
//! Every controller of HPAs, including the built-in controller, writes `status.lastScaleTime` and sends
//! `SuccessfulRescale` events. The rates of `behavior` therefore also apply after a restart, and after a change from
//! one controller to another. By default, the API server keeps events for an hour, which is longer than the maximum
//! `periodSeconds`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use autoscaling::history::ObservedRescale;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;

use cluster::client::Client;
use cluster::decode::{DecodeError, Text};
use cluster::error::ApiError;
use cluster::permission::{Permission, allowed, row};
use cluster::watch::{Collection, each};
use engine::store::HpaRecord;

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
    /// HPAs with an event that does not describe every rescale that it represents.
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

/// Lists the rescale events of one namespace, or of all namespaces with `None`.
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
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use clock::{SharedClock, VirtualClock};
    use cluster::client::{ClientOptions, Clients};
    use fake_cluster::{Cluster, FaultAction, FaultRule};

    const WITHIN: Duration = Duration::from_secs(3);

    fn cluster() -> (Cluster, Client) {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
        let cluster = Cluster::new(clock);
        for name in ["shop", "bank"] {
            cluster.put_raw(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        (cluster, clients.watch)
    }

    /// Creates an event of the HPA with the given UID. `change` alters the event.
    fn event(cluster: &Cluster, name: &str, uid: &str, message: &str, change: impl FnOnce(&mut Value)) {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": "shop", "name": name},
            "involvedObject": {"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": "web", "uid": uid},
            "reason": "SuccessfulRescale", "message": message, "type": "Normal",
            "source": {"component": "horizontal-pod-autoscaler"}, "count": 1,
            "firstTimestamp": "2029-12-31T23:50:00Z", "lastTimestamp": "2029-12-31T23:50:00Z",
            "eventTime": null, "reportingComponent": "horizontal-pod-autoscaler", "reportingInstance": "",
        });
        change(&mut event);
        cluster.put_raw(event);
    }

    const UP: &str = "New size: 5; reason: cpu resource utilization (percentage of request) above target";

    fn rescaled(minute: &str, to: i32) -> ObservedRescale {
        ObservedRescale { at: format!("2029-12-31T23:{minute}:00Z").parse().unwrap(), to }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_assigned_by_hpa_and_others_are_ignored() {
        let (cluster, client) = cluster();
        event(&cluster, "a", "one", UP, |_| {});
        event(&cluster, "b", "two", "New size: 0; reason: All metrics below target", |_| {});
        event(
            &cluster,
            "c",
            "one",
            "New size: 7; reason: external metric queue(nil) above target",
            |event| {
                event["firstTimestamp"] = json!("2029-12-31T23:52:00Z");
                event["lastTimestamp"] = json!("2029-12-31T23:52:00Z");
            },
        );
        event(&cluster, "d", "one", "New size: 9; reason: x", |event| {
            event["reason"] = json!("FailedRescale");
        });
        event(&cluster, "e", "one", UP, |event| event["involvedObject"]["kind"] = json!("Deployment"));
        let rescales = read(&client, None, WITHIN).await.unwrap();
        assert_eq!(rescales.for_hpa("one"), [rescaled("50", 5), rescaled("52", 7)]);
        assert_eq!(rescales.for_hpa("two"), [rescaled("50", 0)]);
        assert_eq!(rescales.for_hpa("three"), []);
        assert!(read(&client, Some("bank"), WITHIN).await.unwrap().for_hpa("one").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn event_without_all_rescales_makes_its_hpa_ambiguous() {
        for (what, message, change, expected) in [
            ("twice", UP, json!({"count": 2}), vec![rescaled("50", 5), rescaled("55", 5)]),
            ("three times", UP, json!({"count": 3}), vec![]),
            ("combined", "(combined from similar events): New size: 5; reason: x", json!({}), vec![]),
            (
                "a series",
                UP,
                json!({"series": {"count": 2, "lastObservedTime": "2029-12-31T23:55:00.000000Z"}}),
                vec![],
            ),
            ("no number", "New size: many; reason: x", json!({}), vec![]),
            ("negative", "New size: -1; reason: x", json!({}), vec![]),
            ("without a time", UP, json!({"firstTimestamp": null, "lastTimestamp": null}), vec![]),
            (
                "of the newer kind",
                UP,
                json!({"firstTimestamp": null, "lastTimestamp": null, "eventTime": "2029-12-31T23:50:00.000000Z", "count": null}),
                vec![rescaled("50", 5)],
            ),
        ] {
            let (cluster, client) = cluster();
            event(&cluster, "a", "one", message, |event| {
                event["lastTimestamp"] = json!("2029-12-31T23:55:00Z");
                for (field, value) in change.as_object().unwrap() {
                    event[field] = value.clone();
                }
            });
            event(&cluster, "b", "two", UP, |_| {});
            let rescales = read(&client, None, WITHIN).await.unwrap();
            assert_eq!(rescales.for_hpa("one"), expected, "{what}");
            assert_eq!(rescales.for_hpa("two"), [rescaled("50", 5)], "{what}: the others are not");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_come_in_pages_and_a_slow_or_forbidden_list_fails() {
        let (cluster, client) = cluster();
        for n in 0..1200 {
            event(&cluster, &format!("event-{n}"), &format!("uid-{n}"), UP, |_| {});
        }
        let rescales = read(&client, None, WITHIN).await.unwrap();
        assert!((0..1200).all(|n| rescales.for_hpa(&format!("uid-{n}")) == [rescaled("50", 5)]));
        assert!(cluster.requests().count(|request| request.verb == "list") >= 3);

        let id = cluster.faults().add(FaultRule::new(FaultAction::Delay(WITHIN)).verb("list"));
        assert!(matches!(read(&client, None, WITHIN).await, Err(EventsError::Late(WITHIN))));
        cluster.faults().remove(id);

        let denied = FaultAction::Body(r#"{"status": {"allowed": false}}"#.to_owned());
        cluster.faults().add(FaultRule::new(denied).path_contains("selfsubjectaccessreviews"));
        let before = cluster.requests().count(|request| request.verb == "list");
        assert!(matches!(read(&client, None, WITHIN).await, Err(EventsError::NotAllowed)));
        assert_eq!(
            cluster.requests().count(|request| request.verb == "list"),
            before,
            "it is not even tried"
        );
    }
}
