//! The event queue and the task that sends the events in order, one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use autoscaling::event::EventIntent;
use futures::future::BoxFuture;
use http::Method;
use jiff::{Timestamp, Unit};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::correlate::{CACHE, ObjectKey};
use super::{Correlated, Correlator, EventTarget, Verdict};
use crate::call::Call;
use crate::client::Client;
use crate::error::ApiError;
use crate::gate::{Gate, Refusal};
use clock::SharedClock;

/// Maximum total size of queued messages, in bytes. Further events are dropped.
const MAX_WAITING: usize = 16 << 20;

/// Maximum number of queued events of one HPA, so that the events of others find room. Further events of the
/// HPA are dropped.
const MAX_WAITING_PER_HPA: usize = 200;

/// The maximum length of a name in Kubernetes.
const MAX_NAME: usize = 253;

/// Options of event delivery.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// `source.component` and `reportingComponent`.
    pub component: String,
    /// Maximum number of queued events. Further events are dropped.
    pub queue: usize,
    /// Maximum attempts per event.
    pub tries: u32,
    /// The wait between two attempts.
    pub wait: Duration,
    /// The write gate. While it is closed because of another controller, events are dropped before they count
    /// towards the rate limits. The first events after the gate opens are then not dropped as spam.
    pub gate: Option<Arc<Gate>>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            component: "horizontal-pod-autoscaler".to_owned(),
            queue: 1000,
            tries: 12,
            wait: Duration::from_secs(10),
            gate: None,
        }
    }
}

/// The results of all events so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventStats {
    /// Events accepted by the server.
    pub sent: u64,
    /// Events dropped by correlation because one object had too many.
    pub spam: u64,
    /// Events dropped because the queue was full.
    pub overflow: u64,
    /// Events rejected by the server, or not delivered after all attempts.
    pub failed: u64,
    /// Events refused by the write gate.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    spam: AtomicU64,
    overflow: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    /// Total size of the queued messages, in bytes.
    waiting: AtomicUsize,
    /// Number of queued events by HPA. Without HPAs that have none.
    waiting_by_hpa: Mutex<BTreeMap<ObjectKey, usize>>,
    /// Number of entries in the correlator.
    remembered: AtomicUsize,
}

impl Counters {
    /// Counts one more queued event of an HPA. False if the HPA has too many.
    fn add_waiting(&self, object: &ObjectKey) -> bool {
        let mut waiting = self.waiting_by_hpa.lock();
        if let Some(count) = waiting.get_mut(object) {
            let fits = *count < MAX_WAITING_PER_HPA;
            *count += usize::from(fits);
            return fits;
        }
        waiting.insert(object.clone(), 1);
        true
    }

    fn remove_waiting(&self, object: &ObjectKey) {
        let mut waiting = self.waiting_by_hpa.lock();
        if let Some(count) = waiting.get_mut(object) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                waiting.remove(object);
            }
        }
    }
}

/// Queues events without blocking. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Message>,
    /// Deleted objects. The channel is separate so that many deletions do not displace events.
    gone: mpsc::Sender<ObjectKey>,
    clock: SharedClock,
    counters: Arc<Counters>,
}

#[derive(Debug)]
enum Message {
    Event { target: EventTarget, intent: EventIntent, at: Timestamp },
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    /// Creates a recorder and the future that sends its events. The future completes when all recorders are
    /// dropped and the queue is empty.
    pub fn new(client: Client, clock: SharedClock, options: EventOptions) -> (Self, BoxFuture<'static, ()>) {
        let (queue, messages) = mpsc::channel(options.queue.max(1));
        // The correlator holds at most `CACHE` objects.
        let (gone, deleted) = mpsc::channel(CACHE);
        let counters = Arc::new(Counters::default());
        let recorder = Self { queue, gone, clock, counters: Arc::clone(&counters) };
        let sender = Sender {
            client,
            options,
            counters,
            correlator: Correlator::default(),
            last_name: Timestamp::MIN,
        };
        (recorder, Box::pin(sender.run(messages, deleted)))
    }

    /// Queues an event with the current time.
    pub fn record(&self, target: EventTarget, intent: EventIntent) {
        let size = intent.message.len();
        let object = target.object();
        if !self.counters.add_waiting(&object) {
            self.counters.overflow.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(
                namespace = &*target.namespace,
                name = &*target.name,
                "dropped an event: the HPA has too many in the queue"
            );
            return;
        }
        let event = Message::Event { target, intent, at: self.clock.now() };
        let waiting = self.counters.waiting.fetch_add(size, Ordering::Relaxed);
        if waiting.saturating_add(size) > MAX_WAITING || self.queue.try_send(event).is_err() {
            self.counters.waiting.fetch_sub(size, Ordering::Relaxed);
            self.counters.remove_waiting(&object);
            self.counters.overflow.fetch_add(1, Ordering::Relaxed);
            tracing::debug!("dropped an event: the queue is full");
        }
    }

    /// Removes a deleted object from the correlator after its queued events. If the channel is full, the
    /// object is evicted later like any other.
    pub fn forget(&self, namespace: &Arc<str>, name: &Arc<str>, uid: &Arc<str>) {
        let [namespace, name, uid] = [namespace, name, uid].map(Arc::clone);
        let _ = self.gone.try_send(ObjectKey { namespace, name, uid });
    }

    /// Waits until all previously queued events are sent or dropped.
    pub async fn flush(&self) {
        let (done, waiting) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            // An error means that the sender has ended, so the queue is empty.
            let _ = waiting.await;
        }
    }

    /// The number of entries in the correlator.
    pub fn remembered(&self) -> usize {
        self.counters.remembered.load(Ordering::Relaxed)
    }

    /// The results of all events so far.
    pub fn stats(&self) -> EventStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventStats {
            sent: read(&self.counters.sent),
            spam: read(&self.counters.spam),
            overflow: read(&self.counters.overflow),
            failed: read(&self.counters.failed),
            refused: read(&self.counters.refused),
        }
    }
}

