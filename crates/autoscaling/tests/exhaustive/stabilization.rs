//! The stabilized count stays within the recommendations of its windows, for every short history. The resulting count
//! stays within `minReplicas` and `maxReplicas`, for every proposal.

use std::time::Duration;

use autoscaling::explanation::{DecisionPath, WindowEntry};
use autoscaling::history::{Changes, History, Recommendation};
use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, ScalingRules, SelectPolicy};
use autoscaling::status::Limit;
use autoscaling::{Decision, WriteOutcome, conclude};
use jiff::{SignedDuration, Timestamp};

use crate::model::{RecommendationEntry, default_limit, envelope, highest_of_window};
use crate::workload::{
    NOW, SECOND, WHOLE, Workload, aged, asking_for, count_after, for_each_in_parallel, multisets, sequences,
};

/// Ages at and around the edges of `windows`, and a negative age. Ages and windows are in nanoseconds.
fn ages(windows: &[i64]) -> Vec<i64> {
    let mut ages: Vec<i64> = windows.iter().flat_map(|window| [window - 1, *window, window + 1]).collect();
    ages.push(-1);
    ages.sort_unstable();
    ages.dedup();
    ages
}

/// Every pair of an age and a count.
fn entries(ages: &[i64], counts: &[i32]) -> Vec<RecommendationEntry> {
    ages.iter().flat_map(|&age| counts.iter().map(move |&replicas| (age, replicas))).collect()
}

fn history(recommended: &[RecommendationEntry]) -> History {
    let recommendations =
        recommended.iter().map(|&(age, replicas)| Recommendation { at: aged(age), replicas }).collect();
    History { recommendations, ..History::default() }
}

/// The expected history after a sync: the new entry replaces the last outdated entry, or is appended.
fn expected_history(
    before: &History,
    outdated: impl Fn(usize) -> bool,
    current: i32,
    proposal: i32,
) -> Vec<Recommendation> {
    let new = Recommendation { at: NOW, replicas: proposal };
    let mut after = before.recommendations.clone();
    if after.is_empty() {
        after.push(Recommendation { at: NOW, replicas: current });
    }
    for index in (0..before.recommendations.len()).rev() {
        if outdated(index) {
            after[index] = new;
            return after;
        }
    }
    after.push(new);
    after
}

/// The newest recommendation that satisfies `holds`. Of several with the same age, the highest.
fn newest(
    recommended: &[RecommendationEntry],
    holds: impl Fn(RecommendationEntry) -> bool,
) -> Option<Recommendation> {
    let mut newest: Option<Recommendation> = None;
    for &(age, replicas) in recommended {
        let candidate = Recommendation { at: aged(age), replicas };
        let newer = newest.is_none_or(|held| (candidate.at, replicas) > (held.at, held.replicas));
        if holds((age, replicas)) && newer {
            newest = Some(candidate);
        }
    }
    newest
}

/// The expected entries of the explanation: the recommendations within a window, sorted by time, then by count.
fn window_entries(
    recommended: &[RecommendationEntry],
    up_nanos: Option<i64>,
    in_down: impl Fn(i64) -> bool,
    down: i64,
) -> Vec<WindowEntry> {
    let leaves = |age: i64, seconds: i64| -> Timestamp {
        aged(age).checked_add(SignedDuration::from_secs(seconds)).unwrap()
    };
    let mut held: Vec<WindowEntry> = recommended
        .iter()
        .map(|&(age, replicas)| WindowEntry {
            at: aged(age),
            replicas,
            expires_up: up_nanos.filter(|nanos| age < *nanos).map(|nanos| leaves(age, nanos / SECOND)),
            expires_down: in_down(age).then(|| leaves(age, down)),
        })
        .filter(|held| held.expires_up.is_some() || held.expires_down.is_some())
        .collect();
    held.sort_by_key(|held| (held.at, held.replicas));
    held
}

/// A `behavior` whose rates allow all changes in this file.
fn unlimited(up_window: Option<i32>, down_window: Option<i32>) -> Behavior {
    let rules = |window| ScalingRules {
        stabilization_window_seconds: window,
        select_policy: SelectPolicy::Max,
        policies: Box::new([ScalingPolicy { kind: PolicyKind::Pods, value: 1000, period_seconds: 1 }]),
        tolerance: None,
    };
    Behavior { scale_up: rules(up_window), scale_down: rules(down_window) }
}

