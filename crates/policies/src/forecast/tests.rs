use serde_json::json;

use super::*;
use crate::spec::{Level, parse};

fn spec(text: &str) -> Arc<ForecastSpec> {
    let parsed = parse(&format!("forecast: {{{text}}}"), Level::Annotation);
    assert_eq!(parsed.problems, []);
    parsed.spec.forecast.unwrap()
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).unwrap()
}

/// The first minute of a Monday.
const MONDAY: i64 = 1_781_481_600 / 60;

fn sample(load: Option<f64>) -> Sample {
    Sample { load, saturated: false, asked: 4, max: 100, start_minutes: Some(3) }
}

/// Feeds the forecast four syncs of each minute, with 20 pods of load from nine to ten past nine.
fn learn(forecast: &mut Forecast, uid: &str, spec: &Arc<ForecastSpec>, minutes: std::ops::Range<i64>) {
    for minute in minutes {
        let load = if (540..550).contains(&minute.rem_euclid(1440)) { 20.0 } else { 2.0 };
        for second in [0, 15, 30, 45] {
            let now = Timestamp::from_second(minute * 60 + second).unwrap();
            let _ = forecast.report(uid, spec, now);
            let load = if second == 15 { load } else { load / 2.0 };
            let _ = forecast.observe(uid, &sample(Some(load)), now);
        }
    }
}

/// Six days, until three minutes before the peak.
fn learned(spec: &Arc<ForecastSpec>) -> (Forecast, Timestamp) {
    let mut forecast = Forecast::new("a");
    let end = MONDAY + 6 * 1440 + 537;
    learn(&mut forecast, "a", spec, MONDAY..end);
    (forecast, at(end))
}

#[test]
fn floor_comes_before_the_load_of_earlier_days() {
    let spec = spec("mode: Floor, horizonSeconds: 180, budget: 20%");
    let (mut forecast, now) = learned(&spec);
    let report = forecast.report("a", &spec, now);
    assert_eq!((report.floor, report.applies, report.state), (Some(23), true, ForecastState::Pays));
    assert_eq!(
        report.to_string(),
        "the forecast sets a floor from the load of similar days at their 50 % quantile and the rise of the last minutes"
    );
    assert!(report.reason.starts_with("23: at this time similar days peaked at 20.4"), "{}", report.reason);
    assert_eq!(report.band.map(|band| band.usual), Some(21), "20.4 pods at full capacity");
    let benefit = report.benefit.unwrap();
    assert!(benefit.avoided > 0 && benefit.avoided <= benefit.short, "{benefit:?}");
    assert!((1..200).contains(&benefit.added_permille), "{benefit:?}");
    assert!(Arc::ptr_eq(&report, &forecast.report("a", &spec, now)), "one report for each minute");
    let limited = Arc::new(ForecastSpec { highest: Some(9), ..(*spec).clone() });
    assert_eq!(forecast.report("a", &limited, now).floor, Some(9));
}

#[test]
fn floor_applies_only_in_its_mode_and_within_the_bounds() {
    let [floor, preview] = ["Floor", "Preview"].map(|mode| spec(&format!("mode: {mode}, budget: 20%")));
    let (mut forecast, now) = learned(&floor);
    let report = forecast.report("a", &floor, now);
    let applied = |path, current, count, max| {
        let (count, step) = report.apply(path, current, count, max);
        (count, step.map(|step| step.raises()))
    };
    let metrics = DecisionPath::Metrics;
    assert_eq!(applied(metrics, 4, Some(5), 100), (Some(23), Some(true)));
    assert_eq!(applied(metrics, 4, Some(30), 100), (Some(30), Some(false)), "the metrics ask for more");
    assert_eq!(applied(metrics, 4, Some(5), 12), (Some(12), Some(true)), "never above maxReplicas");
    assert_eq!(applied(metrics, 4, None, 100), (Some(23), Some(true)), "the metrics fail");
    assert_eq!(applied(metrics, 30, None, 100), (None, Some(false)));
    assert_eq!(applied(metrics, 0, Some(1), 100), (Some(1), None), "scaled to zero");
    for path in [DecisionPath::Ambiguous, DecisionPath::Disabled, DecisionPath::AboveMax] {
        assert_eq!(applied(path, 4, Some(5), 100), (Some(5), None));
    }
    let shown = forecast.report("a", &preview, now);
    assert_eq!((shown.floor, shown.is_preview()), (Some(23), true));
    assert!(shown.would_raise(Some(22)) && !shown.would_raise(Some(23)) && !report.would_raise(Some(22)));
    assert_eq!(shown.apply(metrics, 4, Some(5), 100), (Some(5), None));
}

#[test]
fn history_belongs_to_a_uid() {
    let spec = spec("mode: Floor, budget: 20%");
    let (mut forecast, now) = learned(&spec);
    let stored = forecast.state.encode();
    assert!(Forecast::restore(&stored, "a").is_ok());
    assert_eq!(Forecast::restore(&stored, "b").unwrap_err(), StoredError::OtherUid);
    let _ = forecast.observe("b", &sample(Some(2.0)), now);
    let later = now.checked_add(jiff::SignedDuration::from_mins(1)).unwrap();
    let report = forecast.report("b", &spec, later);
    assert_eq!((report.floor, report.state), (None, ForecastState::ShortHistory));
    assert_eq!(report.benefit, None);
}

