use proptest::prelude::*;

use super::{DesiredRollout, Set, Step, Strategy, step};

fn desired_rollout(replicas: i64, surge: i64, unavailable: i64) -> DesiredRollout {
    DesiredRollout { replicas, strategy: Strategy::RollingUpdate { surge, unavailable }, is_paused: false }
}

fn set(size: i64, available: i64) -> Set {
    Set { size, available, pods: size, sized_for: None }
}

fn sized(size: i64, replicas: i64, max_pods: i64) -> Set {
    Set { sized_for: Some((replicas, max_pods)), ..set(size, size) }
}

fn sizes(new: Option<i64>, old: impl Into<Vec<i64>>) -> Step {
    Step { new, old: old.into() }
}

#[test]
fn first_replica_set_gets_all_replicas() {
    assert_eq!(step(&desired_rollout(10, 3, 2), None, &[]), sizes(Some(10), []));
}

#[test]
fn rollout_adds_the_surge_then_removes_down_to_the_minimum() {
    let desired = desired_rollout(10, 3, 2);
    assert_eq!(step(&desired, None, &[set(10, 10)]), sizes(Some(3), [10]));
    assert_eq!(step(&desired, Some(set(3, 0)), &[set(10, 10)]), sizes(Some(3), [8]));
    assert_eq!(step(&desired, Some(set(3, 0)), &[set(8, 8)]), sizes(Some(5), [8]));
    assert_eq!(step(&desired, Some(set(5, 0)), &[set(8, 8)]), sizes(Some(5), [8]), "no new pod is ready");
    assert_eq!(step(&desired, Some(set(5, 3)), &[set(8, 8)]), sizes(Some(5), [5]));
    assert_eq!(step(&desired, Some(set(10, 10)), &[set(1, 1)]), sizes(Some(10), [0]));
}

#[test]
fn rollout_without_surge_removes_old_pods_first() {
    let desired = desired_rollout(4, 0, 1);
    assert_eq!(step(&desired, None, &[set(4, 4)]), sizes(Some(0), [4]));
    assert_eq!(step(&desired, Some(set(0, 0)), &[set(4, 4)]), sizes(Some(0), [3]));
    assert_eq!(step(&desired, Some(set(0, 0)), &[set(3, 3)]), sizes(Some(1), [3]));
}

#[test]
fn rollout_removes_unavailable_old_pods_first() {
    // Five old pods are broken. Their replacement does not reduce availability.
    assert_eq!(step(&desired_rollout(10, 3, 2), Some(set(3, 0)), &[set(10, 5)]), sizes(Some(3), [8]));
    assert_eq!(step(&desired_rollout(10, 0, 0), Some(set(0, 0)), &[set(10, 10)]), sizes(Some(0), [10]));
}

#[test]
fn recreate_waits_for_the_removal_of_old_pods() {
    let desired = DesiredRollout { replicas: 3, strategy: Strategy::Recreate, is_paused: false };
    assert_eq!(step(&desired, None, &[set(3, 3)]), sizes(None, [0]));
    let ending = Set { size: 0, available: 0, pods: 2, sized_for: None };
    assert_eq!(step(&desired, None, &[ending]), sizes(None, [0]));
    assert_eq!(step(&desired, None, &[set(0, 0)]), sizes(Some(3), [0]));
}

#[test]
fn scaling_during_a_rollout_is_proportional() {
    // The example of the Kubernetes documentation: 10 replicas with a surge of 3, scaled to 15.
    let (old, new) = (sized(8, 10, 13), sized(5, 10, 13));
    assert_eq!(step(&desired_rollout(15, 3, 2), Some(new), &[old]), sizes(Some(7), [11]));
    assert_eq!(step(&desired_rollout(5, 3, 2), Some(new), &[old]), sizes(Some(3), [5]));
    assert_eq!(step(&desired_rollout(0, 3, 2), Some(new), &[old]), sizes(Some(0), [0]));
}

#[test]
fn scaling_with_one_active_set_resizes_only_that_set() {
    assert_eq!(step(&desired_rollout(8, 2, 2), Some(sized(3, 3, 4)), &[set(0, 0)]), sizes(Some(8), [0]));
    assert_eq!(step(&desired_rollout(8, 2, 2), None, &[sized(3, 3, 4)]), sizes(None, [8]));
    assert_eq!(step(&desired_rollout(2, 1, 0), Some(sized(9, 9, 12)), &[]), sizes(Some(2), []));
}

