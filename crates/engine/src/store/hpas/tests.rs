use autoscaling::spec::Spec;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::*;

fn spec(max: i32) -> Spec {
    serde_json::from_value(serde_json::json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "maxReplicas": max,
    }))
    .unwrap()
}

fn record(name: &str, uid: &str, generation: Option<i64>, version: &str, max: i32) -> HpaRecord {
    HpaRecord {
        key: Key::new("shop", name),
        uid: uid.into(),
        generation,
        resource_version: version.to_owned(),
        metadata: RawValue::from_string("{}".to_owned()).unwrap(),
        spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
        spec: Arc::new(spec(max)),
        status: Arc::new(Status::default()),
        status_writers: Vec::new(),
    }
}

fn apply(hpas: &Hpas, record: HpaRecord) -> Option<Change> {
    hpas.apply(record).map(|update| update.change)
}

fn finish(hpas: &Hpas, namespace: Option<&str>) -> Vec<(Key, Change)> {
    let named = |update: Update| (update.new.or(update.old).unwrap().key.clone(), update.change);
    hpas.finish(namespace).into_iter().map(named).collect()
}

fn apply_fresh(hpas: &Hpas, uid: &str, record: HpaRecord) -> Option<Change> {
    hpas.apply_fresh(uid, record).map(|update| update.change)
}

#[test]
fn generation_change_is_a_spec_change() {
    let hpas = Hpas::new();
    assert_eq!(apply(&hpas, record("web", "u1", Some(1), "10", 5)), Some(Change::New));
    assert_eq!(apply(&hpas, record("web", "u1", Some(1), "10", 5)), Some(Change::Unchanged));
    assert_eq!(apply(&hpas, record("web", "u1", Some(1), "11", 5)), Some(Change::StatusOnly));
    assert_eq!(apply(&hpas, record("web", "u1", Some(2), "12", 6)), Some(Change::SpecChanged));
    // A spec that differs at the same generation comes from defaulting by the server, not from a user.
    assert_eq!(apply(&hpas, record("web", "u1", Some(2), "13", 7)), Some(Change::StatusOnly));
}

#[test]
fn spec_is_compared_without_a_generation() {
    let hpas = Hpas::new();
    hpas.apply(record("web", "u1", None, "10", 5));
    assert_eq!(apply(&hpas, record("web", "u1", None, "11", 5)), Some(Change::StatusOnly));
    assert_eq!(apply(&hpas, record("web", "u1", None, "12", 6)), Some(Change::SpecChanged));
}

#[test]
fn hpa_with_another_uid_is_recreated() {
    let hpas = Hpas::new();
    hpas.apply(record("web", "u1", Some(1), "10", 5));
    let change = apply(&hpas, record("web", "u2", Some(1), "20", 5));
    assert_eq!(change, Some(Change::Recreated { old_uid: "u1".into() }));
    assert_eq!(*hpas.delete(&Key::new("shop", "web"), "u2").unwrap().uid, *"u2");
    assert!(hpas.is_empty());
}

#[test]
fn late_events_of_a_replaced_hpa_are_ignored() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    hpas.apply(record("web", "u1", Some(1), "10", 5));
    let replaced = apply_fresh(&hpas, "u1", record("web", "u2", Some(1), "14", 5));
    assert_eq!(replaced, Some(Change::Recreated { old_uid: "u1".into() }));
    assert_eq!(apply(&hpas, record("web", "u1", Some(2), "12", 6)), None);
    assert!(hpas.delete(&key, "u1").is_none());
    assert_eq!(*hpas.get(&key).unwrap().uid, *"u2");
    assert_eq!(apply(&hpas, record("web", "u2", Some(1), "14", 5)), Some(Change::Unchanged));

    // A late deletion is also ignored while a list is collected.
    hpas.begin(None);
    hpas.apply(record("web", "u2", Some(1), "14", 5));
    assert!(hpas.delete(&key, "u1").is_none());
    assert_eq!(finish(&hpas, None), [(key, Change::Unchanged)]);
}

