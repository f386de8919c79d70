//! The console in a real browser: the program serves the page of an embedded cluster, and Chromium clicks through its
//! views.
//!
//! `cargo test --test console -- --ignored` runs the tests that need Chromium. `CHROMIUM` may set the path of Chromium.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "page/browser.rs"]
#[expect(dead_code, reason = "some functions are for other tests")]
mod browser;

#[path = "console/advice.rs"]
mod advice;
#[path = "console/controller.rs"]
mod controller_page;
#[path = "console/one_hpa.rs"]
mod one_hpa;
#[path = "console/process.rs"]
mod process;
#[path = "console/prometheus.rs"]
mod prometheus;
#[path = "console/questions.rs"]
mod questions;
#[path = "console/record.rs"]
mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use clock::SystemClock;
use fake_cluster::{Cluster, FaultAction, FaultRule};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::browser::Browser;
use self::record::ApiServer;

/// A cluster, and the program that shows it.
struct World {
    cluster: Cluster,
    url: String,
    kubeconfig: PathBuf,
    console: Child,
    _stop: DropGuard,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl World {
    /// Starts the console of a cluster with the given HPAs.
    async fn start(name: &str, hpas: impl IntoIterator<Item = Value>) -> Self {
        let cluster = cluster_with(hpas);
        Self::over(name, cluster, &["--record=off"]).await
    }

    /// Starts the console of an existing cluster with further flags.
    async fn over(name: &str, cluster: Cluster, flags: &[&str]) -> Self {
        let (server, kubeconfig, stop) = serve(name, &cluster).await;
        drop(server);
        let mut console = program(&kubeconfig).args(flags).spawn().unwrap();
        let url = url(&mut console).await;
        Self { cluster, url, kubeconfig, console, _stop: stop }
    }

    /// Starts the console of a cluster with the given HPAs, and with further flags. A pod of a controller serves
    /// `documents`, by path.
    async fn recorded(
        name: &str,
        hpas: impl IntoIterator<Item = Value>,
        documents: BTreeMap<String, Value>,
        flags: &[&str],
    ) -> Self {
        let cluster = cluster_with(hpas);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let serving = ApiServer::new(&cluster, documents).serve(listener);
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        let kubeconfig = kubeconfig(name, &server);
        let mut console = program(&kubeconfig).args(flags).spawn().unwrap();
        let url = url(&mut console).await;
        Self { cluster, url, kubeconfig, console, _stop: stop.drop_guard() }
    }

    /// Opens the page in a browser, and waits for its list of HPAs or its view of one HPA.
    async fn open(&self, name: &str, width: u32, height: u32) -> Browser {
        let mut browser = Browser::start(&format!("console-{name}"), width, height).await;
        browser.visit(&self.url).await;
        wait(&mut browser, "document.querySelector('.rows .row, .one') !== null").await;
        browser
    }
}

fn cluster_with(hpas: impl IntoIterator<Item = Value>) -> Cluster {
    let cluster = Cluster::new(Arc::new(SystemClock));
    // The console sends credentials only to a pod whose account may write the statuses of HPAs.
    let statuses = "horizontalpodautoscalers.autoscaling/status";
    cluster.reviews().allow_resource("system:serviceaccounts", "update", statuses, None);
    for hpa in hpas {
        cluster.put_raw(hpa);
    }
    cluster
}

/// Serves a cluster over TCP until the guard is dropped. Returns the address, the path of a kubeconfig, and the guard.
async fn serve(name: &str, cluster: &Cluster) -> (String, PathBuf, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let (stop, serving) = (CancellationToken::new(), cluster.clone());
    let token = stop.clone();
    tokio::spawn(async move { serving.serve(listener, token).await });
    let kubeconfig = kubeconfig(name, &server);
    (server, kubeconfig, stop.drop_guard())
}

/// Writes a kubeconfig for a server. Clients send the token over TLS only.
fn kubeconfig(name: &str, server: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("concertina-console-test-{}-{name}", std::process::id()));
    let is_tls = server.starts_with("https:");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": is_tls}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {"token": "token"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Creates the command that serves the page.
fn program(kubeconfig: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["console", "--kubeconfig"]).arg(kubeconfig);
    command.stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Reads the address of the page from the output of the console.
async fn url(console: &mut Child) -> String {
    let mut lines = BufReader::new(console.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("the console ended");
        if line.trim().starts_with("http://127.0.0.1:") {
            return line.trim().to_owned();
        }
    }
}

/// Waits until an expression in the page is true, for at most 30 s.
async fn wait(browser: &mut Browser, expression: &str) {
    let waiting = format!(
        "new Promise((done) => {{ const check = () => ({expression}) ? done(true) : requestAnimationFrame(check); check(); \
         setTimeout(() => done(false), 30000) }})"
    );
    assert_eq!(browser.evaluate(&waiting).await, true, "{expression}");
}

/// Fails on script errors, warnings, log entries and dialogs, and on requests to other servers than that of the page.
fn assert_quiet(browser: &Browser, world: &World) {
    for (method, parameters) in &browser.events {
        let is_bad = match method.as_str() {
            "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => true,
            "Runtime.consoleAPICalled" => parameters["type"] == "error" || parameters["type"] == "warning",
            "Log.entryAdded" => parameters["entry"]["level"] != "verbose",
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap();
                !url.starts_with(&world.url) && !url.starts_with("data:,")
            }
            _ => false,
        };
        assert!(!is_bad, "{method}: {parameters}");
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": format!("message of {reason}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn hpa(namespace: &str, name: &str, conditions: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2, "maxReplicas": 12,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
        },
        "status": {
            "currentReplicas": 4, "desiredReplicas": 4,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 60, "averageValue": "60m"}}}],
            "conditions": conditions,
        },
    })
}

