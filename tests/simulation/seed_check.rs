//! Checks one seed: runs its plan with faults and without, and reports the first violation.

use std::sync::Arc;
use std::time::Duration;

use crate::plan::{Plan, Selection};
use crate::run::Violation;
use crate::seeded_bugs::SeededBug;
use crate::world::{Outcome, play};

/// The result of a check.
#[derive(Debug)]
pub(crate) struct SeedResult {
    pub(crate) outcome: Outcome,
    pub(crate) violation: Option<Violation>,
    /// Simulated time of all runs.
    pub(crate) simulated: Duration,
    pub(crate) syncs: u64,
}

/// Runs the plan on this thread, in a separate runtime with paused time.
pub(crate) fn run_plan(plan: &Arc<Plan>, kept: &Selection, plant: Option<SeededBug>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(plan, kept, plant))
}

/// Checks the actions and faults of a plan that are kept.
pub(crate) fn attempt(plan: &Arc<Plan>, kept: &Selection, plant: Option<SeededBug>) -> SeedResult {
    attempt_beside(&mut None, plan, kept, plant)
}

/// Checks like [`attempt`]. The run without faults takes place only if `fault_free` does not hold its outcome.
pub(crate) fn attempt_beside(
    fault_free: &mut Option<Outcome>,
    plan: &Arc<Plan>,
    kept: &Selection,
    plant: Option<SeededBug>,
) -> SeedResult {
    let outcome = run_plan(plan, kept, plant);
    let (mut simulated, mut syncs) = (outcome.simulated, outcome.syncs);
    let mut violation = outcome.violations.first().cloned();
    if violation.is_none() {
        let fault_free = fault_free.get_or_insert_with(|| run_without_faults(plan, kept));
        simulated += fault_free.simulated;
        syncs += fault_free.syncs;
        violation =
            fault_free.violations.first().cloned().or_else(|| compare_final_states(&outcome, fault_free));
    }
    SeedResult { outcome, violation, simulated, syncs }
}

/// One in this many seeds runs its actions again without faults.
const REPEATED: u64 = 4;

/// Runs the plan without faults. The final state does not depend on the path to it. So most seeds omit the
/// actions, and processes act at once.
fn run_without_faults(plan: &Arc<Plan>, kept: &Selection) -> Outcome {
    if plan.seed.is_multiple_of(REPEATED) {
        return run_plan(plan, &kept.without_faults(), None);
    }
    let plan = Arc::new(plan.without_path());
    run_plan(&plan, &Selection::all(&plan), None)
}

/// 6. After the last fault, every run ends in the same state as the run without faults.
fn compare_final_states(outcome: &Outcome, fault_free: &Outcome) -> Option<Violation> {
    let (hpa, ended) = outcome.end.iter().find(|(hpa, ended)| fault_free.end.get(hpa) != Some(ended))?;
    let text = format!("h{hpa} ends as {ended}, without faults as {}", fault_free.end[hpa]);
    Some(Violation { at: outcome.simulated, invariant: "ends as without faults", text })
}