#[test]
fn list_replaces_the_content_at_its_end_and_reports_changes() {
    let hpas = Hpas::new();
    assert!(!hpas.is_synced());
    hpas.begin(None);
    assert_eq!(apply(&hpas, record("a", "ua", Some(1), "1", 5)), None);
    hpas.apply(record("b", "ub", Some(1), "2", 5));
    assert!(hpas.is_empty());
    let change = |name: &str, change| (Key::new("shop", name), change);
    assert_eq!(finish(&hpas, None), [change("a", Change::New), change("b", Change::New)]);
    assert!(hpas.is_synced());

    hpas.begin(None);
    hpas.apply(record("b", "ub", Some(2), "7", 6));
    hpas.apply(record("c", "uc", Some(1), "8", 5));
    hpas.apply(record("d", "ud", Some(1), "9", 5));
    assert!(hpas.delete(&Key::new("shop", "d"), "ud").is_none());
    assert_eq!(hpas.keys(), [Key::new("shop", "a"), Key::new("shop", "b")]);
    let changes = [
        change("a", Change::Deleted { uid: "ua".into() }),
        change("b", Change::SpecChanged),
        change("c", Change::New),
    ];
    assert_eq!(finish(&hpas, None), changes);
    assert_eq!(hpas.keys(), [Key::new("shop", "b"), Key::new("shop", "c")]);
    assert_eq!(finish(&hpas, None), []);
}

#[test]
fn unchanged_record_in_a_list_keeps_its_allocation() {
    let hpas = Hpas::new();
    hpas.apply(record("a", "ua", Some(1), "1", 5));
    hpas.apply(record("b", "ub", Some(1), "2", 5));
    let cached = hpas.get(&Key::new("shop", "a")).unwrap();
    hpas.begin(None);
    hpas.apply(record("a", "ua", Some(1), "1", 5));
    hpas.apply(record("b", "ub", Some(2), "7", 6));
    let updates = hpas.finish(None);
    let [a, b] = updates.as_slice() else { panic!("{updates:?}") };
    assert_eq!((&a.change, &b.change), (&Change::Unchanged, &Change::SpecChanged));
    assert!(Arc::ptr_eq(a.old.as_ref().unwrap(), &cached) && Arc::ptr_eq(a.new.as_ref().unwrap(), &cached));
    assert_eq!(b.old.as_ref().unwrap().spec.max_replicas, 5);
    assert_eq!(b.new.as_ref().unwrap().spec.max_replicas, 6);
    assert!(Arc::ptr_eq(&hpas.get(&cached.key).unwrap(), &cached));
}

#[test]
fn equal_texts_are_stored_once() {
    let hpas = Hpas::new();
    hpas.begin(None);
    for (name, uid) in [("a", "u1"), ("b", "u2")] {
        hpas.apply(record(name, uid, Some(1), "10", 5));
    }
    hpas.finish(None);
    apply(&hpas, record("c", "u3", Some(1), "11", 5));
    let stored = |name: &str| hpas.get(&Key::new("shop", name)).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(stored);
    assert!(
        Arc::ptr_eq(&a.key.namespace, &b.key.namespace) && Arc::ptr_eq(&a.key.namespace, &c.key.namespace)
    );
    apply(&hpas, record("a", "u1", Some(1), "12", 5));
    let again = stored("a");
    assert!(Arc::ptr_eq(&a.key.name, &again.key.name) && Arc::ptr_eq(&a.uid, &again.uid));
    apply(&hpas, record("a", "u4", Some(1), "13", 5));
    assert_eq!(&*stored("a").uid, "u4");
}

