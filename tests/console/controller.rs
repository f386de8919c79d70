//! The page of the controller.

use std::sync::Arc;

use clock::{Clock as _, SystemClock};
use fake_cluster::Cluster;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Browser, World, assert_quiet, four, wait};

/// A cluster with four HPAs, two pods of a controller, and a Lease that one of the pods holds.
pub(crate) fn installation() -> Cluster {
    let cluster = Cluster::new(Arc::new(SystemClock));
    for hpa in four() {
        cluster.put_raw(hpa);
    }
    cluster.put_raw(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "concertina", "namespace": "concertina-system"},
        "spec": {"holderIdentity": "concertina-a_1", "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15, "leaseTransitions": 3},
    }));
    for (pod, ready) in [("concertina-a", "True"), ("concertina-b", "False")] {
        cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": "concertina-system", "labels": {"app.kubernetes.io/name": "concertina"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "concertina", "image": "concertina:0.1.0"}]},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": ready}]},
        }));
    }
    cluster
}

/// A state with every part, and hostile texts.
pub(crate) fn whole(evil: &str) -> Value {
    let counts = json!({"same": 40, "different": 1, "onlyOurs": 0, "onlyBuiltin": 2, "unknown": 3});
    json!({
        "lease": {"namespace": "kube-system", "name": "concertina", "holder": "concertina-a_1",
            "acquired": "2026-01-01T00:00:00Z", "renewed": "2030-01-01T00:00:00Z", "transitions": 3, "seconds": 15},
        "replicas": [
            {"pod": "concertina-a", "node": "node-1", "leads": true, "shadow": false, "phase": "Running", "ready": true,
                "restarts": 0, "started": "2026-01-01T00:00:00Z", "image": "concertina:0.1.0"},
            {"pod": evil, "node": evil, "leads": false, "shadow": false, "phase": "Pending", "ready": false,
                "restarts": 2, "started": null, "image": evil},
        ],
        "from": "pod kube-system/concertina-a",
        "numbers": {
            "version": "0.1.0", "started": 1_767_225_600, "memoryBytes": 42e6, "cpuSeconds": 12, "hpas": 5000,
            "syncs": {"none": 99_000, "internal": 12}, "failures": {"FailedGetResourceMetric": 12},
            "lateness": {"count": 99_012, "sum": 700, "inTime": 98_000, "p99": 2.5},
            "queueDepth": 3, "longestSyncSeconds": 0.25,
            "requests": [
                {"verb": "list", "resource": "pods", "count": 3, "failed": {}},
                {"verb": "update", "resource": evil, "count": 500, "failed": {"403": 20, "<error>": 1}},
            ],
            "breakers": {"metrics.k8s.io": false, "external.metrics.k8s.io": true},
            "sources": {"main": {"down": true, "errors": {"Timeout": 7}}, "pods": {"down": null, "errors": {}}},
            "watches": {"pods": {"objects": 20_000, "ageSeconds": 400, "restarts": {"silent": 2}}},
            "leads": {"concertina": true}, "takeover": "holding", "foreignWrites": 4, "handover": {"in_charge": 3},
            "clockSkewSeconds": -4, "eventsDropped": {},
        },
        "parity": {"since": "2026-01-01T00:00:00Z", "lastSign": null, "hpas": 12, "total": counts, "namespaces": {"shop": counts},
            "differences": [{"at": "2026-01-01T00:00:00Z", "namespace": "shop", "name": "web", "result": "different",
                "builtin": 4, "ours": 5, "sentence": evil}]},
        "handover": {"scope": "labelled", "controller": "concertina", "leads": true,
            "guard": {"kind": "webhook", "state": "broken", "reason": evil, "since": null},
            "namespaces": {"shop": {"states": {"in_charge": 3, "contested": 1}, "lastForeignWrite": {"manager": evil, "at": "2026-01-01T00:00:00Z"}}}},
        "missing": [{"part": "parity", "reason": "the controller responded with 403", "advice": "A ClusterRole allows it."}],
    })
}

