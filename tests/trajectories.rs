//! The counts of workloads over time, on a real API server: once under kube-controller-manager and once under
//! Concertina, with the same loads. The rates of `behavior` and the moments of syncs decide them, which a comparison of
//! single syncs does not cover.
//!
//! - `CONCERTINA_TRAJECTORIES=0..20` selects the seeds, each with 16 HPAs.
//! - `CONCERTINA_E2E_AUTOSCALER=built-in` compares the built-in controller with itself.
//! - `CONCERTINA_E2E_KEEP=1` keeps the folders with all logs.
//! - `CONCERTINA_BIN` names another `concertina` binary.

#![allow(
    clippy::indexing_slicing,
    reason = "tests index JSON only, where a missing field is null instead of a panic"
)]
#![allow(dead_code, reason = "tests/e2e.rs shares the control plane modules and uses all of them")]

#[path = "e2e/adapter.rs"]
mod adapter;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "e2e/extensions.rs"]
mod extensions;
#[path = "e2e/metrics.rs"]
mod metrics;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "trajectories/plan.rs"]
mod plan;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "simulation/many_seeds.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::unwrap_used,
    reason = "shared with the simulation, a test that uses the rest as well"
)]
mod rng;
#[path = "trajectories/run.rs"]
mod run;
#[path = "e2e/world.rs"]
mod world;

use std::fmt::Write as _;
use std::time::Duration;

use crate::outcome::{Outcome, ensure};
use crate::plan::{APPS, App, generate, ramps};
use crate::run::{LATE, Recording, Stage, ensure_moves};
use crate::world::Autoscaler;

/// The number of seeds that run at the same time.
const BATCH: usize = 4;
const SECONDS: i64 = 100;
/// The difference of times that the comparison allows, in milliseconds. It is two sync periods.
const TOLERANCE: i64 = 2000;
/// The bound for the mean of the seconds of a seed in which a count lies outside of those of the built-in controller. It
/// is 2.5 % of [`SECONDS`] for each workload.
const BOUND: usize = APPS * 5 / 2;

/// Periods and delays that are as short as the periods of the behaviors.
const FLAGS: [&str; 4] = [
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=5s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=2s",
    "--horizontal-pod-autoscaler-downscale-stabilization=4s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn counts_follow_those_of_the_built_in_controller() -> Outcome {
    let plans: Vec<_> = seeds()?.map(|seed| (format!("seed-{seed}"), generate(seed))).collect();
    let mut stage = Stage::start().await?;
    let (mut total, mut lines) = (0, Vec::new());
    for batch in plans.chunks(BATCH) {
        let mut pairs = vec![pair(&mut stage, batch, &FLAGS, SECONDS).await?];
        let late = delay(&pairs);
        let is_above =
            |[reference, ours]: &[Recording; 2], seed: &str| seconds(&outside(reference, ours, seed)) > BOUND;
        if late > LATE || batch.iter().any(|(seed, _)| is_above(&pairs[0], seed)) {
            eprintln!("    the seeds run again, the machine was late by up to {late} ms");
            pairs.push(pair(&mut stage, batch, &FLAGS, SECONDS).await?);
        }
        ensure_moves(&pairs[0][0], 4 * APPS * batch.len())?;
        for (seed, _) in batch {
            let combinations =
                pairs.iter().flat_map(|[reference, _]| pairs.iter().map(move |[_, ours]| (reference, ours)));
            let apart = combinations
                .map(|(reference, ours)| outside(reference, ours, seed))
                .min_by_key(|apart| seconds(apart))
                .unwrap_or_default();
            let mut line = format!("{seed}: {} s outside", seconds(&apart));
            if let [[one, _], [other, _]] = pairs.as_slice() {
                let built_in = seconds(&outside(one, other, seed));
                let _ = write!(line, ", {built_in} s between two runs of the built-in controller");
            }
            eprintln!("    {line}");
            total += seconds(&apart);
            lines.push(line);
            lines.extend(apart.into_iter().take(4).map(|(_, line)| line));
        }
    }
    let (all, bound) = (plans.len() * APPS * usize::try_from(SECONDS)?, plans.len() * BOUND);
    eprintln!("    {total} of {all} s outside, at most {bound} s");
    ensure(total <= bound, || format!("{total} of {all} s, at most {bound} s\n{}", lines.join("\n")))
}

