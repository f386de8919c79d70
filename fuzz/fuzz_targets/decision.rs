//! The whole decision: any HPA, any cluster, several syncs in a row. What must hold is in `decision/holds.rs`.

#![no_main]

#[path = "../../crates/autoscaling/tests/recordings/explained.rs"]
mod explained;
#[path = "decision/holds.rs"]
mod holds;
mod plant;
#[path = "decision/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use autoscaling::history::{History, Rescaled};
use autoscaling::{Answers, Hpa, Plan, Verdict, WriteOutcome, conclude, decide, plan};
use libfuzzer_sys::fuzz_target;

use self::holds::{Rescale, Sync};
use self::world::{Before, Step, World};

fuzz_target!(|bytes: &[u8]| {
    // Bytes that end too early end the story, not the check of what was told so far.
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(u: &mut Unstructured<'_>) -> Result<()> {
    let mut world = world::world(u)?;
    let (mut history, mut rescales) = (History::default(), Vec::<Rescale>::new());
    let mut rebuilt = false;
    let (mut now, mut replicas) = (world.begin, world::count(u)?);
    for _ in 0..u.int_in_range(1..=5_u8)? {
        let step = world::step(u, &world, now)?;
        if let Some(count) = step.replicas {
            if count != replicas {
                // Somebody else scaled: what the policies know is no longer all that happened.
                rescales.iter_mut().for_each(|one| one.doubtful = true);
            }
            replicas = count;
        }
        // A period between syncs is the same for all of them, and is what a history is rebuilt by.
        let apart = match step.before {
            Before::Restart { apart } => Duration::from_secs(apart.into()),
            _ => Duration::ZERO,
        };
        if step.now < now || step.now.duration_since(now).unsigned_abs() < apart {
            rescales.iter_mut().for_each(|one| one.doubtful = true);
        }
        now = step.now;
        match step.before {
            Before::Nothing => {}
            Before::FailOver => {
                history =
                    History::decode(&history.encode()).expect("what is written can be read").inherit(now)
            }
            Before::Restart { .. } => {
                rebuilt = true;
                let told = rescales.iter().filter(|one| !one.doubtful);
                let told: Vec<Rescaled> =
                    told.map(|one| Rescaled { at: world::whole(one.at), to: one.to }).collect();
                history = History::rebuilt(&world.status, &told, apart, now);
            }
        }
        replicas = sync(u, &mut world, &step, &mut history, &mut rescales, replicas, rebuilt)?;
        if u.is_empty() {
            break;
        }
    }
    Ok(())
}

/// One sync; the count that stands after it.
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
    let plan: Plan = plan(&hpa, step.scale(last), |_| step.overlap.clone(), settings);
    let answers = Answers { metrics: step.answers(plan.queries()), pods: &step.pods };
    let decision = decide(&hpa, &plan, &answers, history, settings, step.now);
    let sync = Sync { world, step, history, rescales, rebuilt, answers: &answers };

    sync.told(&decision);
    sync.the_same_again(&plan, &decision);
    sync.within_bounds(&decision);
    sync.not_down_while_a_metric_is_missing(&decision);
    sync.within_rates(&decision);
    sync.more_load_asks_for_no_fewer(u, &plan, &decision)?;

    let outcome = match decision.verdict() {
        Verdict::Rescale { .. } => step.outcome.clone(),
        _ => WriteOutcome::NotNeeded,
    };
    let (verdict, current) = (decision.verdict().clone(), decision.current());
    let conclusion = conclude(&hpa, decision, &outcome, settings, step.now);
    sync.concluded(&conclusion);

    let done = match outcome {
        WriteOutcome::Done => true,
        WriteOutcome::Unknown(_) => step.done,
        _ => false,
    };
    let stands = match verdict {
        Verdict::Rescale { to, .. } if done || matches!(outcome, WriteOutcome::Unknown(_)) => {
            // What is remembered of it saturates, as counts do.
            let most = i64::from(i32::MAX);
            let change = (i64::from(to) - i64::from(current)).clamp(-most, most);
            holds::forget(rescales, spec, change > 0, step.now);
            // One that was lost counts too where somebody else gives the same count.
            rescales.push(Rescale { at: step.now, change, to, doubtful: !done });
            if done { to } else { current }
        }
        Verdict::NoScale => last,
        _ => current,
    };
    history.commit(&conclusion.changes);
    assert_eq!(History::decode(&history.encode()).as_ref(), Ok(&*history));
    if let Some(status) = conclusion.status {
        world.status.clone_from(&status);
    }
    Ok(stands)
}

/// Pods as they are shared.
type Pods = [Arc<autoscaling::pod::Pod>];