/// Compares the decisions for every history, current count and proposal with the second implementation. Returns their
/// number.
fn check_with_behavior(
    up: Option<i32>,
    down: Option<i32>,
    counts: &[i32],
    around: &[i32],
    most: Draw,
) -> u64 {
    let up_seconds = i64::from(up.unwrap_or(0));
    let down_seconds = i64::from(down.unwrap_or(300));
    let entries = entries(&ages(&[up_seconds * SECOND, down_seconds * SECOND]), counts);
    for_each_in_parallel(&most.histories(entries.len()), |indices| {
        let recommended: Vec<RecommendationEntry> = indices.iter().map(|&index| entries[index]).collect();
        let before = history(&recommended);
        let mut cases = 0;
        for &current in around {
            let workload = Workload::asked_directly(1, 1000, current).with_behavior(unlimited(up, down));
            let mut previous = i32::MIN;
            for &proposal in around {
                cases += 1;
                let decision = workload.decide(asking_for(proposal.into()), &before, NOW);
                let step = decision.explanation().stabilization.clone().unwrap();
                // The current count is the first recommendation of an HPA without a history.
                let counted = if recommended.is_empty() { vec![(0, current)] } else { recommended.clone() };
                let (lowest, highest) = envelope(proposal, &counted, up_seconds, down_seconds);
                let expected = current.clamp(lowest, highest);
                let case = || format!("{recommended:?} current {current} proposal {proposal}");
                assert_eq!(step.after, expected, "{}", case());
                assert!(lowest <= step.after && step.after <= highest, "outside its envelope: {}", case());
                assert!(previous <= step.after, "fewer than for a lower proposal: {}", case());
                previous = step.after;
                let in_up = |age: i64| age < up_seconds * SECOND;
                let in_down = |age: i64| age < down_seconds * SECOND;
                let held_by = newest(&counted, |(age, replicas)| {
                    (expected > proposal && in_down(age) && replicas >= expected)
                        || (expected < proposal && in_up(age) && replicas <= expected)
                });
                assert_eq!(step.held_by, held_by, "{}", case());
                assert_eq!(held_by.is_some(), expected != proposal, "{}", case());
                let held = window_entries(&counted, Some(up_seconds * SECOND), in_down, down_seconds);
                assert_eq!(step.recommendations, held, "{}", case());

                let outdated = |index: usize| {
                    let (age, _) = recommended[index];
                    age > up_seconds * SECOND && age > down_seconds * SECOND
                };
                let mut after = before.clone();
                after.commit(&conclusion(&workload, decision));
                let expected = expected_history(&before, outdated, current, proposal);
                assert_eq!(after.recommendations, expected, "{}", case());
            }
        }
        cases
    })
}

fn check_without_behavior(window: Duration, counts: &[i32], around: &[i32], most: Draw) -> u64 {
    let nanos = i64::try_from(window.as_nanos()).unwrap();
    let entries = entries(&ages(&[nanos]), counts);
    for_each_in_parallel(&most.histories(entries.len()), |indices| {
        let recommended: Vec<RecommendationEntry> = indices.iter().map(|&index| entries[index]).collect();
        let before = history(&recommended);
        let mut cases = 0;
        for &current in around {
            let mut workload = Workload::asked_directly(1, 1000, current);
            workload.settings.downscale_stabilization = window;
            let mut previous = i32::MIN;
            for &proposal in around {
                cases += 1;
                let decision = workload.decide(asking_for(proposal.into()), &before, NOW);
                let step = decision.explanation().stabilization.clone().unwrap();
                let counted = if recommended.is_empty() { vec![(0, current)] } else { recommended.clone() };
                let expected = highest_of_window(proposal, &counted, nanos);
                let case = || format!("{recommended:?} current {current} proposal {proposal}");
                assert_eq!(step.after, expected, "{}", case());
                assert!(step.after >= proposal, "below its proposal: {}", case());
                assert!(previous <= step.after, "fewer than for a lower proposal: {}", case());
                previous = step.after;
                let held_by = newest(&counted, |(age, replicas)| {
                    expected > proposal && age <= nanos && replicas >= expected
                });
                assert_eq!(step.held_by, held_by, "{}", case());
                let held = window_entries(&counted, None, |age| age <= nanos, nanos / SECOND);
                assert_eq!(step.recommendations, held, "{}", case());

                let mut after = before.clone();
                after.commit(&conclusion(&workload, decision));
                let expected =
                    expected_history(&before, |index| recommended[index].0 > nanos, current, proposal);
                assert_eq!(after.recommendations, expected, "{}", case());
            }
        }
        cases
    })
}

