//! Generated services: their past under an HPA, and what is advised from it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod command;
mod keda;
mod rates;
mod record;
mod refusals;
#[expect(dead_code, reason = "some functions are for the bench")]
#[path = "../../../../tests/support/services.rs"]
mod services;

use std::path::PathBuf;

use serde_json::{Value, json};
use terminal::options::parsed;

use self::services::{Past, Service};
use super::objects::Hpa;
use super::recording::{Column, DAY, Recording};
use super::report::Row;
use super::{Advice, evaluate};

pub(super) const PAST: Past =
    Past { target: 50, min: 2, max: 50, start: (60.0, 120.0), request: 0.5, days: 4 };

pub(super) fn hpa(past: Past) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": past.min, "maxReplicas": past.max,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": past.target}}}],
        },
    })
}

/// A folder that is removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-advise-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A VerticalPodAutoscaler of the target, whose spec has more fields.
pub(super) fn vpa(name: &str, mut spec: Value) -> Value {
    spec["targetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": name}, "spec": spec,
    })
}

/// A load that rises from 3 pods at night to 11 by day, with noise of 10 %.
pub(super) fn daily(minute: usize) -> f64 {
    let day = (minute % DAY) as f64 / DAY as f64;
    let noise = (minute.wrapping_mul(7919) % 1000) as f64 / 1000.0;
    (7.0 - 4.0 * (day * std::f64::consts::TAU).cos()) * (0.95 + 0.1 * noise)
}

/// The recorded past of a service.
pub(super) fn record(past: Past, service: Service, load: impl Fn(usize) -> f64) -> Recording {
    services::record(past, service, "2026-11-02T00:00:00Z".parse().unwrap(), load)
}

pub(super) fn row(hpa: &Value, recording: &Recording) -> Row {
    let Advice { row, .. } = evaluate(&Hpa::new(hpa), Some(recording), false).unwrap();
    row
}

/// Returns the row of a service with the settings of the past.
fn advised(past: Past, service: Service, load: impl Fn(usize) -> f64) -> Row {
    row(&hpa(past), &record(past, service, load))
}

#[test]
fn services_that_follow_their_load_save_what_is_predicted() {
    // A night with more pods than needed, and a target that a slow load never needs.
    let past = Past { min: 10, ..PAST };
    for service in [Service::Linear, Service::WarmUp] {
        let row = advised(past, service, daily);
        let advice = row.advice.unwrap_or_else(|| panic!("{service:?}: {:?}", row.why));
        let (fitted, judged) = (advice.advised.fitted, advice.advised.judged);
        assert!(advice.advised.settings.min_replicas < 10, "{service:?}: {advice:?}");
        assert!(judged.saved_share() > 0.05, "{service:?}: {advice:?}");
        assert!((judged.saved() / fitted.saved() - 1.0).abs() < 0.1, "{service:?}: {advice:?}");
        assert!(judged.advised.unserved_ppm <= 1.02 * judged.today.unserved_ppm + 5.0, "{service:?}");
    }
}

#[test]
fn target_in_cores_is_advised_like_one_in_percent() {
    let past = Past { min: 10, ..PAST };
    let mut recording = record(past, Service::Linear, daily);
    let percent = row(&hpa(past), &recording).advice.unwrap();
    let mut in_cores = hpa(past);
    in_cores["spec"]["metrics"][0]["resource"]["target"] =
        json!({"type": "AverageValue", "averageValue": "250m"});
    (0..4 * DAY).for_each(|minute| recording.set(Column::Target, minute, 0.25));
    let row = row(&in_cores, &recording);
    assert_eq!(row.advice.as_ref(), Some(&percent), "{:?}", row.why);
    let document = serde_json::to_value(&row).unwrap();
    let milli = format!("{}m", 5 * percent.advised.settings.target);
    assert_eq!(document["averageValue"], json!({"today": "250m", "advised": milli}));
    assert_eq!(document["today"]["target"], 50);
}

#[test]
fn io_bound_service_is_refused() {
    let row = advised(Past { min: 10, ..PAST }, Service::IoBound, daily);
    assert!(row.advice.is_none(), "{:?}", row.advice);
    let why = row.why.unwrap();
    assert!(why.starts_with("its pods were never used near the target of "), "{why}");
}

#[test]
fn shortage_is_avoided_for_a_price() {
    // The load doubles at nine within a minute.
    let steps = |minute: usize| if (9 * 60..17 * 60).contains(&(minute % DAY)) { 14.0 } else { 5.0 };
    let row = advised(Past { target: 80, ..PAST }, Service::Saturating, steps);
    let advice = row.advice.unwrap_or_else(|| panic!("{:?}", row.why));
    let judged = advice.advised.judged;
    assert!(advice.is_short && judged.saved() < 0.0, "{advice:?}");
    assert!(judged.advised.unserved_ppm < 0.7 * judged.today.unserved_ppm, "{advice:?}");
}

#[test]
fn slow_start_is_learned_from_rescales() {
    let recording = record(PAST, Service::SlowStart, daily);
    let load = recording.load().unwrap();
    assert!(load.pod_start.0 >= 400.0 && load.pod_start.1 <= 600.0, "{:?}", load.pod_start);
    let usual = record(PAST, Service::Linear, |_| 5.0).load().unwrap();
    assert_eq!((usual.pod_start, usual.capacity), ((60.0, 180.0), 1.0));
}

#[test]
fn pods_without_limit_have_the_capacity_that_was_seen() {
    // With a target of 130 %, the pods use up to 1.4 of their requests.
    let mut recording = record(PAST, Service::Linear, daily);
    for minute in 0..recording.minutes {
        let used = recording.at(Column::Usage, minute).unwrap();
        recording.set(Column::Usage, minute, used * 2.6);
    }
    let load = recording.load().unwrap();
    assert!((1.25..=2.0).contains(&load.capacity), "{}", load.capacity);
    let highest = load.series.loads.iter().flatten().copied().fold(0.0, f64::max);
    assert!((15.0..25.0).contains(&highest), "{highest}");
}
