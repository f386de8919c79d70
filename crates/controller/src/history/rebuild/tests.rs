//! Tests with events as the built-in controller and Concertina write them.

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
    event(&cluster, "c", "one", "New size: 7; reason: external metric queue(nil) above target", |event| {
        event["firstTimestamp"] = json!("2029-12-31T23:52:00Z");
        event["lastTimestamp"] = json!("2029-12-31T23:52:00Z");
    });
    event(&cluster, "d", "one", "New size: 9; reason: x", |event| event["reason"] = json!("FailedRescale"));
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
    assert_eq!(cluster.requests().count(|request| request.verb == "list"), before, "it is not even tried");
}
