//! Properties of decisions in random worlds beyond the domains of the test `exhaustive`: bounds of up to 32 bits, long
//! histories, several policies, and up to 11 pods.
//!
//! `CONCERTINA_CASES` sets the number of decisions (default: 20,000), and `CONCERTINA_SEED` sets the first seed:
//! `CONCERTINA_CASES=100000000 cargo test --release -p autoscaling --test properties_decision -- --nocapture`

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with the proofs")]
#[path = "exhaustive/model.rs"]
mod model;
#[allow(dead_code, reason = "shared with the proofs")]
#[path = "exhaustive/workload.rs"]
mod workload;
#[path = "properties/world.rs"]
mod world;

use autoscaling::explanation::{DecisionPath, Explanation};
use autoscaling::history::History;
use autoscaling::{Action, Verdict, WriteOutcome, conclude};

use model::{Policy, default_limit, envelope, highest_of_window, rate_limit, start_of};
use workload::{NOW, for_each_in_parallel};
use world::World;

use self::world::Random;

/// The number of loads, and therefore of decisions, per world.
const LOADS: u64 = 8;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn every_decision_follows_the_rules_and_stays_within_them() {
    let cases = number("CONCERTINA_CASES", 20_000);
    let first = number("CONCERTINA_SEED", 1);
    // Each item of work is a block of seeds, to reduce contention between the threads.
    let blocks: Vec<u64> = (0..cases.div_ceil(LOADS * 1000)).collect();
    let tried = for_each_in_parallel(&blocks, |block| {
        let seeds = first + block * 1000..first + (block + 1) * 1000;
        seeds.map(one_world).sum()
    });
    println!("{tried} decisions, seeds {first} to {}", first + blocks.len() as u64 * 1000 - 1);
}

/// Checks the decisions of one world. Returns their number.
fn one_world(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let world = World::new(&mut random);
    let mut previous = i32::MIN;
    for load in world.loads(&mut random) {
        let asked = world.asked(&load);
        let decision = world.workload.decide(world.answer(&load), &world.history, NOW);
        let explanation = decision.explanation().clone();
        let count = workload::count_after(&decision);
        let case = || format!("seed {seed}: {load:?} in {world:?}");

        let (min, max) = (world.min, world.workload.spec.max_replicas);
        // A target may stay at zero replicas, below `minReplicas`, if scaling is disabled or if no metric has a value.
        let stays_at_zero =
            count == 0 && matches!(decision.verdict(), Verdict::Disabled | Verdict::NoCount(_));
        let bounded = (min..=max).contains(&count) || stays_at_zero;
        assert!(bounded, "{count} is not in {min}..={max}: {}", case());
        if let (DecisionPath::Metrics, Some(proposal)) = (explanation.path, explanation.proposal) {
            let asked = asked.unwrap_or_else(|| panic!("a proposal without a sample: {}", case()));
            let expected = i32::try_from(asked.count.clamp(0, i32::MAX.into())).unwrap();
            let one_more = asked.or_one_more && proposal.checked_sub(1) == Some(expected);
            assert!(proposal.max(0) == expected || one_more, "{proposal}, not {expected}: {}", case());
            check_steps(&world, proposal.max(0), &explanation, case);
        }
        if matches!(decision.verdict(), Verdict::NoCount(_)) {
            assert!(asked.is_none(), "{}", case());
            assert_eq!(count, world.workload.current, "{}", case());
        }
        if world.rises_with_load() {
            assert!(count >= previous, "{count} after {previous}: {}", case());
            previous = count;
        }
        check_conclusion(&world, decision, count, case);
    }
    LOADS
}

