//! The handover of single HPAs between the built-in controller and this instance, for `--scope=labelled`.
//!
//! A label on an HPA or on its namespace puts the HPA in scope. [`scope`] reads the labels, and [`machine`] decides
//! when this instance may write an HPA in scope. [`charges`] contains the machines, issues the permits for writes, and
//! keeps the data of HPAs out of scope that the detection of shared pods needs. `moves` moves HPAs in and out of the
//! store and watches the labels of namespaces. [`Handover`] drives the machines and reports.

pub mod admission;
pub mod charges;
mod intake;
pub mod machine;
mod moves;
pub mod objects;
pub mod proof;
mod reminders;
pub mod scope;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use autoscaling::Action;
use autoscaling::event::{EventIntent, EventKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::charges::{Charges, GuardProof};
pub use self::intake::ScopedIntake;
use self::machine::{Cause, Input, Output, Proof, State};
use self::moves::Moves;
pub use self::moves::{NamespaceIntake, Namespaces};
use self::reminders::Reminders;
use crate::takeover::{
    SyncObservation, View, own_write, remember, rescale, status_write, uncached_status_write,
};
use clock::SharedClock;
use cluster::client::Client;
use cluster::events::Recorder;
use cluster::status::read;
use engine::reconcile::{ConcludedSync, Controller, Observer, event_target};
use engine::store::{HpaRecord, Key};
use engine::telemetry::metrics::Metrics as Telemetry;

/// The pause before a failed read of the HPAs of a namespace is retried.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of HPAs that are logged one by one when this instance takes charge of many HPAs at once.
const LOGGED: usize = 10;

/// Options and collaborators of [`Handover`].
#[derive(Debug)]
pub struct Parts {
    /// The HPAs in scope.
    pub charges: Arc<Charges>,
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// The field manager of this instance's status writes.
    pub manager: &'static str,
    /// Counts foreign writes.
    pub telemetry: Telemetry,
    /// The upper limit of the times of writes, which a client may forge.
    pub clock: SharedClock,
}

/// Prevents this instance and the built-in controller from acting on the same HPA.
#[derive(Debug)]
pub struct Handover {
    parts: Parts,
    controller: OnceLock<Weak<Controller>>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The HPAs with a contest to report.
    contests: BTreeSet<Key>,
    reminders: Reminders<Key>,
    /// The HPAs to read because of a conflict.
    checks: BTreeSet<Key>,
}

impl Handover {
    /// Creates a driver. [`Self::run`] handles the outputs of the machines.
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts, controller: OnceLock::new(), inner: Mutex::default() })
    }

    /// Returns the HPAs in scope.
    pub fn charges(&self) -> &Arc<Charges> {
        &self.parts.charges
    }

    /// Sets the controller, once per process.
    pub fn begin(&self, controller: &Arc<Controller>) {
        let _ = self.controller.set(Arc::downgrade(controller));
    }

    /// Records that this replica is the leader. `after` is the time since another replica was the leader, if known.
    /// `lease` is the longest time without a leader after a crash.
    pub fn leads(&self, after: Option<Duration>, lease: Duration) {
        // After a longer time, the previous leader may have stopped early, so its Lease proves nothing.
        let quiet = self.parts.period * 2;
        self.parts.charges.lead(after.is_some_and(|after| after <= lease + quiet));
    }

    /// Returns the number of HPAs by state in one line, for `/readyz?verbose`.
    pub fn detail(&self) -> String {
        let counts = self.parts.charges.counts();
        let guard = match self.parts.charges.guard_proof() {
            GuardProof::Unknown => "unknown".to_owned(),
            GuardProof::Proven { .. } => "proven".to_owned(),
            GuardProof::Broken { reason } => format!("broken: {reason}"),
        };
        format!(
            "scope labelled as {}: in charge of {}, claiming {}, contested {}; outside {}; guard {guard}",
            self.parts.charges.name(),
            counts.in_charge,
            counts.claiming,
            counts.contested,
            counts.outside,
        )
    }

    /// Runs until the future is dropped. `client` reads HPAs, without a rate limit. `notices` sends events about HPAs
    /// that this instance is not in charge of. The gate admits such events.
    pub async fn run(self: Arc<Self>, client: Client, notices: Recorder) {
        let charges = Arc::clone(&self.parts.charges);
        loop {
            charges.tick();
            self.handle_outputs(&client).await;
            self.report_contests(&notices);
            let failed = self.adopt(&client).await;
            let again = failed.then(|| Instant::now() + READ_AGAIN);
            let next = charges.next().into_iter().chain(again).min();
            tokio::select! {
                biased;
                () = charges.changed() => {}
                () = clock::sleep_until(next) => {}
            }
        }
    }

    async fn handle_outputs(&self, client: &Client) {
        let mut charged = 0;
        loop {
            let pending = self.inner.lock().checks.pop_first();
            if let Some(key) = pending {
                self.check(client, &key).await;
                continue;
            }
            let Some((key, output)) = self.parts.charges.output() else { break };
            match output {
                Output::Check => {
                    let success = self.check(client, &key).await;
                    self.parts.charges.step(&key, Input::Checked { success });
                    self.parts.charges.tick();
                }
                Output::InCharge { proof, due } => {
                    charged += 1;
                    if charged <= LOGGED {
                        tracing::info!(hpa = %key, "taking charge: {}", because(proof));
                    }
                    if due && let Some(controller) = self.controller() {
                        controller.runtime.queue.add(&key);
                    }
                }
                Output::Contested(Cause::ForeignWrite) => {
                    let writer = self.parts.charges.row(&key).and_then(|row| row.last_foreign_write);
                    let manager = writer.as_ref().map_or("another controller", |writer| &*writer.manager);
                    tracing::warn!(
                        hpa = %key, manager,
                        "contested: another controller writes this HPA; writing nothing"
                    );
                    self.inner.lock().contests.insert(key);
                }
                Output::Contested(Cause::Guard) => {
                    tracing::warn!(
                        hpa = %key,
                        "contested: the guard no longer refuses the writes of the built-in controller"
                    );
                }
            }
        }
        if let Some(more) = charged.checked_sub(LOGGED).filter(|more| *more > 0) {
            tracing::info!(hpas = more, "taking charge of more HPAs");
        }
    }

    /// Reads an HPA from the API server. A foreign write in the response has the same effect as a foreign write from
    /// the watch. Returns whether the read was successful.
    async fn check(&self, client: &Client, key: &Key) -> bool {
        let object = match read(client, &key.namespace, &key.name).await {
            Ok(Some(object)) => object,
            // The HPA was deleted, which the watch will deliver.
            Ok(None) => return true,
            Err(error) => {
                tracing::warn!(hpa = %key, %error, "failed to check for foreign status writes");
                return false;
            }
        };
        let Some(controller) = self.controller() else { return true };
        if let Some((_, writer)) = uncached_status_write(&controller, self.parts.manager, key, object) {
            self.parts.charges.foreign_write(key, &writer);
        }
        true
    }

    /// Reads the HPAs of namespaces that are new in scope. Returns whether a read has failed.
    async fn adopt(&self, client: &Client) -> bool {
        let Some(controller) = self.controller() else { return false };
        while let Some(namespace) = self.parts.charges.adopting() {
            let moves = Moves { controller: &controller, charges: &self.parts.charges };
            if let Err(error) = moves.adopt(client, &namespace).await {
                tracing::warn!(
                    %namespace, %error, "failed to read the HPAs of a namespace that came into scope; retrying"
                );
                self.parts.charges.adopt_again(namespace);
                return true;
            }
        }
        false
    }

    /// Publishes an event for each new contest, at most once per HPA and hour.
    fn report_contests(&self, notices: &Recorder) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        let Inner { contests, reminders, .. } = &mut *inner;
        reminders.expire(now);
        let Some(controller) = self.controller() else { return };
        for key in std::mem::take(contests) {
            if reminders.is_recent(&key) {
                continue;
            }
            let (Some(row), Some(hpa)) = (self.parts.charges.row(&key), controller.stores.hpas.get(&key))
            else {
                continue;
            };
            let Some(writer) = row.last_foreign_write else { continue };
            let manager = &writer.manager;
            let message = format!(
                "{manager} also acts as a controller of this HorizontalPodAutoscaler: Concertina does not scale it \
                 until that has stopped"
            );
            let intent = EventIntent { kind: EventKind::Warning, reason: "AnotherController", message };
            notices.record(event_target(&hpa), intent);
            reminders.add(key, now);
        }
    }

    fn controller(&self) -> Option<Arc<Controller>> {
        self.controller.get().and_then(Weak::upgrade)
    }
}

