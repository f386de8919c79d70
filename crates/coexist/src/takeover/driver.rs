//! Drives the state machine: feeds it from the watch and the syncs, opens and closes the write gate, checks HPAs, and
//! reports foreign writes.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use autoscaling::event::{EventIntent, EventKind};
use autoscaling::{Action, WriteOutcome};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::machine::{Activation, Input, Machine, Output, Proof, State};
use super::{SyncObservation, Undone, View, remember};
use super::{created, first_status_write, own_write, rescale, status_write, uncached_status_write};
use clock::SharedClock;
use cluster::client::Client;
use cluster::events::{EventTarget, Recorder};
use cluster::gate::{Gate, Refusal};
use cluster::status::read;
use engine::reconcile::{ConcludedSync, Controller, Observer, event_target};
use engine::store::{HpaRecord, Key, StatusWriter};
use engine::telemetry::metrics::Metrics as Telemetry;

/// Minimum interval between two events, and between two log lines about foreign writes that change no state.
const REMIND: Duration = Duration::from_hours(1);

/// Options and collaborators of [`TakeOver`].
#[derive(Debug)]
pub struct Parts {
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// `--leader-elect-lease-duration`: the longest time without a leader after a crash.
    pub lease: Duration,
    /// `--takeover=wait`. With `warn`, Concertina reports foreign writes and still writes.
    pub holds_back: bool,
    /// The field manager of Concertina's status writes.
    pub manager: &'static str,
    /// Closed while another controller may act.
    pub gate: Arc<Gate>,
    /// Receives foreign writes and the state of the takeover.
    pub telemetry: Telemetry,
    /// The upper limit of the times of writes, which a client may forge.
    pub clock: SharedClock,
}

/// Prevents Concertina and another controller from acting at the same time.
#[derive(Debug)]
pub struct TakeOver {
    parts: Parts,
    inner: Mutex<Inner>,
    changed: Notify,
    controller: OnceLock<Weak<Controller>>,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    leads: bool,
    undone: Undone,
    /// The HPAs to read because of a conflict, or of repeatedly reverted counts.
    pending_checks: BTreeSet<Key>,
    last: Option<ForeignWrite>,
    /// The time of the last log line about a foreign write.
    last_log: Option<Instant>,
    last_event: Option<Instant>,
}

#[derive(Debug, Clone)]
struct ForeignWrite {
    about: EventTarget,
    writer: StatusWriter,
    since: Instant,
}

impl TakeOver {
    /// Creates a driver. Closes the gate, except with `--takeover=warn`.
    pub fn new(parts: Parts) -> Arc<Self> {
        if parts.holds_back {
            parts.gate.close(Refusal::TakeOver);
        }
        let inner = Inner {
            machine: Machine::new(parts.period),
            leads: false,
            undone: Undone::default(),
            pending_checks: BTreeSet::new(),
            last: None,
            last_log: None,
            last_event: None,
        };
        let takeover =
            Self { parts, inner: Mutex::new(inner), changed: Notify::new(), controller: OnceLock::new() };
        takeover.publish(&takeover.inner.lock());
        Arc::new(takeover)
    }

    /// Starts the observation, after the watch has delivered its first list. Called once per process.
    pub fn begin(&self, controller: &Arc<Controller>) {
        let _ = self.controller.set(Arc::downgrade(controller));
        let mut inner = self.inner.lock();
        inner.machine.step(Input::Start, Instant::now());
        if self.parts.holds_back && inner.machine.state() == State::Observing {
            tracing::info!(
                quiet = ?inner.machine.quiet(),
                "observing: writing nothing until no other controller acts on HPAs"
            );
        }
        self.changed.notify_one();
    }

    /// Records that this replica is the leader. `after` is the time since another replica was the leader, if known.
    pub fn leads(&self, after: Option<Duration>) {
        let mut inner = self.inner.lock();
        inner.leads = true;
        // After a longer time, the previous leader may have stopped early, so its Lease proves nothing.
        let is_hand_over = after.is_some_and(|after| after <= self.parts.lease + inner.machine.quiet());
        if is_hand_over
            && let Some(Output::Act(activation)) = inner.machine.step(Input::HandOver, Instant::now())
        {
            self.start_acting(&inner, &activation);
        }
        self.changed.notify_one();
    }

    /// Returns the state in one line, for `/readyz?verbose`.
    pub fn detail(&self) -> String {
        let inner = self.inner.lock();
        let quiet = inner.machine.quiet();
        let writer = inner.last.as_ref().map_or_else(String::new, |last| {
            // The text does not contain the name of the HPA, because every client may read it.
            let (manager, ago) = (&last.writer.manager, last.since.elapsed().as_secs());
            format!("{manager} wrote the status of an HPA {ago}s ago")
        });
        match inner.machine.state() {
            _ if !self.parts.holds_back && writer.is_empty() => "acting (--takeover=warn)".to_owned(),
            _ if !self.parts.holds_back => format!("acting although {writer} (--takeover=warn)"),
            State::Acting => "acting".to_owned(),
            State::Holding => {
                format!("holding: {writer}; writing nothing until {quiet:?} pass without a foreign write")
            }
            State::Observing if !inner.machine.has_started() => {
                "observing: waiting for the first list of HPAs".to_owned()
            }
            State::Observing => format!(
                "observing: writing nothing until a change stays unanswered by other controllers for {quiet:?}"
            ),
        }
    }

