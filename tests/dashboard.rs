//! The dashboard and the alerts against a real Prometheus that scrapes the demo, drawn in a browser.
//!
//! A shadow runs next to the controller of the demo. On a second cluster, the test writes statuses as the built-in
//! controller, so a third controller does not act there. Grafana is not part of the test. A page of this test draws the
//! panels from the definition of the dashboard: units, thresholds, fixed colours, names, annotations.
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
#[path = "e2e/rest.rs"]
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::feed::{Feed, SECONDS};
use crate::outcome::{Context, Outcome, ensure};

/// Panels without data here: the metric source of the demo never fails, nothing is handed over, and no watch breaks.
const EMPTY: [&str; 6] = [
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

/// Checks that Prometheus evaluates every rule without an error, and that the alerts match the demo.
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
    // One HPA needs more than its maximum, one reads a missing metric, and one controller does not act.
    for name in ["ConcertinaHpaAtMaximum", "ConcertinaHpaNotActive", "ConcertinaNotActing"] {
        ensure(waiting.contains(name), || format!("{name} is inactive, not inactive are {waiting:?}"))?;
    }
    for name in ["ConcertinaDown", "ConcertinaNoLeader", "ConcertinaTwoLeaders", "ConcertinaRestarting"] {
        ensure(!waiting.contains(name), || format!("{name} is not inactive"))?;
    }
    Ok(())
}

/// Checks that the link of each line leads to the decisions of its HPA.
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
    // The state `holding` is orange, and the state `acting` is green.
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
        fs::write(picture, BASE64.decode(base64).unwrap()).unwrap();
    }
}

const DASHBOARD: &str = include_str!("../deploy/helm/concertina/files/concertina.json");

struct Dashboard(Value);

/// A variable with values from Prometheus.
struct Variable {
    name: String,
    query: String,
}

/// A panel with its data.
#[derive(Serialize)]
struct Panel {
    title: String,
    kind: String,
    position: Value,
    defaults: Value,
    overrides: Value,
    options: Value,
    series: Vec<Series>,
}

/// A line of a panel, or the number of a stat.
#[derive(Serialize)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    /// The time in seconds, and the value, which is `None` if it is not a number.
    points: Vec<(f64, Option<f64>)>,
}

impl Dashboard {
    fn read() -> Self {
        Self(serde_json::from_str(DASHBOARD).unwrap())
    }

    /// Returns the variables with values from Prometheus, with all variables in their queries replaced.
    fn variables(&self) -> Vec<Variable> {
        let list = self.0["templating"]["list"].as_array().unwrap();
        let queries = list.iter().filter(|variable| variable["type"] == "query");
        queries
            .map(|variable| Variable {
                name: variable["name"].as_str().unwrap().to_owned(),
                query: self.replaced(variable["query"]["query"].as_str().unwrap()),
            })
            .collect()
    }

    /// Replaces each variable in an expression by its value for `All`, as Grafana does.
    fn replaced(&self, expression: &str) -> String {
        let mut text =
            expression.replace("$__rate_interval", "15s").replace("$__range", &format!("{SECONDS}s"));
        let list = self.0["templating"]["list"].as_array().unwrap();
        let mut values: Vec<_> =
            list.iter().filter_map(|it| Some((it["name"].as_str()?, it["allValue"].as_str()?))).collect();
        // If one name starts with another, the longer name must come first.
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in values {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }

    async fn evaluate(&self, feed: &Feed, from: f64, to: f64) -> Outcome<Vec<Panel>> {
        let mut panels = Vec::new();
        let drawn = self.0["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
        for panel in drawn {
            let title = panel["title"].as_str().unwrap();
            let mut series = Vec::new();
            for target in panel["targets"].as_array().unwrap() {
                let expression = self.replaced(target["expr"].as_str().unwrap());
                let found = if target["instant"] == true {
                    feed.query(&expression).await
                } else {
                    feed.range(&expression, from, to, "1s").await
                };
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                series.extend(found.context(title)?.iter().filter_map(|result| Series::read(result, legend)));
            }
            panels.push(Panel {
                title: title.to_owned(),
                kind: panel["type"].as_str().unwrap().to_owned(),
                position: panel["gridPos"].clone(),
                defaults: panel["fieldConfig"]["defaults"].clone(),
                overrides: panel["fieldConfig"]["overrides"].clone(),
                options: panel["options"].clone(),
                series,
            });
        }
        Ok(panels)
    }

    /// Returns the times of all annotations, in seconds.
    async fn annotations(&self, feed: &Feed, from: f64, to: f64) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for annotation in self.0["annotations"]["list"].as_array().unwrap() {
            let expression = self.replaced(annotation["expr"].as_str().unwrap());
            let step = annotation["step"].as_str().unwrap();
            for series in &feed.range(&expression, from, to, step).await? {
                let values = series["values"].as_array().unwrap();
                times.extend(values.iter().filter_map(|value| value[0].as_f64()));
            }
        }
        Ok(times)
    }
}

impl Series {
    /// Reads a series of a response. Returns `None` if no value is a number.
    fn read(result: &Value, legend: &str) -> Option<Self> {
        let point = |point: &Value| {
            let value = point[1].as_str().and_then(|text| text.parse::<f64>().ok());
            Some((point[0].as_f64()?, value.filter(|value| value.is_finite())))
        };
        let points: Vec<_> = match &result["values"] {
            Value::Array(values) => values.iter().filter_map(point).collect(),
            _ => point(&result["value"]).into_iter().collect(),
        };
        let metric = result["metric"].as_object()?.iter();
        let labels: BTreeMap<String, String> = metric
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        let mut name = legend.to_owned();
        for (label, value) in &labels {
            name = name.replace(&format!("{{{{{label}}}}}"), value);
        }
        points.iter().any(|(_, value)| value.is_some()).then_some(Self { name, labels, points })
    }
}
