//! Runs a plan: it starts and kills replicas, models the Lease, runs the guard checks, and performs the actions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coexist::handover::charges::GuardProof;
use controller::election::LeaseLife;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::guard::{BUILT_IN, Guard, Serving, scale_write};
use crate::invariants::{Fact, Journal};
use crate::links::{LoopLink, PlantedBug, ReplicaLink};
use crate::many_seeds::Rng;
use crate::plan::{Action, Edit, NAMES, Plan};
use crate::rig::{BuiltIn, Replica, label, namespace_label};
use crate::support::objects::{SHOP, external, hpa};
use crate::support::{Fixture, HPAS};

/// Duration of the Lease.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// Time without a renewal after which the leader exits.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum time between two attempts of a standby to acquire the Lease.
pub(crate) const RETRY: Duration = Duration::from_millis(4_400);
/// The interval between steps of the world, and between renewals of the Lease.
const STEP: Duration = Duration::from_secs(1);
/// The interval between changes of the metrics.
const METRICS: Duration = Duration::from_secs(5);
/// The interval between checks of the webhook configuration while it is correct.
const CHECK: Duration = Duration::from_secs(20);
/// The interval between checks of the webhook configuration while it is defective.
const CHECK_AGAIN: Duration = Duration::from_secs(5);
/// The time until a replica that lost the Lease restarts.
const RESTART: Duration = Duration::from_secs(3);
/// Maximum number of running replicas.
const MOST: usize = 3;

/// A running replica.
struct Running {
    number: usize,
    replica: Replica,
    life: LeaseLife,
    next_check: Duration,
    proven_since: Option<jiff::Timestamp>,
    started: Duration,
}

/// A run in progress.
pub(crate) struct World {
    stage: Fixture,
    plan: Plan,
    bug: Option<PlantedBug>,
    journal: Arc<Journal>,
    guard: Arc<Guard>,
    link: Arc<LoopLink>,
    rng: Rng,
    replicas: Vec<Running>,
    /// Number of replicas that have been started.
    started: usize,
    leader: Option<usize>,
    /// Time of the last renewal of the Lease, if any.
    renewed: Option<Duration>,
    /// Time at which a standby acquires the expired Lease.
    acquired_at: Option<Duration>,
    /// Time until which the Lease is unavailable.
    lost_until: Duration,
    restarts: Vec<Duration>,
    next_metrics: Duration,
    /// The label of each HPA.
    labels: [Option<&'static str>; 3],
    /// The label of the namespace.
    namespace: Option<&'static str>,
    in_scope: [bool; 3],
}

/// Runs a plan and returns its journal.
pub(crate) async fn play(plan: Plan, seed: u64, bug: Option<PlantedBug>) -> Arc<Journal> {
    let stage = Fixture::new();
    let journal = Arc::new(Journal::new());
    let names = &NAMES[..plan.hpas];
    for (number, name) in names.iter().enumerate() {
        stage.target(name, 4);
        stage.external(name, "40");
        stage.create(hpa(name, &[external(name, "10")]));
        journal.add(Fact::Scoped { hpa: number, is_in_scope: false, exists: true });
    }
    let guard = Guard::new(plan.standby_answers);
    let link = Arc::new(LoopLink {
        journal: Arc::clone(&journal),
        guard: Arc::clone(&guard),
        request: plan.request,
        unreached: plan.unreached,
        server: 0.into(),
        is_known: true.into(),
        is_led: false.into(),
        bug,
    });
    let _built_in = BuiltIn::behind(&stage, Some(Arc::clone(&link) as Arc<_>));
    let mut world = World {
        stage,
        bug,
        journal,
        guard,
        link,
        rng: Rng::for_purpose(seed, 2),
        replicas: Vec::new(),
        started: 0,
        leader: None,
        renewed: None,
        acquired_at: None,
        lost_until: Duration::ZERO,
        restarts: Vec::new(),
        next_metrics: Duration::ZERO,
        labels: [None; 3],
        namespace: None,
        in_scope: [false; 3],
        plan,
    };
    let actions = std::mem::take(&mut world.plan.actions);
    for (after, action) in actions {
        world.pass(after).await;
        world.act(action);
    }
    // No invariant permits a delay of two minutes.
    world.pass(Duration::from_mins(2)).await;
    Arc::clone(&world.journal)
}

impl World {
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let next = (Instant::now() + STEP).min(end);
            tokio::time::sleep_until(next).await;
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.journal.now();
        if now >= self.next_metrics {
            self.next_metrics = now + METRICS;
            let round = now.as_secs() / METRICS.as_secs();
            for (offset, name) in (0..).zip(&NAMES[..self.plan.hpas]) {
                self.stage.external(name, &(21 + (round * 17 + offset * 11) % 60).to_string());
            }
        }
        while self.restarts.first().is_some_and(|at| *at <= now) {
            self.restarts.remove(0);
            self.start();
        }
        self.renew(now);
        self.elect(now);
        self.check(now);
        let until = self.renewed.map(|renewed| renewed + LEASE);
        let is_led = until.is_some_and(|until| now < until + RETRY);
        self.link.is_led.store(is_led, Ordering::Relaxed);
        for running in &self.replicas {
            let lives = self.bug == Some(PlantedBug::RefusesWithoutLeader);
            let seen = if lives { Some(now + LEASE) } else { until };
            // A replica that cannot read the Lease keeps its last observation.
            running.life.observe(seen.map(|until| Instant::now() - now + until));
        }
    }