#[test]
fn list_of_one_namespace_leaves_others_unchanged() {
    let hpas = Hpas::new();
    let of = |namespace: &str, name: &str| {
        let key = Key::new(namespace, name);
        HpaRecord { key, ..record(name, &format!("u-{name}"), Some(1), "1", 5) }
    };
    hpas.apply(of("shop", "old"));
    hpas.apply(of("bank", "old"));
    hpas.begin(Some("shop"));
    hpas.begin(Some("bank"));
    assert_eq!(apply(&hpas, of("shop", "web")), None);
    assert_eq!(apply(&hpas, of("bank", "web")), None);
    // A restarted list drops only the records of its own namespace.
    hpas.begin(Some("bank"));
    assert_eq!(hpas.finish(Some("shop")).len(), 2);
    assert_eq!(hpas.keys(), [Key::new("bank", "old"), Key::new("shop", "web")]);
    assert_eq!(apply(&hpas, of("shop", "more")), Some(Change::New));
    let gone = Change::Deleted { uid: "u-old".into() };
    assert_eq!(finish(&hpas, Some("bank")), [(Key::new("bank", "old"), gone)]);
    assert_eq!(finish(&hpas, Some("bank")), []);
    assert_eq!(hpas.len(), 2);
}

#[test]
fn aborted_list_leaves_no_trace() {
    let hpas = Hpas::new();
    hpas.apply(record("a", "ua", Some(1), "1", 5));
    hpas.begin(None);
    hpas.apply(record("b", "ub", Some(1), "2", 5));
    hpas.begin(None);
    hpas.apply(record("a", "ua", Some(1), "1", 5));
    assert_eq!(finish(&hpas, None), [(Key::new("shop", "a"), Change::Unchanged)]);
}

fn is_stale(hpas: &Hpas, key: &Key) -> bool {
    hpas.staleness(key, Duration::from_secs(15)).is_some()
}

#[tokio::test(start_paused = true)]
async fn stale_hpa_is_late_after_a_period_and_a_half_and_until_the_watch_delivers() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    let staleness = || hpas.staleness(&key, Duration::from_secs(10));
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    hpas.wrote(&key, "u1", "100");
    assert_eq!(staleness(), Some(Staleness::Awaited));
    sleep(Duration::from_secs(16)).await;
    assert_eq!(staleness(), Some(Staleness::Late));
    hpas.apply_fresh("u1", record("web", "u1", Some(1), "100", 5));
    assert_eq!(staleness(), None);
    // The watch has delivered nothing since the read, so another read is due at once.
    hpas.wrote(&key, "u1", "101");
    assert_eq!(staleness(), Some(Staleness::Late));
    hpas.apply(record("web", "u1", Some(1), "100", 5));
    assert_eq!(staleness(), Some(Staleness::Awaited));
}

#[test]
fn hpa_is_stale_until_the_watch_shows_our_write() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    assert!(!is_stale(&hpas, &key));
    hpas.wrote(&key, "u1", "100");
    assert!(is_stale(&hpas, &key));
    hpas.apply(record("web", "u1", Some(1), "100", 5));
    assert!(!is_stale(&hpas, &key));
    // A late event makes the HPA stale again.
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    assert!(is_stale(&hpas, &key));
    hpas.apply(record("web", "u2", Some(1), "150", 5));
    assert!(!is_stale(&hpas, &key));
}

#[test]
fn write_with_a_version_that_is_no_number_is_not_awaited() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    hpas.wrote(&key, "u1", "v100");
    assert!(!is_stale(&hpas, &key));
    hpas.wrote(&key, "u1", "100");
    hpas.wrote(&key, "u1", "");
    assert!(is_stale(&hpas, &key));
    hpas.apply(record("web", "u1", Some(1), "101", 5));
    assert!(!is_stale(&hpas, &key));
    // Before the first event, no HPA is known, so nothing is recorded or synced.
    let empty = Hpas::new();
    empty.wrote(&key, "u1", "100");
    assert!(empty.get(&key).is_none() && empty.acknowledged(&key).is_none());
}

