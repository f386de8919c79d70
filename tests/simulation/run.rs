//! The shared state of one run.

use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, VirtualClock};
use engine::store::HpaRecord;
use fake_cluster::workload::Workloads;
use fake_cluster::{Answer, BareScale, Cluster, ScalePath};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::faults::{ActiveFaults, Backups};
use crate::ideal_history::IdealHistories;
use crate::invariants::Invariants;
use crate::metrics_backend::MetricValues;
use crate::plan::{Class, InitialState, Plan};
use crate::request_log::Entry;
use crate::seeded_bugs::SeededBug;

/// Start time of every run.
const EPOCH: &str = "2030-01-01T00:00:00Z";

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) plant: Option<SeededBug>,
    started: Instant,
    pub(crate) clock: SharedClock,
    pub(crate) cluster: Cluster,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) readings: Arc<MetricValues>,
    pub(crate) faults: Mutex<ActiveFaults>,
    /// Wakes watches when faults start or end.
    pub(crate) faults_changed: Notify,
    pub(crate) ledger: Mutex<Vec<Entry>>,
    pub(crate) judge: Mutex<Invariants>,
    pub(crate) memory: IdealHistories,
    pub(crate) backups: Mutex<Backups>,
    /// The current lifetime of each process.
    lives: Mutex<Vec<Option<Life>>>,
    /// Lifetimes that have ended.
    ends: Mutex<Vec<LifeEnd>>,
    /// Time until which faults may prevent a handover.
    handover_impaired_until: Mutex<Duration>,
    /// Cancelled at the first violation.
    pub(crate) over: CancellationToken,
    story: Mutex<Vec<(Duration, String)>>,
}

/// One lifetime of a process.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) number: u32,
    /// Cancelled to request an orderly shutdown of the process.
    pub(crate) stop: CancellationToken,
    /// Cancelled to disconnect the process from the network. Other processes observe a crash.
    pub(crate) cut: CancellationToken,
}

/// The end of a lifetime.
#[derive(Debug, Clone, Copy)]
struct LifeEnd {
    life: (usize, u32),
    at: Duration,
    in_order: bool,
}

/// Time after a fault until which a leader has restored and written its histories.
const WRITTEN: Duration = Duration::from_secs(20);
/// A rescale within this time before the last checkpoint may count as a rescale after it.
const UNCERTAIN: Duration = Duration::from_secs(2);

/// A violation of an invariant.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: Duration,
    pub(crate) invariant: &'static str,
    pub(crate) text: String,
}

