//! Generated worlds on a real API server, once under kube-controller-manager and once under Concertina. Statuses,
//! conditions, events and writes of Scales must be equal, except for intended differences.
//!
//! The worlds contain inputs that recordings cannot contain: faults between controller and API server, deletions and
//! recreations, conflicts, odd names, phases and quantities.
//!
//! - `CONCERTINA_WORLDS=0..32` selects the seeds, each a world.
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
#[path = "worlds/draft.rs"]
mod draft;
#[path = "e2e/extensions.rs"]
mod extensions;
#[path = "worlds/fault_themes.rs"]
mod fault_themes;
#[path = "worlds/gate.rs"]
mod gate;
#[path = "e2e/metrics.rs"]
mod metrics;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "worlds/plan.rs"]
mod plan;
#[path = "worlds/player.rs"]
mod player;
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
#[path = "worlds/servers.rs"]
mod servers;
#[path = "worlds/themes.rs"]
mod themes;
#[path = "worlds/trace.rs"]
mod trace;

use std::ops::Range;

use crate::outcome::{Failure, Outcome, ensure};
use crate::plan::generate;
use crate::player::{Controller, Stage};
use crate::trace::{INTENDED, compare};

/// The number of worlds that run at the same time.
const BATCH: usize = 50;

/// With at least this number of worlds, every intended difference must occur.
const MANY: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn both_controllers_act_alike_in_generated_worlds() -> Outcome {
    let plans: Vec<_> = seeds()?.map(generate).collect();
    let mut traces = Vec::new();
    for controller in [Controller::BuiltIn, Controller::Concertina] {
        let mut stage = Stage::start(controller).await?;
        let mut all = trace::Traces::new();
        for batch in plans.chunks(BATCH) {
            all.extend(
                stage
                    .play(batch)
                    .await
                    .map_err(|Failure(reason)| Failure(format!("{controller:?}: {reason}")))?,
            );
        }
        traces.push(all);
    }
    let [reference, ours] = traces.as_slice() else { return Err("two traces".into()) };
    let comparison = compare(&plans, reference, ours);
    eprintln!("{} worlds, {} HPAs, {} lines", plans.len(), comparison.hpas, comparison.lines);
    for (reason, hpas) in &comparison.explained {
        eprintln!("    {hpas} HPAs differ on purpose: {reason}");
    }
    ensure(comparison.differences.is_empty(), || {
        format!("{} differences\n{}", comparison.differences.len(), comparison.differences.join("\n"))
    })?;
    // Empty traces would be equal as well.
    ensure(comparison.lines >= 8 * plans.len(), || format!("only {} lines", comparison.lines))?;
    // An entry that explains no difference now could hide a later difference.
    let unused = INTENDED.iter().find(|intended| !comparison.explained.contains_key(intended.reason));
    match unused {
        Some(unused) if plans.len() >= MANY => Err(Failure(format!("nothing differs: {}", unused.reason))),
        _ => Ok(()),
    }
}

#[test]
fn a_seed_generates_one_world() {
    for seed in 0..100 {
        let (one, other) = (format!("{:?}", generate(seed)), format!("{:?}", generate(seed)));
        assert_eq!(one, other, "seed {seed}");
        assert_ne!(one, format!("{:?}", generate(seed + 100)), "seed {seed}");
    }
}

#[test]
fn the_worlds_of_every_change_have_all_themes_and_faults() {
    let plans: Vec<_> = (0..32).map(generate).collect();
    for theme in themes::THEMES {
        assert!(plans.iter().any(|plan| plan.theme == theme.name), "{}", theme.name);
    }
    let faults = plans.iter().flat_map(|plan| &plan.steps).flat_map(|step| &step.faults).count();
    assert!(faults > 20, "{faults} faults");
}

fn seeds() -> Outcome<Range<u64>> {
    let text = std::env::var("CONCERTINA_WORLDS").unwrap_or_else(|_| "0..32".to_owned());
    let (first, end) = text.split_once("..").ok_or("CONCERTINA_WORLDS must be a range such as 0..32")?;
    Ok(first.parse()?..end.parse()?)
}