#[test]
fn list_without_an_earlier_write_ends_the_staleness() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    let list = |version: &str, written_meanwhile: Option<&str>| {
        hpas.begin(None);
        if let Some(version) = written_meanwhile {
            hpas.wrote(&key, "u1", version);
        }
        hpas.apply(record("web", "u1", Some(1), version, 5));
        let lost: Vec<_> = hpas.finish(None).iter().map(|update| update.lost_write).collect();
        (lost, is_stale(&hpas, &key))
    };
    assert_eq!(list("99", None), (vec![false], false));
    // The list may show the state before the write.
    assert_eq!(list("99", Some("100")), (vec![false], true));
    assert_eq!(list("100", None), (vec![false], false));
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    assert!(is_stale(&hpas, &key));
    // The server has lost the write.
    assert_eq!(list("60", None), (vec![true], false));
    assert_eq!(list("60", None), (vec![false], false));
    hpas.wrote(&key, "u1", "61");
    assert!(is_stale(&hpas, &key));
}

#[test]
fn write_to_a_deleted_or_recreated_hpa_is_not_recorded() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    hpas.wrote(&key, "u1", "100");
    hpas.apply(record("web", "u2", Some(1), "50", 5));
    assert!(!is_stale(&hpas, &key));
    hpas.wrote(&key, "u1", "100");
    assert!(!is_stale(&hpas, &key));
}

#[test]
fn fresh_read_is_applied_when_newer_and_of_the_same_object() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    let version = || hpas.get(&key).map(|record| record.resource_version.clone()).unwrap_or_default();
    assert_eq!(apply_fresh(&hpas, "u1", record("web", "u1", Some(1), "10", 5)), None);
    assert!(hpas.is_empty());
    hpas.apply(record("web", "u1", Some(1), "10", 5));
    assert_eq!(apply_fresh(&hpas, "u1", record("web", "u1", Some(2), "10", 5)), None);
    assert_eq!(apply_fresh(&hpas, "u0", record("web", "u0", Some(2), "20", 5)), None);
    assert_eq!(apply_fresh(&hpas, "u1", record("web", "u1", Some(2), "12", 5)), Some(Change::SpecChanged));
    assert!(!is_stale(&hpas, &key));
    // The late event arrives.
    hpas.apply(record("web", "u1", Some(1), "11", 5));
    assert!(is_stale(&hpas, &key));
    hpas.apply(record("web", "u1", Some(2), "12", 5));
    assert!(!is_stale(&hpas, &key));

    hpas.begin(None);
    assert_eq!(apply_fresh(&hpas, "u1", record("web", "u1", Some(2), "13", 5)), None);
    assert_eq!(version(), "12");
    assert!(is_stale(&hpas, &key), "the list will contain the new version");
    assert_eq!(finish(&hpas, None), [(key.clone(), Change::Deleted { uid: "u1".into() })]);
    assert!(hpas.is_empty(), "the end of the list removes an HPA that it does not contain");
}

#[test]
fn fresh_read_without_our_write_shows_that_the_server_has_lost_it() {
    let hpas = Hpas::new();
    let key = Key::new("shop", "web");
    hpas.apply(record("web", "u1", Some(1), "99", 5));
    hpas.wrote(&key, "u1", "100");
    let read = |version: &str| hpas.apply_fresh("u1", record("web", "u1", Some(1), version, 5));
    assert_eq!(read("60").map(|update| update.lost_write), Some(true));
    assert!(!is_stale(&hpas, &key));
    assert!(read("60").is_none());
    assert_eq!(read("61").map(|update| update.lost_write), Some(false));
}

#[test]
fn resource_versions_are_numbers_of_any_length() {
    assert!(is_older("9", "10"));
    assert!(!is_older("10", "9"));
    assert!(!is_older("10", "10"));
    assert!(!is_older("0010", "10"));
    assert!(is_older("18446744073709551615", "18446744073709551616"));
    assert!(!is_older("abc", "10"));
    assert!(!is_older("9", ""));
}
