//! Missing permissions and metrics APIs, a cluster without HPAs, an earlier API server, wrong clocks, and a page
//! without its server.

use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::json;

use super::controller_page::installation;
use super::{NAMES, World, assert_quiet, condition, fine, four, hpa, wait};

fn refused() -> FaultAction {
    FaultAction::Status(Status::new(403, "Forbidden", "the role is missing"))
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn page_without_any_permission_fills_once_it_is_given() {
    let cluster = installation();
    cluster.faults().add(FaultRule::new(refused()));
    let world = World::over("forbidden", cluster, &[]).await;
    let mut browser = super::Browser::start("console-forbidden", 1280, 800).await;
    browser.visit(&world.url).await;
    wait(&mut browser, "!document.getElementById('notice').hidden").await;
    let notice = browser.evaluate("document.getElementById('notice').textContent").await;
    assert!(notice.as_str().unwrap().contains("the role is missing"), "{notice}");
    browser.evaluate("location.hash = '#page=controller'").await;
    wait(&mut browser, "document.querySelectorAll('.controller .advice').length > 0").await;
    let text = browser.evaluate("document.querySelector('.controller').innerText").await;
    let text = text.as_str().unwrap();
    for part in ["you may not get leases.coordination.k8s.io", "A Role with list on pods"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    browser.evaluate("location.hash = '#'").await;
    world.cluster.faults().clear();
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    wait(&mut browser, "document.getElementById('notice').hidden").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn refused_part_is_named_and_the_rest_is_shown() {
    let cluster = installation();
    for path in ["/pods", "/events", "/deployments", "/leases/"] {
        cluster.faults().add(FaultRule::new(refused()).path_contains(path));
    }
    let world = World::over("part", cluster, &[]).await;
    let mut browser = world.open("part", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    browser.evaluate("document.querySelector('.rows a[href*=\"alright\"]').click()").await;
    wait(&mut browser, "document.querySelectorAll('.findings li, .failure').length > 0").await;
    let text = browser.evaluate("document.querySelector('.answer').innerText").await;
    assert!(text.as_str().unwrap().contains("forbidden"), "{text}");
    assert!(text.as_str().unwrap().contains("ReadyForNewScale"), "the conditions are shown: {text}");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn cluster_without_hpas_says_so_and_shows_the_first_one() {
    let world = World::start("none", []).await;
    let mut browser = super::Browser::start("console-none", 1280, 800).await;
    browser.visit(&world.url).await;
    wait(&mut browser, "document.querySelector('.empty')?.textContent === 'The cluster has no HPAs.'").await;
    world.cluster.put_raw(hpa("shop", "first", &fine()));
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 1").await;
    assert_eq!(browser.evaluate(NAMES).await, "first");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn cluster_without_metrics_apis_explains_an_hpa() {
    let world = World::start("metrics", four()).await;
    let text = "the server could not find the requested resource";
    let missing = FaultAction::Status(Status::new(404, "NotFound", text));
    world.cluster.faults().add(FaultRule::new(missing).path_contains("metrics.k8s.io"));
    let mut browser = world.open("metrics", 1280, 800).await;
    browser.evaluate("document.querySelector('.rows a[href*=\"alright\"]').click()").await;
    wait(&mut browser, "document.querySelectorAll('.answer h3, .failure').length > 0").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.failure').length").await, 0);
    assert_quiet(&browser, &world);
    browser.stop().await;
}

/// API servers before 1.34 may not serve streaming lists, and API servers before 1.37 do not set a generation.
#[tokio::test]
#[ignore = "needs Chromium"]
async fn earlier_api_server_without_streaming_lists_is_listed() {
    let cluster = installation();
    let invalid = FaultAction::Status(Status::new(
        422,
        "Invalid",
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    ));
    cluster
        .faults()
        .add(FaultRule::new(invalid).verb("watch").path_contains("/horizontalpodautoscalers").times(1));
    let world = World::over("earlier", cluster, &["--record=off"]).await;
    let mut browser = world.open("earlier", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    assert_eq!(world.cluster.faults().active(), 0, "the server has refused a streaming list");
    world.cluster.put_raw(hpa("shop", "new", &fine()));
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 5").await;
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn clock_ahead_or_behind_shows_no_negative_age() {
    let mut ahead = condition("ScalingActive", "False", "FailedGetResourceMetric");
    ahead["lastTransitionTime"] = "2199-01-01T00:00:00Z".into();
    let mut hpas = four();
    hpas.push(hpa("shop", "future", &json!([ahead])));
    hpas.last_mut().unwrap()["status"]["lastScaleTime"] = "2199-01-01T00:00:00Z".into();
    let world = World::start("clock", hpas).await;
    let mut browser = world.open("clock", 1280, 800).await;
    let age = "[...document.querySelectorAll('.rows .row')].find((row) => row.querySelector('a').textContent === 'future')\
               ?.querySelector('.for').textContent";
    wait(&mut browser, &format!("({age}) === '0 s'")).await;
    browser.evaluate("document.querySelector('.rows a[href*=\"future\"]').click()").await;
    wait(&mut browser, "document.querySelector('.answer h3') !== null").await;
    let text = browser.evaluate("document.querySelector('.facts').innerText").await;
    assert!(text.as_str().unwrap().contains("0 s ago"), "{text}");
    assert_quiet(&browser, &world);
    browser.stop().await;
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn view_stays_when_the_server_of_the_page_is_gone() {
    let mut world = World::start("server", four()).await;
    let mut browser = world.open("server", 1280, 800).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    world.console.start_kill().unwrap();
    world.console.wait().await.unwrap();
    wait(&mut browser, "document.getElementById('notice').textContent.startsWith('The server of this page does not respond')").await;
    assert_eq!(browser.evaluate("document.querySelectorAll('.rows .row').length").await, 4, "the view stays");
    browser.stop().await;
}
