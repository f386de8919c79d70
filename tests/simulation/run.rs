//! What all parts of one run share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use concertina::clock::{SharedClock, VirtualClock};
use concertina::embedded::workload::Workloads;
use concertina::embedded::{Answer, BareScale, Cluster, ScalePath};
use concertina::store::HpaRecord;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::judge::Judge;
use crate::ledger::Entry;
use crate::memory::Memory;
use crate::network::Network;
use crate::plan::{Class, Plan, Scene};
use crate::plants::Plant;
use crate::readings::Readings;
use crate::weather::Weather;

/// When every run begins.
const EPOCH: &str = "2030-01-01T00:00:00Z";

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    pub(crate) plant: Option<Plant>,
    began: Instant,
    pub(crate) clock: SharedClock,
    pub(crate) cluster: Cluster,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) readings: Arc<Readings>,
    pub(crate) weather: Mutex<Weather>,
    /// Wakes watches when faults begin or end.
    pub(crate) weather_changed: Notify,
    pub(crate) ledger: Mutex<Vec<Entry>>,
    pub(crate) judge: Mutex<Judge>,
    pub(crate) memory: Memory,
    /// The life that each process leads.
    lives: Mutex<Vec<Option<Life>>>,
    /// Lives that have ended.
    ends: Mutex<Vec<End>>,
    /// Until when something stands in the way of handing over.
    unfair_until: Mutex<Duration>,
    pub(crate) network: Network,
    /// Cancelled with the first violation.
    pub(crate) over: CancellationToken,
    story: Mutex<Vec<(Duration, String)>>,
}

/// One life of a process.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) number: u32,
    pub(crate) began: Duration,
    /// Asks the process to end.
    pub(crate) stop: CancellationToken,
    /// Takes its network away, which to all others is its death.
    pub(crate) cut: CancellationToken,
}

/// The end of a life.
#[derive(Debug, Clone, Copy)]
struct End {
    life: (usize, u32),
    at: Duration,
    in_order: bool,
}

/// How long a standby must have been there to have copied everything.
const COPIED: Duration = Duration::from_secs(20);
/// What was changed so shortly before a crash may be missing.
const LAST: Duration = Duration::from_secs(2);

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: Duration,
    pub(crate) invariant: &'static str,
    pub(crate) text: String,
}