/// Makes the page receive a state of the controller.
pub(crate) async fn answer_with(browser: &mut Browser, state: &Value) {
    let script = format!(
        "{{ const original = window.fetch; window.fetch = (path, ...rest) => path === 'controller' \
         ? Promise.resolve(new Response(JSON.stringify({state}))) : original(path, ...rest); null }}"
    );
    browser.evaluate(&script).await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn controller_page_shows_replicas_and_what_cannot_be_read() {
    let world = World::over("controller", installation(), &[]).await;
    let mut browser = world.open("controller", 1280, 800).await;
    browser.evaluate("document.getElementById('to-controller').click()").await;
    wait(&mut browser, "document.querySelectorAll('.controller tbody tr').length > 0").await;
    assert_eq!(browser.evaluate("location.hash").await, "#page=controller");
    assert_eq!(browser.evaluate("document.activeElement.textContent").await, "Controller");
    let text = browser.evaluate("document.querySelector('.controller').innerText").await;
    let text = text.as_str().unwrap();
    for part in
        ["concertina-a_1", "concertina-a", "leader", "concertina-b", "standby", "not ready", "Not readable"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    browser.press("Escape").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn every_part_of_the_controller_is_drawn_and_escaped() {
    let evil = "<img src=x onerror=alert(1)>\u{202e}x";
    let world = World::start("parts", four()).await;
    for width in [1280, 360] {
        let mut browser = world.open(&format!("parts-{width}"), width, 800).await;
        answer_with(&mut browser, &whole(evil)).await;
        browser.evaluate("location.hash = '#page=controller'").await;
        wait(&mut browser, "document.querySelectorAll('.controller table').length === 7").await;
        let text = browser.evaluate("document.querySelector('.controller').innerText").await;
        let text = text.as_str().unwrap();
        for part in [
            "98.97 %",
            "2.5 s",
            "403: 20",
            "external.metrics.k8s.io",
            "down",
            "Timeout: 7",
            "400 s",
            "holding",
            "webhook, broken",
            "contested: 1, in_charge: 3",
            "Clock of the API server\n4 s behind",
            "A ClusterRole allows it.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("<img src=x onerror=alert(1)>\\u{202e}x") && !text.contains('\u{202e}'),
            "{text}"
        );
        assert_eq!(browser.evaluate("document.querySelectorAll('img').length").await, 0);
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(wider).await, 0, "{width}");
        if let Ok(folder) = std::env::var("PICTURES") {
            browser.picture(&format!("{folder}/controller-{width}.png")).await;
        }
        assert_quiet(&browser, &world);
        browser.stop().await;
    }
}

/// A controller in the middle of a migration, for the picture of the guide.
fn migrating() -> Value {
    let mut state = whole("kube-controller-manager");
    let ago =
        |hours| json!(SystemClock.now() - SignedDuration::from_hours(hours) - SignedDuration::from_secs(2));
    state["lease"]["acquired"] = ago(26);
    state["lease"]["renewed"] = ago(0);
    state["replicas"][0]["started"] = ago(72);
    state["numbers"]["started"] = (SystemClock.now().as_second() - 72 * 3_600).into();
    state["replicas"][0]["node"] = "node-1".into();
    let mut standby = state["replicas"][0].clone();
    for (field, value) in [("pod", json!("concertina-b")), ("node", json!("node-2")), ("leads", json!(false))]
    {
        standby[field] = value;
    }
    state["replicas"][1] = standby;
    state["numbers"]["requests"][1]["resource"] = "horizontalpodautoscalers/status".into();
    state["numbers"]["takeover"] = "active".into();
    state["numbers"]["clockSkewSeconds"] = 0.into();
    state["parity"]["differences"][0]["sentence"] =
        "goes from 3 to 5: cpu is at 130 % of its requests, the target is 80 %".into();
    state["handover"]["guard"] =
        json!({"kind": "webhook", "state": "proven", "reason": null, "since": ago(26)});
    state["missing"] = json!([]);
    state
}

/// Writes the picture of this page to the folder that `PICTURES` names.
#[tokio::test]
#[ignore = "writes a picture for a person to look at"]
async fn picture_of_the_controller() {
    let folder = std::env::var("PICTURES").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let world = World::start("picture", four()).await;
    let mut browser = world.open("picture", 1280, 980).await;
    answer_with(&mut browser, &migrating()).await;
    browser.evaluate("location.hash = '#page=controller'").await;
    wait(&mut browser, "document.querySelectorAll('.controller table').length >= 6").await;
    browser.picture(&format!("{folder}/console-controller.png")).await;
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn numbers_of_the_controller_are_computed_from_values() {
    let world = World::start("numbers", four()).await;
    let mut browser = world.open("numbers", 1280, 800).await;
    for (expression, expected) in [
        ("it.percent(99999, 100000)", json!("99.99 %")),
        ("it.percent(9999999, 10000000)", json!("99.99 %")),
        ("it.percent(0, 0)", json!("")),
        ("it.rates(null, {at: 0, requests: 1, syncs: 1})", Value::Null),
        (
            "it.rates({at: 0, syncs: 10, late: 0, requests: 100, failed: 0, cpu: 1}, {at: 10000, syncs: 30, late: 2, requests: 150, failed: 5, cpu: 2})",
            json!({"seconds": 10, "syncs": 2, "late": 0.2, "requests": 5, "failed": 0.5, "cpu": 0.1}),
        ),
        // After a restart of the controller the totals are lower.
        ("it.rates({at: 0, syncs: 10, requests: 100}, {at: 10000, syncs: 0, requests: 3})", Value::Null),
        (
            "it.ordered([{resource: 'a', count: 9, failed: {}}, {resource: 'b', count: 1, failed: {403: 1}}, {resource: 'c', count: 10, failed: {}}]).map((row) => row.resource)",
            json!(["b", "c", "a"]),
        ),
    ] {
        let value = browser.evaluate(&format!("import('./controller.js').then((it) => {expression})")).await;
        assert_eq!(value, expected, "{expression}");
    }
    browser.stop().await;
}