/// The default flags, and the policies that the API server sets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_ramps_have_the_steps_of_the_built_in_controller() -> Outcome {
    let plan = [("ramps".to_owned(), ramps(20_000))];
    let mut stage = Stage::start().await?;
    let [reference, ours] = pair(&mut stage, &plan, &[], 160).await?;
    for (key, reference) in &reference.trajectories {
        let ours = ours.trajectories.get(key).ok_or("a workload is missing")?;
        let name = &key.1;
        eprintln!("    {name}: built-in {}", reference.text());
        eprintln!("    {name}: ours     {}", ours.text());
        let (theirs, ours): (Vec<_>, Vec<_>) = (reference.steps().collect(), ours.steps().collect());
        let counts = |steps: &[(i64, i64)]| steps.iter().map(|(_, count)| *count).collect::<Vec<_>>();
        ensure(theirs.len() > 2 && counts(&theirs) == counts(&ours), || format!("{name}: other steps"))?;
        let first = |steps: &[(i64, i64)]| steps.first().map_or(0, |(time, _)| *time);
        for (their, our) in theirs.iter().zip(&ours) {
            let apart = (their.0 - first(&theirs)) - (our.0 - first(&ours));
            ensure(apart.abs() <= TOLERANCE, || format!("{name}: step to {} is {apart} ms apart", our.1))?;
        }
    }
    Ok(())
}

/// Runs the workloads under the built-in controller, and then under the one that is tested.
async fn pair(
    stage: &mut Stage,
    plans: &[(String, Vec<App>)],
    flags: &[&str],
    seconds: i64,
) -> Outcome<[Recording; 2]> {
    let time = Duration::from_millis(u64::try_from(seconds * 1000 + TOLERANCE)?);
    let reference = stage.run(Autoscaler::BuiltIn, plans, flags, time).await?;
    let ours = stage.run(Autoscaler::under_test(), plans, flags, time).await?;
    Ok([reference, ours])
}

/// The longest delay of several runs, in milliseconds.
fn delay(pairs: &[[Recording; 2]]) -> i64 {
    pairs.iter().flatten().map(|recording| recording.delay).max().unwrap_or_default()
}

fn seconds(apart: &[(usize, String)]) -> usize {
    apart.iter().map(|(seconds, _)| seconds).sum()
}

/// The seconds in which the count of each workload of a seed is one that the reference does not have at about this
/// time, and a line with both trajectories, the worst first.
fn outside(reference: &Recording, ours: &Recording, seed: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for ((of, app), ours) in ours.trajectories.iter().filter(|((of, _), _)| of == seed) {
        let Some(reference) = reference.trajectories.get(&(of.clone(), app.clone())) else { continue };
        let is_outside = |second: &i64| {
            let time = second * 1000;
            !reference.allows(ours.at(time), time, TOLERANCE)
        };
        let seconds = (0..SECONDS).filter(is_outside).count();
        all.push((
            seconds,
            format!("{app}: {seconds} s\n  built-in {}\n  ours     {}", reference.text(), ours.text()),
        ));
    }
    all.sort_by_key(|(seconds, _)| std::cmp::Reverse(*seconds));
    all
}

#[test]
fn a_seed_generates_the_same_loads() {
    for seed in 0..50 {
        let (one, other) = (format!("{:?}", generate(seed)), format!("{:?}", generate(seed)));
        assert_eq!(one, other, "seed {seed}");
        assert_ne!(one, format!("{:?}", generate(seed + 50)), "seed {seed}");
    }
}

#[test]
fn a_count_may_lie_between_those_of_nearby_times() {
    let trajectory = run::Trajectory(vec![(-5000, 1), (10_000, 5)]);
    for (count, time, allowed) in
        [(1, 0, true), (3, 0, false), (3, 8000, true), (3, 7999, false), (1, 12_001, false)]
    {
        assert_eq!(trajectory.allows(count, time, TOLERANCE), allowed, "{count} at {time}");
    }
}

fn seeds() -> Outcome<std::ops::Range<u64>> {
    let text = std::env::var("CONCERTINA_TRAJECTORIES").unwrap_or_else(|_| "0..1".to_owned());
    let (first, end) = text.split_once("..").ok_or("CONCERTINA_TRAJECTORIES must be a range such as 0..1")?;
    Ok(first.parse()?..end.parse()?)
}
