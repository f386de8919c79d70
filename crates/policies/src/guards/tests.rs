use std::sync::Arc;

use autoscaling::pod::{ConditionStatus, LabelSet, Phase, Pod, PodRequests, ReadyCondition};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::spec::{Amount, Level, parse};
use crate::{TargetState, ready_pods};

fn guards(text: &str) -> Guards {
    let parsed = parse(&format!("guards: {text}"), Level::Annotation);
    assert_eq!(parsed.problems, [], "{text}");
    parsed.spec.guards
}

fn inputs(current: i32) -> GuardInputs {
    GuardInputs { current, min: 1, max: 100, ..GuardInputs::default() }
}

#[test]
fn scale_up_waits_for_pending_pods() {
    let count = |guard: &str, pending, unschedulable, proposed| {
        let inputs = GuardInputs { pending, unschedulable, ..inputs(10) };
        super::guard(&guards(guard), &inputs, proposed).replicas
    };
    let percent = "{pendingPods: {maximum: 20%}}";
    assert_eq!((count(percent, 2, 0, 20), count(percent, 3, 0, 20)), (20, 10));
    assert_eq!(count(percent, 9, 0, 5), 5, "scale-downs do not wait");
    let unschedulable = "{pendingPods: {maximum: 0, unschedulableOnly: true}}";
    assert_eq!((count(unschedulable, 9, 0, 20), count(unschedulable, 9, 1, 20)), (20, 10));
    let inputs = GuardInputs { pending: 3, ..inputs(10) };
    let steps = super::guard(&guards(percent), &inputs, 20).steps;
    assert_eq!(steps[0].to_string(), "3 pods are pending, more than 2, so the count is 10 instead of 20");
}

#[test]
fn changes_wait_for_a_rollout_in_their_direction() {
    for (guard, up, down) in [
        ("{}", 20, 5),
        ("{rollout: Ignore}", 20, 5),
        ("{rollout: Hold}", 10, 10),
        ("{rollout: HoldScaleUp}", 10, 5),
        ("{rollout: HoldScaleDown}", 20, 10),
    ] {
        let rolling = GuardInputs { rollout: Some(Rollout { updated: 3, total: 12 }), ..inputs(10) };
        let count = |inputs: &GuardInputs, proposed| super::guard(&guards(guard), inputs, proposed).replicas;
        assert_eq!((count(&rolling, 20), count(&rolling, 5), count(&rolling, 10)), (up, down, 10), "{guard}");
        assert_eq!((count(&inputs(10), 20), count(&inputs(10), 5)), (20, 5), "{guard}");
        for step in super::guard(&guards(guard), &rolling, 20).steps {
            let text = "the target rolls out, 3 of 12 pods are updated, so the count is 10 instead of 20";
            assert_eq!(step.to_string(), text);
        }
    }
}

#[test]
fn scale_down_waits_for_metrics_that_dropped_to_zero() {
    let zero = GuardInputs { zero_since: Some(Timestamp::UNIX_EPOCH), ..inputs(10) };
    let hold = guards("{zeroMetrics: Hold}");
    let guarded = super::guard(&hold, &zero, 1);
    let text = "all metrics dropped to 0 at once at 1970-01-01T00:00:00Z, so the count is 10 instead of 1";
    assert_eq!((guarded.replicas, &*guarded.steps[0].to_string()), (10, text));
    assert_eq!(super::guard(&hold, &zero, 12).replicas, 12);
    assert_eq!(super::guard(&hold, &inputs(10), 1).replicas, 1);
    assert_eq!(super::guard(&guards("{zeroMetrics: Ignore}"), &zero, 1).replicas, 1);
}

