//! The advice of a file: its column, the page of one HPA, and changes of the file and of the HPAs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::browser::Browser;
use super::one_hpa::{click, picture};
use super::{NAMES, World, assert_quiet, cluster_with, fine, four, hpa, wait};

/// A file with advice, which is removed at the end.
pub(crate) struct AdviceFile(PathBuf);

impl Drop for AdviceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl AdviceFile {
    /// Writes the advice for the HPAs of [`four`]: two have an advice, one has changed since, and one is refused.
    pub(crate) fn new(name: &str) -> Self {
        let file = format!("concertina-console-advice-{}-{name}.json", std::process::id());
        let file = Self(std::env::temp_dir().join(file));
        let hpas = [
            advised("shop", "alright", &settings(80, 2, 300), &settings(95, 2, 60), 672.0, 430.0),
            advised("shop", "full", &settings(80, 2, 300), &settings(75, 4, 300), 672.0, 777.0),
            advised("bank", "window", &settings(60, 2, 300), &settings(75, 2, 300), 672.0, 600.0),
            refused("bank", "stuck", "Prometheus has no cpu usage of its pods"),
        ];
        file.write(&report(&hpas));
        file
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn write(&self, report: &Value) {
        std::fs::write(&self.0, report.to_string()).unwrap();
    }
}

fn report(hpas: &[Value]) -> Value {
    json!({"apiVersion": "concertina/v1", "kind": "AdviceReport", "from": "2030-01-01T00:00:00Z",
        "to": "2030-01-15T00:00:00Z", "lacked": [], "hpas": hpas})
}

fn settings(target: i32, min: i32, window: i32) -> Value {
    json!({"target": target, "minReplicas": min, "maxReplicas": 12, "scaleDownWindowSeconds": window})
}

/// An HPA with an advice. `from` and `to` are pod-hours per week.
fn advised(namespace: &str, name: &str, today: &Value, settings: &Value, from: f64, to: f64) -> Value {
    let measured = |hours: f64, ppm: f64| json!({"podHoursAWeek": hours, "unservedPpm": ppm, "minutesAbove80AWeek": ppm / 50.0, "rescalesAWeek": 40.0});
    let compared = |to: f64| json!({"today": measured(from, 13_745.1), "advised": measured(to, 3_218.3)});
    let advice = json!({"settings": settings, "fitted": compared(to + 5.0), "judged": compared(to),
        "sureness": "high", "isShort": false, "lookAt": "the latency at the highest load of a week"});
    json!({"namespace": namespace, "name": name, "target": format!("Deployment/{name}"), "today": today,
        "advice": advice, "findings": [], "request": 0.5, "days": 14.0})
}

fn refused(namespace: &str, name: &str, why: &str) -> Value {
    json!({"namespace": namespace, "name": name, "target": format!("Deployment/{name}"),
        "refused": {"reason": "noUsage"}, "why": why, "findings": [], "days": 0.0})
}

/// Starts the console of the HPAs of [`four`] with a file.
async fn world(name: &str, file: &AdviceFile) -> World {
    World::over(name, cluster_with(four()), &["--record=off", "--advice", file.path()]).await
}

fn of(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.rows .row')].find((row) => row.querySelector('a').textContent === '{name}')\
         ?.querySelector('.advised').innerText"
    )
}

const SAVES: &str = "-242 pod-hours a week: cpu 80 % → 95 %, window 300 s → 60 s";

