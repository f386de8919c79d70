use std::str::FromStr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(items: &Value) -> Snapshot {
    let list = json!({"kind": "PodMetricsList", "items": items}).to_string();
    Snapshot::read([list.as_bytes()]).unwrap()
}

fn with_labels(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "containers": [{"name": "app", "usage": {"cpu": "1"}}]})
}

fn selected(snapshot: &Snapshot, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    snapshot.select(&selector).iter().map(|usage| usage.pod.to_string()).collect()
}

#[test]
fn pod_is_decoded_and_returned_unchanged() {
    let snapshot = read(&json!([
        {"metadata": {"name": "b", "labels": {"app": "web"}}, "timestamp": "2026-01-01T00:00:10Z", "window": "1m0.5s",
         "containers": [{"name": "app", "usage": {"memory": "96Mi", "cpu": "1500m", "example.com/gpu": 2}},
                        {"usage": {"cpu": "1500000001n"}, "name": "proxy"}]},
        {"metadata": {"name": "a"}, "containers": null, "extra": {"containers": [1]}},
        {"containers": [{"name": "app"}], "metadata": null, "timestamp": "2026-01-01T00:00:10Z", "window": "15s"},
    ]));
    let all = snapshot.all();
    assert_eq!(all.iter().map(|usage| &*usage.pod).collect::<Vec<_>>(), ["b", "a", ""]);
    assert_eq!(all[0].timestamp, Some("2026-01-01T00:00:10Z".parse().unwrap()));
    assert_eq!(all[0].window_nanos, 60_500_000_000);
    let [app, proxy] = &*all[0].containers else { panic!() };
    assert_eq!((&*app.name, &*proxy.name), ("app", "proxy"));
    assert_eq!(app.usage.get("cpu").unwrap().to_string(), "1500m");
    assert_eq!(app.usage.get("memory").unwrap().to_string(), "96Mi");
    assert_eq!(app.usage.get("example.com/gpu").unwrap().to_string(), "2");
    assert_eq!(proxy.usage.get("cpu").unwrap().to_string(), "1501m", "rounded up");
    assert!(all[1].containers.is_empty() && all[1].timestamp.is_none() && all[1].window_nanos == 0);
    assert!(all[2].containers[0].usage.get("cpu").is_none());
    assert_eq!(all[2].window_nanos, 15_000_000_000);
}

#[test]
fn selectors_see_decoded_labels_in_any_json_form() {
    let list = br#"{"kind": "PodMetricsList", "items": [
        {"metadata": {"name": "plain", "labels": {"app": "web", "tier": "a"}}},
        {"metadata": {"name": "turned", "labels": { "tier":"a", "app":"web" }}},
        {"metadata": {"name": "escaped", "labels": {"a\u0070p": "\u0077eb"}}},
        {"metadata": {"name": "twice", "labels": {"app": "db", "app": "web"}}},
        {"metadata": {"name": "equal", "labels": {"app": "web", "app": "web"}}},
        {"metadata": {"name": "not", "labels": {"app": "web", "app": "db"}}},
        {"metadata": {"name": "null", "labels": null}},
        {"metadata": {"name": "absent"}}]}"#;
    for size in [7, 64, list.len()] {
        let snapshot = Snapshot::read(list.chunks(size)).unwrap();
        assert!(snapshot.has_labels());
        assert_eq!(selected(&snapshot, "app=web"), ["plain", "turned", "escaped", "twice", "equal"]);
        assert_eq!(selected(&snapshot, "app in (web),tier"), ["plain", "turned"]);
        assert_eq!(selected(&snapshot, "app in (db,cache)"), ["not"]);
        assert_eq!(selected(&snapshot, "!app"), ["null", "absent"]);
        assert_eq!(selected(&snapshot, "app!=web"), ["not", "null", "absent"]);
        assert!(selected(&snapshot, "app=none").is_empty());
    }
}

#[test]
fn equal_labels_are_stored_once_and_only_when_needed() {
    let pods: Vec<_> = (0..1000)
        .map(|pod| {
            with_labels(&format!("web-{pod:03}"), &json!({"app": "web", "hash": format!("{}", pod % 2)}))
        })
        .collect();
    let snapshot = read(&json!(pods));
    assert_eq!(snapshot.label_sets.len(), 2);
    assert_eq!(selected(&snapshot, "hash=1,app=web").len(), 500);
    let names: Vec<_> = snapshot.all().iter().map(|usage| usage.pod.to_string()).collect();
    assert_eq!(selected(&snapshot, "app=web"), names);
    let mut reader = Reader::without_labels();
    for pod in &pods {
        reader.item(pod.to_string().as_bytes()).unwrap();
    }
    let without = reader.finish();
    assert!(!without.has_labels() && without.label_sets.is_empty());
    assert_eq!(without.all(), snapshot.all());
}

