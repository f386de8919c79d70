//! The active faults, the requests that they hit, and restores of etcd from a backup.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::{Class, Fault, FaultKind, InitialState, Plan};
use crate::request_log::Subject;
use crate::run::Run;

/// Maximum time until a process has replaced a silent watch.
const SILENCE: Duration = Duration::from_secs(95);
/// Time after which a process notices that a restore of etcd has lost the version of its watch. Two silent watches in a
/// row cause a list.
pub(crate) const RESTORE_UNNOTICED: Duration = SILENCE.saturating_mul(2);

/// The active faults.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults {
    active: Vec<Active>,
    /// Number of hits of each fault, by the number of the fault in the plan.
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
    /// Time by which the effect of the fault outlasts the fault. A process notices a hanging watch after 90 s of
    /// silence. It notices after two silent watches that a restore of etcd has lost the version of its watch.
    pub(crate) fn aftermath(&self) -> Duration {
        if self.loses_versions() {
            RESTORE_UNNOTICED
        } else if hangs(self.kind, self.amount) {
            SILENCE
        } else {
            Duration::ZERO
        }
    }

    /// Whether watches continue from versions that the fault has lost.
    pub(crate) fn loses_versions(&self) -> bool {
        self.kind == FaultKind::EtcdRestored && !raises_versions(self.amount)
    }

    /// Whether the fault can make the view of a process stale.
    pub(crate) fn delays_views(&self) -> bool {
        use FaultKind as K;
        [
            K::Partition,
            K::Hang,
            K::Slow,
            K::Storm,
            K::Unauthorized,
            K::Throttle,
            K::ResetBefore,
            K::ResetAfter,
            K::WatchCut,
            K::WatchHole,
            K::WatchLate,
            K::WatchSilent,
            K::WatchGone,
            K::ListGone,
            K::ListCut,
            K::Restart,
            K::CrashBefore,
            K::CrashAfter,
            K::EtcdRestored,
        ]
        .contains(&self.kind)
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

/// Number of resource versions that writes of other types use per second, if a restore of the plan loses versions. The
/// restored cluster then does not reach the lost versions again. Otherwise, a silent watch would resume once the
/// cluster reaches its version, and would miss the events in between. No client can notice such a loss.
const BUSY: u64 = 100_000;
/// Number of versions by which a restore exceeds the last version, if it raises versions.
const RAISED: u64 = 1_000_000;

/// The newest version of the cluster at each second.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    versions: Vec<(Duration, u64)>,
    /// Whether writes of other types use versions.
    is_busy: bool,
}

/// Whether a restore raises the versions above all earlier ones, as the documentation of etcd recommends.
/// Otherwise, the cluster loses versions.
pub(crate) fn raises_versions(amount: u64) -> bool {
    amount.is_multiple_of(2)
}

impl Backups {
    pub(crate) fn new(plan: &Plan) -> Self {
        let is_busy = plan.faults.iter().any(Fault::loses_versions);
        Self { versions: Vec::new(), is_busy }
    }

    /// The newest version at `at`, or the oldest recorded version.
    fn version(&self, at: Duration) -> Option<u64> {
        let taken = self.versions.iter().rfind(|(taken, _)| *taken <= at);
        taken.or_else(|| self.versions.first()).map(|(_, version)| *version)
    }
}

/// Records the current version as a backup.
pub(crate) fn back_up(run: &Run) {
    let mut backups = run.backups.lock();
    backups.versions.push((run.now(), run.cluster.resource_version()));
    if backups.is_busy {
        run.cluster.skip_versions(BUSY);
    }
}

/// Restores the backup from 5 to 65 seconds ago, as `amount` determines, or the first backup.
pub(crate) fn restore(run: &Run, amount: u64) {
    let (now, age) = (run.now(), Duration::from_secs(5 + amount % 60));
    let mut backups = run.backups.lock();
    let Some(version) = backups.version(now.saturating_sub(age)) else { return };
    let newest = run.cluster.resource_version();
    run.cluster.restore(version);
    if raises_versions(amount) {
        run.cluster.skip_versions(newest - version + RAISED);
        run.cluster.compact();
    }
    // After a loss, the cluster must not reach the lost versions again.
    let is_busy = backups.is_busy && raises_versions(amount);
    *backups = Backups { versions: vec![(now, run.cluster.resource_version())], is_busy };
    run.readings.restored();
    run.judge.lock().etcd_restored(now);
    for hpa in 0..run.plan.scene.hpas.len() {
        run.foreign_change(hpa);
        let (namespace, name) = (InitialState::namespace(hpa), InitialState::name(hpa));
        let object = run.cluster.get("autoscaling/horizontalpodautoscalers", namespace, &name);
        run.judge.lock().hpa_changed(hpa, object.as_ref(), now);
    }
}
