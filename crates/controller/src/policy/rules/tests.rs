use autoscaling::pod::{LabelSet, PodRequests};
use proptest::prelude::*;
use serde_json::json;

use super::super::spec::Amount;
use super::*;

fn merged(policy: &str) -> Arc<Merged> {
    let parsed = Arc::new(Parsed::from_annotation(policy));
    assert_eq!(parsed.problems, [], "{policy}");
    Arc::new(Merged::new(Some(&parsed), &[]))
}

fn hpa(min: Option<i32>, max: i32) -> Arc<autoscaling::spec::Spec> {
    let spec = json!({"minReplicas": min, "maxReplicas": max});
    Arc::new(serde_json::from_value(spec).unwrap())
}

fn resolved(policy: &str, min: i32, max: i32, now: &str) -> Resolved {
    merged(policy).resolve(&hpa(Some(min), max), &Settings::default(), now.parse().unwrap())
}

fn pod(phase: Phase, terminating: bool) -> Arc<Pod> {
    Arc::new(Pod {
        name: "web".into(),
        labels: Arc::new(LabelSet::default()),
        requests: Arc::new(PodRequests::default()),
        phase,
        terminating,
        ready: None,
        start_time: None,
    })
}

#[test]
fn percentage_of_pods_is_rounded_up() {
    for (percent, replicas, pods) in
        [(20, 10, 2), (20, 11, 3), (20, 1, 1), (20, 0, 0), (0, 10, 0), (100, 7, 7), (250, 2, 5), (1, -3, 0)]
    {
        assert_eq!(Amount::Percent(percent).of(replicas), pods, "{percent} % of {replicas}");
    }
    assert_eq!(Amount::Percent(i32::MAX).of(i32::MAX), i32::MAX);
    for text in ["20 %", "-1", "1.5", "", "%", "a"] {
        assert!(Amount::try_from(json!(text)).is_err(), "{text}");
    }
    assert_eq!(Amount::try_from(json!(5)).unwrap(), Amount::Pods(5));
    assert_eq!(Amount::try_from(json!("5")).unwrap(), Amount::Pods(5));
}

#[test]
fn bounds_of_schedules_stay_within_those_of_the_hpa() {
    let once =
        |bounds: &str| format!("{{name: a, from: 2030-01-01T00:00:00Z, to: 2030-01-02T00:00:00Z, {bounds}}}");
    for (schedules, bounds) in [
        (vec![once("minReplicas: 5")], (5, 10)),
        (vec![once("minReplicas: 50")], (10, 10)),
        (vec![once("maxReplicas: 1")], (2, 2)),
        (vec![once("minReplicas: 1")], (2, 10)),
        (vec![once("minReplicas: 5"), once("minReplicas: 4")], (5, 10)),
        (vec![once("maxReplicas: 5"), once("maxReplicas: 4")], (2, 4)),
        // A ceiling comes before a floor.
        (vec![once("minReplicas: 8"), once("maxReplicas: 4")], (4, 4)),
    ] {
        let policy = format!("schedules: [{}]", schedules.join(", "));
        let rules = resolved(&policy, 2, 10, "2030-01-01T12:00:00Z");
        assert_eq!(
            (rules.spec.min_replicas, rules.spec.max_replicas),
            (Some(bounds.0), bounds.1),
            "{policy}"
        );
        assert_eq!(rules.next_edge, Some("2030-01-02T00:00:00Z".parse().unwrap()));
        for (now, edge) in
            [("2029-12-31T23:59:59Z", Some("2030-01-01T00:00:00Z")), ("2030-01-02T00:00:00Z", None)]
        {
            let rules = resolved(&policy, 2, 10, now);
            assert_eq!((rules.spec.min_replicas, rules.spec.max_replicas), (Some(2), 10), "{now}");
            assert_eq!(rules.next_edge, edge.map(|edge| edge.parse().unwrap()), "{now}");
        }
    }
}

#[test]
fn bounds_of_an_invalid_hpa_are_not_touched() {
    let policy =
        "schedules: [{name: a, from: 2030-01-01T00:00:00Z, to: 2030-01-02T00:00:00Z, minReplicas: 5}]";
    let rules = resolved(policy, 12, 10, "2030-01-01T12:00:00Z");
    assert_eq!((rules.spec.min_replicas, rules.spec.max_replicas), (Some(12), 10));
}

#[test]
fn mode_ends_at_its_time() {
    for (now, mode) in [
        ("2030-01-01T00:00:00Z", Some(Mode::Paused)),
        ("2030-01-01T11:59:59.999999999Z", Some(Mode::Paused)),
        ("2030-01-01T12:00:00Z", Some(Mode::Auto)),
        ("2031-01-01T00:00:00Z", Some(Mode::Auto)),
    ] {
        let rules = resolved("{mode: Paused, until: 2030-01-01T12:00:00Z}", 1, 10, now);
        assert_eq!(rules.mode, mode, "{now}");
        assert_eq!(rules.next_edge.is_some(), mode == Some(Mode::Paused), "{now}");
    }
}

#[test]
fn pending_pods_prevent_scale_ups_only() {
    let pods: Vec<_> =
        [(Phase::Pending, false), (Phase::Pending, false), (Phase::Pending, true), (Phase::Running, false)]
            .map(|(phase, terminating)| pod(phase, terminating))
            .into();
    for (maximum, wanted, expected) in
        [("1", 8, 4), ("2", 8, 8), ("20%", 8, 4), ("50%", 8, 8), ("0", 2, 2), ("0", 4, 4)]
    {
        let policy = format!("guards: {{pendingPods: {{maximum: {maximum}}}}}");
        let rules = resolved(&policy, 1, 10, "2030-01-01T00:00:00Z");
        assert_eq!(rules.guarded(4, wanted, &pods, &mut Vec::new()), expected, "{maximum}: {wanted}");
    }
}

#[test]
fn fields_of_the_first_source_win() {
    let object = |text: &str| Arc::new(Parsed::from_annotation(text));
    let mut merged = Merged::new(Some(&object("{mode: Paused, tolerance: 0.5}")), &[]);
    merged.add(&object("{mode: Pinned, replicas: 3, tolerance: 0.2, syncPeriodSeconds: 5}"), &"policy");
    assert_eq!(merged.spec.mode.as_ref().unwrap().mode, Some(Mode::Paused));
    assert_eq!(merged.spec.mode.as_ref().unwrap().replicas, None);
    assert_eq!((merged.spec.tolerance, merged.spec.sync_period_seconds), (Some(0.5), Some(5)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn guard_never_changes_the_direction(
        current in 0..200_i32,
        wanted in 0..200_i32,
        up in 0..300_i32,
        down in 0..300_i32,
        pods in 1..50_u16,
        pending in 0..5_usize,
    ) {
        let policy = format!(
            "guards: {{pendingPods: {{maximum: 2}}, maxStep: {{up: {up}%, down: {down}%, maximumPodsUp: {pods}, \
             maximumPodsDown: {pods}}}}}"
        );
        let rules = resolved(&policy, 0, 1000, "2030-01-01T00:00:00Z");
        let waiting = vec![pod(Phase::Pending, false); pending];
        let count = rules.guarded(current, wanted, &waiting, &mut Vec::new());
        prop_assert!(count >= current.min(wanted) && count <= current.max(wanted), "{current} {wanted} {count}");
    }
}