#[test]
fn paused_deployment_scales_without_a_rollout() {
    let paused = |replicas| DesiredRollout { is_paused: true, ..desired_rollout(replicas, 1, 0) };
    assert_eq!(step(&paused(3), None, &[sized(3, 3, 4)]), sizes(None, [3]));
    assert_eq!(step(&paused(6), None, &[sized(3, 3, 4)]), sizes(None, [6]));
}

/// A simulated rollout: in each round the controller takes a step, and some pods become ready.
#[derive(Debug, Clone)]
struct Rollout {
    desired: DesiredRollout,
    new: Option<Set>,
    old: Vec<Set>,
}

impl Rollout {
    /// Takes one step that the pods follow immediately. Returns whether anything changed.
    fn step(&mut self) -> bool {
        let before = (self.new, self.old.clone());
        let step = step(&self.desired, self.new, &self.old);
        let sized_for = Some((self.desired.replicas, self.desired.max_pods()));
        let follow = |set: Set, size: i64| {
            // Unavailable pods are removed first.
            let available = set.available.min(size);
            Set { size, available, pods: size, sized_for }
        };
        self.new = step.new.map(|size| follow(self.new.unwrap_or_default(), size));
        self.old = self.old.iter().zip(&step.old).map(|(set, size)| follow(*set, *size)).collect();
        before != (self.new, self.old.clone())
    }

    fn ready(&mut self, count: i64) {
        if let Some(new) = &mut self.new {
            new.available = (new.available + count).min(new.size);
        }
    }

    fn total(&self) -> i64 {
        self.new.iter().chain(&self.old).map(|set| set.size).sum()
    }

    fn available(&self) -> i64 {
        self.new.iter().chain(&self.old).map(|set| set.available).sum()
    }

    fn is_done(&self) -> bool {
        let new = self.new.unwrap_or_default();
        new.available == self.desired.replicas && self.total() == self.desired.replicas
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rollout_completes_within_its_bounds(
        replicas in 1_i64..60,
        surge in 0_i64..20,
        unavailable in 0_i64..20,
        parts in 1_i64..4,
        readiness in proptest::collection::vec(0_i64..6, 1..20),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable }.min(replicas);
        let desired = desired_rollout(replicas, surge, unavailable);
        // The old pods belong to the ReplicaSets of earlier rollouts.
        let old = (0..parts).map(|part| replicas / parts + i64::from(part < replicas % parts));
        let old = old.map(|size| sized(size, replicas, desired.max_pods())).collect();
        let mut rollout = Rollout { desired, new: None, old };
        for round in 0..2_000 {
            rollout.step();
            prop_assert!(rollout.total() <= desired.max_pods(), "{rollout:?}");
            prop_assert!(rollout.available() >= desired.min_available(), "{rollout:?}");
            prop_assert!(rollout.old.iter().chain(&rollout.new).all(|set| set.size >= 0));
            // At least one pod becomes ready in every seventh round.
            rollout.ready(readiness[round % readiness.len()].max(i64::from(round % 7 == 0)));
            if rollout.is_done() {
                break;
            }
        }
        prop_assert!(rollout.is_done(), "{rollout:?}");
    }

    #[test]
    fn scaled_rollout_completes_within_its_bounds(
        first in 1_i64..60,
        second in 0_i64..60,
        surge in 0_i64..10,
        unavailable in 1_i64..10,
        rounds in 0_usize..12,
    ) {
        let start = desired_rollout(first, surge, unavailable.min(first));
        let old = vec![sized(first, first, start.max_pods())];
        let mut rollout = Rollout { desired: start, new: None, old };
        for _ in 0..rounds {
            rollout.step();
            rollout.ready(1);
        }
        let surge = if second == 0 { 0 } else { surge };
        rollout.desired = desired_rollout(second, surge, unavailable.min(second));
        // The first step resizes all ReplicaSets in proportion. Later steps stay within the bounds of the new count.
        rollout.step();
        for _ in 0..1_000 {
            prop_assert!(rollout.total() <= rollout.desired.max_pods(), "{rollout:?}");
            if rollout.is_done() {
                break;
            }
            rollout.step();
            rollout.ready(1);
        }
        prop_assert!(rollout.is_done(), "{rollout:?}");
    }
}
