//! The page of the controller, and all pages under faults. The faults are missing permissions and metrics APIs, a
//! cluster without HPAs, an earlier API server, wrong clocks, and a page without its server.

use clock::{Clock as _, SystemClock};
use fake_cluster::{Cluster, FaultAction, FaultRule, Status};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Browser, NAMES, World, assert_quiet, cluster_with, condition, fine, four, hpa, wait};

/// Returns a cluster with four HPAs, two pods of a controller, and a Lease that one of the pods holds.
fn installation() -> Cluster {
    let cluster = cluster_with(four());
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

/// Returns a state of the controller with all of its parts. `evil` is the value of several texts.
pub(crate) fn whole(evil: &str) -> Value {
    let counts = json!({"same": 40, "different": 1, "onlyConcertina": 0, "onlyBuiltin": 2, "unknown": 3});
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

/// Makes the page receive `state` instead of the response of the server.
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

/// Returns a controller in the middle of a migration, for the picture of the guide.
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

/// Writes the picture of the page of the controller to the folder that `PICTURES` names.
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
        // A restart of the controller lowers the totals.
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

fn refused() -> FaultAction {
    FaultAction::Status(Status::new(403, "Forbidden", "the role is missing"))
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn page_without_any_permission_fills_once_it_is_given() {
    let cluster = installation();
    cluster.faults().add(FaultRule::new(refused()));
    let world = World::over("forbidden", cluster, &[]).await;
    let mut browser = Browser::start("console-forbidden", 1280, 800).await;
    browser.visit(&world.url).await;
    wait(&mut browser, "!document.getElementById('notice').hidden").await;
    let notice = browser.evaluate("document.getElementById('notice').textContent").await;
    assert!(notice.as_str().unwrap().contains("the role is missing"), "{notice}");
    browser.evaluate("location.hash = '#page=controller'").await;
    wait(&mut browser, "document.querySelectorAll('.controller .advice').length > 0").await;
    let text = browser.evaluate("document.querySelector('.controller').innerText").await;
    let text = text.as_str().unwrap();
    for part in ["you may not get leases.coordination.k8s.io", "A Role with list on pods"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    browser.evaluate("location.hash = '#'").await;
    world.cluster.faults().clear();
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    wait(&mut browser, "document.getElementById('notice').hidden").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn refused_part_is_named_and_the_rest_is_shown() {
    let cluster = installation();
    for path in ["/pods", "/events", "/deployments", "/leases/"] {
        cluster.faults().add(FaultRule::new(refused()).path_contains(path));
    }
    let world = World::over("part", cluster, &[]).await;
    let mut browser = world.open("part", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    browser.evaluate("document.querySelector('.rows a[href*=\"alright\"]').click()").await;
    wait(&mut browser, "document.querySelectorAll('.findings li, .failure').length > 0").await;
    let text = browser.evaluate("document.querySelector('.answer').innerText").await;
    assert!(text.as_str().unwrap().contains("forbidden"), "{text}");
    assert!(text.as_str().unwrap().contains("ReadyForNewScale"), "the conditions are shown: {text}");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn cluster_without_hpas_says_so_and_shows_the_first_one() {
    let world = World::start("none", []).await;
    let mut browser = Browser::start("console-none", 1280, 800).await;
    browser.visit(&world.url).await;
    wait(&mut browser, "document.querySelector('.empty')?.textContent === 'The cluster has no HPAs.'").await;
    world.cluster.put_raw(hpa("shop", "first", &fine()));
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "first");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn cluster_without_metrics_apis_explains_an_hpa() {
    let world = World::start("metrics", four()).await;
    let text = "the server could not find the requested resource";
    let missing = FaultAction::Status(Status::new(404, "NotFound", text));
    world.cluster.faults().add(FaultRule::new(missing).path_contains("metrics.k8s.io"));
    let mut browser = world.open("metrics", 1280, 800).await;
    browser.evaluate("document.querySelector('.rows a[href*=\"alright\"]').click()").await;
    wait(&mut browser, "document.querySelectorAll('.answer h3, .failure').length > 0").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.failure').length").await, 0);
    assert_quiet(&browser, &world);
    browser.stop().await;
}

/// API servers before 1.34 may refuse streaming lists.
#[tokio::test]
#[ignore = "needs Chromium"]
async fn earlier_api_server_without_streaming_lists_is_listed() {
    let cluster = installation();
    let invalid = FaultAction::Status(Status::new(
        422,
        "Invalid",
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    ));
    cluster
        .faults()
        .add(FaultRule::new(invalid).verb("watch").path_contains("/horizontalpodautoscalers").times(1));
    let world = World::over("earlier", cluster, &["--record=off"]).await;
    let mut browser = world.open("earlier", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    assert_eq!(world.cluster.faults().active(), 0, "the server has refused a streaming list");
    world.cluster.put_raw(hpa("shop", "new", &fine()));
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 5").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn clock_ahead_or_behind_shows_no_negative_age() {
    let mut ahead = condition("ScalingActive", "False", "FailedGetResourceMetric");
    ahead["lastTransitionTime"] = "2199-01-01T00:00:00Z".into();
    let mut hpas = four();
    hpas.push(hpa("shop", "future", &json!([ahead])));
    hpas.last_mut().unwrap()["status"]["lastScaleTime"] = "2199-01-01T00:00:00Z".into();
    let world = World::start("clock", hpas).await;
    let mut browser = world.open("clock", 1280, 800).await;
    let age = "[...document.querySelectorAll('.rows .row')].find((row) => row.querySelector('a').textContent === 'future')\
               ?.querySelector('.for').textContent";
    wait(&mut browser, &format!("({age}) === '0 s'")).await;
    browser.evaluate("document.querySelector('.rows a[href*=\"future\"]').click()").await;
    wait(&mut browser, "document.querySelector('.answer h3') !== null").await;
    let text = browser.evaluate("document.querySelector('.facts').innerText").await;
    assert!(text.as_str().unwrap().contains("0 s ago"), "{text}");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn view_stays_when_the_server_of_the_page_is_gone() {
    let mut world = World::start("server", four()).await;
    let mut browser = world.open("server", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    world.console.start_kill().unwrap();
    world.console.wait().await.unwrap();
    wait(&mut browser, "document.getElementById('notice').textContent.startsWith('The server of this page does not respond')").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.rows .row').length").await, 4, "the view stays");
    browser.stop().await;
}
