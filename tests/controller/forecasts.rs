//! Floors of forecasts, from a history of six days that a checkpoint left.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use policies::forecast::{Forecast, Sample};
use policies::spec::{Level, parse};
use serde_json::json;

use crate::policies::{active, annotated};
use crate::support::objects::{HPAS, SHOP, external, hpa};
use crate::support::{Fixture, Harness};

/// The start of the test.
pub(crate) const START: &str = "2030-01-01T00:00:00Z";

/// A policy with a forecast whose pods take three minutes to start.
fn policy(mode: &str) -> String {
    format!("forecast: {{mode: {mode}, horizonSeconds: 180, budget: 20%}}")
}

/// Returns six days of a load of two pods, which rises to 20 pods from ten to twenty past midnight.
pub(crate) fn history(uid: &str) -> Vec<u8> {
    let spec = parse(&policy("Floor"), Level::Annotation).spec.forecast.unwrap();
    let (start, mut forecast) = (START.parse::<Timestamp>().unwrap(), Forecast::new(uid));
    let mut stored = None;
    for minute in -6 * 1440..0 {
        let now = start + SignedDuration::from_mins(minute);
        let load = if (10..20).contains(&minute.rem_euclid(1440)) { 20.0 } else { 2.0 };
        let sample = Sample { load: Some(load), saturated: false, asked: 3, max: 10, start_minutes: None };
        let _ = forecast.report(uid, &spec, now);
        stored = forecast.observe(uid, &sample, now).or(stored);
    }
    stored.unwrap()
}

/// Starts a controller with an HPA `web` of at most ten pods, with its history.
fn start(policy: &str) -> Harness {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.external("queue", "30");
    let mut web = annotated(hpa("web", &[external("queue", "10")]), policy);
    // A scale-up is not limited, so that one sync can reach every count.
    web["spec"]["behavior"] =
        json!({"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}});
    stage.create(web);
    let rig = Harness::start(stage);
    let uid: Arc<str> = rig.hpa("web")["metadata"]["uid"].as_str().unwrap().into();
    let stored = history(&uid).into();
    rig.assembly.controller.stores.histories.commit_forecast(&uid, Some(stored));
    rig
}

#[tokio::test(start_paused = true)]
async fn floor_has_pods_ready_before_the_load() {
    let rig = start(&policy("Floor"));
    rig.pass(6.0 * 60.0).await;
    assert_eq!(rig.replicas("web"), 3);
    rig.until("the floor", 90.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    let condition = active(&rig);
    assert!(condition.starts_with("True ForecastFloor the forecast sets a floor from "), "{condition}");
    assert_eq!(rig.series(r#"concertina_forecast_floor{mode="Floor",name="web",namespace="shop"}"#), 8.0);
    let events = rig.events("web");
    let floors = events.iter().filter(|event| event.starts_with("ForecastFloor ")).count();
    assert_eq!(floors, 1, "{events:?}");
    // 80 % of maxReplicas, although the load needs 23 pods.
    rig.pass(120.0).await;
    assert_eq!(rig.replicas("web"), 8);
}

#[tokio::test(start_paused = true)]
async fn preview_shows_the_floor_and_changes_nothing() {
    let rig = start(&policy("Preview"));
    rig.pass(8.0 * 60.0).await;
    assert_eq!(rig.replicas("web"), 3);
    let condition = active(&rig);
    assert!(
        condition.starts_with(
            "False ForecastPreview the scaling policy changes nothing at the moment; preview: the forecast \
             would set a floor from "
        ),
        "{condition}"
    );
    assert_eq!(rig.series(r#"concertina_forecast_floor{mode="Preview",name="web",namespace="shop"}"#), 8.0);
    assert!(!rig.telemetry.render().contains("concertina_policy_active{"));
    let previews = |rig: &Harness| {
        rig.events("web").iter().filter(|event| event.starts_with("ForecastPreview ")).count()
    };
    assert_eq!(previews(&rig), 1);
    // The end of the field ends the forecast.
    rig.edit("web", |hpa| hpa["metadata"]["annotations"] = json!({}));
    rig.pass(60.0).await;
    assert_eq!((active(&rig), previews(&rig)), (String::new(), 1));
    assert!(!rig.telemetry.render().contains("concertina_forecast_floor{"));
}

#[tokio::test(start_paused = true)]
async fn metrics_decide_in_the_sync_in_which_a_floor_rises() {
    let rig = start(&policy("Floor"));
    let before = |stage: &Fixture| stage.syncs("web").last().is_some_and(|at| at.as_secs() >= 6 * 60 + 45);
    rig.until("the last sync before the floor", 420.0, before).await;
    assert_eq!(rig.replicas("web"), 3);
    rig.external("queue", "100");
    rig.until("a rescale", 20.0, |stage| stage.replicas("web") != 3).await;
    assert_eq!(rig.replicas("web"), 10);
}

#[tokio::test(start_paused = true)]
async fn history_of_another_hpa_is_not_used() {
    let rig = start(&policy("Floor"));
    rig.pass(60.0).await;
    let mut web = rig.hpa("web");
    let old = web["metadata"]["uid"].take();
    rig.cluster.delete(HPAS, SHOP, "web").unwrap();
    rig.pass(1.0).await;
    web["metadata"] =
        json!({"namespace": SHOP, "name": "web", "annotations": web["metadata"]["annotations"]});
    rig.create(web);
    let new = rig.hpa("web")["metadata"]["uid"].clone();
    assert_ne!(old, new);
    // A checkpoint could hold the state of the other HPA under the new UID.
    let stored = history(old.as_str().unwrap()).into();
    let uid: Arc<str> = new.as_str().unwrap().into();
    rig.assembly.controller.stores.histories.commit_forecast(&uid, Some(stored));
    rig.pass(10.0 * 60.0).await;
    assert_eq!(rig.replicas("web"), 3);
    let condition = active(&rig);
    assert!(condition.ends_with("the forecast has no floor: the history is too short"), "{condition}");
}