#[test]
fn largest_step_bounds_the_change_of_one_sync() {
    for (guard, current, proposed, expected) in [
        ("{up: 100%}", 10, 50, 20),
        ("{up: 100%}", 0, 50, 1),
        ("{up: 50%}", 3, 50, 5),
        ("{up: 0%}", 3, 50, 3),
        ("{up: 5}", 10, 50, 15),
        ("{up: 100%, maximumPodsUp: 3}", 10, 50, 13),
        ("{up: 10%, maximumPodsUp: 3}", 10, 50, 11),
        ("{down: 20%}", 10, 1, 8),
        ("{down: 20%}", 3, 1, 2),
        ("{down: 20%}", 1, 1, 1),
        ("{down: 0}", 10, 1, 10),
        ("{maximumPodsDown: 4}", 10, 1, 6),
        ("{up: 100%}", 10, 1, 1),
        ("{down: 20%}", 10, 50, 50),
        ("{up: 4294967295%}", i32::MAX, i32::MAX, i32::MAX),
    ] {
        let guards = guards(&format!("{{maxStep: {guard}}}"));
        let inputs = GuardInputs { min: 0, max: i32::MAX, ..inputs(current) };
        assert_eq!(
            super::guard(&guards, &inputs, proposed).replicas,
            expected,
            "{guard} {current} {proposed}"
        );
    }
    let steps = super::guard(&guards("{maxStep: {up: 1}}"), &inputs(10), 50).steps;
    assert_eq!(steps[0].to_string(), "the largest step from 10 is to 11, not to 50");
}

#[test]
fn guards_do_not_keep_a_count_out_of_bounds() {
    let all =
        guards("{pendingPods: {maximum: 0}, rollout: Hold, zeroMetrics: Hold, maxStep: {up: 1, down: 1}}");
    let blocked = |current, min, max| GuardInputs {
        current,
        min,
        max,
        pending: 9,
        rollout: Some(Rollout { updated: 1, total: 2 }),
        zero_since: Some(Timestamp::UNIX_EPOCH),
        ..GuardInputs::default()
    };
    assert_eq!(super::guard(&all, &blocked(3, 10, 20), 10).replicas, 10);
    assert_eq!(super::guard(&all, &blocked(3, 10, 20), 15).replicas, 10, "the rest waits");
    assert_eq!(super::guard(&all, &blocked(30, 10, 20), 20).replicas, 20);
    assert_eq!(super::guard(&all, &blocked(30, 10, 20), 12).replicas, 20);
    assert_eq!(super::guard(&all, &blocked(3, 20, 10), 9).replicas, 3, "contradictory bounds");
}

#[test]
fn pods_of_other_owners_do_not_count() {
    let pod = |name: &str| {
        Arc::new(Pod {
            name: name.into(),
            labels: Arc::new(LabelSet::default()),
            requests: Arc::new(PodRequests::default()),
            phase: Phase::Running,
            terminating: false,
            ready: None,
            start_time: None,
        })
    };
    let pods = [pod("web-1"), pod("job-1"), pod("new-1")];
    let (counted, step) = owned_pods(&pods, |pod| match &pod.name[..3] {
        "web" => Ownership::Target,
        "job" => Ownership::Other,
        _ => Ownership::Unknown,
    });
    assert_eq!(counted, [Arc::clone(&pods[0]), Arc::clone(&pods[2])]);
    assert_eq!(step.unwrap().to_string(), "1 of 3 pods belong to other owners and do not count");
    assert_eq!(owned_pods(&pods, |_| Ownership::Target), (pods.to_vec(), None));
}

fn amount() -> impl Strategy<Value = Option<Amount>> {
    proptest::option::of(prop_oneof![
        (0..200u32).prop_map(Amount::Percent),
        (0..20u32).prop_map(Amount::Pods)
    ])
}