fn because(proof: Proof) -> &'static str {
    match proof {
        Proof::Guard => "the guard refuses the built-in controller's writes",
        Proof::Refused => "a write of the built-in controller was refused",
        Proof::HandOver => "another replica was in charge until now",
        Proof::Unanswered => "no controller responded to a change",
    }
}

impl Observer for Handover {
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let (charges, manager, now) = (&self.parts.charges, self.parts.manager, self.parts.clock.now());
        if charges.state(&new.key).is_none() {
            return;
        }
        let Some(old) = old else {
            // The writes of an HPA without a previous version happened before this process started, or before the HPA
            // entered the scope. An entry ahead of the clock is forged, and would be newer than every later write.
            for writer in new.status_writers.iter().filter(|writer| writer.at <= now) {
                let is_own = *writer.manager == *manager;
                charges.step(&new.key, Input::Wrote { is_own, at: writer.at });
            }
            return;
        };
        let wrote = self.controller().and_then(|controller| controller.stores.hpas.acknowledged(&new.key));
        let (before, after) = (View::new(old), View::new(new));
        let writer = status_write(manager, before, after, wrote.as_deref());
        let own = own_write(manager, before, after).filter(|_| old.status != new.status);
        for (is_own, writer) in [(false, writer), (true, own)] {
            if let Some(writer) = writer {
                charges.step(&new.key, Input::Wrote { is_own, at: writer.at.min(now) });
            }
        }
        if let Some(writer) = writer {
            self.parts.telemetry.foreign_write();
            charges.foreign_write(&new.key, writer);
        }
        // The syncs of the leader record its own rescales.
        if (writer.is_some() || !charges.leads())
            && let Some(rescale) = rescale(&old.status, &new.status)
        {
            remember(self.controller(), new, rescale);
        }
    }

    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let key = &sync.hpa.key;
        // An HPA that is out of scope, or that this instance is in charge of, needs no proof.
        if self.parts.charges.state(key).is_none_or(|state| state == State::InCharge) {
            return;
        }
        let mut observation = SyncObservation::new(sync);
        observation.withheld &= sync.conclusion.action != Action::None;
        self.parts.charges.step(key, Input::Concluded(observation));
    }

    fn conflicted(&self, key: &Key) {
        self.inner.lock().checks.insert(key.clone());
        self.parts.charges.wake();
    }

    fn forgotten(&self, key: &Key, _uid: &str) {
        let mut inner = self.inner.lock();
        inner.checks.remove(key);
        inner.contests.remove(key);
        inner.reminders.forget(key);
    }
}