/// Compares the steps of stabilization and limits with the second implementation.
fn check_steps(world: &World, proposal: i32, explanation: &Explanation, case: impl Fn() -> String) {
    let current = world.workload.current;
    let (min, max) = (world.min, world.workload.spec.max_replicas);
    let stabilized = explanation.stabilization.as_ref().unwrap();
    let limit = explanation.limit.as_ref().unwrap();
    let counted = if world.recommended_nothing() { vec![(0, current)] } else { world.recommended.clone() };
    let Some((up, down)) = &world.rules else {
        let window = i64::try_from(world.workload.settings.downscale_stabilization.as_nanos()).unwrap();
        assert_eq!(stabilized.after, highest_of_window(proposal, &counted, window), "{}", case());
        assert_eq!(limit.after, default_limit(current, stabilized.after, min, max), "{}", case());
        return;
    };
    let (lowest, highest) = envelope(proposal, &counted, up.window, down.window);
    assert_eq!(stabilized.after, current.clamp(lowest, highest), "{}", case());
    let desired = stabilized.after;
    if desired == current {
        assert_eq!(limit.after, current, "{}", case());
        return;
    }
    let rising = desired > current;
    let rules = if rising { up } else { down };
    let start = |period| {
        let start = start_of(current.into(), &world.rescaled, period);
        start.clamp(i32::MIN.into(), i32::MAX.into())
    };
    let (exact, loose) = rate_limit(current.into(), rising, rules.select, &rules.policies, start);
    let allowed = |rate: i64| {
        let rate = i32::try_from(rate.clamp(i32::MIN.into(), i32::MAX.into())).unwrap();
        if rising { desired.min(rate).min(max) } else { desired.max(rate).max(min) }
    };
    // If float64 deviates for one policy only, the result is between the two limits.
    let (one, other) = (allowed(exact), allowed(loose));
    let within = (one.min(other)..=one.max(other)).contains(&limit.after);
    assert!(within, "{}, not {one}: {}", limit.after, case());
    // The rescale does not exceed a single policy within the period that ends now.
    if let [policy] = rules.policies[..]
        && rules.select != model::Select::Disabled
    {
        let (most, loose) = model::allowed(policy, start(policy.period_nanos()), rising);
        let slack = i64::from(matches!(policy, Policy::Percent(..))) * loose;
        let moved = i64::from(limit.after);
        let kept = if rising { moved <= most + slack } else { moved >= most - slack };
        assert!(limit.after == current || kept, "{moved} exceeds {policy:?}: {}", case());
    }
}

/// Checks that the status, the labels and the history agree with the count.
fn check_conclusion(world: &World, decision: autoscaling::Decision, count: i32, case: impl Fn() -> String) {
    let rescales = matches!(decision.verdict(), Verdict::Rescale { .. });
    let fails = matches!(decision.verdict(), Verdict::NoCount(_));
    let outcome = if rescales { WriteOutcome::Done } else { WriteOutcome::NotNeeded };
    let workload = &world.workload;
    let concluded = conclude(&workload.hpa(), decision, &outcome, &workload.settings, NOW);
    let action = if rescales { Action::between(workload.current, count) } else { Action::None };
    assert_eq!(concluded.action, action, "{}", case());
    if !fails {
        assert_eq!(concluded.desired, Some(count), "{}", case());
    }
    let mut after = world.history.clone();
    after.commit(&concluded.changes);
    let events = |history: &History| history.scale_ups.len() + history.scale_downs.len();
    assert!(after.recommendations.len() <= world.history.recommendations.len() + 2, "{}", case());
    assert!(events(&after) <= events(&world.history) + 1, "{}", case());
    // Recommendations within any window are kept.
    let window = world.longest_window();
    let kept = |history: &History| {
        history.recommendations.iter().filter(|entry| entry.at > workload::aged(window)).count()
    };
    assert!(kept(&after) >= kept(&world.history), "a recommendation was dropped: {}", case());
    if rescales && workload.spec.behavior.is_some() && count != workload.current {
        let sum = |history: &History| -> i64 {
            let added = history.scale_ups.iter().filter(|event| event.at == NOW);
            let removed = history.scale_downs.iter().filter(|event| event.at == NOW);
            added.map(|event| i64::from(event.change)).sum::<i64>()
                - removed.map(|event| i64::from(event.change)).sum::<i64>()
        };
        let moved =
            (i64::from(count) - i64::from(workload.current)).clamp(-i64::from(i32::MAX), i32::MAX.into());
        assert_eq!(sum(&after) - sum(&world.history), moved, "{}", case());
    }
}
