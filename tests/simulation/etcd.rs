//! Restores of etcd from a backup.

use std::time::Duration;

use crate::plan::{FaultKind, InitialState, Plan};
use crate::run::Run;

/// Versions that other types take per second, if a restore loses versions. The cluster then never reaches again
/// the versions that processes have observed, although tenants edit HPAs for minutes. A watch that is silent until
/// then would lose the events in between, which no client can notice.
const BUSY: u64 = 100_000;
/// Versions by which a restore exceeds the last version, if it raises versions.
const RAISED: u64 = 1_000_000;

/// The newest version of the cluster at each second.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    versions: Vec<(Duration, u64)>,
    /// Whether other types take versions.
    is_busy: bool,
}

/// Whether a restore raises the versions above all earlier ones, as the documentation of etcd recommends.
/// Otherwise, the cluster loses versions.
pub(crate) fn raises_versions(amount: u64) -> bool {
    amount.is_multiple_of(2)
}

impl Backups {
    pub(crate) fn new(plan: &Plan) -> Self {
        let loses =
            |kind: FaultKind, amount: u64| kind == FaultKind::EtcdRestored && !raises_versions(amount);
        let is_busy = plan.faults.iter().any(|fault| loses(fault.kind, fault.amount));
        Self { versions: Vec::new(), is_busy }
    }

    /// The newest version at `at`, or the oldest one that is known.
    fn version(&self, at: Duration) -> Option<u64> {
        let taken = self.versions.iter().rfind(|(taken, _)| *taken <= at);
        taken.or_else(|| self.versions.first()).map(|(_, version)| *version)
    }
}

/// Takes a backup.
pub(crate) fn back_up(run: &Run) {
    let mut backups = run.backups.lock();
    backups.versions.push((run.now(), run.cluster.resource_version()));
    if backups.is_busy {
        run.cluster.skip_versions(BUSY);
    }
}

/// Restores a backup that is at most about a minute old.
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
