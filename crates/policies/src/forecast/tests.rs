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

fn hpa(metrics: &serde_json::Value) -> Spec {
    let spec = json!({"minReplicas": 2, "maxReplicas": 30, "metrics": metrics});
    serde_json::from_value(spec).unwrap()
}

fn external(target: &serde_json::Value) -> serde_json::Value {
    json!({"type": "External", "external": {"metric": {"name": "jobs"}, "target": target}})
}

fn cpu(target: &serde_json::Value) -> serde_json::Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn queue() -> Spec {
    hpa(&json!([external(&json!({"type": "AverageValue", "averageValue": "10"}))]))
}

const STABILIZATION: Duration = Duration::from_mins(5);

/// A replay of the load of [`learn`], as totals for a target of 10 per pod.
fn replayed(forecast: &Forecast, uid: &str, spec: &ForecastSpec, minutes: std::ops::Range<i64>) -> Replay {
    let mut replay = forecast.replay(uid, spec, &queue(), STABILIZATION).unwrap();
    let total = |minute: i64| if (540..550).contains(&minute.rem_euclid(1440)) { 300.0 } else { 30.0 };
    replay.learn(&minutes.map(|minute| (at(minute + 1), total(minute))).collect::<Vec<_>>());
    replay
}

#[test]
fn replayed_history_sets_a_floor_at_once() {
    let spec = spec("mode: Floor, horizonSeconds: 180, budget: 20%");
    let mut forecast = Forecast::new("a");
    let end = MONDAY + 6 * 1440 + 537;
    let replay = replayed(&forecast, "a", &spec, MONDAY..end);
    assert!(forecast.is_short(&spec));
    assert_eq!(forecast.report("a", &spec, at(end)).state, ForecastState::Unknown);
    forecast.adopt(replay);
    let report = forecast.report("a", &spec, at(end));
    assert_eq!((report.floor, report.state), (Some(23), ForecastState::Pays), "{}", report.reason);
    assert!(!forecast.is_short(&spec));
    // The next sync stores it.
    let mut forecast = Forecast::new("a");
    assert_eq!(forecast.observe("a", &sample(None), at(end)), None);
    let replay = replayed(&forecast, "a", &spec, MONDAY..end);
    forecast.adopt(replay);
    let stored = forecast.observe("a", &sample(None), at(end)).unwrap();
    assert!(!Forecast::restore(&stored, "a").unwrap().is_short(&spec));
}

#[test]
fn longer_own_history_is_kept() {
    let spec = spec("minimumHistory: 7d");
    let (mut forecast, now) = learned(&spec);
    let before = forecast.state.clone();
    let minute = minute_of(now);
    let shorter = replayed(&forecast, "a", &spec, minute - 3 * 1440..minute);
    forecast.adopt(shorter);
    assert_eq!(forecast.state, before);
    let longer = replayed(&forecast, "a", &spec, minute - 10 * 1440..minute);
    forecast.adopt(longer);
    assert_ne!(forecast.state, before);
}

#[test]
fn replay_of_another_hpa_is_not_adopted() {
    let spec = spec("");
    let mut forecast = Forecast::new("b");
    let replay = replayed(&forecast, "a", &spec, MONDAY..MONDAY + 6 * 1440);
    forecast.adopt(replay);
    assert_eq!(forecast.state, State::new("b"));
}

#[test]
fn hpa_alone_asks_a_minute_late_for_the_highest_count_of_its_window() {
    let spec = spec("");
    let asked = |behavior: &serde_json::Value, totals: &[(i64, f64)]| {
        let mut hpa = queue();
        hpa.behavior =
            serde_json::from_value::<Spec>(json!({"maxReplicas": 1, "behavior": behavior})).unwrap().behavior;
        let mut replay = Forecast::new("a").replay("a", &spec, &hpa, STABILIZATION).unwrap();
        let mut asked = Vec::new();
        for (minute, total) in totals {
            replay.learn(&[(at(MONDAY + minute), *total)]);
            asked.push(replay.asked.unwrap());
        }
        asked
    };
    let peak =
        [(0, 41.0), (1, 95.0), (2, 41.0), (3, 41.0), (4, 41.0), (5, 41.0), (6, 41.0), (7, 41.0), (8, 41.0)];
    assert_eq!(asked(&json!(null), &peak), [5, 5, 10, 10, 10, 10, 10, 10, 5]);
    let none = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    assert_eq!(asked(&none, &peak[..4]), [5, 5, 10, 5]);
    // The bounds of the HPA, and a gap, in which the count does not change.
    assert_eq!(asked(&none, &[(0, 1e9), (1, -5.0), (2, 5.0), (90, 41.0), (91, 1.0)]), [30, 30, 2, 2, 5]);
}

#[test]
fn totals_are_in_the_unit_of_the_first_target_per_pod() {
    let spec = spec("loadPerPod: 200%");
    let load = |metrics: &serde_json::Value, total: f64| {
        let replay = Forecast::new("a").replay("a", &spec, &hpa(metrics), STABILIZATION);
        let mut replay = replay.map_err(|error| error.to_string())?;
        replay.learn(&[(at(MONDAY), total)]);
        let usual = replay.state.outlook(at(MONDAY), &spec.settings).band.unwrap().usual;
        Ok::<_, String>((usual.round(), replay.asked.unwrap()))
    };
    let utilization = cpu(&json!({"type": "Utilization", "averageUtilization": 50}));
    let cores = cpu(&json!({"type": "AverageValue", "averageValue": "500m"}));
    let value = external(&json!({"type": "Value", "value": "10"}));
    let average = external(&json!({"type": "AverageValue", "averageValue": "10"}));
    assert_eq!(load(&json!([utilization, average]), 8.0), Ok((8.0, 16)));
    assert_eq!(load(&json!([cores]), 8.0), Ok((8.0, 16)));
    assert_eq!(load(&json!([value, average, utilization]), 160.0), Ok((8.0, 16)));
    let error = "no metric of the HPA has a target of type Utilization or AverageValue, which the query could be compared with";
    assert_eq!(load(&json!([value]), 8.0), Err(error.to_owned()));
}

#[test]
fn reason_of_a_short_history_shows_the_read() {
    let spec = spec("");
    let mut forecast = Forecast::new("a");
    learn(&mut forecast, "a", &spec, MONDAY..MONDAY + 60);
    let shown = |forecast: &mut Forecast, reading| {
        forecast.set_reading(reading);
        let report = forecast.report("a", &spec, at(MONDAY + 60));
        (report.reason.to_string(), report.to_string())
    };
    let short = "no floor: the history has 0.0 of 3.0 days";
    assert_eq!(shown(&mut forecast, None).0, short);
    let (reason, text) = shown(&mut forecast, Some(HistoryRead::Pending("prometheus \"main\"".to_owned())));
    assert_eq!(reason, format!("{short}; the history from prometheus \"main\" is being read"));
    assert_eq!(text, "the forecast has no floor: the history is too short");
    let failed = HistoryRead::Failed("prometheus \"main\": no connection".to_owned());
    let (reason, text) = shown(&mut forecast, Some(failed.clone()));
    assert_eq!(reason, format!("{short}; history from prometheus \"main\": no connection"));
    assert_eq!(text, "the forecast has no floor: the history is too short, and its source cannot be read");
    let (mut known, now) = learned(&spec);
    known.set_reading(Some(failed));
    let report = known.report("a", &spec, now);
    assert!(!report.reason.contains("history from"), "{}", report.reason);
}
