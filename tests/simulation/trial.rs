//! One seed, tried: its plan played with faults and without, and what is wrong.

use std::sync::Arc;
use std::time::Duration;

use crate::plan::{Kept, Plan};
use crate::plants::Plant;
use crate::run::Violation;
use crate::world::{Outcome, play};

/// A plan that was tried.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) outcome: Outcome,
    pub(crate) violation: Option<Violation>,
    /// What was simulated in all.
    pub(crate) simulated: Duration,
    pub(crate) syncs: u64,
}

/// Plays on this thread, in a runtime of its own whose time stands still.
pub(crate) fn played(plan: &Arc<Plan>, kept: &Kept, plant: Option<Plant>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(plan, kept, plant))
}

/// Tries what is kept of a plan.
pub(crate) fn attempt(plan: &Arc<Plan>, kept: &Kept, plant: Option<Plant>) -> Trial {
    let outcome = played(plan, kept, plant);
    let (mut simulated, mut syncs) = (outcome.simulated, outcome.syncs);
    let mut violation = outcome.violations.first().cloned();
    if violation.is_none() {
        let fair = played(plan, &kept.without_faults(), None);
        simulated += fair.simulated;
        syncs += fair.syncs;
        violation = fair.violations.first().cloned().or_else(|| ends_alike(&outcome, &fair));
    }
    Trial { outcome, violation, simulated, syncs }
}

/// 6. Once nothing goes wrong any more, all ends as if nothing ever had.
fn ends_alike(outcome: &Outcome, fair: &Outcome) -> Option<Violation> {
    let (hpa, ended) = outcome.end.iter().find(|(hpa, ended)| fair.end.get(hpa) != Some(ended))?;
    let text = format!("h{hpa} ends as {ended}, without faults as {}", fair.end[hpa]);
    Some(Violation { at: outcome.simulated, invariant: "ends as without faults", text })
}