impl Run {
    /// Creates a run. Requires a runtime with paused time.
    pub(crate) fn new(plan: Arc<Plan>, plant: Option<SeededBug>) -> Arc<Self> {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(EPOCH.parse().unwrap()));
        let cluster = Cluster::new(Arc::clone(&clock));
        cluster.requests().keep(0);
        let workloads = Workloads::new(cluster.clone(), Arc::clone(&clock)).with_seed(plan.seed);
        let readings = Arc::new(MetricValues::new(plan.scene.hpas.len()));
        cluster.set_metrics(Arc::clone(&readings) as _);
        let processes = plan.scene.processes;
        Arc::new(Self {
            judge: Mutex::new(Invariants::new(&plan)),
            memory: IdealHistories::new(&plan.scene),
            backups: Mutex::new(Backups::new(&plan)),
            plan,
            plant,
            started: Instant::now(),
            clock,
            cluster,
            workloads: Arc::new(workloads),
            readings,
            faults: Mutex::default(),
            faults_changed: Notify::new(),
            ledger: Mutex::default(),
            lives: Mutex::new(vec![None; processes]),
            ends: Mutex::default(),
            handover_impaired_until: Mutex::default(),
            over: CancellationToken::new(),
            story: Mutex::default(),
        })
    }

    // --- time

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.started + at
    }

    pub(crate) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.instant(at)).await;
    }

    // --- lifetimes of processes

    pub(crate) fn life_started(&self, process: usize, life: Life) {
        self.lives.lock()[process] = Some(life);
    }

    pub(crate) fn life(&self, process: usize) -> Option<Life> {
        self.lives.lock()[process].clone()
    }

    pub(crate) fn is_dead(&self, process: usize, life: u32) -> bool {
        self.life(process).is_none_or(|now| now.number != life || now.cut.is_cancelled())
    }

    /// Ends a lifetime at once, without an orderly shutdown.
    pub(crate) fn crash(&self, process: usize, life: u32) {
        if let Some(life) = self.life(process).filter(|now| now.number == life && !now.cut.is_cancelled()) {
            self.record_event(format!("process {process} died"));
            self.ended(process, life.number, false);
            life.cut.cancel();
            life.stop.cancel();
        }
    }

    /// Records the end of a lifetime. Only the first call for a lifetime counts.
    pub(crate) fn ended(&self, process: usize, life: u32, in_order: bool) {
        let at = self.now();
        self.judge.lock().ended(at);
        let mut ends = self.ends.lock();
        if ends.iter().all(|end| end.life != (process, life)) {
            ends.push(LifeEnd { life: (process, life), at, in_order });
        }
    }

    /// Marks handovers as impaired until `until`, and for [`WRITTEN`] afterwards.
    pub(crate) fn impair_handover_until(&self, until: Duration) {
        let mut impaired = self.handover_impaired_until.lock();
        *impaired = (*impaired).max(until + WRITTEN);
    }

    /// Records a foreign change of an HPA or its target.
    pub(crate) fn foreign_change(&self, hpa: usize) {
        self.judge.lock().foreign_change(hpa, self.now());
    }

    /// Time of the last foreign change of an HPA or its target.
    pub(crate) fn last_foreign_change(&self, hpa: &HpaRecord) -> Option<Duration> {
        InitialState::number(&hpa.key.name).and_then(|hpa| self.judge.lock().last_foreign_change(hpa))
    }

    /// Time of the last creation of an HPA of this name.
    pub(crate) fn created(&self, hpa: &HpaRecord) -> Duration {
        InitialState::number(&hpa.key.name).map(|hpa| self.judge.lock().created(hpa)).unwrap_or_default()
    }

    /// Whether the next lifetime must have the whole history of an HPA with a last sync at `synced`: the lifetime shut
    /// down in order and wrote a checkpoint after its last requests for the HPA, the next lifetime is the first to read
    /// the checkpoint, and no fault may have impaired the handover. After a crash, the recommendations since the last
    /// checkpoint are lost.
    pub(crate) fn must_hand_over(&self, from: (usize, u32), hpa: &HpaRecord, synced: Duration) -> bool {
        let ends = self.ends.lock();
        let Some(end) = ends.iter().find(|end| end.life == from) else { return false };
        let is_unimpaired = *self.handover_impaired_until.lock() <= end.at;
        // A hostile tenant changes its HPAs constantly, so their histories are not judged.
        let Some(name) = InitialState::number(&hpa.key.name) else { return false };
        let ledger = self.ledger.lock();
        let its_requests = || {
            let is_its = |entry: &&Entry| (entry.process, entry.life) == from && entry.hpa == Some(name);
            ledger.iter().rev().filter(|entry| !entry.is_tenant).take(2_000).filter(is_its)
        };
        let is_last = |at: Duration| at + UNCERTAIN > end.at;
        let is_recent = || is_last(synced) || its_requests().any(|entry| entry.answered.is_none_or(is_last));
        let is_next = || ends.iter().all(|other| other.at <= end.at);
        is_unimpaired && self.plan.scene.checkpoint && end.in_order && is_next() && !is_recent()
    }

    // --- evidence

    pub(crate) fn sent(&self, entry: Entry) -> usize {
        let mut ledger = self.ledger.lock();
        let violation = self.judge.lock().sent(&entry);
        ledger.push(entry);
        let number = ledger.len() - 1;
        drop(ledger);
        self.report(violation);
        number
    }

    pub(crate) fn applied(&self, number: usize, before: Option<i64>, answer: &Answer) {
        let now = self.now();
        let mut ledger = self.ledger.lock();
        let entry = &mut ledger[number];
        (entry.applied, entry.before, entry.code) = (Some(now), before, answer.code());
        if let Answer::Whole(whole) = answer
            && matches!(entry.class, Class::ScaleGet | Class::StatusPut | Class::HpaGet)
        {
            versions(&whole.body).next().unwrap_or_default().clone_into(&mut entry.shown);
        }
        let entry = entry.clone();
        drop(ledger);
        let violation = self.judge.lock().applied(&entry, now);
        self.report(violation);
    }

    pub(crate) fn answered(&self, number: usize, code: Option<u16>, intact: bool) {
        let now = self.now();
        let mut ledger = self.ledger.lock();
        let entry = &mut ledger[number];
        entry.intact = intact;
        if code.is_some() {
            (entry.answered, entry.code) = (Some(now), code);
        }
        let entry = entry.clone();
        drop(ledger);
        if code.is_some() {
            self.judge.lock().answered(&entry);
        }
    }

    /// Records that a process received HPAs.
    pub(crate) fn received(&self, process: usize, life: u32, text: &[u8]) {
        let mut judge = self.judge.lock();
        versions(text).for_each(|version| judge.received(process, life, version));
    }

    pub(crate) fn report(&self, violation: Option<(&'static str, String)>) {
        if let Some((invariant, text)) = violation {
            let mut judge = self.judge.lock();
            judge.violations.push(Violation { at: self.now(), invariant, text });
            self.over.cancel();
        }
    }

    /// Adds a line to the log of the run.
    pub(crate) fn record_event(&self, line: String) {
        self.story.lock().push((self.now(), line));
    }

    /// The log of the run in order: actions, faults, writes of Scales, created Leases, and failed requests other than
    /// discovery.
    pub(crate) fn timeline(&self) -> Vec<(Duration, String)> {
        let mut story = self.story.lock().clone();
        let ledger = self.ledger.lock();
        let is_notable = |entry: &&Entry| {
            matches!(entry.class, Class::ScalePut)
                || (entry.class == Class::LeaseWrite && entry.code == Some(201))
                || (entry.code.is_none_or(|code| code >= 400) && entry.class != Class::Discovery)
        };
        story.extend(
            ledger
                .iter()
                .filter(is_notable)
                .map(|entry| (entry.applied.unwrap_or(entry.sent), entry.to_string())),
        );
        story.sort_by_key(|(at, _)| *at);
        story
    }

    /// Every request with all recorded fields.
    pub(crate) fn log(&self) -> Vec<String> {
        self.ledger.lock().iter().map(|entry| format!("{entry:?}")).collect()
    }

    // --- the world

    /// Whether no more rescales are expected.
    pub(crate) fn is_settled(&self) -> bool {
        self.judge.lock().rescaled + self.plan.settle_time < self.now()
    }

    /// Whether no fault is active.
    pub(crate) fn is_fault_free(&self) -> bool {
        self.faults.lock().is_clear()
    }

    /// Whether a hostile tenant is active.
    pub(crate) fn has_tenant(&self) -> bool {
        self.faults.lock().active().any(|(_, fault)| fault.kind.is_tenant())
    }

    /// `spec.replicas` of a target, or `None` if it does not exist.
    pub(crate) fn replicas(&self, hpa: usize) -> Option<i64> {
        if self.plan.scene.hpas[hpa].has_pods {
            let target = self.cluster.get(
                "apps/deployments",
                InitialState::namespace(hpa),
                &InitialState::name(hpa),
            )?;
            Some(target["spec"]["replicas"].as_i64().unwrap_or(0))
        } else {
            self.bare(hpa).map(|scale| scale.spec_replicas)
        }
    }

    pub(crate) fn bare(&self, hpa: usize) -> Option<BareScale> {
        self.cluster.scale(&path(hpa))
    }

    pub(crate) fn put_bare(&self, hpa: usize, replicas: i64, ready: i64) {
        let selector = format!("app={}", InitialState::name(hpa));
        let scale = BareScale { spec_replicas: replicas, status_replicas: ready, selector };
        self.cluster.put_scale(&path(hpa), scale);
    }

    pub(crate) fn remove_bare(&self, hpa: usize) {
        self.cluster.remove_scale(&path(hpa));
    }
}

/// Every `resourceVersion` in a text.
fn versions(text: &[u8]) -> impl Iterator<Item = &str> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split("\"resourceVersion\":\"").skip(1).filter_map(|rest| rest.split('"').next())
}

fn path(hpa: usize) -> ScalePath {
    ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: InitialState::namespace(hpa).to_owned(),
        name: InitialState::name(hpa),
    }
}
