//! Prints the tables of docs/internals/console.md. Tests do not assert the figures, because a machine under load is
//! slow. The command:
//!
//! `cargo test --release --test console measure -- --ignored --nocapture --test-threads=1`

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::questions::Answered;
use super::{Browser, World, condition, fine, hpa, one_hpa, questions, wait};

/// Number of changes for which the time to the screen is measured.
const CHANGES: usize = 20;

/// The rows of the first table, each with its goal, if any.
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

/// The size of the document, the scripts and the styles of the page, in bytes.
const SIZE: &str = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]\
    .filter((it) => it.entryType === 'navigation' || /[.](js|css)$/.test(new URL(it.name).pathname))\
    .reduce((sum, it) => sum + it.decodedBodySize, 0)";

/// A duration as in the tables: `172 ms`, `1.4 s`.
fn time(milliseconds: f64) -> String {
    if milliseconds < 1_000.0 {
        format!("{milliseconds:.0} ms")
    } else {
        format!("{:.1} s", milliseconds / 1_000.0)
    }
}

/// A duration in milliseconds, without the unit: `1.3`, `25`.
fn short(milliseconds: f64) -> String {
    if milliseconds < 20.0 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

/// The first table, with the figures of each size in the order of [`ROWS`].
fn table(columns: &[Vec<String>; 2]) -> String {
    let mut text = "| | 5,000 HPAs | 20,000 HPAs | goal |\n|---|---|---|---|\n".to_owned();
    for (index, (name, goal)) in ROWS.iter().enumerate() {
        let [first, second] = columns.each_ref().map(|column| column[index].as_str());
        // The size of the page does not depend on the number of HPAs.
        let second = if *name == "size of the page" { "" } else { second };
        text += &format!("| {name} | {first} | {second} | {goal} |\n").replace("|  |", "| |");
    }
    text
}

/// The second table: the questions of an operator at night.
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
    let columns = [vec!["x".to_owned(); ROWS.len()], vec!["y".to_owned(); ROWS.len()]];
    let shape = |text: &str| -> Vec<(String, String)> {
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let cells = rows.map(|line| {
            line.trim_matches('|').split('|').map(str::trim).map(str::to_owned).collect::<Vec<_>>()
        });
        cells.filter(|cells| cells.len() == 4).map(|cells| (cells[0].clone(), cells[3].clone())).collect()
    };
    assert_eq!(shape(&table(&columns)), shape(&page));
    let answered = Answered { question: "Why?", clicks: 2, took: Duration::from_millis(1_250) };
    let expected = "| question | clicks | time to the answer |\n|---|---|---|\n| Why? | 2 | 1.2 s |\n";
    assert_eq!(night_table(&[answered]), expected);
}

/// The resident memory of a process, in MiB.
fn resident(id: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// An HPA of a mixed cluster: every tenth is at its maximum, every hundredth cannot scale.
fn mixed(number: usize) -> Value {
    let conditions = match number {
        number if number % 100 == 0 => {
            serde_json::json!([condition("AbleToScale", "False", "FailedGetScale")])
        }
        number if number % 10 == 0 => serde_json::json!([
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
    // Load the page again, now that the server has the list.
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
    // The work of a frame: scroll, draw the rows, and compute their layout.
    let work = "(() => { const scroller = document.querySelector('.scroller'); const times = []; for (let n = 0; n < 200; n += 1) { \
                const start = performance.now(); scroller.scrollTop = n * 120; scroller.dispatchEvent(new Event('scroll')); \
                scroller.getBoundingClientRect(); times.push(performance.now() - start) } return times })()";
    let work: Vec<f64> =
        browser.evaluate(work).await.as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
    browser.evaluate("document.querySelector('.scroller').scrollTop = 0").await;
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        // The first row is the most severe one, so the change is on the screen.
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
    browser.call("HeapProfiler.collectGarbage", serde_json::json!({})).await;
    let heap = browser.call("Runtime.getHeapUsage", serde_json::json!({})).await;
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
    let columns = [measure(5_000).await, measure(20_000).await];
    let mut answers = one_hpa::night_questions("measure-night").await;
    answers.insert(2, questions::limit("measure-limit").await);
    answers.push(questions::writer("measure-writer").await);
    eprintln!("\n{}\n{}", table(&columns), night_table(&answers));
}