#[test]
fn pod_with_two_containers_takes_at_most_130_bytes() {
    let usage = json!({"cpu": "123456789n", "memory": "262144Ki"});
    let pods = (0..1000).map(|pod| {
        json!({"metadata": {"name": format!("web-6d4cf56db6-{pod:05}"), "labels": {"app": "web"}},
            "containers": [{"name": "app", "usage": usage}, {"name": "proxy", "usage": usage}]})
    });
    let snapshot = read(&pods.collect());
    let taken = snapshot.names.capacity()
        + size_of::<Pod>() * snapshot.pods.capacity()
        + size_of::<Container>() * snapshot.containers.capacity()
        + size_of::<Amount>() * snapshot.amounts.capacity();
    assert!(taken <= 130 * 1000, "{taken}");
    assert_eq!((snapshot.samplings.len(), snapshot.label_sets.len(), snapshot.words.len()), (1, 1, 4));
}

#[test]
fn decoding_errors_have_the_words_of_go() {
    let error = |item: Value| {
        let list = json!({"kind": "PodMetricsList", "items": [item]}).to_string();
        Snapshot::read([list.as_bytes()]).unwrap_err().to_string()
    };
    assert_eq!(
        error(json!({"containers": [{"name": "c", "usage": {"cpu": "lots"}}]})),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert!(error(json!({"timestamp": "soon"})).starts_with("parsing time \"soon\""));
    assert!(error(json!({"metadata": {"labels": {"app": 1}}})).contains("invalid type"));
    assert!(error(json!("pod")).contains("a PodMetrics"));
}

/// Returns pretty-printed JSON, which only the general decoder accepts.
fn spaced(item: &Value) -> String {
    serde_json::to_string_pretty(item).unwrap()
}

fn read_one(text: &str) -> Result<Arc<[PodUsage]>, String> {
    let mut reader = Reader::with_labels();
    reader.item(text.as_bytes()).map_err(|error| error.message)?;
    Ok(reader.finish().all())
}

fn any_item() -> impl Strategy<Value = Value> {
    let text = || {
        prop_oneof![
            Just(json!("app")),
            Just(json!("a\"b")),
            Just(json!("\u{e9}")),
            Just(json!("")),
            Just(Value::Null),
            Just(json!(7)),
        ]
    };
    let amount = prop_oneof![
        Just(json!("12n")),
        Just(json!("96Ki")),
        Just(json!("1.5")),
        Just(json!(2)),
        Just(json!("lots")),
        Just(json!(null)),
    ];
    let usage = prop::collection::btree_map("[a-c]", amount, 0..3);
    let container = (text(), usage).prop_map(|(name, usage)| json!({"name": name, "usage": usage}));
    let containers = prop_oneof![
        prop::collection::vec(container, 0..3).prop_map(Value::from),
        Just(Value::Null),
        Just(json!({})),
        Just(json!([7])),
    ];
    let labels =
        prop_oneof![Just(Value::Null), Just(json!({"a": "b"})), Just(json!({"a": 1})), Just(json!({}))];
    let time = prop_oneof![
        Just(json!("2026-01-01T00:00:10Z")),
        Just(Value::Null),
        Just(json!("soon")),
        Just(json!(""))
    ];
    let window = prop_oneof![Just(json!("15s")), Just(Value::Null), Just(json!("long"))];
    (text(), labels, time, window, containers, text()).prop_map(|(name, labels, time, window, containers, other)| {
        json!({"metadata": {"name": name, "labels": labels, "other": other}, "timestamp": time, "window": window,
            "containers": containers, "other": other})
    })
}

proptest! {
    #[test]
    fn item_decodes_equally_on_both_paths(item in any_item()) {
        let (plain, general) = (read_one(&item.to_string()), read_one(&spaced(&item)));
        match (plain, general) {
            (Ok(plain), Ok(general)) => prop_assert_eq!(plain, general),
            // The two decoders report different positions in their error texts.
            (Err(_), Err(_)) => {}
            (plain, general) => prop_assert!(false, "{:?} and {:?}", plain, general),
        }
    }

    #[test]
    fn fast_path_of_amounts_agrees_with_the_general_path(
        text in "[0-9]{1,18}(n|u|m||k|M|Ki|Mi|Gi|Ti)|[-+]?[0-9]{0,4}[.]?[0-9]{0,4}(n|u|m||k|Ki|e3|E)",
    ) {
        if let Some((milli, format)) = decode::plain_amount(&text) {
            let quantity = Quantity::from_str(&text).unwrap();
            prop_assert_eq!((milli, format), (quantity.milli_value(), quantity.format()));
        }
    }
}
