//! The state machine at work: fed by the watch and by the syncs, it moves the write gate, looks and tells.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use autoscaling::event::{EventIntent, EventKind};
use autoscaling::status::Status;
use autoscaling::{Action, WriteOutcome};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::foreign::{self, View};
use super::machine::{Begun, Facts, Machine, Proof, State, Step, Turn};
use super::undone::Undone;
use crate::api::client::Client;
use crate::api::events::{EventTarget, Recorder};
use crate::api::gate::{Gate, Refusal};
use crate::api::status::read;
use crate::controller::{Concluded, Controller, Observer, SeenRescale};
use crate::store::{HpaRecord, Key, StatusWriter};
use crate::telemetry::metrics::{Metrics as Telemetry, TakeOverState};

/// People are told by an event at most this often, and by a log line for writes that change nothing.
const REMIND: Duration = Duration::from_hours(1);

/// What take-over safety is made of.
#[derive(Debug)]
pub struct Parts {
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// `--leader-elect-lease-duration`: so long nobody may lead after a crash.
    pub lease: Duration,
    /// `--takeover=wait`; with `warn` foreign writes are told of and nothing is held back.
    pub holds_back: bool,
    /// The field manager of our own status writes.
    pub manager: &'static str,
    /// The gate that is closed while another controller may act.
    pub gate: Arc<Gate>,
    /// What is counted.
    pub telemetry: Telemetry,
}

/// Sees to it that this controller and another one never act at the same time.
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
    /// HPAs to look at because of a weak sign.
    looks: BTreeSet<Key>,
    /// The last foreign write.
    last: Option<Seen>,
    /// When people were told last, by log and by event.
    logged: Option<Instant>,
    noticed: Option<Instant>,
}

/// A foreign write that was seen.
#[derive(Debug, Clone)]
struct Seen {
    about: EventTarget,
    writer: StatusWriter,
    since: Instant,
}

impl TakeOver {
    /// Holds back from now on, if it is to.
    pub fn new(parts: Parts) -> Arc<Self> {
        if parts.holds_back {
            parts.gate.close(Refusal::TakeOver);
        }
        let inner = Inner {
            machine: Machine::new(parts.period),
            leads: false,
            undone: Undone::default(),
            looks: BTreeSet::new(),
            last: None,
            logged: None,
            noticed: None,
        };
        let takeover =
            Self { parts, inner: Mutex::new(inner), changed: Notify::new(), controller: OnceLock::new() };
        takeover.publish(&takeover.lock());
        Arc::new(takeover)
    }

    /// The watch has shown everything: from now on silence counts.
    pub fn begin(&self, controller: &Arc<Controller>) {
        // Set once: there is one controller.
        let _ = self.controller.set(Arc::downgrade(controller));
        let mut inner = self.lock();
        inner.machine.begin(Instant::now());
        if self.parts.holds_back && inner.machine.state() == State::Observing {
            tracing::info!(
                quiet = ?inner.machine.quiet(),
                "nothing is written until it is known that no other controller acts on HPAs"
            );
        }
        self.changed.notify_one();
    }

    /// This replica leads. `after`: how long before that another one led, if one did.
    pub fn leads(&self, after: Option<Duration>) {
        let mut inner = self.lock();
        inner.leads = true;
        // A Lease that was left behind longer ago says nothing about what happened since.
        let is_hand_over = after.is_some_and(|after| after <= self.parts.lease + inner.machine.quiet());
        let begun = if is_hand_over { inner.machine.hand_over(Instant::now()) } else { None };
        if let Some(begun) = begun {
            self.acts(&inner, &begun);
        }
        self.changed.notify_one();
    }

    /// What is done about other controllers, in one line for people.
    pub fn detail(&self) -> String {
        let inner = self.lock();
        let quiet = inner.machine.quiet();
        let who = inner.last.as_ref().map_or_else(String::new, |last| {
            // Not of which HPA: everybody may read this. The log names it.
            let (manager, ago) = (&last.writer.manager, last.since.elapsed().as_secs());
            format!("{manager} wrote the status of an HPA {ago}s ago")
        });
        match inner.machine.state() {
            _ if !self.parts.holds_back && who.is_empty() => "acting (--takeover=warn)".to_owned(),
            _ if !self.parts.holds_back => format!("acting although {who} (--takeover=warn)"),
            State::Acting => "acting".to_owned(),
            State::Holding => format!("holding: {who}; nothing is written until {quiet:?} without that"),
            State::Observing if !inner.machine.has_begun() => "observing: nothing is known yet".to_owned(),
            State::Observing => format!(
                "observing: nothing is written until a change stays unanswered by any other controller for {quiet:?}"
            ),
        }
    }

