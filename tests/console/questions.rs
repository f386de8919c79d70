//! The questions of an operator at night, each answered in at most three clicks, and the figures of the console.
//!
//! The command below prints the tables of docs/internals/console.md. Tests do not assert the figures, because a machine
//! under load is slow.
//!
//! `cargo test --profile quick --test console measure -- --ignored --nocapture --test-threads=1`

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::one_hpa::{self, MOMENT, click_at, fill, open, recorded, simulated};
use super::record::ten_past_three;
use super::{Browser, NAMES, World, assert_quiet, condition, fine, hpa, wait};

/// Starts the console of a cluster with 403 HPAs, of which three have problems.
async fn night(name: &str) -> World {
    let able = condition("AbleToScale", "True", "ReadyForNewScale");
    let active = condition("ScalingActive", "True", "ValidMetricFound");
    let mut hpas: Vec<Value> = (0..400)
        .map(|number| hpa(&format!("team-{:02}", number % 20), &format!("app-{number:03}"), &fine()))
        .collect();
    for name in ["web", "search"] {
        let mut limited = condition("ScalingLimited", "True", "TooManyReplicas");
        limited["message"] = "the desired replica count is more than the maximum replica count".into();
        let mut full = hpa("shop", name, &json!([able, active, limited]));
        full["status"]["currentReplicas"] = 12.into();
        full["status"]["desiredReplicas"] = 12.into();
        full["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] = 130.into();
        hpas.push(full);
    }
    let mut contested = hpa("bank", "ledger", &fine());
    let writer = |manager: &str, time: &str| {
        json!({"manager": manager, "operation": "Update", "subresource": "status", "apiVersion": "autoscaling/v2",
        "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}})
    };
    contested["metadata"]["managedFields"] = json!([
        writer("kube-controller-manager", "2026-01-01T00:00:00Z"),
        writer("concertina", "2026-01-01T00:00:40Z")
    ]);
    hpas.push(contested);
    World::start(name, hpas).await
}

/// Clicks an element, and counts the click.
async fn click(browser: &mut Browser, clicks: &mut u32, selector: &str) {
    wait(browser, &format!("document.querySelector({selector:?}) !== null")).await;
    browser.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
    *clicks += 1;
}

/// An answered question, with the effort for the answer.
#[derive(Debug)]
struct Answered {
    question: &'static str,
    clicks: u32,
    /// The time from the open page to the answer.
    took: Duration,
}

/// Prints the answer, and checks the number of clicks.
fn answered(question: &'static str, clicks: u32, start: Instant, answer: &str) -> Answered {
    let took = start.elapsed();
    eprintln!("{question} {clicks} clicks, {} ms: {answer}", took.as_millis());
    assert!(clicks <= 3, "{question}: {clicks} clicks");
    Answered { question, clicks, took }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn why_did_web_stop_at_12() {
    let world = night("question-why").await;
    let mut browser = world.open("question-why", 1280, 800).await;
    wait(&mut browser, "document.getElementById('summary').textContent.startsWith('403 ')").await;
    let (start, mut clicks) = (Instant::now(), 0);
    click(&mut browser, &mut clicks, ".rows a[href*='shop%2Fweb']").await;
    wait(&mut browser, "document.querySelector('.answer h3') !== null").await;
    let text = browser.evaluate("document.querySelector('.facts').innerText").await;
    let text = text.as_str().unwrap().replace('\n', " ");
    assert!(
        text.contains("at maximum") && text.contains("TooManyReplicas") && text.contains("130 / 80 %"),
        "{text}"
    );
    answered("Why did web stop at 12?", clicks, start, &text);
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn which_hpas_are_at_their_limit() {
    limit("question-limit").await;
}

async fn limit(name: &str) -> Answered {
    let world = night(name).await;
    let mut browser = world.open(name, 1280, 800).await;
    wait(&mut browser, "document.getElementById('summary').textContent.startsWith('403 ')").await;
    let (start, mut clicks) = (Instant::now(), 0);
    click(&mut browser, &mut clicks, "button.chip.maximum").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 2").await;
    let names = browser.evaluate(NAMES).await;
    assert_eq!(names, "search web");
    let answered = answered("Which HPAs are at their limit?", clicks, start, names.as_str().unwrap());
    browser.stop().await;
    answered
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn is_another_controller_writing() {
    writer("question-writer").await;
}

async fn writer(name: &str) -> Answered {
    let world = night(name).await;
    let mut browser = world.open(name, 1280, 800).await;
    wait(&mut browser, "document.getElementById('summary').textContent.startsWith('403 ')").await;
    let (start, mut clicks) = (Instant::now(), 0);
    click(&mut browser, &mut clicks, "button.chip.contested").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    let reason = browser.evaluate("document.querySelector('.rows .reason').innerText").await;
    let reason = reason.as_str().unwrap();
    assert_eq!(reason, "concertina and kube-controller-manager wrote the status within two minutes");
    let answered = answered("Is another controller writing?", clicks, start, reason);
    browser.stop().await;
    answered
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn night_questions_take_at_most_three_clicks() {
    night_questions("night").await;
}

/// Answers the questions that need a record.
async fn night_questions(name: &str) -> Vec<Answered> {
    let world = recorded(name).await;
    let mut browser = world.open(name, 1280, 900).await;
    let start = Instant::now();
    // Why did web stop at 12? The row shows the reason before the first click.
    wait(&mut browser, "document.querySelector('.rows .reason').innerText.includes('maxReplicas')").await;
    let reason = browser.evaluate("document.querySelector('.rows .reason').innerText").await;
    assert_eq!(reason, "stays at 12: cpu asks for 18, but maxReplicas is 12");
    let why = answered("Why did web stop at 12?", 0, start, reason.as_str().unwrap());

    // What scaled at 03:10, and why? The clicks: the row, and the drawing at that time.
    let start = Instant::now();
    open(&mut browser).await;
    let night = ten_past_three();
    click_at(&mut browser, night).await;
    let moment = browser.evaluate(MOMENT).await;
    let moment = moment.as_str().unwrap();
    assert!(moment.contains("03:10:"), "{moment}");
    assert!(moment.contains("goes from 4 to 8: cpu is at 120 %"), "{moment}");
    assert!(moment.contains("desired 8"), "{moment}");
    let scaled = answered("What scaled at 03:10, and why?", 2, start, moment);

    // Would a window of 60 s have hurt yesterday? The clicks: the form, the field, and the button.
    let start = Instant::now();
    one_hpa::click(&mut browser, "details.card > summary").await;
    fill(&mut browser, "downWindow", "60").await;
    one_hpa::click(&mut browser, ".whatif [type=submit]").await;
    simulated(&mut browser).await;
    let text = browser.evaluate("document.querySelector('.whatif').innerText").await;
    let text = text.as_str().unwrap();
    for part in [
        "pod-hours",
        "unserved",
        "what happened",
        "as it is",
        "with these fields",
        "kubectl patch hpa web --namespace shop --type=merge --patch '{\"spec\":{\"behavior\":{\"scaleDown\":{\"stabilizationWindowSeconds\":60}}}}'",
        "-      stabilizationWindowSeconds: 300",
        "+      stabilizationWindowSeconds: 60",
        "recorded values of cpu",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let sentence = browser.evaluate("document.querySelector('.result .sentence').textContent").await;
    let hurt = answered("Would a window of 60 s have hurt yesterday?", 3, start, sentence.as_str().unwrap());
    assert_quiet(&browser, &world);
    browser.stop().await;
    vec![why, scaled, hurt]
}

/// Number of changes for which the time to the screen is measured.
const CHANGES: usize = 20;

/// The rows of the first table. Each row has a name and a goal, which may be empty.
const ROWS: [(&str, &str); 9] = [
    ("first paint", "1 s"),
    ("all rows in the page", ""),
    ("a change in the cluster is on the screen, median / longest of 20", "500 ms after its event"),
    ("frame while scrolling, median / longest of 299", "16.7 ms"),
    ("frames above 17.5 ms", ""),
    ("work of the page per frame, median / longest of 200", ""),
    ("memory of the tab", "200 MB"),
    ("memory of the server, with / without HPAs", "100 MB above its stores"),
    ("size of the page", "300 kB"),
];

/// The script that computes the size of the document, the scripts and the styles of the page, in bytes.
const SIZE: &str = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]\
    .filter((it) => it.entryType === 'navigation' || /[.](js|css)$/.test(new URL(it.name).pathname))\
    .reduce((sum, it) => sum + it.decodedBodySize, 0)";

/// Formats a duration as in the tables, such as `172 ms` or `1.4 s`.
fn time(milliseconds: f64) -> String {
    if milliseconds < 1_000.0 {
        format!("{milliseconds:.0} ms")
    } else {
        format!("{:.1} s", milliseconds / 1_000.0)
    }
}

/// Formats a duration in milliseconds without the unit, such as `1.3` or `25`.
fn short(milliseconds: f64) -> String {
    if milliseconds < 20.0 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

/// Renders the first table. Each column has the figures of one cluster size, in the order of [`ROWS`].
fn table(columns: &[Vec<String>; 3]) -> String {
    let mut text = "| | 5,000 HPAs | 20,000 | 60,000 | goal |\n|---|---|---|---|---|\n".to_owned();
    for (index, (name, goal)) in ROWS.iter().enumerate() {
        let [first, second, third] = columns.each_ref().map(|column| column[index].as_str());
        // The size of the page does not depend on the number of HPAs.
        let [second, third] = if *name == "size of the page" { [""; 2] } else { [second, third] };
        let _ = writeln!(text, "| {name} | {first} | {second} | {third} | {goal} |");
    }
    while text.contains("|  |") {
        text = text.replace("|  |", "| |");
    }
    text
}

/// Renders the second table, with the questions of an operator at night.
fn night_table(answers: &[Answered]) -> String {
    let mut text = "| question | clicks | time to the answer |\n|---|---|---|\n".to_owned();
    for Answered { question, clicks, took } in answers {
        let took = time(took.as_secs_f64() * 1_000.0);
        let _ = writeln!(text, "| {question} | {clicks} | {took} |");
    }
    text
}

#[test]
fn tables_have_the_form_of_the_page() {
    let page = std::fs::read_to_string("docs/internals/console.md").unwrap();
    let columns = ["x", "y", "z"].map(|figure| vec![figure.to_owned(); ROWS.len()]);
    let shape = |text: &str| -> Vec<(String, String)> {
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let cells = rows.map(|line| {
            line.trim_matches('|').split('|').map(str::trim).map(str::to_owned).collect::<Vec<_>>()
        });
        cells.filter(|cells| cells.len() == 5).map(|cells| (cells[0].clone(), cells[4].clone())).collect()
    };
    assert_eq!(shape(&table(&columns)), shape(&page));
    let answered = Answered { question: "Why?", clicks: 2, took: Duration::from_millis(1_250) };
    let expected = "| question | clicks | time to the answer |\n|---|---|---|\n| Why? | 2 | 1.2 s |\n";
    assert_eq!(night_table(&[answered]), expected);
}

/// Returns the resident memory of a process, in MiB.
fn resident(id: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Returns an HPA of a mixed cluster. Every tenth HPA is at its maximum, except every hundredth HPA, which cannot
/// scale.
fn mixed(number: usize) -> Value {
    let conditions = match number {
        number if number % 100 == 0 => {
            json!([condition("AbleToScale", "False", "FailedGetScale")])
        }
        number if number % 10 == 0 => json!([
            condition("AbleToScale", "True", "ReadyForNewScale"),
            condition("ScalingActive", "True", "ValidMetricFound"),
            condition("ScalingLimited", "True", "TooManyReplicas")
        ]),
        _ => fine(),
    };
    hpa(&format!("team-{:02}", number % 50), &format!("web-{number:05}"), &conditions)
}

fn median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], *values.last().unwrap())
}

async fn paint(browser: &mut Browser) -> f64 {
    let entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
    wait(browser, &format!("{entry} !== undefined")).await;
    browser.evaluate(entry).await.as_f64().unwrap()
}

async fn measure(count: usize) -> Vec<String> {
    let empty = World::start(&format!("measure-{count}-empty"), []).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let without = resident(empty.console.id().unwrap());
    drop(empty);
    let world = World::start(&format!("measure-{count}"), (0..count).map(mixed)).await;
    let mut browser = world.open(&format!("measure-{count}"), 1280, 800).await;
    let all = format!("document.getElementById('summary').textContent.startsWith('{count} ')");
    wait(&mut browser, &all).await;
    // The server has the list now, so a second load of the page measures the page alone.
    browser.visit("about:blank").await;
    browser.visit(&world.url).await;
    wait(&mut browser, &all).await;
    let shown = browser.evaluate("performance.now()").await.as_f64().unwrap();
    let painted = paint(&mut browser).await;
    let scroll = "new Promise((done) => { const scroller = document.querySelector('.scroller'); scroller.scrollTop = 0; \
                  let last = performance.now(); const times = []; const step = (now) => { times.push(now - last); last = now; \
                  scroller.scrollTop += 120; times.length < 300 ? requestAnimationFrame(step) : done(times.slice(1)) }; \
                  requestAnimationFrame(step) })";
    let frames: Vec<f64> = browser
        .evaluate(scroll)
        .await
        .as_array()
        .unwrap()
        .iter()
        .map(|time| time.as_f64().unwrap())
        .collect();
    let late = frames.iter().filter(|time| **time > 17.5).count();
    // The work of a frame is to scroll, draw the rows, and compute their layout.
    let work = "(() => { const scroller = document.querySelector('.scroller'); const times = []; for (let n = 0; n < 200; n += 1) { \
                const start = performance.now(); scroller.scrollTop = n * 120; scroller.dispatchEvent(new Event('scroll')); \
                scroller.getBoundingClientRect(); times.push(performance.now() - start) } return times })()";
    let work: Vec<f64> =
        browser.evaluate(work).await.as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
    browser.evaluate("document.querySelector('.scroller').scrollTop = 0").await;
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        // The changed HPA has the most severe state, so it is in the first row and on the screen.
        let mut first = mixed(0);
        first["status"]["currentReplicas"] = (5 + change % 2).into();
        first["status"]["desiredReplicas"] = (5 + change % 2).into();
        let wanted = format!(
            "document.querySelector('.rows a[href*=\"web-00000\"]')?.closest('.row').querySelector('.number').textContent === '{}'",
            5 + change % 2
        );
        let start = Instant::now();
        world.cluster.put_raw(first);
        wait(&mut browser, &wanted).await;
        changes.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let (change, slowest) = median(changes);
    let (frame, longest) = median(frames.clone());
    let (drawn, most) = median(work);
    browser.call("HeapProfiler.collectGarbage", json!({})).await;
    let heap = browser.call("Runtime.getHeapUsage", json!({})).await;
    let server = resident(world.console.id().unwrap());
    let size = browser.evaluate(SIZE).await.as_f64().unwrap();
    let tab = browser.memory() as f64 / 1024.0;
    browser.stop().await;
    assert_eq!((CHANGES, frames.len()), (20, 299));
    vec![
        time(painted),
        time(shown),
        format!("{change:.0} / {slowest:.0} ms"),
        format!("{} / {} ms", short(frame), short(longest)),
        late.to_string(),
        format!("{} / {} ms", short(drawn), short(most)),
        format!("{tab:.0} MB, heap {:.0} MB", heap["usedSize"].as_f64().unwrap() / 1e6),
        format!("{server:.0} / {without:.0} MB"),
        format!("{:.0} kB", size / 1e3),
    ]
}

#[tokio::test]
#[ignore = "needs Chromium, and prints figures"]
async fn measure_prints_both_tables() {
    let columns = [measure(5_000).await, measure(20_000).await, measure(60_000).await];
    let mut answers = night_questions("measure-night").await;
    answers.insert(2, limit("measure-limit").await);
    answers.push(writer("measure-writer").await);
    eprintln!("\n{}\n{}", table(&columns), night_table(&answers));
}