    /// The leader renews the Lease, or exits at the renewal deadline.
    fn renew(&mut self, now: Duration) {
        let Some(leader) = self.leader else { return };
        if now >= self.lost_until {
            self.renewed = Some(now);
        } else if self.renewed.is_some_and(|renewed| now >= renewed + RENEW_DEADLINE) {
            self.kill(leader);
            self.restarts.push(now + RESTART);
        }
    }

    /// A standby acquires the Lease after its expiry.
    fn elect(&mut self, now: Duration) {
        if self.leader.is_some() || now < self.lost_until {
            return;
        }
        let expired = self.renewed.map_or(Duration::ZERO, |renewed| renewed + LEASE);
        if now < expired {
            return;
        }
        let at = *self.acquired_at.get_or_insert_with(|| {
            let wait = self.rng.below(u64::try_from(RETRY.as_millis()).unwrap() - 1000);
            now.max(expired) + Duration::from_millis(wait)
        });
        // A process becomes a candidate once its caches are filled.
        let Some(next) = self.replicas.iter().find(|running| running.started + STEP <= now) else { return };
        if now < at {
            return;
        }
        let after = self.renewed.map(|renewed| now.saturating_sub(renewed));
        next.replica.lead(after);
        let is_handover = after.is_some_and(|after| after <= LEASE + Duration::from_secs(30));
        self.journal.add(Fact::Leads { replica: next.number, is_handover });
        (self.leader, self.renewed, self.acquired_at) = (Some(next.number), Some(now), None);
        self.serve();
    }

    /// Each replica checks the webhook configuration when its check is due.
    fn check(&mut self, now: Duration) {
        for running in &mut self.replicas {
            if now < running.next_check {
                continue;
            }
            let is_leader = self.leader == Some(running.number);
            // The leader repairs a wrong `caBundle`.
            if is_leader && self.guard.state.lock().edit == Edit::OtherAuthority {
                self.guard.state.lock().edit = Edit::None;
            }
            let found = self.guard.check();
            assert_eq!(found.is_ok(), self.guard.state.lock().edit.is_harmless(), "{found:?}");
            self.journal.add(Fact::Checked { replica: running.number, is_proven: found.is_ok() });
            let found = if self.bug == Some(PlantedBug::BrokenGuardUnseen) { Ok(()) } else { found };
            match found {
                Ok(()) => {
                    let since = *running.proven_since.get_or_insert_with(|| self.stage.clock.now());
                    running.replica.charges().guard(GuardProof::Proven { since });
                    running.next_check = now + CHECK;
                }
                Err(reason) => {
                    running.proven_since = None;
                    running.replica.charges().guard(GuardProof::Broken { reason });
                    running.next_check = now + CHECK_AGAIN;
                }
            }
        }
    }

