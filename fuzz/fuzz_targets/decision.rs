//! Decisions about any HPA in any cluster, in several consecutive syncs. `decision/holds.rs` contains the invariants.

#![no_main]

#[path = "decision/holds.rs"]
mod holds;
mod plant;
#[path = "../../crates/autoscaling/tests/recordings/recomputation.rs"]
mod recomputation;
#[path = "decision/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use autoscaling::history::{History, ObservedRescale, RECOMMENDATIONS, SCALE_EVENTS};
use autoscaling::{Answers, Hpa, Plan, Verdict, WriteOutcome, conclude, decide, plan};
use libfuzzer_sys::fuzz_target;

use self::holds::{Rescale, Sync};
use self::world::{Before, Step, World};

fuzz_target!(|bytes: &[u8]| {
    // An error means that the input was too short for further syncs.
    let _ = run(&mut Unstructured::new(bytes));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut world = world::world(u)?;
    let (mut history, mut rescales) = (History::default(), Vec::<Rescale>::new());
    let mut rebuilt = false;
    let (mut now, mut replicas) = (world.start, world::count(u)?);
    for _ in 0..u.int_in_range(1..=5_u8)? {
        let step = world::step(u, &world, now)?;
        if let Some(count) = step.replicas {
            if count != replicas {
                // The history lacks the foreign rescale, so the limits of rate policies are not exact.
                rescales.iter_mut().for_each(|rescale| rescale.doubtful = true);
            }
            replicas = count;
        }
        // The rebuild of a history assumes that syncs have at least this distance.
        let apart = match step.before {
            Before::Restart { apart } => Duration::from_secs(apart.into()),
            _ => Duration::ZERO,
        };
        if step.now < now || step.now.duration_since(now).unsigned_abs() < apart {
            rescales.iter_mut().for_each(|rescale| rescale.doubtful = true);
        }
        now = step.now;
        match step.before {
            Before::Nothing => {}
            Before::FailOver => {
                history = history.inherit(now);
            }
            Before::Restart { .. } => {
                rebuilt = true;
                let visible = rescales.iter().filter(|rescale| !rescale.doubtful);
                let visible: Vec<ObservedRescale> = visible
                    .map(|rescale| ObservedRescale { at: world::whole(rescale.at), to: rescale.to })
                    .collect();
                history = History::rebuilt(&world.status, &visible, apart, now);
            }
        }
        replicas = sync(u, &mut world, &step, &mut history, &mut rescales, replicas, rebuilt)?;
        if u.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Runs one sync. Returns the replica count after the sync.
fn sync(
    u: &mut Unstructured<'_>,
    world: &mut World,
    step: &Step,
    history: &mut History,
    rescales: &mut Vec<Rescale>,
    last: i32,
    rebuilt: bool,
) -> Result<i32> {
    let World { settings, spec, status, generation, .. } = &*world;
    let hpa = Hpa { namespace: "shop", name: "web", generation: *generation, spec, status };
    let plan: Plan = plan(&hpa, step.scale(last, settings.version), |_| step.overlap.clone(), settings);
    let answers = Answers { metrics: step.answers(plan.queries()), pods: &step.pods };
    let decision = decide(&hpa, &plan, &answers, history, settings, step.now);
    let sync = Sync { world, step, history, rescales, rebuilt, answers: &answers };

    sync.explanation_gives_the_result(&decision);
    sync.is_deterministic(&plan, &decision);
    sync.within_bounds(&decision);
    sync.no_scale_down_with_a_missing_metric(&decision);
    sync.within_rates(&decision);
    sync.more_load_never_lowers_the_count(u, &plan, &decision)?;

    let outcome = match decision.verdict() {
        Verdict::Rescale { .. } => step.outcome.clone(),
        _ => WriteOutcome::NotNeeded,
    };
    let (verdict, current) = (decision.verdict().clone(), decision.current());
    let conclusion = conclude(&hpa, decision, &outcome, settings, step.now);
    sync.status_round_trips(&conclusion);

    let done = match outcome {
        WriteOutcome::Done => true,
        WriteOutcome::Unknown(_) => step.done,
        _ => false,
    };
    let count_after = match verdict {
        Verdict::Rescale { to, .. } if done || matches!(outcome, WriteOutcome::Unknown(_)) => {
            // The recorded change saturates, like replica counts.
            let maximum = i64::from(i32::MAX);
            let change = (i64::from(to) - i64::from(current)).clamp(-maximum, maximum);
            holds::forget(rescales, spec, change > 0, step.now);
            // After a lost write, the rescale is doubtful, because a foreign rescale may set the same count.
            rescales.push(Rescale { at: step.now, change, to, doubtful: !done });
            if done { to } else { current }
        }
        Verdict::NoScale => last,
        _ => current,
    };
    history.commit(&conclusion.changes);
    assert!(history.recommendations.len() <= RECOMMENDATIONS);
    assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
    if let Some(status) = conclusion.status {
        world.status.clone_from(&status);
    }
    Ok(count_after)
}

/// Pods in the form that the core takes.
type Pods = [Arc<autoscaling::pod::Pod>];
