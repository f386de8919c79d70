//! Which faults are on, and whom they strike.

use std::collections::BTreeMap;

use crate::ledger::Subject;
use crate::plan::{Class, Fault, FaultKind};

/// The faults that are on.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    active: Vec<Active>,
    /// How often each fault of the plan struck.
    pub(crate) struck: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Active {
    number: usize,
    fault: Fault,
    left: u64,
}

/// One fault that strikes a request, an answer or a piece of a watch.
#[derive(Debug, Clone)]
pub(crate) struct Strike {
    pub(crate) kind: FaultKind,
    pub(crate) amount: u64,
    pub(crate) until: std::time::Duration,
}

impl Weather {
    pub(crate) fn begin(&mut self, number: usize, fault: &Fault) {
        self.active.push(Active { number, fault: fault.clone(), left: fault.times });
    }

    pub(crate) fn end(&mut self, number: usize) {
        self.active.retain(|active| active.number != number);
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.active.is_empty()
    }

    /// Counts a fault that is not one of requests.
    pub(crate) fn count(&mut self, number: usize) {
        *self.struck.entry(number).or_default() += 1;
    }

    /// The first fault of these kinds that strikes; its strikes are used up one by one.
    pub(crate) fn strikes(
        &mut self,
        kinds: &[FaultKind],
        process: usize,
        subject: Subject,
    ) -> Option<Strike> {
        let active = self.active.iter_mut().find(|active| {
            active.left > 0 && kinds.contains(&active.fault.kind) && active.fault.concerns(process, subject)
        })?;
        active.left -= 1;
        *self.struck.entry(active.number).or_default() += 1;
        let Fault { kind, amount, until, .. } = active.fault;
        Some(Strike { kind, amount, until })
    }
}

impl Fault {
    fn concerns(&self, process: usize, subject: Subject) -> bool {
        self.process.is_none_or(|other| other == process)
            // What several HPAs share is not the metric of one.
            && (self.hpa.is_none()
                || self.hpa == subject.hpa
                || (subject.hpa.is_none() && subject.class != Class::Metrics))
            && match self.kind {
                FaultKind::CrashBefore
                | FaultKind::CrashAfter
                | FaultKind::ResetBefore
                | FaultKind::ResetAfter
                | FaultKind::Conflict
                | FaultKind::Hang
                | FaultKind::Slow => self.class == subject.class,
                _ => true,
            }
    }
}

impl Subject {
    pub(crate) fn is_watch(self) -> bool {
        matches!(self.class, Class::WatchHpas | Class::WatchPods | Class::WatchTargets)
    }

    pub(crate) fn is_list(self) -> bool {
        self.is_watch() || matches!(self.class, Class::ListHpas | Class::ListPods)
    }
}