struct Sender {
    client: Client,
    options: EventOptions,
    counters: Arc<Counters>,
    correlator: Correlator,
    last_name: Timestamp,
}

impl Sender {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>, mut gone: mpsc::Receiver<ObjectKey>) {
        loop {
            let message = tokio::select! {
                // Events of an object that were queued before its deletion come first.
                biased;
                message = messages.recv() => message,
                Some(object) = gone.recv() => {
                    self.correlator.forget(&object);
                    self.count_remembered();
                    continue;
                }
            };
            match message {
                None => break,
                Some(Message::Flush(done)) => {
                    // The caller may have been dropped.
                    let _ = done.send(());
                }
                Some(Message::Event { target, intent, at }) => {
                    self.counters.waiting.fetch_sub(intent.message.len(), Ordering::Relaxed);
                    self.counters.remove_waiting(&target.object());
                    self.event(&target, &intent, at).await;
                }
            }
        }
    }

    fn count_remembered(&self) {
        self.counters.remembered.store(self.correlator.len(), Ordering::Relaxed);
    }

    async fn event(&mut self, target: &EventTarget, intent: &EventIntent, at: Timestamp) {
        let gate = self.options.gate.as_ref();
        if gate.and_then(|gate| gate.refusal()) == Some(Refusal::TakeOver) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let last_name = &mut self.last_name;
        let name = || {
            // Two events at the same time must not share a name.
            let next = last_name.checked_add(Duration::from_nanos(1)).unwrap_or(at);
            *last_name = at.max(next);
            event_name(target, *last_name)
        };
        let verdict = self.correlator.correlate(target, intent, at, name);
        self.count_remembered();
        let (new, event) = match &verdict {
            Verdict::Drop => {
                self.counters.spam.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Verdict::Create(event) => (true, event),
            Verdict::Update(event) => (false, event),
        };
        let counter = match self.deliver(target, intent, event, new).await {
            Ok(()) => &self.counters.sent,
            Err(error) if error.is_refused() => &self.counters.refused,
            Err(error) => {
                let quiet = error.is_namespace_terminating() || error.is_not_found();
                if quiet {
                    tracing::debug!(namespace = &*target.namespace, name = &*target.name, %error, "dropped an event");
                } else {
                    tracing::warn!(
                        namespace = &*target.namespace, name = &*target.name, reason = intent.reason, %error,
                        "failed to send an event, dropping it"
                    );
                }
                &self.counters.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends one event. Retries while the server is unreachable. An event that the server rejects, whatever
    /// the code, is dropped: it must not delay the events of other namespaces.
    async fn deliver(
        &self,
        target: &EventTarget,
        intent: &EventIntent,
        event: &Correlated,
        new: bool,
    ) -> Result<(), ApiError> {
        let mut create = new;
        let mut tries = 1;
        loop {
            let call = if create { self.create(target, intent, event) } else { patch(target, event) };
            match self.client.bytes(&call).await {
                Ok(_) => return Ok(()),
                // Events expire after an hour, so the event to update may be gone.
                Err(error) if !create && error.is_not_found() => create = true,
                // A previous attempt with an unknown outcome has succeeded.
                Err(ApiError::Status { code: 409, .. }) if create && tries > 1 => return Ok(()),
                Err(error @ ApiError::Status { .. }) => return Err(error),
                Err(error) if error.is_transient() && tries < self.options.tries => {
                    tries += 1;
                    tokio::time::sleep(self.options.wait).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn create(&self, target: &EventTarget, intent: &EventIntent, event: &Correlated) -> Call {
        let body = json!({
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": event.name, "namespace": &*target.namespace},
            "involvedObject": {
                "kind": "HorizontalPodAutoscaler",
                "namespace": &*target.namespace,
                "name": &*target.name,
                "uid": &*target.uid,
                "apiVersion": "autoscaling/v2",
                "resourceVersion": &*target.resource_version,
            },
            "reason": intent.reason,
            "message": event.message,
            "source": {"component": self.options.component},
            "firstTimestamp": seconds(event.first),
            "lastTimestamp": seconds(event.last),
            "count": event.count,
            "type": intent.kind.as_str(),
            "eventTime": null,
            // client-go leaves it out of combined events.
            "reportingComponent": if event.combined { "" } else { &*self.options.component },
            "reportingInstance": "",
        });
        let path = ["api", "v1", "namespaces", &target.namespace, "events"];
        Call::send(Method::POST, path, "application/json", body.to_string().into_bytes()).about("events", "")
    }
}

/// The name of an event: as in client-go, the object's name and the time. client-go uses a random UUID
/// where this is too long for a name; here the object's UID takes the place of its name.
fn event_name(target: &EventTarget, at: Timestamp) -> String {
    let name = format!("{}.{:x}", target.name, at.as_nanosecond());
    if name.len() <= MAX_NAME { name } else { format!("{}.{:x}", target.uid, at.as_nanosecond()) }
}

fn patch(target: &EventTarget, event: &Correlated) -> Call {
    let body = json!({"count": event.count, "lastTimestamp": seconds(event.last), "message": event.message});
    let path = ["api", "v1", "namespaces", &target.namespace, "events", &event.name];
    Call::send(Method::PATCH, path, "application/strategic-merge-patch+json", body.to_string().into_bytes())
        .about("events", &event.name)
}

/// Kubernetes' time format: whole seconds, rounded down.
fn seconds(time: Timestamp) -> String {
    let options = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Trunc);
    time.round(options).unwrap_or(time).to_string()
}
