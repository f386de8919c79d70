//! The questions of an operator at night, each answered in at most three clicks. The tests print the time from the
//! open page to the answer.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Browser, World, assert_quiet, condition, fine, hpa, wait};

/// 403 HPAs, of which three are in trouble.
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

/// A question with its answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) question: &'static str,
    pub(crate) clicks: u32,
    /// The time from the open page to the answer.
    pub(crate) took: Duration,
}

/// Prints the answer, and checks the number of clicks.
pub(crate) fn answered(question: &'static str, clicks: u32, start: Instant, answer: &str) -> Answered {
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

pub(crate) async fn limit(name: &str) -> Answered {
    let world = night(name).await;
    let mut browser = world.open(name, 1280, 800).await;
    wait(&mut browser, "document.getElementById('summary').textContent.startsWith('403 ')").await;
    let (start, mut clicks) = (Instant::now(), 0);
    click(&mut browser, &mut clicks, "button.chip.maximum").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 2").await;
    let names = browser.evaluate(super::NAMES).await;
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

pub(crate) async fn writer(name: &str) -> Answered {
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
