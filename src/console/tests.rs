use std::sync::Arc;

use serde_json::json;

use super::*;
use clock::SystemClock;

fn record(uid: &str, max: i32, metrics: usize) -> HpaRecord {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": uid, "resourceVersion": "1"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": max, "metrics": vec![metric; metrics]},
    });
    HpaRecord::from(cluster::decode::hpa(object.to_string().as_bytes()).unwrap())
}

#[test]
fn recreated_hpa_keeps_its_row_when_the_previous_one_ends() {
    let rows = Rows::new(Arc::new(SystemClock));
    let shown = || rows.store.since(None).rows.iter().map(|row| row.max).collect::<Vec<_>>();
    let (first, second) = (record("a", 3, 1), record("b", 5, 1));
    rows.seen(None, &first);
    rows.seen(None, &second);
    rows.forgotten(&first.key, &first.uid);
    assert_eq!(shown(), [5]);
    rows.forgotten(&second.key, &second.uid);
    assert_eq!(shown(), [0; 0]);
}

#[test]
fn row_of_a_large_hpa_has_its_metrics() {
    let rows = Rows::new(Arc::new(SystemClock));
    let large = record("a", 3, 4_000);
    assert!(large.packed.is_some());
    rows.seen(None, &large);
    assert_eq!(rows.store.since(None).rows.first().unwrap().metrics.len(), 64);
}