fn conclusion(workload: &Workload, decision: Decision) -> Changes {
    conclude(&workload.hpa(), decision, &WriteOutcome::Done, &workload.settings, NOW).changes
}

/// The choice of histories: up to a number of entries, in every order or in one order.
#[derive(Clone, Copy)]
enum Draw {
    Ordered(usize),
    Unordered(usize),
}

impl Draw {
    fn histories(self, choices: usize) -> Vec<Vec<usize>> {
        match self {
            Self::Ordered(most) => sequences(choices, most),
            Self::Unordered(most) => multisets(choices, most),
        }
    }
}

/// Scale-up and scale-down windows in seconds.
const WINDOWS: [(Option<i32>, Option<i32>); 7] = [
    (Some(0), Some(0)),
    (Some(0), Some(300)),
    (Some(60), Some(0)),
    (Some(60), Some(300)),
    (Some(300), Some(60)),
    (Some(300), Some(300)),
    (None, None),
];

#[test]
fn count_lies_within_the_windows_with_behavior() {
    let mut cases = 0;
    for (up, down) in WINDOWS {
        // The counts are below, at, between and above the two recommended counts.
        let draw = Draw::Ordered(if WHOLE { 4 } else { 2 });
        cases += check_with_behavior(up, down, &[2, 4], &[1, 2, 3, 4, 5], draw);
        let draw = Draw::Unordered(if WHOLE { 5 } else { 2 });
        cases += check_with_behavior(up, down, &[2, 4, 6], &[1, 3, 4, 5, 7], draw);
    }
    if WHOLE {
        cases += check_with_behavior(Some(60), Some(300), &[2, 4], &[1, 3, 5], Draw::Ordered(5));
        cases += check_with_behavior(Some(300), Some(60), &[2, 4], &[1, 3, 5], Draw::Ordered(5));
    }
    println!("{cases} decisions");
}

#[test]
fn count_is_the_highest_of_the_window_without_behavior() {
    let mut cases = 0;
    for window in [Duration::ZERO, Duration::from_millis(1500), Duration::from_mins(5)] {
        let draw = Draw::Ordered(if WHOLE { 5 } else { 3 });
        cases += check_without_behavior(window, &[2, 4], &[1, 2, 3, 4, 5], draw);
        let draw = Draw::Unordered(if WHOLE { 5 } else { 3 });
        cases += check_without_behavior(window, &[2, 4, 6], &[1, 3, 4, 5, 7], draw);
    }
    println!("{cases} decisions");
}

fn behavior(up: (SelectPolicy, PolicyKind, i32), down: (SelectPolicy, PolicyKind, i32)) -> Behavior {
    let rules = |(select_policy, kind, value)| ScalingRules {
        stabilization_window_seconds: Some(60),
        select_policy,
        policies: Box::new([ScalingPolicy { kind, value, period_seconds: 60 }]),
        tolerance: None,
    };
    Behavior { scale_up: rules(up), scale_down: rules(down) }
}

/// No `behavior`, and policies from strict to unlimited.
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

/// Histories with the strongest effect of stabilization: without a recommendation, and with recommendations of the
/// highest count, the lowest count, or both, one second ago.
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

/// Checks the bounds for every current count and proposal. Returns the number of decisions.
fn check_bounds(min: i32, max: i32, currents: &[i32], proposals: &[i64]) -> u64 {
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
                        continue; // The API server rejects such bounds. The decision must not panic.
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
    let cases = for_each_in_parallel(&bounds, |&(min, max)| check_bounds(min, max, &currents, &proposals));
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
    let cases = for_each_in_parallel(&bounds, |&(min, max)| check_bounds(min, max, &edges, &proposals));
    println!("{cases} decisions");
}
