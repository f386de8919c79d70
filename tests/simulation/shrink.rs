//! Reduces a failure to the few actions and faults that cause it (delta debugging).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::{Plan, Selection};
use crate::seed_check::{SeedResult, attempt};
use crate::seeded_bugs::SeededBug;

/// Maximum number of runs for one failure.
const TRIES: u32 = 150;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Fault(usize),
    Action(usize),
}

/// Removes the actions and faults that a violation of the same invariant does not need.
pub(crate) fn shrink(
    plan: &Arc<Plan>,
    kept: Selection,
    trial: SeedResult,
    plant: Option<SeededBug>,
) -> (Selection, SeedResult) {
    let invariant = trial.violation.as_ref().map(|violation| violation.invariant);
    let (mut kept, mut trial) = (kept, trial);
    let mut parts = parts(&kept);
    let (mut size, mut tries) = (parts.len().div_ceil(2), 0);
    while size > 0 && tries < TRIES {
        let mut left_out = false;
        let mut from = 0;
        while from < parts.len() && tries < TRIES {
            let without: Vec<_> = parts
                .iter()
                .enumerate()
                .filter(|(at, _)| !(from..from + size).contains(at))
                .map(|(_, part)| *part)
                .collect();
            let candidate = from_parts(&without);
            let next = attempt(plan, &candidate, plant);
            tries += 1;
            if next.violation.as_ref().map(|violation| violation.invariant) == invariant {
                (parts, kept, trial, left_out) = (without, candidate, next, true);
            } else {
                from += size;
            }
        }
        if !left_out || size > parts.len() {
            size /= 2;
        }
    }
    (kept, trial)
}

fn parts(kept: &Selection) -> Vec<Part> {
    let faults = kept.faults.iter().map(|number| Part::Fault(*number));
    faults.chain(kept.actions.iter().map(|number| Part::Action(*number))).collect()
}

fn from_parts(parts: &[Part]) -> Selection {
    let mut kept = Selection { actions: BTreeSet::new(), faults: BTreeSet::new() };
    for part in parts {
        match *part {
            Part::Fault(number) => kept.faults.insert(number),
            Part::Action(number) => kept.actions.insert(number),
        };
    }
    kept
}
