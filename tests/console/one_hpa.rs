//! The page of one HPA: its timeline, the simulation with changed fields, and failures.

use std::path::Path;

use jiff::Timestamp;
use serde_json::json;

use super::browser::Browser;
use super::record::{deployment, documents, now, ten_past_three, web};
use super::{World, assert_quiet, condition, fine, hpa, wait};
use fake_cluster::{FaultAction, FaultRule};

pub(crate) async fn recorded(name: &str) -> World {
    World::recorded(name, [deployment("web", 12), web()], documents(), &[]).await
}

/// Clicks the centre of an element with the pointer, as a user does.
pub(crate) async fn click(browser: &mut Browser, selector: &str) {
    let find = format!(
        "(() => {{ const it = document.querySelector({selector:?}); it.scrollIntoView({{block: 'center'}}); \
         const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] }})()"
    );
    let place = browser.evaluate(&find).await;
    browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap()).await;
}

/// Clicks the timeline at a time.
pub(crate) async fn click_at(browser: &mut Browser, at: Timestamp) {
    let place = format!(
        "(() => {{ const one = document.querySelector('.timeline .course'); one.scrollIntoView({{block: 'start'}}); \
         const box = one.querySelector('.plot').getBoundingClientRect(); \
         const course = window.timelineOf(one); \
         return [box.left + ({} + course.period / 2 - course.start) / course.length * box.width, box.top + 40] }})()",
        at.as_second()
    );
    // The timeline shows the data of this response.
    browser
        .evaluate(
            "fetch('hpas/shop/web').then((it) => it.json()).then((it) => { \
             window.timelineOf = () => it.timeline.data.courses[0]; return true })",
        )
        .await;
    let place = browser.evaluate(&place).await;
    browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap()).await;
}

pub(crate) const MOMENT: &str = "document.querySelector('.timeline .moment').innerText";
pub(crate) const SIMULATED: &str =
    "document.querySelector('.result table') !== null || !document.querySelector('#whatif-error').hidden";

/// Waits for the result of a simulation, for at most two minutes.
pub(crate) async fn simulated(browser: &mut Browser) {
    let wait = format!(
        "new Promise((done) => {{ const check = () => ({SIMULATED}) ? done(true) : setTimeout(check, 100); check(); setTimeout(() => done(false), 20000) }})"
    );
    // Each wait of 20 s is shorter than the time limit for a response of the browser.
    for _ in 0..6 {
        if browser.evaluate(&wait).await == true {
            break;
        }
    }
}

pub(crate) async fn open(browser: &mut Browser) {
    click(browser, ".rows a").await;
    wait(browser, "document.querySelector('.timeline .course') !== null").await;
}