#[test]
fn restored_forecast_continues_after_a_minute() {
    let spec = spec("mode: Floor, horizonSeconds: 180, budget: 20%");
    let (forecast, now) = learned(&spec);
    let minute = minute_of(now);
    let mut restored = Forecast::restore(&forecast.state.encode(), "a").unwrap();
    assert_eq!(restored.report("a", &spec, now).state, ForecastState::Unknown);
    learn(&mut restored, "a", &spec, minute..minute + 1);
    assert_eq!(restored.report("a", &spec, at(minute + 1)).floor, Some(23));
}

#[test]
fn minutes_between_syncs_are_gaps() {
    let spec = spec("minimumHistory: 1d");
    let mut forecast = Forecast::new("a");
    // A sync in every fifth minute.
    for minute in (MONDAY..MONDAY + 4 * 1440).step_by(5) {
        let report = forecast.report("a", &spec, at(minute));
        assert_eq!(report.state == ForecastState::Unknown, minute == MONDAY, "{minute}");
        let _ = forecast.observe("a", &sample(Some(2.0)), at(minute));
    }
    // The clock is set back.
    assert_eq!(forecast.report("a", &spec, at(MONDAY)).state, ForecastState::Unknown);
}

#[test]
fn state_is_stored_once_in_an_hour() {
    let spec = spec("");
    let mut forecast = Forecast::new("a");
    let stored: Vec<i64> = (MONDAY..MONDAY + 180)
        .filter(|minute| {
            let _ = forecast.report("a", &spec, at(*minute));
            forecast.observe("a", &sample(Some(2.0)), at(*minute)).is_some()
        })
        .collect();
    assert!(stored.len() == 3 && stored.windows(2).all(|pair| pair[1] - pair[0] == 60), "{stored:?}");
}

fn reading(target: &serde_json::Value, value: &serde_json::Value) -> MetricReading {
    serde_json::from_value(json!({
        "subject": {"type": "Resource", "name": "cpu"}, "name": "cpu", "target": target, "value": value,
        "ratio": 1.0, "lowestTolerated": 0.9, "highestTolerated": 1.1, "corrected": null, "why": "ratio",
        "proposal": 3,
    }))
    .unwrap()
}

#[test]
fn load_is_in_pods_at_full_capacity() {
    let pods = |groups: &[PodGroup]| {
        let pod = |group: &PodGroup| json!({"name": "a", "group": group, "sample": 1, "request": 1});
        serde_json::from_value(groups.iter().map(pod).collect()).unwrap()
    };
    let percent = |target: i32, value: i32| MetricReading {
        pods: pods(&[PodGroup::Ready, PodGroup::Ready, PodGroup::Missing]),
        ..reading(&json!({"percent": target}), &json!({"percent": value}))
    };
    // The pod without a sample does not count.
    assert_eq!(load(&percent(60, 90), 3, 1.5), Some((1.8, false)));
    assert_eq!(load(&percent(60, 98), 3, 1.5), Some((1.96, true)));
    assert_eq!(load(&percent(95, 98), 3, 1.5), Some((1.96, false)), "such a pod is at its target");
    let per_pod = |total: Option<i64>, value: i64| MetricReading {
        total,
        ..reading(&json!({"milliPerPod": 10_000}), &json!({"milliPerPod": value}))
    };
    assert_eq!(load(&per_pod(None, 12_000), 4, 1.5), Some((3.2, false)));
    assert_eq!(load(&per_pod(Some(60_000), 15_000), 4, 1.5), Some((4.0, true)));
    let single = MetricReading {
        ready_pods: Some(6),
        ..reading(&json!({"milli": 100_000}), &json!({"milli": 50_000}))
    };
    assert_eq!(load(&single, 4, 1.5), Some((2.0, false)));
    assert_eq!(load(&reading(&json!({"milli": 0}), &json!({"milli": 5})), 4, 1.5), None);
}

#[test]
fn horizon_is_the_start_of_most_pods() {
    use autoscaling::pod::{LabelSet, Phase, PodRequests, ReadyCondition};
    let pod = |seconds: i64| Pod {
        name: "a".into(),
        labels: Arc::new(LabelSet::default()),
        requests: Arc::new(PodRequests::default()),
        phase: Phase::Running,
        terminating: false,
        ready: Some(ReadyCondition {
            status: ConditionStatus::True,
            since: Some(Timestamp::from_second(seconds).unwrap()),
        }),
        start_time: Some(Timestamp::UNIX_EPOCH),
    };
    let minutes = |seconds: &[i64]| start_minutes(&seconds.iter().map(|it| pod(*it)).collect::<Vec<_>>());
    assert_eq!(minutes(&[]), None);
    assert_eq!(minutes(&[5]), Some(1));
    // One of ten is slow, and a pod that was restarted after a day does not count.
    assert_eq!(minutes(&[70, 70, 70, 70, 70, 70, 70, 70, 70, 400, 86_400]), Some(2));
    assert_eq!(minutes(&[70, 400]), Some(7));
}
