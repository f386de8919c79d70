//! Compares the traces of both controllers.

use std::collections::BTreeMap;

use crate::plan::{Plan, PlannedHpa, Trait};
use crate::trace::Trace;

pub(crate) type Traces = BTreeMap<(String, String), Trace>;

/// A difference on purpose. `docs/reference/parity.md` lists it. Everything that follows from it may differ as
/// well, so it explains all differences of an HPA.
pub(crate) struct Intended {
    pub(crate) reason: &'static str,
    /// The HPAs that it can affect.
    affects: Trait,
}

/// Every difference that is not in this table fails the test.
pub(crate) const INTENDED: [Intended; 4] = [
    Intended { reason: "values and sums beyond 2^63 saturate, upstream they wrap", affects: Trait::Overflow },
    Intended {
        reason: "an HPA that is created again starts without a history, upstream it inherits one",
        affects: Trait::Recreated,
    },
    Intended {
        reason: "a rescale with a lost response is verified and counts, upstream it has failed",
        affects: Trait::LostResponse,
    },
    Intended {
        reason: "pods that have succeeded are ignored, upstream they count",
        affects: Trait::SucceededPods,
    },
];

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) hpas: usize,
    pub(crate) lines: usize,
    /// Number of HPAs by the reason of their difference.
    pub(crate) explained: BTreeMap<&'static str, usize>,
    pub(crate) differences: Vec<String>,
}

pub(crate) fn compare(plans: &[Plan], reference: &Traces, ours: &Traces) -> Comparison {
    let mut comparison = Comparison::default();
    for plan in plans {
        for hpa in &plan.hpas {
            let key = (plan.namespace.clone(), hpa.name.clone());
            let (Some(mut expected), Some(mut got)) = (reference.get(&key).cloned(), ours.get(&key).cloned())
            else {
                comparison.differences.push(format!("{key:?}: no trace"));
                continue;
            };
            if hpa.scale.is_none() {
                // Nothing holds these syncs, so their number depends on time.
                expected.remove_counts();
                got.remove_counts();
            }
            comparison.hpas += 1;
            comparison.lines += expected.writes.len() + expected.events.len();
            if expected == got {
                continue;
            }
            if let Some(reason) = explain(hpa) {
                *comparison.explained.entry(reason).or_default() += 1;
                continue;
            }
            let all = |trace: &Trace| [trace.writes.clone(), trace.events.clone()].concat();
            let text = difference(&all(&expected), &all(&got));
            let faults: Vec<_> = plan.steps.iter().map(|step| &step.faults).collect();
            comparison.differences.push(format!("{}/{} with faults {faults:?}:\n{text}", key.0, key.1));
        }
    }
    comparison
}

/// The reason of the intended difference that affects an HPA.
fn explain(hpa: &PlannedHpa) -> Option<&'static str> {
    let intended = INTENDED.iter().find(|intended| hpa.traits.contains(&intended.affects))?;
    Some(intended.reason)
}

/// The lines that only one side has, up to a limit.
fn difference(expected: &[String], got: &[String]) -> String {
    let same = expected.iter().zip(got).take_while(|(one, other)| one == other).count();
    let mut text = format!("  after {same} equal lines\n");
    for (side, one, other) in [("built-in", expected, got), ("ours", got, expected)] {
        let lines = one.iter().skip(same).filter(|line| !other.contains(line));
        for line in lines.take(12) {
            text.extend(["    ", side, ": ", line.as_str(), "\n"]);
        }
    }
    text
}