impl Run {
    /// Must be called within a runtime whose time stands still.
    pub(crate) fn new(plan: Arc<Plan>, plant: Option<Plant>) -> Arc<Self> {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(EPOCH.parse().unwrap()));
        let cluster = Cluster::new(Arc::clone(&clock));
        cluster.requests().keep(0);
        let workloads = Workloads::new(cluster.clone(), Arc::clone(&clock)).with_seed(plan.seed);
        let readings = Arc::new(Readings::new(plan.scene.hpas.len()));
        cluster.set_metrics(Arc::clone(&readings) as _);
        let processes = plan.scene.processes;
        Arc::new(Self {
            judge: Mutex::new(Judge::new(&plan)),
            memory: Memory::new(&plan.scene),
            plan,
            plant,
            began: Instant::now(),
            clock,
            cluster,
            workloads: Arc::new(workloads),
            readings,
            weather: Mutex::default(),
            weather_changed: Notify::new(),
            ledger: Mutex::default(),
            lives: Mutex::new(vec![None; processes]),
            ends: Mutex::default(),
            unfair_until: Mutex::default(),
            network: Network::default(),
            over: CancellationToken::new(),
            story: Mutex::default(),
        })
    }

    // --- time

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.began + at
    }

    pub(crate) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.instant(at)).await;
    }

    // --- lives

    pub(crate) fn born(&self, process: usize, life: Life) {
        self.lives.lock().unwrap()[process] = Some(life);
    }

    pub(crate) fn life(&self, process: usize) -> Option<Life> {
        self.lives.lock().unwrap()[process].clone()
    }

    pub(crate) fn is_dead(&self, process: usize, life: u32) -> bool {
        self.life(process).is_none_or(|now| now.number != life || now.cut.is_cancelled())
    }

    /// Ends a life without a chance to do anything more.
    pub(crate) fn crash(&self, process: usize, life: u32) {
        if let Some(life) = self.life(process).filter(|now| now.number == life && !now.cut.is_cancelled()) {
            self.tell(format!("process {process} dies"));
            self.ended(process, life.number, false);
            life.cut.cancel();
            life.stop.cancel();
        }
    }

    /// A life has ended, in order or not; only the first word counts.
    pub(crate) fn ended(&self, process: usize, life: u32, in_order: bool) {
        let at = self.now();
        self.judge.lock().unwrap().ended(at);
        let mut ends = self.ends.lock().unwrap();
        if ends.iter().all(|end| end.life != (process, life)) {
            ends.push(End { life: (process, life), at, in_order });
        }
    }

    /// Something stands in the way of handing over, until then and for a while after.
    pub(crate) fn is_unfair_until(&self, until: Duration) {
        let mut unfair = self.unfair_until.lock().unwrap();
        *unfair = (*unfair).max(until + COPIED);
    }

    /// Somebody else has changed an HPA or its target.
    pub(crate) fn touches(&self, hpa: usize) {
        self.judge.lock().unwrap().touches(hpa, self.now());
    }

    /// When somebody else last changed what an HPA scales.
    pub(crate) fn touched(&self, hpa: &HpaRecord) -> Option<Duration> {
        Scene::number(&hpa.key.name).and_then(|hpa| self.judge.lock().unwrap().touched(hpa))
    }

    /// Whether everything that a life remembered of an HPA, which it `synced` last then, must have come to the next: another
    /// process stood by for long enough, nothing stood in the way, and if it crashed, not within the last moment, and the
    /// status told the count that somebody else gave the target: who was it? Or it was alone, ended in order and kept a
    /// checkpoint, which this next life was the first to read.
    pub(crate) fn hands_over(&self, from: (usize, u32), hpa: &HpaRecord, synced: Duration) -> bool {
        let ends = self.ends.lock().unwrap();
        let Some(end) = ends.iter().find(|end| end.life == from) else { return false };
        let was_there = |process: usize| {
            process != from.0
                && self
                    .life(process)
                    .is_some_and(|life| life.began + COPIED <= end.at && !self.is_dead(process, life.number))
        };
        let has_standby = (0..self.plan.scene.processes).any(was_there);
        let is_fair = *self.unfair_until.lock().unwrap() <= end.at;
        let touched = self.touched(hpa);
        let name = Scene::number(&hpa.key.name);
        let ledger = self.ledger.lock().unwrap();
        let own = || {
            let own = |entry: &&Entry| (entry.process, entry.life) == from && entry.hpa == name;
            ledger.iter().rev().take(2_000).filter(own)
        };
        let is_last = |at: Duration| at + LAST > end.at;
        let is_recent = || is_last(synced) || own().any(|entry| entry.answered.is_none_or(is_last));
        let is_told = || {
            let tells =
                |at| own().any(|entry| entry.class == Class::StatusPut && entry.is_done() && entry.sent > at);
            touched.is_none_or(tells)
        };
        let scene = &self.plan.scene;
        let is_checkpointed = scene.checkpoint && scene.processes == 1 && end.in_order;
        let is_next = || ends.iter().all(|other| other.at <= end.at);
        is_fair
            && ((has_standby && (end.in_order || (is_told() && !is_recent())))
                // A rescale of the last second may be one that the checkpoint lacks.
                || (is_checkpointed && is_next() && !is_recent()))
    }

    // --- evidence

    pub(crate) fn sent(&self, entry: Entry) -> usize {
        let mut ledger = self.ledger.lock().unwrap();
        let violation = self.judge.lock().unwrap().sent(&entry);
        ledger.push(entry);
        let number = ledger.len() - 1;
        drop(ledger);
        self.report(violation);
        number
    }

    pub(crate) fn applied(&self, number: usize, before: Option<i64>, answer: &Answer) {
        let now = self.now();
        let mut ledger = self.ledger.lock().unwrap();
        let entry = &mut ledger[number];
        (entry.applied, entry.before, entry.code) = (Some(now), before, answer.code());
        if let Answer::Whole(whole) = answer
            && matches!(entry.class, Class::ScaleGet | Class::StatusPut | Class::HpaGet)
        {
            versions(&whole.body).next().unwrap_or_default().clone_into(&mut entry.shown);
        }
        let entry = entry.clone();
        drop(ledger);
        let violation = self.judge.lock().unwrap().applied(&entry, now);
        self.report(violation);
    }

    pub(crate) fn answered(&self, number: usize, code: Option<u16>, intact: bool) {
        let now = self.now();
        let mut ledger = self.ledger.lock().unwrap();
        let entry = &mut ledger[number];
        entry.intact = intact;
        if code.is_some() {
            (entry.answered, entry.code) = (Some(now), code);
        }
        let entry = entry.clone();
        drop(ledger);
        if code.is_some() {
            self.judge.lock().unwrap().answered(&entry);
        }
    }

    /// A process is shown HPAs.
    pub(crate) fn shown(&self, process: usize, life: u32, text: &[u8]) {
        let mut judge = self.judge.lock().unwrap();
        versions(text).for_each(|version| judge.shown(process, life, version));
    }

    pub(crate) fn report(&self, violation: Option<(&'static str, String)>) {
        if let Some((invariant, text)) = violation {
            let mut judge = self.judge.lock().unwrap();
            judge.violations.push(Violation { at: self.now(), invariant, text });
            self.over.cancel();
        }
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, line: String) {
        self.story.lock().unwrap().push((self.now(), line));
    }

    /// What happened, in order: actions and faults, writes and what failed.
    pub(crate) fn story(&self) -> Vec<(Duration, String)> {
        let mut story = self.story.lock().unwrap().clone();
        let ledger = self.ledger.lock().unwrap();
        let told = |entry: &&Entry| {
            matches!(entry.class, Class::ScalePut)
                || (entry.class == Class::LeaseWrite && entry.code == Some(201))
                || (entry.code.is_none_or(|code| code >= 400) && entry.class != Class::Discovery)
        };
        story.extend(
            ledger.iter().filter(told).map(|entry| (entry.applied.unwrap_or(entry.sent), entry.to_string())),
        );
        story.sort_by_key(|(at, _)| *at);
        story
    }

    /// Every request, with all that is known of it.
    pub(crate) fn log(&self) -> Vec<String> {
        self.ledger.lock().unwrap().iter().map(|entry| format!("{entry:?}")).collect()
    }

    // --- the world

    /// Whether no count is on its way any more.
    pub(crate) fn is_still(&self) -> bool {
        self.judge.lock().unwrap().rescaled + self.plan.still < self.now()
    }

    /// Whether no fault is on.
    pub(crate) fn is_fair(&self) -> bool {
        self.weather.lock().unwrap().is_clear()
    }

    /// `spec.replicas` of a target; none if there is no target.
    pub(crate) fn replicas(&self, hpa: usize) -> Option<i64> {
        if self.plan.scene.hpas[hpa].has_pods {
            let target = self.cluster.get("apps/deployments", "shop", &Scene::name(hpa))?;
            Some(target["spec"]["replicas"].as_i64().unwrap_or(0))
        } else {
            self.bare(hpa).map(|scale| scale.spec_replicas)
        }
    }

    pub(crate) fn bare(&self, hpa: usize) -> Option<BareScale> {
        self.cluster.scale(&path(hpa))
    }

    pub(crate) fn put_bare(&self, hpa: usize, replicas: i64, ready: i64) {
        let selector = format!("app={}", Scene::name(hpa));
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
        namespace: "shop".to_owned(),
        name: Scene::name(hpa),
    }
}
