//! The report of a simulation in a real browser. The page explains every sample, and causes neither script errors nor
//! requests.
//!
//! `cargo test --test page -- --ignored` runs the tests, which need Chromium. `CHROMIUM` may set the path of Chromium.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "page/browser.rs"]
#[expect(dead_code, reason = "some functions are for other tests")]
mod browser;
#[path = "../crates/simulate/src/sample.rs"]
#[expect(dead_code, reason = "some samples are for other tests")]
mod sample;
mod run {
    //! Provides the types at the module path that the samples use.
    pub(crate) use simulate::run::*;
}

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use simulate::page;
use tokio::process::Command;

use self::browser::Browser;
use self::run::Comparison;

/// A page in a file. Dropping it removes the file.
struct PageFile(PathBuf);

impl PageFile {
    fn new(name: &str, comparison: &Comparison) -> Self {
        let file = std::env::temp_dir().join(format!("concertina-page-{}-{name}.html", std::process::id()));
        std::fs::write(&file, page::render(comparison)).unwrap();
        Self(file)
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Fails on script errors, warnings, log entries and dialogs, and on requests other than that for the page.
fn assert_quiet(browser: &Browser) {
    for (method, parameters) in &browser.events {
        let is_bad = match method.as_str() {
            "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => true,
            "Runtime.consoleAPICalled" => parameters["type"] == "error" || parameters["type"] == "warning",
            "Log.entryAdded" => parameters["entry"]["level"] != "verbose",
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap();
                !url.starts_with("file:///") || !url.contains("/concertina-page-")
            }
            _ => false,
        };
        assert!(!is_bad, "{method}: {parameters}");
    }
    assert!(
        browser.events.iter().any(|(method, _)| method == "Network.requestWillBeSent"),
        "no request was recorded"
    );
}

/// Returns the left edge, top, width and height of the first element that a selector matches.
async fn bounds(browser: &mut Browser, selector: &str) -> [f64; 4] {
    let expression = format!(
        "(() => {{ const it = document.querySelector({selector:?}).getBoundingClientRect(); return [it.x, it.y, it.width, it.height] }})()"
    );
    let bounds = browser.evaluate(&expression).await;
    [0, 1, 2, 3].map(|at| bounds[at].as_f64().unwrap())
}

async fn text(browser: &mut Browser, selector: &str) -> Option<String> {
    let value = browser.evaluate(&format!("document.querySelector({selector:?})?.textContent ?? null")).await;
    value.as_str().map(str::to_owned)
}

async fn is_hidden(browser: &mut Browser) -> bool {
    browser.evaluate("document.getElementById('tip').hidden").await == Value::Bool(true)
}

/// Returns the time and the sentence that the tip must show for a sample.
fn expected(comparison: &Comparison, sample: usize) -> (String, String) {
    let run = &comparison.runs[0];
    let hpa = &run.hpas[0];
    let at = hpa.samples[sample].at;
    let end = at + run.period;
    let decision = hpa.decisions.iter().rev().find(|point| point.at < end).unwrap();
    let time = run.start + jiff::SignedDuration::try_from(at).unwrap();
    (time.strftime("%H:%M:%S").to_string(), decision.sentence.clone())
}

async fn assert_tip(browser: &mut Browser, comparison: &Comparison, sample: usize) {
    let (time, sentence) = expected(comparison, sample);
    let heading = text(browser, "#tip h4").await.unwrap();
    assert!(heading.starts_with(&time), "{heading} at {time}");
    assert_eq!(text(browser, "#tip .sentence").await.unwrap(), sentence, "at {time}");
    let wanted = comparison.runs[0].hpas[0].samples[sample].wanted;
    let shown = text(browser, "#tip .values li").await.unwrap();
    assert_eq!(shown, format!("desired {wanted}"), "at {time}");
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn tip_shows_the_decision_when_a_chart_is_pointed_at() {
    let comparison = sample::outage();
    let page = PageFile::new("point", &comparison);
    let mut browser = Browser::start("point", 1280, 1000).await;
    browser.open(&page.0).await;
    assert!(is_hidden(&mut browser).await);
    let samples = comparison.runs[0].hpas[0].samples.len();
    for plot in ["#c0 .panel:nth-child(1) .plot", "#c0 .panel:nth-child(3) .plot"] {
        let [left, top, width, height] = bounds(&mut browser, plot).await;
        for sample in [0, 1, 2000, 2700, 3721, 3722, samples - 1] {
            let x = left + (sample as f64 + 0.5) / samples as f64 * width;
            browser.point(x, top + height / 2.0).await;
            // The pointer position is in whole pixels, which are wider than a sample.
            let shown = browser.evaluate("Math.round(Number(document.querySelector('.cross').getAttribute('x1').slice(0, -1)) / 100 * 5760 - 0.5)").await;
            let shown = usize::try_from(shown.as_u64().unwrap()).unwrap();
            assert!(shown.abs_diff(sample) <= 5, "{shown} instead of {sample}");
            assert_tip(&mut browser, &comparison, shown).await;
        }
    }
    // The crosshair is in all three panels.
    let count = browser.evaluate("document.querySelectorAll('.cross').length").await;
    assert_eq!(count, 3);
    browser.point(2.0, 2.0).await;
    assert!(is_hidden(&mut browser).await);
    assert_quiet(&browser);
    browser.stop().await;
}

/// Runs the program on an example. Returns the page and its JSON.
async fn simulated(name: &str, arguments: &[&str]) -> (PageFile, Value) {
    let page = std::env::temp_dir().join(format!("concertina-page-{}-{name}.html", std::process::id()));
    let json = page.with_extension("json");
    let status = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["simulate", &format!("examples/{name}.yaml"), "--report"])
        .args([page.as_path(), Path::new("--json"), json.as_path()])
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.await.unwrap().success());
    let result = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(&json).unwrap();
    (PageFile(page), result)
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn tip_shows_the_decision_at_every_sample() {
    let window = "spec.behavior.scaleDown.stabilizationWindowSeconds=60";
    for (name, arguments) in
        [("two-metrics", vec![]), ("queue-to-zero", vec![]), ("spikes", vec!["--set", window])]
    {
        let (page, result) = simulated(name, &arguments).await;
        let mut browser = Browser::start(name, 1280, 1000).await;
        browser.open(&page.0).await;
        let hpa = &result["runs"][0]["hpas"][0];
        let period = result["runs"][0]["periodSeconds"].as_u64().unwrap();
        let decisions = hpa["decisions"].as_array().unwrap();
        browser.evaluate("document.querySelector('.one .course').focus()").await;
        browser.press("Home").await;
        for sample in 0..hpa["samples"].as_array().unwrap().len() as u64 {
            let end = (sample + 1) * period;
            let decision = decisions.iter().rev().find(|it| it["seconds"].as_f64().unwrap() < end as f64);
            let shown = text(&mut browser, "#tip .sentence").await;
            assert_eq!(
                shown.as_deref(),
                decision.map(|it| it["sentence"].as_str().unwrap()),
                "{name} at {sample}"
            );
            if decision.is_some() {
                // Every step has a heading and a text.
                let empty =
                    "[...document.querySelectorAll('#tip dl')].filter((it) => !it.textContent.trim()).length";
                assert_eq!(browser.evaluate(empty).await, 0);
            }
            browser.press("ArrowRight").await;
        }
        assert_quiet(&browser);
        browser.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn keyboard_reaches_every_sample() {
    let comparison = sample::day();
    let page = PageFile::new("keys", &comparison);
    let mut browser = Browser::start("keys", 1280, 1000).await;
    browser.open(&page.0).await;
    browser.evaluate("document.getElementById('c0').focus()").await;
    browser.press("Home").await;
    assert_tip(&mut browser, &comparison, 0).await;
    browser.press("ArrowRight").await;
    browser.press("ArrowRight").await;
    assert_tip(&mut browser, &comparison, 2).await;
    browser.press("ArrowLeft").await;
    assert_tip(&mut browser, &comparison, 1).await;
    // The page keys select the next and the previous decision.
    browser.press("PageDown").await;
    let decisions = &comparison.runs[0].hpas[0].decisions;
    let next = decisions.iter().find(|point| point.at > Duration::from_secs(15)).unwrap();
    assert_eq!(text(&mut browser, "#tip .sentence").await.unwrap(), next.sentence);
    browser.press("PageUp").await;
    browser.press("End").await;
    assert_tip(&mut browser, &comparison, 5759).await;
    // The status element announces the sample as well.
    let said = text(&mut browser, "#say").await.unwrap();
    assert!(said.starts_with("23:59:45: ") && said.contains(" ready. "), "{said}");
    // A pinned tip puts its time into the address and ignores the pointer.
    browser.press("Enter").await;
    assert_eq!(browser.evaluate("location.hash").await, "#c0@86385");
    let [left, top, width, _] = bounds(&mut browser, "#c0 .plot").await;
    browser.point(left + width / 2.0, top + 20.0).await;
    assert_tip(&mut browser, &comparison, 5759).await;
    browser.press("Escape").await;
    assert!(is_hidden(&mut browser).await);
    assert_quiet(&browser);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn event_list_links_to_the_sample() {
    let comparison = sample::outage();
    let page = PageFile::new("lines", &comparison);
    let mut browser = Browser::start("lines", 1280, 1400).await;
    browser.open(&page.0).await;
    browser.evaluate("document.querySelector('details').open = true").await;
    browser.evaluate("document.querySelector('.happened tr.warned').scrollIntoView({block: 'center', behavior: 'instant'})").await;
    let [left, top, ..] = bounds(&mut browser, ".happened tr.warned a").await;
    browser.click(left + 5.0, top + 5.0).await;
    assert_tip(&mut browser, &comparison, 2640).await;
    let marks = browser
        .evaluate("[...document.querySelectorAll('#tip .mark')].map((it) => it.textContent).join('\\n')")
        .await;
    let marks = marks.as_str().unwrap();
    assert_eq!(marks, "resource metrics API is down\nFailedGetResourceMetric: failed to get cpu utilization");
    assert_quiet(&browser);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn variants_share_a_crosshair_and_a_tip() {
    let comparison = sample::variants();
    let page = PageFile::new("variants", &comparison);
    let mut browser = Browser::start("variants", 1440, 1200).await;
    browser.open(&page.0).await;
    let [left, top, width, _] = bounds(&mut browser, ".overlay .plot").await;
    browser.point(left + width * 0.65, top + 60.0).await;
    let crosses = browser.evaluate("document.querySelectorAll('.cross').length").await;
    assert_eq!(crosses, 10, "one in the overlay, three in each variant");
    let tip = text(&mut browser, "#tip").await.unwrap();
    for run in &comparison.runs {
        assert!(tip.contains(&run.variant), "{tip}");
    }
    assert_quiet(&browser);
    browser.stop().await;
}

/// The script that reads the background colour of the page.
const GROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[tokio::test]
#[ignore = "needs Chromium"]
async fn page_theme_follows_the_system_and_the_button() {
    let page = PageFile::new("theme", &sample::day());
    let mut browser = Browser::start("theme", 1280, 1000).await;
    browser.open(&page.0).await;
    browser.emulate("screen", "light").await;
    let light = browser.evaluate(GROUND).await;
    browser.emulate("screen", "dark").await;
    let dark = browser.evaluate(GROUND).await;
    assert_ne!(light, dark);
    let [left, top, ..] = bounds(&mut browser, "#theme").await;
    browser.click(left + 10.0, top + 10.0).await;
    assert_eq!(browser.evaluate(GROUND).await, light, "{:?}", text(&mut browser, "#theme").await);
    browser.click(left + 10.0, top + 10.0).await;
    assert_eq!(browser.evaluate(GROUND).await, dark);
    // The printed page is white in every theme and has no buttons.
    browser.emulate("print", "dark").await;
    assert_eq!(browser.evaluate(GROUND).await, "rgb(255, 255, 255)");
    assert_eq!(browser.evaluate("getComputedStyle(document.getElementById('theme')).display").await, "none");
    assert_quiet(&browser);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn narrow_window_needs_no_horizontal_scrolling() {
    for (name, comparison) in
        [("day", sample::outage()), ("variants", sample::variants()), ("many", sample::many(30))]
    {
        let page = PageFile::new(&format!("narrow-{name}"), &comparison);
        let mut browser = Browser::start(&format!("narrow-{name}"), 360, 740).await;
        browser.open(&page.0).await;
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(wider).await, 0, "{name}");
        let [left, top, width, _] = bounds(&mut browser, ".course .plot").await;
        browser.evaluate(&format!("scrollTo({{top: {}, behavior: 'instant'}})", top - 20.0)).await;
        browser.point(left + width / 2.0, 60.0).await;
        let [left, _, width, _] = bounds(&mut browser, "#tip").await;
        assert!(left >= 0.0 && left + width <= 360.0 && width > 300.0, "{name}: {left} {width}");
        assert_quiet(&browser);
        browser.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn score_click_sorts_the_hpas() {
    let mut comparison = sample::many(20);
    for (peak, hpa) in (1..).zip(&mut comparison.runs[0].hpas) {
        hpa.scores.peak = peak;
    }
    let page = PageFile::new("order", &comparison);
    let mut browser = Browser::start("order", 1280, 1000).await;
    browser.open(&page.0).await;
    let mut first_rows = Vec::new();
    for _ in 0..4 {
        first_rows.push(text(&mut browser, ".scores tbody td:last-child").await.unwrap());
        let [left, top, width, height] = bounds(&mut browser, "thead th:last-child button").await;
        browser.click(left + width / 2.0, top + height / 2.0).await;
    }
    assert_eq!(first_rows, ["1", "20", "1", "1"]);
    assert_quiet(&browser);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn policy_blocks_injected_content() {
    let page = PageFile::new("policy", &sample::many(30));
    let mut browser = Browser::start("policy", 1280, 1000).await;
    browser.open(&page.0).await;
    assert_eq!(browser.evaluate("document.querySelectorAll('section.hpa').length").await, 12);
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length").await, 0);
    assert_quiet(&browser);
    // Even if markup were injected, it would neither run nor reach the network.
    let refused = browser
        .evaluate(
            "new Promise((done) => {
                const refused = [];
                document.addEventListener('securitypolicyviolation', (event) => {
                    refused.push(event.effectiveDirective);
                    if (refused.length === 4) done(refused.sort().join(' '));
                });
                setTimeout(() => done('only ' + refused.join(' ')), 20000);
                const script = document.createElement('script');
                script.textContent = 'window.wasRun = true';
                document.body.append(script);
                const image = document.createElement('img');
                image.src = 'http://127.0.0.1:9/image';
                document.body.append(image);
                document.body.setAttribute('style', 'color: red');
                fetch('http://127.0.0.1:9/data').catch(() => {});
            })",
        )
        .await;
    assert_eq!(refused, "connect-src img-src script-src-elem style-src-attr");
    assert_eq!(browser.evaluate("window.wasRun ?? null").await, Value::Null);
    browser.stop().await;
}