proptest! {
    #[test]
    fn guard_never_changes_the_direction(
        (current, min, extra, proposed) in (0..60i32, 0..20i32, 0..40i32, 0..60i32),
        (pending, unschedulable, rolling, zero) in (0..20i32, 0..20i32, any::<bool>(), any::<bool>()),
        (up, down, pods_up, maximum) in (amount(), amount(), proptest::option::of(0..20u32), amount()),
        (rollout, hold, only) in (0..4usize, any::<bool>(), any::<bool>()),
    ) {
        let max = min + extra;
        let guards = Guards {
            pending_pods: maximum.map(|maximum| PendingPods { maximum, unschedulable_only: only }),
            rollout: Some([RolloutGuard::Ignore, RolloutGuard::Hold, RolloutGuard::HoldScaleUp, RolloutGuard::HoldScaleDown][rollout]),
            owned_pods_only: None,
            zero_metrics: hold.then_some(ZeroMetrics::Hold),
            max_step: Some(MaxStep { up, down, maximum_pods_up: pods_up, maximum_pods_down: None }),
        };
        let inputs = GuardInputs {
            current, min, max, pending, unschedulable,
            rollout: rolling.then_some(Rollout { updated: 1, total: 2 }),
            zero_since: zero.then_some(Timestamp::UNIX_EPOCH),
        };
        let guarded = super::guard(&guards, &inputs, proposed);
        let range = current.min(proposed)..=current.max(proposed);
        prop_assert!(range.contains(&guarded.replicas), "{} not in {:?}", guarded.replicas, range);
        prop_assert_eq!(guarded.steps.is_empty(), guarded.replicas == proposed);
        if (min..=max).contains(&proposed) && guarded.replicas != proposed {
            let bounds = min.min(current)..=max.max(current);
            prop_assert!(bounds.contains(&guarded.replicas));
            prop_assert!((min..=max).contains(&guarded.replicas), "a count out of bounds is corrected");
        }
        prop_assert_eq!(super::guard(&Guards::default(), &inputs, proposed).replicas, proposed);
    }
}

#[test]
fn rollout_is_in_progress_while_pods_of_two_templates_exist() {
    let some = |updated, total| Some(Rollout { updated, total });
    for (kind, status, expected) in [
        ("Deployment", json!({"replicas": 5, "updatedReplicas": 2}), some(2, 5)),
        ("Deployment", json!({"replicas": 5, "updatedReplicas": 5}), None),
        // During a scale-up, all pods have the new template.
        ("Deployment", json!({"replicas": 6, "updatedReplicas": 6, "observedGeneration": 1}), None),
        ("Deployment", json!({}), None),
        ("Deployment", json!({"replicas": "5", "updatedReplicas": null}), None),
        (
            "StatefulSet",
            json!({"replicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"}),
            some(1, 3),
        ),
        ("StatefulSet", json!({"replicas": 3, "currentRevision": "a", "updateRevision": "a"}), None),
        ("StatefulSet", json!({"replicas": 3, "currentRevision": "a"}), None),
        (
            "Rollout",
            json!({"replicas": 4, "updatedReplicas": 1, "stableRS": "a", "currentPodHash": "b"}),
            some(1, 4),
        ),
        ("Rollout", json!({"replicas": 4, "stableRS": "a", "currentPodHash": "a"}), None),
        ("Rollout", json!({"replicas": 4, "currentPodHash": "a"}), None),
        ("Other", json!({"replicas": 4, "updatedReplicas": 1}), None),
    ] {
        assert_eq!(Rollout::from_object(kind, &json!({"status": status})), expected, "{kind} {status}");
    }
    assert_eq!(Rollout::from_object("Deployment", &json!({})), None);
}

#[test]
fn ready_and_pending_pods_are_counted() {
    let pod = |phase, terminating, status| Pod {
        name: "web-1".into(),
        labels: std::sync::Arc::default(),
        requests: std::sync::Arc::default(),
        phase,
        terminating,
        ready: Some(ReadyCondition { status, since: None }),
        start_time: None,
    };
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let pods = [
        pod(Phase::Running, false, yes),
        pod(Phase::Running, false, yes),
        pod(Phase::Running, false, no),
        pod(Phase::Running, true, yes),
        pod(Phase::Pending, false, yes),
        pod(Phase::Pending, false, no),
        pod(Phase::Pending, true, no),
        Pod { ready: None, ..pod(Phase::Running, false, yes) },
    ];
    assert_eq!(ready_pods(&pods), 2);
    assert_eq!(TargetState::new(&pods), TargetState { pending: 2, ..TargetState::default() });
}