    /// Runs until the future is dropped. `client` reads single HPAs. `notices` sends events that the gate admits while
    /// another controller acts.
    pub async fn run(self: Arc<Self>, client: Client, notices: Recorder) {
        loop {
            self.publish_event(&notices);
            let pending = self.inner.lock().pending_checks.pop_first();
            if let Some(key) = pending {
                self.check(&client, &key).await;
                continue;
            }
            let (output, next) = if self.parts.holds_back {
                let mut inner = self.inner.lock();
                let output = inner.machine.step(Input::Tick, Instant::now());
                if output.is_some() {
                    self.publish(&inner);
                }
                (output, inner.machine.next())
            } else {
                (None, None)
            };
            match output {
                Some(Output::Quiet) => {
                    tracing::info!(
                        quiet = ?self.inner.lock().machine.quiet(),
                        "no foreign writes for the quiet time; acting after the next unanswered change"
                    );
                }
                Some(Output::Check(key)) => {
                    let success = self.check(&client, &key).await;
                    let mut inner = self.inner.lock();
                    let input = Input::Checked { key, success };
                    if let Some(Output::Act(activation)) = inner.machine.step(input, Instant::now()) {
                        self.start_acting(&inner, &activation);
                    }
                }
                Some(Output::Act(activation)) => self.start_acting(&self.inner.lock(), &activation),
                None => {
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = clock::sleep_until(next) => {}
                    }
                }
            }
        }
    }

    /// Reads an HPA from the API server. A foreign write in the response has the same effect as a foreign write from
    /// the watch. Returns whether the read was successful.
    async fn check(&self, client: &Client, key: &Key) -> bool {
        let object = match read(client, &key.namespace, &key.name).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                self.inner.lock().machine.step(Input::Deleted(key.clone()), Instant::now());
                return true;
            }
            Err(error) => {
                tracing::warn!(hpa = %key, %error, "failed to check for foreign status writes");
                return false;
            }
        };
        let Some(controller) = self.controller() else { return true };
        if let Some((cached, writer)) = uncached_status_write(&controller, self.parts.manager, key, object) {
            let mut inner = self.inner.lock();
            // The write is not counted in the metric, because `seen` counts it when the watch delivers it.
            let is_reported = inner.last.as_ref().is_some_and(|last| {
                last.about.name == key.name && last.about.namespace == key.namespace && last.writer == writer
            });
            if !is_reported {
                self.foreign_write(&mut inner, &cached, &writer);
            }
        }
        true
    }

    /// Handles a foreign write of an HPA's status.
    fn foreign_write(&self, inner: &mut Inner, hpa: &HpaRecord, writer: &StatusWriter) {
        let now = Instant::now();
        let before = inner.machine.state();
        inner.machine.step(Input::ForeignWrite(hpa.key.clone()), now);
        if self.parts.holds_back {
            self.parts.gate.close(Refusal::TakeOver);
            self.publish(inner);
        }
        let remind = inner.last_log.is_none_or(|last_log| now.duration_since(last_log) >= REMIND);
        if remind || before == State::Acting && self.parts.holds_back {
            inner.last_log = Some(now);
            tracing::warn!(
                hpa = %hpa.key,
                manager = &*writer.manager,
                at = %writer.at,
                "another controller writes statuses of HPAs: {}",
                if self.parts.holds_back { "writing nothing until it has stopped" } else { "both controllers act (--takeover=warn)" }
            );
        }
        if before == State::Observing && self.parts.holds_back {
            tracing::info!(
                hpa = %hpa.key,
                manager = &*writer.manager,
                quiet = ?inner.machine.quiet(),
                "holding: writing nothing until the quiet time passes without a foreign write"
            );
        }
        let about = event_target(hpa);
        inner.last = Some(ForeignWrite { about, writer: writer.clone(), since: now });
        self.changed.notify_one();
    }

    /// Opens the gate and syncs the HPAs that are due.
    fn start_acting(&self, inner: &Inner, activation: &Activation) {
        self.publish(inner);
        if !self.parts.holds_back {
            return;
        }
        self.parts.gate.open_for(Refusal::TakeOver);
        let silent = inner.last.as_ref().map(|last| last.since.elapsed());
        match &activation.proof {
            Proof::HandOver => tracing::info!("acting: taking over from an active replica"),
            Proof::Change(hpa) => tracing::info!(
                %hpa, ?silent, "acting: no controller responded to a change of this HPA, so no other controller is active"
            ),
            Proof::Difference(hpa) => tracing::info!(
                %hpa, ?silent,
                "acting: the status of this HPA has been wrong for a long time, so no other controller is active"
            ),
        }
        if let Some(controller) = self.controller() {
            for key in &activation.due {
                controller.runtime.queue.add(key);
            }
        }
    }

    /// Publishes an event about the last foreign write, if this replica is the leader, at most once per [`REMIND`].
    fn publish_event(&self, notices: &Recorder) {
        let mut inner = self.inner.lock();
        let is_due = inner.last_event.is_none_or(|last_event| last_event.elapsed() >= REMIND);
        let new = inner.last.clone().filter(|last| inner.last_event.is_none_or(|event| last.since > event));
        let Some(last) = new.filter(|_| is_due && inner.leads) else { return };
        inner.last_event = Some(Instant::now());
        drop(inner);
        let manager = &last.writer.manager;
        let consequence = if self.parts.holds_back {
            "Concertina scales nothing until that has stopped"
        } else {
            "Concertina scales as well (--takeover=warn)"
        };
        let message =
            format!("{manager} also acts as a controller of HorizontalPodAutoscalers: {consequence}");
        let intent = EventIntent { kind: EventKind::Warning, reason: "AnotherController", message };
        notices.record(last.about, intent);
    }

    fn publish(&self, inner: &Inner) {
        let state = if self.parts.holds_back { inner.machine.state() } else { State::Acting };
        self.parts.telemetry.takeover(state.labels());
    }

    fn controller(&self) -> Option<Arc<Controller>> {
        self.controller.get().and_then(Weak::upgrade)
    }
}

