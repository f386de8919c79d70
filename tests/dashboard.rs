//! The dashboard and the alerts against a real Prometheus that scrapes the demo, drawn in a browser.
//!
//! A shadow runs next to the demo's controller. A third controller holds on a second cluster, where the test writes
//! statuses as the built-in controller.
//! Grafana is not part of the test. A page of this test draws the panels from the dashboard's definition: units,
//! thresholds, fixed colours, names, annotations.
//!
//! `PROMETHEUS=$(tests/prometheus/build.sh prometheus) cargo test --test dashboard -- --ignored` needs Chromium and
//! takes two minutes. With `UPDATE_PICTURES`, it writes `docs/pictures/dashboard.png`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(dead_code, reason = "the shared modules contain what other tests use")]

#[path = "page/browser.rs"]
mod browser;
#[path = "dashboard/feed.rs"]
mod feed;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "dashboard/panels.rs"]
mod panels;
#[path = "e2e/rest.rs"]
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::browser::Browser;
use crate::feed::Feed;
use crate::outcome::{Context, Outcome, ensure};
use crate::panels::{Dashboard, Panel};

/// Panels without data here: the demo has neither metric sources nor a handover, and nothing breaks its watches.
const EMPTY: [&str; 7] = [
    "Age of numbers",
    "HPAs by state",
    "Reads without a number",
    "Sources that are down",
    "Time since the last proof",
    "Watch restarts",
    "Writes at the webhook",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium, and PROMETHEUS: run tests/prometheus/build.sh prometheus"]
async fn dashboard_and_alerts_read_a_real_prometheus() -> Outcome {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let feed = Feed::start(&folder).await?;
    let (from, to) = feed.collect().await?;

    rules_are_healthy(&feed).await.context("rules")?;
    let dashboard = Dashboard::read();
    for variable in dashboard.variables() {
        let values = feed.values(&variable.query).await.context(&variable.name)?;
        ensure(!values.is_empty(), || format!("the variable {} has no value", variable.name))?;
    }
    let panels = dashboard.evaluate(&feed, from, to).await?;
    let empty: BTreeSet<&str> =
        panels.iter().filter(|panel| panel.series.is_empty()).map(|panel| &*panel.title).collect();
    let expected: BTreeSet<&str> = EMPTY.into_iter().collect();
    ensure(empty == expected, || format!("panels without data: {empty:?}, expected {expected:?}"))?;
    links_lead_to_decisions(&feed, &panels).await.context("links")?;

    let annotations = dashboard.annotations(&feed, from, to).await?;
    ensure(!annotations.is_empty(), || "no annotation marks a rescale".to_owned())?;
    let data = json!({"from": from, "to": to, "annotations": annotations, "panels": panels});
    let page = include_str!("dashboard/page.html").replace("DATA", &data.to_string().replace("</", "<\\/"));
    let file = folder.join("dashboard.html");
    fs::write(&file, page)?;
    drop(feed);
    draw(&file, &panels).await;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prometheus evaluates every rule without an error, and the alerts on HPAs follow the demo.
async fn rules_are_healthy(feed: &Feed) -> Outcome {
    let groups = feed.prometheus.get("/api/v1/rules").await?["data"]["groups"].clone();
    let mut states = BTreeMap::new();
    for rule in groups.as_array().into_iter().flatten().flat_map(|group| group["rules"].as_array().unwrap()) {
        ensure(rule["health"] == "ok", || format!("{rule}"))?;
        if let (Some(name), Some(state)) = (rule["name"].as_str(), rule["state"].as_str()) {
            states.insert(name.to_owned(), state.to_owned());
        }
    }
    ensure(states.len() > 30, || format!("only {} alerts: {states:?}", states.len()))?;
    let waiting: BTreeSet<_> =
        states.iter().filter(|(_, state)| *state != "inactive").map(|(name, _)| &**name).collect();
    // An HPA asks for more than its maximum, one reads a missing metric, and a controller holds.
    for name in ["ConcertinaHpaAtMaximum", "ConcertinaHpaNotActive", "ConcertinaNotActing"] {
        ensure(waiting.contains(name), || format!("{name} is inactive, not inactive are {waiting:?}"))?;
    }
    for name in ["ConcertinaDown", "ConcertinaNoLeader", "ConcertinaTwoLeaders", "ConcertinaRestarting"] {
        ensure(!waiting.contains(name), || format!("{name} is not inactive"))?;
    }
    Ok(())
}

/// The link of a line leads to the decisions of its HPA.
async fn links_lead_to_decisions(feed: &Feed, panels: &[Panel]) -> Outcome {
    let panel = panels.iter().find(|panel| panel.title == "Desired replicas").unwrap();
    let link = panel.defaults["links"][0]["url"].as_str().unwrap();
    let mut names = BTreeSet::new();
    for series in panel.series.iter().filter(|series| series.labels.contains_key("hpa_name")) {
        let mut path = link.replace("${decisions_url}", "");
        for (name, value) in &series.labels {
            path = path.replace(&format!("${{__field.labels.{name}}}"), value);
        }
        let answer = feed.decisions.get(&path).await.context(&path)?;
        ensure(answer.to_string().contains("\"decisions\""), || format!("{path}: {answer}"))?;
        names.insert(path);
    }
    ensure(names.len() >= 3, || format!("only {names:?}"))
}

async fn draw(file: &Path, panels: &[Panel]) {
    let mut browser = Browser::start("dashboard", 1600, 900).await;
    browser.open(file).await;
    for (method, parameters) in &browser.events {
        assert!(method != "Runtime.exceptionThrown" && method != "Log.entryAdded", "{parameters}");
    }
    let drawn = browser.evaluate("[...document.querySelectorAll('section')].map(it => it.innerText)").await;
    let drawn: Vec<&str> = drawn.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(drawn.len(), panels.len());
    for (panel, text) in panels.iter().zip(drawn) {
        assert!(text.contains(&panel.title), "{}: {text}", panel.title);
        assert_eq!(text.contains("No data"), panel.series.is_empty(), "{}: {text}", panel.title);
    }
    // A controller that holds is orange, and one that acts is green.
    let held = "getComputedStyle([...document.querySelectorAll('.stat b')].find(it => it.innerText == 'holding')).color";
    assert_eq!(browser.evaluate(held).await, "rgb(255, 152, 48)");
    let line = |state: &str| {
        format!(
            "[...document.querySelectorAll('.legend span')].find(it => it.innerText.endsWith('-0 {state}')).firstChild.style.background"
        )
    };
    assert_eq!(browser.evaluate(&line("holding")).await, "rgb(255, 152, 48)");
    assert_eq!(browser.evaluate(&line("acting")).await, "rgb(115, 191, 105)");
    let dashes = "document.querySelectorAll('polyline[stroke-dasharray]').length";
    assert!(browser.evaluate(dashes).await.as_u64().unwrap() >= 6, "limits are dashed lines");

    let height = browser.evaluate("document.body.scrollHeight").await.as_u64().unwrap();
    browser.resize(1600, u32::try_from(height).unwrap()).await;
    let shot = browser.call("Page.captureScreenshot", json!({"format": "png"})).await;
    browser.stop().await;
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        let base64 = shot["data"].as_str().unwrap();
        let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures/dashboard.png");
        fs::write(picture, panels::decoded(base64)).unwrap();
    }
}
