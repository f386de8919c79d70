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
    let outcome = run_plan(plan, kept, plant);
    let (mut simulated, mut syncs) = (outcome.simulated, outcome.syncs);
    let mut violation = outcome.violations.first().cloned();
    if violation.is_none() {
        let fault_free = run_plan(plan, &kept.without_faults(), None);
        simulated += fault_free.simulated;
        syncs += fault_free.syncs;
        violation =
            fault_free.violations.first().cloned().or_else(|| compare_final_states(&outcome, &fault_free));
    }
    SeedResult { outcome, violation, simulated, syncs }
}

/// 6. After the last fault, every run ends in the same state as the run without faults.
fn compare_final_states(outcome: &Outcome, fault_free: &Outcome) -> Option<Violation> {
    let (hpa, ended) = outcome.end.iter().find(|(hpa, ended)| fault_free.end.get(hpa) != Some(ended))?;
    let text = format!("h{hpa} ends as {ended}, without faults as {}", fault_free.end[hpa]);
    Some(Violation { at: outcome.simulated, invariant: "ends as without faults", text })
}