#[tokio::test]
#[ignore = "needs Chromium"]
async fn column_has_the_advice_of_the_file_and_its_button_sorts_by_value() {
    let file = AdviceFile::new("column");
    let world = world("advice-column", &file).await;
    let mut browser = world.open("advice-column", 1280, 800).await;
    wait(&mut browser, &format!("{} === {SAVES:?}", of("alright"))).await;
    assert_eq!(
        browser.evaluate(&of("full")).await,
        "+105 pod-hours a week: cpu 80 % → 75 %, minReplicas 2 → 4"
    );
    assert_eq!(browser.evaluate(&of("window")).await, "changed since");
    assert_eq!(browser.evaluate(&of("stuck")).await, "");
    assert_eq!(browser.evaluate(NAMES).await, "stuck full window alright");
    click(&mut browser, "button.advised").await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 3").await;
    assert_eq!(browser.evaluate(NAMES).await, "alright full window");
    assert_eq!(browser.evaluate("document.querySelector('button.advised').textContent").await, "advice 3");
    assert_eq!(browser.evaluate("location.hash").await, "#advice=1");
    browser.visit("about:blank").await;
    browser.visit(&format!("{}#q=window+300", world.url)).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "alright");
    // The column needs no more space than the list has.
    for width in [1280, 1000, 800, 360] {
        let mut browser = world.open(&format!("advice-column-{width}"), width, 800).await;
        wait(&mut browser, "document.querySelector('.with-advice') !== null").await;
        let wider = "[...document.querySelectorAll('.rows .row, .head .row')].map((row) => row.scrollWidth - row.clientWidth)";
        let wider = browser.evaluate(wider).await;
        assert!(wider.as_array().unwrap().iter().all(|wider| wider == 0), "{width}: {wider}");
        browser.stop().await;
    }
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn list_without_advice_has_no_column() {
    let world = World::start("advice-none", four()).await;
    let mut browser = world.open("advice-none", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    let shown = "[...document.querySelectorAll('.advised')].filter((it) => it.offsetParent !== null).length";
    assert_eq!(browser.evaluate(shown).await, 0);
    browser.stop().await;
}

const SECTION: &str = "[...document.querySelectorAll('.answer section')].find((it) => it.querySelector('h3')?.textContent === 'Advice')?.innerText ?? ''";

#[tokio::test]
#[ignore = "needs Chromium"]
async fn page_of_an_hpa_has_its_advice_or_the_reason_against_one() {
    let file = AdviceFile::new("page");
    let world = world("advice-page", &file).await;
    let mut browser = world.open("advice-page", 1280, 900).await;
    wait(&mut browser, &format!("{} === {SAVES:?}", of("alright"))).await;
    browser.evaluate("location.hash = '#hpa=shop%2Falright'").await;
    wait(&mut browser, &format!("({SECTION}).includes('kubectl patch')")).await;
    let text = browser.evaluate(SECTION).await;
    for part in [
        "Saves 242 pod-hours a week (predicted 237). Sureness: high.",
        "After the change, look at the latency at the highest load of a week.",
        "cpu\t80 %\t95 %",
        "window\t300 s\t60 s",
        "pod-hours a week, judged\t672\t430",
        "unserved load\t1.4 %\t0.32 %",
        "kubectl patch hpa alright --namespace shop --type=merge --patch",
        "\"averageUtilization\":95",
        "2030-01-15 00:00:00 UTC",
    ] {
        assert!(text.as_str().unwrap().contains(part), "{part}: {text}");
    }
    // A change of the HPA makes the advice stale, on its page as well.
    let mut changed = hpa("shop", "alright", &fine());
    changed["spec"]["maxReplicas"] = 20.into();
    world.cluster.put_raw(changed);
    wait(&mut browser, &format!("({SECTION}).includes('changed since')")).await;
    let text = browser.evaluate(SECTION).await;
    assert!(!text.as_str().unwrap().contains("kubectl"), "{text}");
    browser.evaluate("location.hash = '#hpa=bank%2Fstuck'").await;
    wait(
        &mut browser,
        &format!("({SECTION}).includes('No advice: Prometheus has no cpu usage of its pods.')"),
    )
    .await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn changed_file_is_shown_and_an_unreadable_one_is_named() {
    let file = AdviceFile::new("file");
    let world = world("advice-file", &file).await;
    let mut browser = world.open("advice-file", 1280, 800).await;
    wait(&mut browser, &format!("{} === {SAVES:?}", of("alright"))).await;
    std::fs::write(file.path(), "").unwrap();
    wait(&mut browser, "!document.getElementById('notice').hidden").await;
    let notice = browser.evaluate("document.getElementById('notice').textContent").await;
    let expected = format!("The advice cannot be read: --advice {}: it is empty", file.path());
    assert!(notice.as_str().unwrap().starts_with(&expected), "{notice}");
    assert_eq!(browser.evaluate(&of("alright")).await, SAVES);
    let evil = "<img src=x onerror=alert(1)>\u{202e}txet\u{0}";
    let mut hostile = advised("shop", "alright", &settings(80, 2, 300), &settings(90, 2, 300), 672.0, 500.0);
    hostile["advice"]["lookAt"] = evil.into();
    hostile["advice"]["sureness"] = evil.into();
    file.write(&report(&[hostile, refused("bank", "stuck", evil)]));
    wait(&mut browser, &format!("{} === '-172 pod-hours a week: cpu 80 % → 90 %'", of("alright"))).await;
    wait(&mut browser, "document.getElementById('notice').hidden").await;
    for hash in ["#hpa=shop%2Falright", "#hpa=bank%2Fstuck"] {
        browser.evaluate(&format!("location.hash = {hash:?}")).await;
        wait(&mut browser, &format!("({SECTION}).includes('<img src=x')")).await;
        assert_eq!(browser.evaluate("document.querySelectorAll('img').length").await, 0);
        let text = browser.evaluate("document.body.textContent").await;
        assert!(!text.as_str().unwrap().contains('\u{202e}'), "{text}");
    }
    assert_quiet(&browser, &world);
    browser.stop().await;
}

/// Writes pictures of the advice to the folder that `PICTURES` names, by default the folder for temporary files.
#[tokio::test]
#[ignore = "writes pictures for a person to look at"]
async fn pictures_of_advice() {
    let folder = std::env::var("PICTURES").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let folder = Path::new(&folder);
    let file = AdviceFile::new("pictures");
    let world = world("advice-pictures", &file).await;
    for (name, width, scheme) in [
        ("light", 1280, "light"),
        ("dark", 1280, "dark"),
        ("middle", 1000, "light"),
        ("narrow", 390, "light"),
    ] {
        let mut browser = world.open(&format!("advice-pictures-{name}"), width, 800).await;
        browser.emulate("screen", scheme).await;
        wait(&mut browser, "document.querySelector('.with-advice') !== null").await;
        picture(&mut browser, folder, &format!("console-advice-list-{name}")).await;
        show(&mut browser).await;
        picture(&mut browser, folder, &format!("console-advice-{name}")).await;
        browser.stop().await;
    }
}

/// Opens the page of an HPA with advice, and scrolls to the advice.
async fn show(browser: &mut Browser) {
    browser.evaluate("location.hash = '#hpa=shop%2Falright'").await;
    wait(browser, &format!("({SECTION}).includes('kubectl')")).await;
    browser.evaluate("[...document.querySelectorAll('.answer h3')].find((it) => it.textContent === 'Advice').scrollIntoView()").await;
}
