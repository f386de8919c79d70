//! The active faults, and the requests that they hit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::etcd;
use crate::plan::{Class, Fault, FaultKind};
use crate::request_log::Subject;

/// Time after which a process replaces a silent watch, with the time of the next one's start.
const SILENCE: Duration = Duration::from_secs(95);

/// The active faults.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults {
    active: Vec<Active>,
    /// Number of hits by the number of the fault in the plan.
    pub(crate) hits: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Active {
    number: usize,
    fault: Fault,
    left: u64,
}

/// One hit of a fault on a request, a response or a piece of a watch.
#[derive(Debug, Clone)]
pub(crate) struct FaultHit {
    pub(crate) kind: FaultKind,
    pub(crate) amount: u64,
    pub(crate) until: Duration,
}

impl ActiveFaults {
    pub(crate) fn start(&mut self, number: usize, fault: &Fault) {
        self.active.push(Active { number, fault: fault.clone(), left: fault.times });
    }

    pub(crate) fn stop(&mut self, number: usize) {
        self.active.retain(|active| active.number != number);
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.active.is_empty()
    }

    /// The active faults with their numbers in the plan.
    pub(crate) fn active(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.active.iter().map(|active| (active.number, &active.fault))
    }

    /// Counts a hit of a fault that does not concern requests.
    pub(crate) fn count(&mut self, number: usize) {
        *self.hits.entry(number).or_default() += 1;
    }

    /// The first active fault of `kinds` that hits the request. Each hit uses up one of the fault's `times`.
    pub(crate) fn hit(&mut self, kinds: &[FaultKind], process: usize, subject: Subject) -> Option<FaultHit> {
        let active = self.active.iter_mut().find(|active| {
            active.left > 0 && kinds.contains(&active.fault.kind) && active.fault.concerns(process, subject)
        })?;
        active.left -= 1;
        *self.hits.entry(active.number).or_default() += 1;
        let Fault { kind, amount, until, .. } = active.fault;
        Some(FaultHit { kind, amount, until })
    }
}

impl FaultHit {
    /// Whether a silent watch stays silent after its fault, until the process closes it.
    pub(crate) fn hangs(&self) -> bool {
        hangs(self.kind, self.amount)
    }
}

fn hangs(kind: FaultKind, amount: u64) -> bool {
    kind == FaultKind::WatchSilent && amount % 2 == 1
}

impl Fault {
    /// Time after the end of the fault until which its effect lasts: a process notices a watch that hangs after
    /// 90 s of silence. Two such watches in a row cause the list that shows a restore of etcd.
    pub(crate) fn aftermath(&self) -> Duration {
        let watches = match self.kind {
            FaultKind::EtcdRestored if !etcd::raises_versions(self.amount) => 2,
            kind => u32::from(hangs(kind, self.amount)),
        };
        SILENCE * watches
    }

    fn concerns(&self, process: usize, subject: Subject) -> bool {
        self.process.is_none_or(|other| other == process)
            // A fault of one HPA's metrics does not hit a response that several HPAs share.
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