/// Types a value into a field of the form.
pub(crate) async fn fill(browser: &mut Browser, name: &str, value: &str) {
    let fill = format!(
        "{{ const it = document.querySelector('.whatif [name={name}]'); it.focus(); it.value = {value:?}; \
         it.dispatchEvent(new Event('input', {{bubbles: true}})); null }}"
    );
    browser.evaluate(&fill).await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn keyboard_moves_through_the_decisions_of_the_record() {
    let world = recorded("moments").await;
    let mut browser = world.open("moments", 1280, 900).await;
    open(&mut browser).await;
    assert_eq!(browser.evaluate("document.querySelector('.timeline .moment').hidden").await, true);
    browser.evaluate("document.querySelector('.timeline .course').focus()").await;
    browser.press("End").await;
    let moment = browser.evaluate(MOMENT).await;
    assert!(
        moment.as_str().unwrap().contains("stays at 12: cpu asks for 18, but maxReplicas is 12"),
        "{moment}"
    );
    browser.press("PageUp").await;
    browser.press("PageUp").await;
    let moment = browser.evaluate(MOMENT).await;
    assert!(moment.as_str().unwrap().contains("goes from 8 to 12"), "{moment}");
    let said = browser.evaluate("document.querySelector('.timeline [role=status]').textContent").await;
    assert!(said.as_str().unwrap().contains("12 desired"), "{said}");
    assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .cross').length > 1").await, true);
    // The first Escape closes the selected time. The second Escape closes the page of the HPA.
    browser.press("Escape").await;
    assert_eq!(browser.evaluate("document.querySelector('.timeline .moment').hidden").await, true);
    assert_eq!(browser.evaluate("location.hash").await, "#hpa=shop%2Fweb");
    browser.press("Escape").await;
    wait(&mut browser, "document.querySelector('.rows .row') !== null").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn invalid_field_is_named_and_a_simulation_can_be_stopped() {
    let world = recorded("fields").await;
    let mut browser = world.open("fields", 1280, 900).await;
    open(&mut browser).await;
    click(&mut browser, "details.card > summary").await;
    for (field, value, message) in [
        ("max", "1", "spec.maxReplicas"),
        ("max", "<img src=x onerror=alert(1)>", "must be a whole number"),
        ("downWindow", "9999", "stabilizationWindowSeconds"),
        ("upPolicies", "Pods:4", "TYPE:VALUE:SECONDS"),
        ("policy", "nothing: \u{202e}1", "nothing"),
    ] {
        fill(&mut browser, field, value).await;
        click(&mut browser, ".whatif [type=submit]").await;
        wait(&mut browser, "!document.querySelector('#whatif-error').hidden").await;
        let text = browser.evaluate("document.querySelector('#whatif-error').textContent").await;
        let text = text.as_str().unwrap();
        assert!(text.starts_with(&format!("{field}: ")) && text.contains(message), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let invalid = "[...document.querySelectorAll('.whatif [aria-invalid]')].map((it) => it.name).join()";
        assert_eq!(browser.evaluate(invalid).await, field);
        assert_eq!(browser.evaluate("document.activeElement.name").await, field);
        click(&mut browser, ".actions button:nth-of-type(3)").await;
        assert_eq!(browser.evaluate("document.querySelector('#whatif-error').hidden").await, true);
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length").await, 0);
    click(&mut browser, ".whatif [type=submit]").await;
    click(&mut browser, ".actions button:nth-of-type(2)").await;
    assert_eq!(browser.evaluate("document.querySelector('.whatif .status').textContent").await, "stopped");
    // The responses to invalid forms have an error status, which the browser logs.
    browser.events.retain(|(method, _)| method != "Log.entryAdded");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn deleted_hpa_and_lost_api_server_keep_the_last_view() {
    let world = recorded("gone").await;
    let mut browser = world.open("gone", 1280, 900).await;
    open(&mut browser).await;
    click(&mut browser, "details.card > summary").await;
    world.cluster.faults().add(FaultRule::new(FaultAction::Close));
    fill(&mut browser, "max", "20").await;
    click(&mut browser, ".whatif [type=submit]").await;
    wait(&mut browser, "!document.querySelector('#whatif-error').hidden").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .s-desired').length > 0").await, true);
    world.cluster.faults().clear();
    // The watch continues, but the page cannot read the explanation of the changed HPA.
    for verb in ["get", "list"] {
        world.cluster.faults().add(FaultRule::new(FaultAction::Close).verb(verb));
    }
    let mut changed = web();
    changed["status"]["currentReplicas"] = 11.into();
    world.cluster.put_raw(changed);
    wait(&mut browser, "document.querySelector('.one > .failure')?.textContent.length > 0").await;
    for kept in
        [".facts dl", ".answer .sentence", ".answer .timeline .s-desired", ".answer .whatif", ".rest details"]
    {
        let count = format!("document.querySelectorAll({kept:?}).length > 0");
        assert_eq!(browser.evaluate(&count).await, true, "{kept}");
    }
    world.cluster.faults().clear();
    world.cluster.delete("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    wait(&mut browser, "document.querySelector('.gone') !== null").await;
    click(&mut browser, ".whatif [type=submit]").await;
    wait(&mut browser, "document.querySelector('#whatif-error').textContent.includes('not found')").await;
    assert_eq!(browser.evaluate("document.querySelector('.whatif [name=max]').value").await, "20");
    assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .s-desired').length > 0").await, true);
    browser.events.retain(|(method, _)| method != "Log.entryAdded");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn hostile_texts_of_forty_metrics_are_texts_in_every_part() {
    let evil = "<img src=x onerror=alert(1)>\u{202e}txet</script>";
    let name = "a".repeat(253);
    let mut hostile = hpa("shop", &name, &json!([condition("AbleToScale", "False", evil)]));
    hostile["metadata"]["uid"] = "u-evil".into();
    hostile["metadata"]["annotations"] = json!({"concertina.dev/policy": format!("mode: \"{evil}\"\n")});
    hostile["spec"]["scaleTargetRef"]["name"] = evil.into();
    let metrics = (0..40).map(|index| json!({"type": "Pods", "pods": {
        "metric": {"name": format!("{evil}{index}")}, "target": {"type": "AverageValue", "averageValue": "1"}}}));
    hostile["spec"]["metrics"] = metrics.collect();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "shop", "name": "e"},
        "involvedObject": {"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": name, "uid": "u-evil"},
        "reason": evil, "message": evil, "type": "Warning", "count": 1, "source": {"component": evil},
        "firstTimestamp": now(), "lastTimestamp": now(),
    });
    let world = World::start("hostile-parts", [hostile, event]).await;
    for width in [1280, 360] {
        let mut browser = world.open(&format!("hostile-parts-{width}"), width, 800).await;
        open(&mut browser).await;
        browser.evaluate("for (const it of document.querySelectorAll('details')) it.open = true").await;
        assert_eq!(browser.evaluate("document.querySelectorAll('.whatif [name^=metric]').length").await, 40);
        assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .panel').length <= 7").await, true);
        browser.evaluate("document.querySelector('.timeline .course').focus()").await;
        browser.press("End").await;
        click(&mut browser, ".whatif [type=submit]").await;
        wait(&mut browser, SIMULATED).await;
        assert_eq!(browser.evaluate("document.querySelectorAll('img, .one script').length").await, 0);
        let text = browser.evaluate("document.body.textContent").await;
        assert!(!text.as_str().unwrap().contains('\u{202e}'), "{text}");
        let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(wider).await, 0, "{width}");
        let one = "document.querySelector('.one').scrollWidth - document.querySelector('.one').clientWidth";
        assert_eq!(browser.evaluate(one).await, 0, "{width}");
        browser.events.retain(|(method, _)| method != "Log.entryAdded");
        assert_quiet(&browser, &world);
        browser.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn timeline_without_record_has_what_the_command_has_seen() {
    let world = World::start("seen", [deployment("web", 4), hpa("shop", "web", &fine())]).await;
    let mut browser = world.open("seen", 1280, 900).await;
    let mut changed = hpa("shop", "web", &fine());
    changed["status"]["desiredReplicas"] = 6.into();
    world.cluster.put_raw(changed);
    wait(&mut browser, "document.querySelector('.rows .number').textContent.includes('6')").await;
    open(&mut browser).await;
    browser.evaluate("document.querySelector('.timeline .course').focus()").await;
    browser.press("End").await;
    let moment = browser.evaluate(MOMENT).await;
    let moment = moment.as_str().unwrap();
    assert!(moment.contains("desired 6") && moment.contains("cpu 60 %"), "{moment}");
    assert_eq!(browser.evaluate("document.querySelectorAll('.timeline .s-up').length > 0").await, true);
    let source = browser.evaluate("document.querySelector('.answer section .advice').textContent").await;
    assert!(source.as_str().unwrap().contains("this command and events have seen"), "{source}");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

/// Writes pictures of the views to the folder that `PICTURES` names, by default the folder for temporary files.
#[tokio::test]
#[ignore = "writes pictures for a person to look at"]
async fn pictures() {
    let folder = std::env::var("PICTURES").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let folder = Path::new(&folder);
    let world = recorded("pictures").await;
    for (name, width, scheme) in [("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 390, "light")]
    {
        let mut browser = world.open(&format!("pictures-{name}"), width, 980).await;
        browser.emulate("screen", scheme).await;
        wait(&mut browser, "document.querySelector('.rows .reason')?.textContent.includes('maxReplicas')")
            .await;
        picture(&mut browser, folder, &format!("console-list-{name}")).await;
        open(&mut browser).await;
        click_at(&mut browser, ten_past_three()).await;
        picture(&mut browser, folder, &format!("console-timeline-{name}")).await;
        browser.evaluate("document.querySelector('.timeline .course').focus()").await;
        browser.press("Escape").await;
        click(&mut browser, "details.card > summary").await;
        fill(&mut browser, "downWindow", "60").await;
        fill(&mut browser, "max", "20").await;
        browser.evaluate("document.querySelector('details.card').scrollIntoView()").await;
        picture(&mut browser, folder, &format!("console-form-{name}")).await;
        click(&mut browser, ".whatif [type=submit]").await;
        simulated(&mut browser).await;
        browser.evaluate("document.querySelector('.actions').scrollIntoView()").await;
        picture(&mut browser, folder, &format!("console-whatif-{name}")).await;
        browser.evaluate("{ const it = [...document.querySelectorAll('.rest details')].at(-1); it.open = true; it.scrollIntoView(); null }").await;
        picture(&mut browser, folder, &format!("console-yaml-{name}")).await;
        browser.stop().await;
    }
}

pub(crate) async fn picture(browser: &mut Browser, folder: &Path, name: &str) {
    use base64::Engine as _;
    let answer = browser.call("Page.captureScreenshot", json!({"format": "png"})).await;
    let bytes = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
    std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
}
