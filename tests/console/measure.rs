//! The figures of docs/internals/console.md. Nothing asserts them, because a machine under load is slow:
//!
//! `cargo test --release --test console measure -- --ignored --nocapture --test-threads=1`

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Browser, World, condition, fine, hpa, wait};

/// Changes whose way to the screen is measured.
const CHANGES: usize = 20;

/// The resident memory of a process, in megabytes.
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

async fn measure(count: usize) {
    let empty = World::start(&format!("measure-{count}-empty"), []).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let without = resident(empty.console.id().unwrap());
    drop(empty);
    let world = World::start(&format!("measure-{count}"), (0..count).map(mixed)).await;
    let mut browser = world.open(&format!("measure-{count}"), 1280, 800).await;
    let all = format!("document.getElementById('summary').textContent.startsWith('{count} ')");
    wait(&mut browser, &all).await;
    // The page again, with the list in the server.
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
    eprintln!(
        "{count} HPAs: first paint {painted:.0} ms, all rows after {shown:.0} ms; a change is visible after {change:.0} ms \
         (median; longest {slowest:.0} ms); frame {frame:.1} ms (median; longest {longest:.1} ms; {late} of {} above 17.5 ms); \
         work of a frame {drawn:.1} ms (median; longest {most:.1} ms); tab {:.0} MB (heap {:.0} MB); \
         server {server:.0} MB, {without:.0} MB without HPAs",
        frames.len(),
        browser.memory() as f64 / 1024.0,
        heap["usedSize"].as_f64().unwrap() / 1e6,
    );
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium, and prints figures"]
async fn measure_five_thousand_hpas() {
    measure(5_000).await;
}

#[tokio::test]
#[ignore = "needs Chromium, and prints figures"]
async fn measure_twenty_thousand_hpas() {
    measure(20_000).await;
}