impl Observer for TakeOver {
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let wrote = self.controller().and_then(|controller| controller.stores.hpas.acknowledged(&new.key));
        let (manager, now) = (self.parts.manager, self.parts.clock.now());
        let mut inner = self.inner.lock();
        let writer = if let Some(old) = old {
            let is_same = old.status == new.status;
            let (old, new) = (View::new(old), View::new(new));
            let writer = status_write(manager, old, new, wrote.as_deref());
            let own = own_write(manager, old, new).filter(|_| !is_same);
            for (is_own, writer) in [(false, writer), (true, own)] {
                if let Some(writer) = writer {
                    let at = writer.at.min(now);
                    inner.machine.step(Input::Wrote { is_own, at }, Instant::now());
                }
            }
            writer
        } else {
            // An entry ahead of the clock is forged, and would be newer than every later write.
            for writer in new.status_writers.iter().filter(|writer| writer.at <= now) {
                let is_own = *writer.manager == *manager;
                inner.machine.step(Input::Wrote { is_own, at: writer.at }, Instant::now());
            }
            first_status_write(manager, View::new(new))
        };
        // The first list can contain earlier writes. For an HPA that appears after that list, only a write since its
        // creation is a sign.
        let writer = writer.filter(|writer| {
            old.is_some()
                || inner.machine.has_started()
                    && created(&new.metadata).is_none_or(|created| writer.at >= created)
        });
        if let Some(writer) = writer {
            self.parts.telemetry.foreign_write();
            self.foreign_write(&mut inner, new, writer);
        }
        // The syncs of the leader record its own rescales.
        let is_foreign = writer.is_some() || !inner.leads;
        drop(inner);
        let rescale = old.filter(|_| is_foreign).and_then(|old| rescale(&old.status, &new.status));
        if let Some(rescale) = rescale {
            remember(self.controller(), new, rescale);
        }
    }

    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let key = &sync.hpa.key;
        let conclusion = sync.conclusion;
        let wrote = conclusion
            .desired
            .filter(|_| *sync.outcome == WriteOutcome::Done && conclusion.action != Action::None);
        let mut inner = self.inner.lock();
        if inner.undone.synced(key, conclusion.explanation.current, wrote) {
            tracing::warn!(hpa = %key, "another client repeatedly reverts the replica count written for this HPA");
            inner.pending_checks.insert(key.clone());
            self.changed.notify_one();
        }
        // No proof is needed with `--takeover=warn` or while acting.
        if !self.parts.holds_back || inner.machine.state() == State::Acting {
            return;
        }
        let before = inner.machine.next();
        inner.machine.step(Input::Concluded(key.clone(), SyncObservation::new(sync)), Instant::now());
        let after = inner.machine.next();
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.changed.notify_one();
        }
    }

    fn conflicted(&self, key: &Key) {
        self.inner.lock().pending_checks.insert(key.clone());
        self.changed.notify_one();
    }

    fn forgotten(&self, key: &Key, _uid: &str) {
        let mut inner = self.inner.lock();
        inner.machine.step(Input::Deleted(key.clone()), Instant::now());
        inner.undone.forget(key);
        inner.pending_checks.remove(key);
    }
}
