use proptest::prelude::*;

use super::{Set, Step, Strategy, Wish, step};

fn wish(replicas: i64, surge: i64, unavailable: i64) -> Wish {
    Wish { replicas, strategy: Strategy::RollingUpdate { surge, unavailable }, is_paused: false }
}

fn set(size: i64, available: i64) -> Set {
    Set { size, available, pods: size, sized_for: None }
}

fn sized(size: i64, replicas: i64, most: i64) -> Set {
    Set { sized_for: Some((replicas, most)), ..set(size, size) }
}

fn sizes(new: Option<i64>, old: impl Into<Vec<i64>>) -> Step {
    Step { new, old: old.into() }
}

#[test]
fn the_first_set_gets_all_replicas() {
    assert_eq!(step(&wish(10, 3, 2), None, &[]), sizes(Some(10), []));
}

#[test]
fn a_rollout_goes_up_by_the_surge_then_down_to_what_must_be_available() {
    let wish = wish(10, 3, 2);
    assert_eq!(step(&wish, None, &[set(10, 10)]), sizes(Some(3), [10]));
    assert_eq!(step(&wish, Some(set(3, 0)), &[set(10, 10)]), sizes(Some(3), [8]));
    assert_eq!(step(&wish, Some(set(3, 0)), &[set(8, 8)]), sizes(Some(5), [8]));
    assert_eq!(step(&wish, Some(set(5, 0)), &[set(8, 8)]), sizes(Some(5), [8]), "nothing is ready yet");
    assert_eq!(step(&wish, Some(set(5, 3)), &[set(8, 8)]), sizes(Some(5), [5]));
    assert_eq!(step(&wish, Some(set(10, 10)), &[set(1, 1)]), sizes(Some(10), [0]));
}

#[test]
fn without_surge_old_pods_go_first() {
    let wish = wish(4, 0, 1);
    assert_eq!(step(&wish, None, &[set(4, 4)]), sizes(Some(0), [4]));
    assert_eq!(step(&wish, Some(set(0, 0)), &[set(4, 4)]), sizes(Some(0), [3]));
    assert_eq!(step(&wish, Some(set(0, 0)), &[set(3, 3)]), sizes(Some(1), [3]));
}

#[test]
fn old_pods_that_do_not_work_go_before_those_that_do() {
    // Five of the old ones are broken: replacing them costs no availability.
    assert_eq!(step(&wish(10, 3, 2), Some(set(3, 0)), &[set(10, 5)]), sizes(Some(3), [8]));
    assert_eq!(step(&wish(10, 0, 0), Some(set(0, 0)), &[set(10, 10)]), sizes(Some(0), [10]));
}

#[test]
fn recreate_waits_until_the_old_pods_are_gone() {
    let wish = Wish { replicas: 3, strategy: Strategy::Recreate, is_paused: false };
    assert_eq!(step(&wish, None, &[set(3, 3)]), sizes(None, [0]));
    let ending = Set { size: 0, available: 0, pods: 2, sized_for: None };
    assert_eq!(step(&wish, None, &[ending]), sizes(None, [0]));
    assert_eq!(step(&wish, None, &[set(0, 0)]), sizes(Some(3), [0]));
}

#[test]
fn scaled_in_the_middle_of_a_rollout_the_sets_grow_in_proportion() {
    // The example of the Kubernetes documentation: 10 with 3 surging, scaled to 15.
    let (old, new) = (sized(8, 10, 13), sized(5, 10, 13));
    assert_eq!(step(&wish(15, 3, 2), Some(new), &[old]), sizes(Some(7), [11]));
    assert_eq!(step(&wish(5, 3, 2), Some(new), &[old]), sizes(Some(3), [5]));
    assert_eq!(step(&wish(0, 3, 2), Some(new), &[old]), sizes(Some(0), [0]));
}

#[test]
fn scaled_with_one_active_set_that_set_takes_it_all() {
    assert_eq!(step(&wish(8, 2, 2), Some(sized(3, 3, 4)), &[set(0, 0)]), sizes(Some(8), [0]));
    assert_eq!(step(&wish(8, 2, 2), None, &[sized(3, 3, 4)]), sizes(None, [8]));
    assert_eq!(step(&wish(2, 1, 0), Some(sized(9, 9, 12)), &[]), sizes(Some(2), []));
}

#[test]
fn a_paused_one_scales_and_rolls_nothing_out() {
    let paused = |replicas| Wish { is_paused: true, ..wish(replicas, 1, 0) };
    assert_eq!(step(&paused(3), None, &[sized(3, 3, 4)]), sizes(None, [3]));
    assert_eq!(step(&paused(6), None, &[sized(3, 3, 4)]), sizes(None, [6]));
}

/// A rollout played to its end: each round the controller takes a step, and some pods become ready or break.
#[derive(Debug, Clone)]
struct Play {
    wish: Wish,
    new: Option<Set>,
    old: Vec<Set>,
}

impl Play {
    /// One step, with the pods following at once; answers whether anything changed.
    fn step(&mut self) -> bool {
        let before = (self.new, self.old.clone());
        let step = step(&self.wish, self.new, &self.old);
        let sized_for = Some((self.wish.replicas, self.wish.most()));
        let follow = |set: Set, size: i64| {
            // Pods that are not available go first.
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
        new.available == self.wish.replicas && self.total() == self.wish.replicas
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_rollout_ends_and_never_leaves_its_bounds(
        replicas in 1_i64..60,
        surge in 0_i64..20,
        unavailable in 0_i64..20,
        parts in 1_i64..4,
        readiness in proptest::collection::vec(0_i64..6, 1..20),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable }.min(replicas);
        let wish = wish(replicas, surge, unavailable);
        // The old pods are spread over the sets of earlier rollouts.
        let old = (0..parts).map(|part| replicas / parts + i64::from(part < replicas % parts));
        let mut play = Play { wish, new: None, old: old.map(|size| sized(size, replicas, wish.most())).collect() };
        for round in 0..2_000 {
            play.step();
            prop_assert!(play.total() <= wish.most(), "{play:?}");
            prop_assert!(play.available() >= wish.fewest_available(), "{play:?}");
            prop_assert!(play.old.iter().chain(&play.new).all(|set| set.size >= 0));
            // Some pod becomes ready at least now and then.
            play.ready(readiness[round % readiness.len()].max(i64::from(round % 7 == 0)));
            if play.is_done() {
                break;
            }
        }
        prop_assert!(play.is_done(), "{play:?}");
    }

    #[test]
    fn scaling_in_the_middle_keeps_the_bounds_and_still_ends(
        first in 1_i64..60,
        second in 0_i64..60,
        surge in 0_i64..10,
        unavailable in 1_i64..10,
        rounds in 0_usize..12,
    ) {
        let start = wish(first, surge, unavailable.min(first));
        let mut play = Play { wish: start, new: None, old: vec![sized(first, first, start.most())] };
        for _ in 0..rounds {
            play.step();
            play.ready(1);
        }
        play.wish = wish(second, if second == 0 { 0 } else { surge }, unavailable.min(second));
        // The first step shares the difference; behind it the bounds of the new count hold.
        play.step();
        for _ in 0..1_000 {
            prop_assert!(play.total() <= play.wish.most(), "{play:?}");
            if play.is_done() {
                break;
            }
            play.step();
            play.ready(1);
        }
        prop_assert!(play.is_done(), "{play:?}");
    }
}