    fn start(&mut self) {
        if self.replicas.len() >= MOST {
            return;
        }
        let number = self.started;
        self.started += 1;
        let link = ReplicaLink {
            number,
            journal: Arc::clone(&self.journal),
            watch_delay: self.plan.watch_delay,
            request: self.plan.request,
            bug: self.bug,
        };
        let replica = Replica::behind(&self.stage, Some(Arc::new(link)), |_| {});
        let now = self.journal.now();
        if self.bug == Some(PlantedBug::StandbyLeads) && !self.replicas.is_empty() {
            replica.lead(None);
        }
        let life = LeaseLife::new(RETRY);
        let next_check = now + Duration::from_millis(self.rng.below(1_000));
        self.replicas.push(Running { number, replica, life, next_check, proven_since: None, started: now });
        self.serve();
    }

    fn kill(&mut self, number: usize) {
        let Some(at) = self.replicas.iter().position(|running| running.number == number) else { return };
        self.replicas.remove(at).replica.kill();
        if self.leader == Some(number) {
            self.leader = None;
            self.journal.add(Fact::Died);
        }
        self.serve();
    }

    /// Puts the replicas behind the Service, the leader last.
    fn serve(&self) {
        let mut running: Vec<_> = self.replicas.iter().collect();
        running.sort_by_key(|running| self.leader == Some(running.number));
        let serving = running.iter().map(|running| Serving::new(&running.replica, running.life.clone()));
        self.guard.state.lock().serving = serving.collect();
    }

    fn act(&mut self, action: Action) {
        self.journal.add(Fact::Event(action.name()));
        let now = self.journal.now();
        match action {
            Action::Label(hpa, value) => {
                label(&self.stage, NAMES[hpa], value);
                self.labels[hpa] = value;
            }
            Action::LabelNamespace(value) => {
                namespace_label(&self.stage, value);
                self.namespace = value;
            }
            Action::Recreate(number) => {
                let name = NAMES[number];
                self.stage.cluster.delete(HPAS, SHOP, name).unwrap();
                self.in_scope[number] = false;
                self.journal.add(Fact::Scoped { hpa: number, is_in_scope: false, exists: false });
                let mut object = hpa(name, &[external(name, "10")]);
                object["metadata"]["labels"] = Value::Object(Map::new());
                self.stage.create(object);
                self.journal.add(Fact::Scoped { hpa: number, is_in_scope: false, exists: true });
                self.labels[number] = None;
            }
            Action::Reach(server, is_reached) => self.guard.state.lock().reaches[server] = is_reached,
            Action::Connect(server) => self.link.server.store(server, Ordering::Relaxed),
            Action::Edit(edit) => self.guard.state.lock().edit = edit,
            Action::KillLeader => {
                if let Some(leader) = self.leader {
                    self.kill(leader);
                }
            }
            Action::KillAll => {
                let all: Vec<_> = self.replicas.iter().map(|running| running.number).collect();
                for number in all {
                    self.kill(number);
                }
            }
            Action::Start => self.start(),
            Action::LoseLease(seconds) => self.lost_until = now + Duration::from_secs(seconds),
            Action::DryRun(hpa, server) => {
                let is_dry_run = self.bug != Some(PlantedBug::DryRunProves);
                self.guard.admit(server, BUILT_IN, &scale_write(NAMES[hpa]), is_dry_run);
            }
            Action::Identity(is_known) => self.link.is_known.store(is_known, Ordering::Relaxed),
        }
        self.record_scope();
    }

    /// Records which HPAs are in scope, according to the table in the documentation.
    fn record_scope(&mut self) {
        for hpa in 0..self.plan.hpas {
            let is_in_scope = match (self.labels[hpa], self.namespace) {
                (Some(label), _) => label == "concertina",
                (None, namespace) => namespace == Some("concertina"),
            };
            if std::mem::replace(&mut self.in_scope[hpa], is_in_scope) != is_in_scope {
                self.journal.add(Fact::Scoped { hpa, is_in_scope, exists: true });
            }
        }
    }
}
