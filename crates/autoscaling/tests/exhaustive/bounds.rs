//! The count lies between minReplicas and maxReplicas for every proposal.

use autoscaling::condition::Limit;
use autoscaling::explanation::DecisionPath;
use autoscaling::history::{History, Recommendation};
use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, ScalingRules, SelectPolicy};

use crate::model::default_limit;
use crate::workload::{NOW, SECOND, WHOLE, Workload, aged, asking_for, count_after, for_each_in_parallel};

fn behavior(up: (SelectPolicy, PolicyKind, i32), down: (SelectPolicy, PolicyKind, i32)) -> Behavior {
    let rules = |(select_policy, kind, value)| ScalingRules {
        stabilization_window_seconds: Some(60),
        select_policy,
        policies: Box::new([ScalingPolicy { kind, value, period_seconds: 60 }]),
        tolerance: None,
    };
    Behavior { scale_up: rules(up), scale_down: rules(down) }
}

/// No behavior, and policies from the tightest to the widest.
fn behaviors() -> Vec<Option<Behavior>> {
    use PolicyKind::{Percent, Pods};
    use SelectPolicy::{Disabled, Max, Min};
    vec![
        None,
        Some(behavior((Max, Pods, 1), (Max, Pods, 1))),
        Some(behavior((Min, Percent, 50), (Min, Percent, 50))),
        Some(behavior((Max, Percent, i32::MAX), (Max, Percent, 100))),
        Some(behavior((Max, Pods, i32::MAX), (Max, Pods, i32::MAX))),
        Some(behavior((Disabled, Pods, 1), (Disabled, Pods, 1))),
    ]
}

/// An empty history, and histories that just recommended the highest count, the lowest count, or both. Such
/// recommendations stabilize the count most strongly.
fn histories() -> Vec<History> {
    let of = |replicas: &[i32]| History {
        recommendations: replicas
            .iter()
            .map(|&replicas| Recommendation { at: aged(SECOND), replicas })
            .collect(),
        ..History::default()
    };
    vec![of(&[]), of(&[i32::MAX]), of(&[0]), of(&[0, i32::MAX])]
}

/// Decides for every current count and proposal, and compares the results with the bounds.
fn check(min: i32, max: i32, currents: &[i32], proposals: &[i64]) -> u64 {
    let mut cases = 0;
    for behavior in behaviors() {
        for &current in currents {
            let mut workload = Workload::asked_directly(min, max, current).scaled_to_zero();
            workload.spec.behavior.clone_from(&behavior);
            for history in histories() {
                let mut previous = i32::MIN;
                for &proposal in proposals {
                    cases += 1;
                    let decision = workload.decide(asking_for(proposal), &history, NOW);
                    let count = count_after(&decision);
                    if min > max {
                        continue; // invalid for an API server; the decision must not panic
                    }
                    let case = || format!("{min}..={max} current {current} proposal {proposal} {behavior:?}");
                    assert!((min..=max).contains(&count), "{count} is outside: {}", case());
                    assert!(count >= previous, "fewer than for a lower proposal: {}", case());
                    previous = count;

                    let explanation = decision.explanation();
                    let path = match current {
                        0 if 0 <= max => DecisionPath::Metrics,
                        _ if current > max => DecisionPath::AboveMax,
                        _ if current < min => DecisionPath::BelowMin,
                        _ => DecisionPath::Metrics,
                    };
                    assert_eq!(explanation.path, path, "{}", case());
                    match path {
                        DecisionPath::AboveMax => assert_eq!(count, max, "{}", case()),
                        DecisionPath::BelowMin => assert_eq!(count, min, "{}", case()),
                        _ => {
                            let limit = explanation.limit.as_ref().unwrap();
                            let lifted = if current == 0 { limit.after.max(min) } else { limit.after };
                            assert_eq!(count, lifted, "{}", case());
                            if behavior.is_none() {
                                let stabilized = explanation.stabilization.as_ref().unwrap().after;
                                assert_eq!(limit.before, stabilized, "{}", case());
                                let expected = default_limit(current, stabilized, min, max);
                                assert_eq!(limit.after, expected, "{}", case());
                                let which = if stabilized < min {
                                    Limit::Minimum
                                } else if stabilized <= expected {
                                    Limit::WithinRange
                                } else if expected < max {
                                    Limit::ScaleUpRate
                                } else {
                                    Limit::Maximum
                                };
                                assert_eq!(limit.limit, which, "{}", case());
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn every_count_lies_within_all_small_bounds() {
    let most = if WHOLE { 12 } else { 5 };
    let bounds: Vec<(i32, i32)> =
        (0..=most / 2).flat_map(|min| (0..=most).map(move |max| (min, max))).collect();
    let currents: Vec<i32> = (-1..=2 * most).collect();
    let proposals: Vec<i64> = (-1..=2 * i64::from(most) + 2).collect();
    let cases = for_each_in_parallel(&bounds, |&(min, max)| check(min, max, &currents, &proposals));
    println!("{cases} decisions");
}

#[test]
fn every_count_lies_within_bounds_at_the_edges_of_32_bits() {
    let mut edges =
        vec![i32::MIN, i32::MIN + 1, -1, 0, 1, 2, 3, (1 << 30) - 1, 1 << 30, i32::MAX - 1, i32::MAX];
    if WHOLE {
        edges.extend([-(1 << 30) - 1, -(1 << 30), 4, 5, (1 << 30) + 1, i32::MAX / 3, i32::MAX - 2]);
    }
    let mut proposals: Vec<i64> = edges.iter().copied().map(i64::from).collect();
    proposals.extend([1 << 31, (1 << 31) + 1, 1 << 32, i64::MAX / 1000, i64::MAX]);
    proposals.sort_unstable();
    let bounds: Vec<(i32, i32)> =
        edges.iter().flat_map(|&min| edges.iter().map(move |&max| (min, max))).collect();
    let cases = for_each_in_parallel(&bounds, |&(min, max)| check(min, max, &edges, &proposals));
    println!("{cases} decisions");
}
