//! Tests of the delivery of events to the embedded cluster.

use std::time::Duration;

use autoscaling::event::{EventIntent, EventKind};
use tokio::time::Instant;

use super::*;
use crate::events::{EventOptions, EventStats, EventTarget, Recorder};
use crate::gate::{Gate, Refusal};
use fake_cluster::{FaultAction, FaultRule, Status};

fn target() -> EventTarget {
    EventTarget {
        namespace: "default".into(),
        name: "web".into(),
        uid: "u-1".into(),
        resource_version: "7".into(),
    }
}

fn intent(message: &str) -> EventIntent {
    EventIntent { kind: EventKind::Warning, reason: "FailedGetScale", message: message.to_owned() }
}

fn recorder(cluster: &Cluster) -> Recorder {
    let (recorder, run) = Recorder::new(clients(cluster).core, clock(), EventOptions::default());
    tokio::spawn(run);
    recorder
}

fn events(cluster: &Cluster) -> Vec<Value> {
    cluster.list("events", Some("default"))
}

#[tokio::test(start_paused = true)]
async fn event_has_the_form_of_client_go_and_repeats_are_counted() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    let event = &events(&cluster)[0];
    assert_eq!(event["metadata"]["name"], format!("web.{:x}", 1_767_225_600_000_000_000_i64));
    for (field, value) in [
        ("type", json!("Warning")),
        ("reason", json!("FailedGetScale")),
        ("message", json!("no")),
        ("count", json!(1)),
        ("firstTimestamp", json!("2026-01-01T00:00:00Z")),
        ("lastTimestamp", json!("2026-01-01T00:00:00Z")),
        ("source", json!({"component": "horizontal-pod-autoscaler"})),
        ("reportingComponent", json!("horizontal-pod-autoscaler")),
        (
            "involvedObject",
            json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "namespace": "default",
                "name": "web", "uid": "u-1", "resourceVersion": "7"}),
        ),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    tokio::time::sleep(Duration::from_millis(15_900)).await;
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    let events = events(&cluster);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["count"], 2);
    assert_eq!(events[0]["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(events[0]["lastTimestamp"], "2026-01-01T00:00:15Z");
}

#[tokio::test(start_paused = true)]
async fn different_events_at_the_same_time_have_different_names() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    for message in ["a", "b", "c"] {
        recorder.record(target(), intent(message));
    }
    recorder.flush().await;
    assert_eq!(events(&cluster).len(), 3);
    assert_eq!(recorder.stats(), EventStats { sent: 3, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    let name = events(&cluster)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.delete_now("events", "default", &name).unwrap();
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    assert_eq!(events(&cluster)[0]["count"], 2);
    let verbs: Vec<_> = cluster.requests().entries().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, ["create", "patch", "create"]);
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_retried_every_ten_seconds_in_order() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    cluster.faults().add(FaultRule::new(FaultAction::Close).times(3));
    let start = Instant::now();
    recorder.record(target(), intent("first"));
    recorder.record(target(), intent("second"));
    recorder.flush().await;
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let messages: Vec<_> = events(&cluster).iter().map(|event| event["message"].clone()).collect();
    assert_eq!(messages, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn event_is_dropped_after_twelve_attempts() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    cluster.faults().add(FaultRule::new(FaultAction::Close));
    let start = Instant::now();
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    assert_eq!(start.elapsed(), Duration::from_secs(110));
    assert_eq!(cluster.requests().len(), 12);
    assert_eq!(recorder.stats().failed, 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_event_delays_no_other() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    let failing = FaultAction::Text { code: 500, body: "failed calling webhook".to_owned() };
    cluster.faults().add(FaultRule::new(failing).path_contains("/namespaces/broken/"));
    let start = Instant::now();
    recorder.record(EventTarget { namespace: "broken".into(), ..target() }, intent("lost"));
    recorder.record(target(), intent("sent"));
    recorder.flush().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(recorder.stats(), EventStats { sent: 1, failed: 1, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn delayed_event_delays_only_those_of_its_namespace() {
    let cluster = cluster();
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "busy"}})).unwrap();
    let recorder = recorder(&cluster);
    let busy = FaultAction::RetryAfter { code: 429, seconds: 20 };
    cluster.faults().add(FaultRule::new(busy).path_contains("/namespaces/busy/").times(1));
    let start = Instant::now();
    for message in ["first", "second"] {
        recorder.record(EventTarget { namespace: "busy".into(), ..target() }, intent(message));
    }
    recorder.record(target(), intent("sent"));
    recorder.flush().await;
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    assert_eq!(recorder.stats(), EventStats { sent: 3, ..EventStats::default() });
    let requests = cluster.requests().entries();
    let begun = requests[0].at;
    let times: Vec<_> = requests
        .iter()
        .map(|request| (request.path.contains("/busy/"), request.at.duration_since(begun).as_secs()))
        .collect();
    assert_eq!(times, [(true, 0), (false, 0), (true, 20), (true, 20)]);
}

#[tokio::test(start_paused = true)]
async fn events_in_flight_are_bounded() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    cluster.faults().add(FaultRule::new(FaultAction::Silence));
    for number in 0..100 {
        recorder.record(EventTarget { namespace: format!("n-{number}").into(), ..target() }, intent("no"));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.requests().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn event_of_an_object_with_the_longest_name_has_a_valid_name() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    recorder.record(EventTarget { name: "w".repeat(253).into(), ..target() }, intent("no"));
    recorder.record(EventTarget { name: "w".repeat(236).into(), ..target() }, intent("no"));
    recorder.flush().await;
    let names: Vec<_> = events(&cluster).iter().map(|event| event["metadata"]["name"].clone()).collect();
    let at = |offset: i64| format!("{:x}", 1_767_225_600_000_000_000 + offset);
    assert_eq!(names, [json!(format!("u-1.{}", at(0))), json!(format!("{}.{}", "w".repeat(236), at(1)))]);
}

#[tokio::test(start_paused = true)]
async fn combined_event_has_no_reporting_component() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    for n in 0..10 {
        recorder.record(target(), intent(&n.to_string()));
    }
    recorder.flush().await;
    let components: Vec<_> =
        events(&cluster).iter().map(|event| event["reportingComponent"].clone()).collect();
    assert_eq!(components.iter().filter(|component| **component == "").count(), 1, "{components:?}");
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_rejects_events_without_a_retry() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    let refusal = Status::new(
        403,
        "Forbidden",
        "unable to create new content in namespace default because it is being terminated",
    );
    cluster.faults().add(FaultRule::new(FaultAction::Status(refusal)));
    recorder.record(target(), intent("no"));
    recorder.flush().await;
    assert_eq!((cluster.requests().len(), recorder.stats().failed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn full_queue_drops_and_closed_gate_refuses_without_blocking() {
    let cluster = cluster();
    let options = ClientOptions { gate: Gate::refusing(Refusal::DryRun), ..ClientOptions::default() };
    let clients = clients_with(&cluster, &options);
    let (recorder, run) =
        Recorder::new(clients.core, clock(), EventOptions { queue: 2, ..EventOptions::default() });
    for n in 0..5 {
        recorder.record(target(), intent(&n.to_string()));
    }
    tokio::spawn(run);
    recorder.flush().await;
    assert_eq!(recorder.stats(), EventStats { overflow: 3, refused: 2, ..EventStats::default() });
    assert!(cluster.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn flood_of_one_object_is_dropped() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    for _ in 0..40 {
        recorder.record(target(), intent("again"));
    }
    recorder.flush().await;
    assert_eq!(recorder.stats(), EventStats { sent: 25, spam: 15, ..EventStats::default() });
    assert_eq!(events(&cluster)[0]["count"], 25);
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_removed_after_its_last_events() {
    let cluster = cluster();
    let options = EventOptions { queue: 3, ..EventOptions::default() };
    let (recorder, run) = Recorder::new(clients(&cluster).core, clock(), options);
    tokio::spawn(run);
    cluster.faults().add(FaultRule::new(FaultAction::Delay(Duration::from_secs(2))).times(1));
    recorder.record(target(), intent("first"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // While the first event is in flight, more deletions arrive than the queue has space for events.
    recorder.record(target(), intent("last"));
    for _ in 0..50 {
        recorder.forget(&target().namespace, &target().name, &target().uid);
    }
    let other = EventTarget { name: "other".into(), uid: "u-2".into(), ..target() };
    recorder.record(other.clone(), intent("first"));
    assert_eq!(recorder.remembered(), 3, "entries of the first object");
    recorder.flush().await;
    tokio::task::yield_now().await;
    assert_eq!(recorder.stats(), EventStats { sent: 3, ..EventStats::default() });
    assert_eq!(recorder.remembered(), 3, "entries of the other object");
    recorder.forget(&other.namespace, &other.name, &other.uid);
    tokio::task::yield_now().await;
    assert_eq!(recorder.remembered(), 0);
    // An object with the same name and UID has no entries any more.
    recorder.record(target(), intent("last"));
    recorder.flush().await;
    assert_eq!(recorder.stats().sent, 4);
    assert_eq!(events(&cluster).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_by_size() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    let long = "x".repeat(1 << 20);
    for n in 0..40 {
        recorder.record(EventTarget { name: format!("web-{n}").into(), ..target() }, intent(&long));
    }
    assert_eq!(recorder.stats().overflow, 24, "the queue holds 16 MiB");
    recorder.flush().await;
    recorder.record(target(), intent(&long));
    recorder.flush().await;
    assert_eq!(recorder.stats(), EventStats { sent: 17, overflow: 24, ..EventStats::default() });
}

#[tokio::test(start_paused = true)]
async fn events_of_one_hpa_leave_room_for_those_of_others() {
    let cluster = cluster();
    let recorder = recorder(&cluster);
    for number in 0..29_000 {
        recorder.record(target(), intent(&format!("metric {number} failed")));
    }
    for name in ["api", "db"] {
        recorder.record(EventTarget { name: name.into(), uid: name.into(), ..target() }, intent("no"));
    }
    recorder.flush().await;
    let delivered =
        |name: &str| events(&cluster).iter().filter(|event| event["involvedObject"]["name"] == name).count();
    assert_eq!((delivered("api"), delivered("db")), (1, 1));
    assert_eq!(recorder.stats().overflow, 28_800);
    // The queue is empty, so it accepts events again.
    recorder.record(target(), intent("again"));
    recorder.flush().await;
    assert_eq!(recorder.stats().overflow, 28_800);
}
