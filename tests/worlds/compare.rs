//! Compares the traces of both controllers.

use std::collections::BTreeMap;

use crate::plan::Plan;
use crate::trace::Trace;

pub(crate) type Traces = BTreeMap<(String, String), Trace>;

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) lines: usize,
    pub(crate) differences: Vec<String>,
}

pub(crate) fn compare(plans: &[Plan], reference: &Traces, ours: &Traces) -> Comparison {
    let mut comparison = Comparison::default();
    for plan in plans {
        for hpa in &plan.hpas {
            let key = (plan.namespace.clone(), hpa.name.clone());
            let (Some(expected), Some(got)) = (reference.get(&key), ours.get(&key)) else {
                comparison.differences.push(format!("{key:?}: no trace"));
                continue;
            };
            comparison.lines += expected.writes.len() + expected.events.len();
            if expected != got {
                let all = |trace: &Trace| [trace.writes.clone(), trace.events.clone()].concat();
                let text = difference(&all(expected), &all(got));
                let faults: Vec<_> = plan.steps.iter().map(|step| &step.faults).collect();
                comparison
                    .differences
                    .push(format!("{}/{} {:?}, faults {faults:?}:\n{text}", key.0, key.1, hpa.traits));
            }
        }
    }
    comparison
}

/// The lines that only one side has.
fn difference(expected: &[String], got: &[String]) -> String {
    let same = expected.iter().zip(got).take_while(|(one, other)| one == other).count();
    let mut text = format!("  after {same} equal lines\n");
    for (side, one, other) in [("built-in", expected, got), ("ours", got, expected)] {
        let lines = one.iter().skip(same).filter(|line| !other.contains(line));
        for line in lines.take(6) {
            text += &format!("    {side}: {line}\n");
        }
    }
    text
}