    /// Works until it is dropped. `client` reads single HPAs, `notices` are the events that pass while this one holds
    /// back.
    pub async fn run(self: Arc<Self>, client: Client, notices: Recorder) {
        loop {
            self.notice(&notices);
            let weak = self.lock().looks.pop_first();
            if let Some(key) = weak {
                self.look(&client, &key).await;
                continue;
            }
            let (step, next) = {
                let mut inner = self.lock();
                let step =
                    if self.parts.holds_back { inner.machine.tick(Instant::now()) } else { Step::Wait };
                if step != Step::Wait {
                    self.publish(&inner);
                }
                (step, inner.machine.next().filter(|_| self.parts.holds_back))
            };
            match step {
                Step::Quiet => {
                    tracing::info!(
                        quiet = ?self.lock().machine.quiet(),
                        "no other controller has written for a while: the next change that stays unanswered is acted upon"
                    );
                }
                Step::Look(key) => {
                    let success = self.look(&client, &key).await;
                    let mut inner = self.lock();
                    if let Some(begun) = inner.machine.looked(&key, success, Instant::now()) {
                        self.acts(&inner, &begun);
                    }
                }
                Step::Wait => {
                    let timer = async {
                        match next {
                            Some(at) => sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = timer => {}
                    }
                }
            }
        }
    }

    /// Looks at an HPA itself. What it shows counts like what the watch shows. Answers whether there was an answer.
    async fn look(&self, client: &Client, key: &Key) -> bool {
        let object = match read(client, &key.namespace, &key.name).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                self.lock().machine.forget(key);
                return true;
            }
            Err(error) => {
                tracing::warn!(hpa = %key, %error, "it cannot be looked whether another controller writes this HPA");
                return false;
            }
        };
        let known =
            self.controller.get().and_then(Weak::upgrade).and_then(|controller| controller.hpas.get(key));
        // Without it the HPA is new to us: what the watch tells of it is enough.
        let Some(known) = known.filter(|known| *known.uid == *object.uid) else { return true };
        let writers: Vec<_> = object.status_writers.into_iter().map(StatusWriter::from).collect();
        let now = View { version: &object.resource_version, writers: &writers, status: &object.status };
        if let Some(writer) = foreign::status_write(self.parts.manager, View::of(&known), now) {
            let mut inner = self.lock();
            // The watch may have been faster by now, and will come to it otherwise: it is counted there.
            let is_told = inner.last.as_ref().is_some_and(|last| {
                last.about.name == key.name && last.about.namespace == key.namespace && last.writer == *writer
            });
            if !is_told {
                self.foreign_write(&mut inner, &known, writer);
            }
        }
        true
    }

    /// Another controller wrote the status of an HPA.
    fn foreign_write(&self, inner: &mut Inner, hpa: &HpaRecord, writer: &StatusWriter) {
        let now = Instant::now();
        let before = inner.machine.state();
        inner.machine.foreign_write(&hpa.key, now);
        let is_acting = if self.parts.holds_back {
            self.parts.gate.close(Refusal::TakeOver);
            self.publish(inner);
            false
        } else {
            true
        };
        let remind = inner.logged.is_none_or(|logged| now.duration_since(logged) >= REMIND);
        if remind || before == State::Acting && self.parts.holds_back {
            inner.logged = Some(now);
            tracing::warn!(
                hpa = %hpa.key,
                manager = &*writer.manager,
                at = %writer.at,
                "another controller writes statuses of HPAs: {}",
                if is_acting { "both act now (--takeover=warn)" } else { "this one writes nothing until it has stopped" }
            );
        }
        if before == State::Observing && self.parts.holds_back {
            tracing::info!(
                hpa = %hpa.key,
                manager = &*writer.manager,
                quiet = ?inner.machine.quiet(),
                "holding back until there was no foreign write for this long"
            );
        }
        let about = crate::controller::event_target(hpa);
        inner.last = Some(Seen { about, writer: writer.clone(), since: now });
        self.changed.notify_one();
    }

    /// This controller begins to act.
    fn acts(&self, inner: &Inner, begun: &Begun) {
        self.publish(inner);
        if !self.parts.holds_back {
            return;
        }
        self.parts.gate.open_for(Refusal::TakeOver);
        let silent = inner.last.as_ref().map(|last| last.since.elapsed());
        match &begun.proof {
            Proof::HandOver => tracing::info!("this replica goes on where another one was: it acts at once"),
            Proof::Change(hpa) => tracing::info!(
                %hpa, ?silent, "a change of this HPA stayed unanswered, so no other controller acts: this one does"
            ),
            Proof::Difference(hpa) => tracing::info!(
                %hpa, ?silent,
                "the status of this HPA has been wrong for a long time, so no other controller acts: this one does"
            ),
        }
        if let Some(controller) = self.controller.get().and_then(Weak::upgrade) {
            for key in &begun.due {
                controller.queue.add(key);
            }
        }
    }

    /// Tells people, if there is something to tell, this replica leads and the last time was long ago.
    fn notice(&self, notices: &Recorder) {
        let mut inner = self.lock();
        let is_due = inner.noticed.is_none_or(|noticed| noticed.elapsed() >= REMIND);
        let new = inner.last.clone().filter(|last| inner.noticed.is_none_or(|noticed| last.since > noticed));
        let Some(last) = new.filter(|_| is_due && inner.leads) else { return };
        inner.noticed = Some(Instant::now());
        drop(inner);
        let manager = &last.writer.manager;
        let what = if self.parts.holds_back {
            "concertina scales nothing until that has stopped"
        } else {
            "concertina scales as well (--takeover=warn)"
        };
        let message = format!("{manager} also acts as a controller of HorizontalPodAutoscalers: {what}");
        let intent = EventIntent { kind: EventKind::Warning, reason: "AnotherController", message };
        notices.record(last.about, intent);
    }

    fn publish(&self, inner: &Inner) {
        let state = if self.parts.holds_back { inner.machine.state() } else { State::Acting };
        self.parts.telemetry.takeover(match state {
            State::Observing => TakeOverState::Observing,
            State::Acting => TakeOverState::Acting,
            State::Holding => TakeOverState::Holding,
        });
    }

    /// Takes a rescale of another process into the history, so that the rates of `behavior` are right from our first
    /// write on.
    fn remember(&self, hpa: &HpaRecord, rescale: foreign::ForeignRescale) {
        let controller = self.controller.get().and_then(Weak::upgrade);
        let (Some(controller), Some(behavior)) = (controller, &hpa.spec.behavior) else { return };
        let foreign::ForeignRescale { at, from, to } = rescale;
        controller.histories.remember(
            &hpa.uid,
            behavior,
            SeenRescale { at, from, to },
            controller.clock.now(),
        );
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for TakeOver {
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let mut inner = self.lock();
        // An entry that moved without the status may be forged.
        if old.is_none_or(|old| old.status != new.status) {
            for writer in &new.status_writers {
                inner.machine.wrote(*writer.manager == *self.parts.manager, writer.at);
            }
        }
        let writer = match old {
            Some(old) => foreign::status_write(self.parts.manager, View::of(old), View::of(new)),
            None => foreign::first_status_write(self.parts.manager, View::of(new)),
        };
        // What the first list shows may be old. An HPA that is new after that was written since it was created.
        let writer = writer.filter(|writer| {
            old.is_some()
                || inner.machine.has_begun()
                    && foreign::created(&new.metadata).is_none_or(|created| writer.at >= created)
        });
        if let Some(writer) = writer {
            self.parts.telemetry.foreign_write();
            self.foreign_write(&mut inner, new, writer);
        }
        // While this replica leads, what nobody else wrote it remembers itself.
        let is_others = writer.is_some() || !inner.leads;
        drop(inner);
        let rescale = old.filter(|_| is_others).and_then(|old| foreign::rescale(&old.status, &new.status));
        if let Some(rescale) = rescale {
            self.remember(new, rescale);
        }
    }

    fn concluded(&self, sync: &Concluded<'_>) {
        let key = &sync.hpa.key;
        let conclusion = sync.conclusion;
        let wrote = conclusion
            .desired
            .filter(|_| *sync.outcome == WriteOutcome::Done && conclusion.action != Action::None);
        let mut inner = self.lock();
        if inner.undone.synced(key, conclusion.explanation.current, wrote) {
            tracing::warn!(hpa = %key, "somebody keeps undoing the count that is written for this HPA");
            inner.looks.insert(key.clone());
            self.changed.notify_one();
        }
        // Whoever acts needs no proof: nothing is copied then.
        if !self.parts.holds_back || inner.machine.state() == State::Acting {
            return;
        }
        let stored = facts(&sync.hpa.status);
        let turn = Turn {
            spec: Arc::clone(&sync.hpa.spec),
            found: conclusion.status.as_deref().map_or_else(|| stored.clone(), facts),
            stored,
            withheld: *sync.outcome == WriteOutcome::Withheld,
            untouched: sync.hpa.status_writers.is_empty() && *sync.hpa.status == Status::default(),
        };
        let before = inner.machine.next();
        inner.machine.concluded(key, turn, Instant::now());
        let after = inner.machine.next();
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.changed.notify_one();
        }
    }

    fn conflicted(&self, key: &Key) {
        self.lock().looks.insert(key.clone());
        self.changed.notify_one();
    }

    fn forgotten(&self, key: &Key, _uid: &str) {
        let mut inner = self.lock();
        inner.machine.forget(key);
        inner.undone.forget(key);
        inner.looks.remove(key);
    }
}

fn facts(status: &Status) -> Facts {
    Facts { replicas: status.current_replicas, metrics: status.current_metrics.clone() }
}