fn fine() -> Value {
    json!([
        condition("AbleToScale", "True", "ReadyForNewScale"),
        condition("ScalingActive", "True", "ValidMetricFound")
    ])
}

/// Returns four HPAs, each in a different state.
fn four() -> Vec<Value> {
    let able = condition("AbleToScale", "True", "ReadyForNewScale");
    vec![
        hpa("shop", "alright", &fine()),
        hpa("shop", "full", &json!([able, condition("ScalingLimited", "True", "TooManyReplicas")])),
        hpa("bank", "stuck", &json!([condition("AbleToScale", "False", "FailedGetScale")])),
        hpa("bank", "window", &json!([condition("AbleToScale", "True", "ScaleDownStabilized")])),
    ]
}

const NAMES: &str = "[...document.querySelectorAll('.rows .row')].sort((a, b) => a.dataset.index - b.dataset.index)\
                     .map((row) => row.querySelector('a').textContent).join(' ')";

#[tokio::test]
#[ignore = "needs Chromium"]
async fn list_is_sorted_by_trouble_and_its_filters_are_in_the_address() {
    let world = World::start("list", four()).await;
    let mut browser = world.open("list", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    assert_eq!(browser.evaluate(NAMES).await, "stuck full window alright");
    assert_eq!(
        browser.evaluate("document.getElementById('summary').textContent").await,
        "4 HPAs, 2 in trouble"
    );
    browser.evaluate("document.querySelector('button.chip.held').click()").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "window");
    assert_eq!(browser.evaluate("location.hash").await, "#state=held");
    // The address alone gives the same view.
    let address = format!("{}#namespace=bank&q=stuck", world.url);
    browser.visit("about:blank").await;
    browser.visit(&address).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "stuck");
    assert_eq!(browser.evaluate("document.getElementById('namespace').value").await, "bank");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn row_names_the_scaling_policy_that_has_an_effect() {
    let with = |reason: &str, message: &str| {
        let mut conditions = fine().as_array().unwrap().clone();
        let mut policy = condition("ScalingPolicyActive", "True", reason);
        policy["message"] = message.into();
        conditions.push(policy);
        Value::Array(conditions)
    };
    let paused = "paused at 4 until 2030-01-01T00:00:00Z, the recommendation is 8";
    let floor = "schedule <b>office</b> sets minReplicas to 10 instead of 2";
    let world = World::start(
        "policy",
        vec![
            hpa("shop", "held", &with("Paused", paused)),
            hpa("shop", "office", &with("ScheduleActive", floor)),
            hpa("shop", "plain", &fine()),
        ],
    )
    .await;
    let mut browser = world.open("policy", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 3").await;
    assert_eq!(browser.evaluate(NAMES).await, "held office plain");
    let reason = |name: &str| {
        format!(
            "[...document.querySelectorAll('.rows .row')].find((row) => row.querySelector('a').textContent === '{name}')\
             .querySelector('.reason').innerText"
        )
    };
    assert_eq!(browser.evaluate(&reason("held")).await, format!("Paused: {paused}"));
    let office = browser.evaluate(&reason("office")).await;
    assert!(office.as_str().unwrap().starts_with(&format!("policy: {floor}\n")), "{office}");
    // The search covers the text of a policy as well.
    browser.visit("about:blank").await;
    browser.visit(&format!("{}#q=minReplicas", world.url)).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "office");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn views_are_computed_from_values() {
    let world = World::start("views", four()).await;
    let mut browser = world.open("views", 1280, 800).await;
    for (expression, expected) in [
        ("view.measured({value: '44 %', target: '60 %'})", json!("44 / 60 %")),
        ("view.measured({value: '90 Mi per pod', target: '1 Gi per pod'})", json!("90 Mi / 1 Gi per pod")),
        ("view.measured({value: null, target: '8'})", json!("unknown / 8")),
        ("view.measured({value: null, target: null})", json!("invalid")),
        (
            "[view.age(0, 119000), view.age(0, 7300000), view.age(0, 86400000 * 3), view.age(5000, 0)]",
            json!(["119 s", "2 h", "3 d", "0 s"]),
        ),
        ("view.bar({min: 2, max: 12, current: 7, desired: 99})", json!({"current": 0.5, "desired": 1})),
        ("view.bar({min: 3, max: 3, current: 3, desired: 0})", json!({"current": 1, "desired": 0})),
        ("view.selects('app=web, tier', {app: 'web', tier: ''})", json!(true)),
        ("view.selects('app=web,tier', {app: 'web'})", json!(false)),
        ("view.selects('toString', {})", json!(false)),
        ("view.writeView(view.readView('#state=held&q=a%20b&other=1'))", json!("#q=a+b&state=held")),
        ("view.sparkline([], 0, 100, 24)", json!("")),
        (
            "view.sparkline([{at: '2030-01-01T00:00:00Z', replicas: 2}, {at: '2030-01-01T00:00:30Z', replicas: 4}], \
             Date.parse('2030-01-01T00:01:00Z'), 100, 24)",
            json!("0.0,12.0 50.0,12.0 50.0,0.0 100.0,0.0"),
        ),
    ] {
        let value = browser.evaluate(&format!("import('./view.js').then((view) => {expression})")).await;
        assert_eq!(value, expected, "{expression}");
    }
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn changes_are_shown_without_a_reload() {
    let world = World::start("live", four()).await;
    let mut browser = world.open("live", 1280, 800).await;
    world.cluster.put_raw(hpa("shop", "new", &fine()));
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 5").await;
    world.cluster.delete("autoscaling/horizontalpodautoscalers", "bank", "stuck").unwrap();
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    assert_eq!(browser.evaluate(NAMES).await, "full window alright new");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn one_hpa_shows_its_findings_conditions_and_yaml() {
    let world = World::start("one", four()).await;
    let mut browser = world.open("one", 1280, 800).await;
    browser.evaluate("document.querySelector('.rows a[href*=\"stuck\"]').click()").await;
    wait(&mut browser, "document.querySelectorAll('.findings li').length > 0").await;
    assert_eq!(browser.evaluate("location.hash").await, "#hpa=bank%2Fstuck");
    let text = browser.evaluate("document.querySelector('.answer').textContent").await;
    let text = text.as_str().unwrap();
    for part in ["missing-target", "Correct spec.scaleTargetRef", "FailedGetScale", "maxReplicas: 12"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .s-desired').length > 0").await, true);
    // An HPA that is deleted while its page is open stays readable.
    world.cluster.delete("autoscaling/horizontalpodautoscalers", "bank", "stuck").unwrap();
    wait(&mut browser, "document.querySelector('.gone') !== null").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.findings li').length > 0").await, true);
    browser.press("Escape").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 3").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn hostile_texts_are_shown_as_texts() {
    let evil = "<img src=x onerror=alert(1)>\u{202e}txet\u{0}";
    let mut hostile = hpa("shop", &"a".repeat(253), &json!([condition("AbleToScale", "False", evil)]));
    hostile["spec"]["scaleTargetRef"]["name"] = evil.into();
    hostile["metadata"]["labels"] = json!({ (evil): evil });
    let metric = json!({"type": "Pods", "pods": {"metric": {"name": evil}, "target": {"type": "AverageValue", "averageValue": "1"}}});
    hostile["spec"]["metrics"] = vec![metric; 40].into();
    let world = World::start("hostile", [hostile]).await;
    for width in [1280, 360] {
        let mut browser = world.open(&format!("hostile-{width}"), width, 800).await;
        browser.evaluate("document.querySelector('.rows a').click()").await;
        wait(&mut browser, "document.querySelector('.answer h3, .failure') !== null").await;
        assert_eq!(browser.evaluate("document.querySelectorAll('img').length").await, 0);
        let text = browser.evaluate("document.body.textContent").await;
        let text = text.as_str().unwrap();
        assert!(text.contains("<img src=x onerror=alert(1)>\\u{202e}txet\\u{0}"), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(wider).await, 0, "{width}");
        assert_quiet(&browser, &world);
        browser.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn lost_api_server_is_shown_and_the_view_stays() {
    let world = World::start("lost", four()).await;
    let mut browser = world.open("lost", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    world.cluster.faults().add(FaultRule::new(FaultAction::Close));
    world.cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    wait(&mut browser, "!document.getElementById('notice').hidden").await;
    let notice = browser.evaluate("document.getElementById('notice').textContent").await;
    let notice = notice.as_str().unwrap();
    assert!(
        notice.starts_with("The API server cannot be watched: ") && notice.ends_with(" old."),
        "{notice}"
    );
    assert_eq!(browser.evaluate("document.querySelectorAll('.rows .row').length").await, 4);
    world.cluster.faults().clear();
    wait(&mut browser, "document.getElementById('notice').hidden").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn keyboard_moves_through_the_rows_and_opens_one() {
    let world =
        World::start("keys", (0..200).map(|number| hpa("shop", &format!("web-{number:03}"), &fine()))).await;
    let mut browser = world.open("keys", 1280, 800).await;
    browser.press("/").await;
    wait(&mut browser, "document.activeElement.id === 'q'").await;
    browser.evaluate("document.querySelector('.scroller').focus()").await;
    for _ in 0..40 {
        browser.press("ArrowDown").await;
    }
    assert_eq!(browser.evaluate("document.activeElement.textContent").await, "web-039");
    browser.evaluate("document.activeElement.click()").await;
    wait(&mut browser, "document.activeElement === document.querySelector('h2')").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn five_thousand_hpas_draw_only_the_rows_on_the_screen() {
    let hpas = (0..5_000)
        .map(|number| hpa(&format!("team-{:02}", number % 50), &format!("web-{number:04}"), &fine()));
    let world = World::start("many", hpas).await;
    let mut browser = world.open("many", 1280, 800).await;
    wait(&mut browser, "document.getElementById('summary').textContent.startsWith('5000 ')").await;
    let drawn = browser.evaluate("document.querySelectorAll('.rows .row').length").await;
    assert!(drawn.as_u64().unwrap() < 50, "{drawn}");
    browser.evaluate("document.querySelector('.scroller').scrollTop = 1e9").await;
    wait(&mut browser, "document.querySelector('.rows [data-index=\"4999\"]') !== null").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium and axe"]
async fn axe_finds_nothing_in_any_view() {
    let modules =
        std::env::var("NODE_MODULES").expect("NODE_MODULES: the folder that tests/node/build.sh prints");
    let axe = std::fs::read_to_string(PathBuf::from(modules).join("axe-core/axe.min.js")).unwrap();
    let file = advice::AdviceFile::new("axe");
    let flags = ["--record=off", "--advice", file.path()];
    let world = World::over("axe", cluster_with(four()), &flags).await;
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (360, "light")] {
        let mut browser = world.open(&format!("axe-{width}-{scheme}"), width, 800).await;
        browser.emulate("screen", scheme).await;
        browser.evaluate(&format!("{{ {axe}; null }}")).await;
        controller_page::answer_with(&mut browser, &controller_page::whole("<b>")).await;
        for hash in [
            "#",
            "#q=nothing",
            "#hpa=bank%2Fstuck",
            "#hpa=shop%2Ffull",
            "#hpa=bank%2Fmissing",
            "#page=controller",
        ] {
            browser.evaluate(&format!("location.hash = {hash:?}")).await;
            let shown = match hash {
                "#hpa=bank%2Fstuck" => ".findings li",
                "#page=controller" => ".controller table",
                _ => "main > section",
            };
            wait(&mut browser, &format!("document.querySelector({shown:?}) !== null")).await;
            // Open all details, and select a time in the timeline.
            browser
                .evaluate(
                    "for (const it of document.querySelectorAll('details')) it.open = true; \
                     document.querySelector('.timeline .course')?.dispatchEvent(new KeyboardEvent('keydown', {key: 'End'})); null",
                )
                .await;
            let violations = "axe.run().then((found) => found.violations.map((it) => it.id + ': ' + it.nodes.map((node) => \
                              node.html + ' ' + node.failureSummary).join('; ')).join('\\n'))";
            assert_eq!(browser.evaluate(violations).await, "", "{width} {scheme} {hash}");
        }
        assert_quiet(&browser, &world);
        browser.stop().await;
    }
}
