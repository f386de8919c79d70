//! Events about HPAs (core/v1), correlated as in client-go. One task sends the events, separately from the syncs.

mod correlate;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use autoscaling::event::EventIntent;
use clock::SharedClock;
use correlate::{CACHE, ObjectKey};
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use sender::Sender;
use tokio::sync::{mpsc, oneshot};

use crate::client::Client;
use crate::gate::{Gate, Permits};
pub use correlate::{Correlated, Correlator, Verdict};

/// The HPA (autoscaling/v2) that an event describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// `metadata.namespace`, which is also the event's namespace.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
}

impl EventTarget {
    /// Returns the HPA without its resourceVersion.
    fn object(&self) -> ObjectKey {
        let [namespace, name, uid] = [&self.namespace, &self.name, &self.uid].map(Arc::clone);
        ObjectKey { namespace, name, uid }
    }
}

/// Maximum total size of queued messages, in bytes. Further events are dropped.
const MAX_WAITING: usize = 16 << 20;

/// Maximum number of queued events of one HPA. Further events of the HPA are dropped, so that the queue has room for
/// the events of other HPAs.
const MAX_WAITING_PER_HPA: usize = 200;

/// Options of event delivery.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// `source.component` and `reportingComponent`.
    pub component: String,
    /// The part of an event's name between the object's name and the time. Two recorders that may send events about one
    /// object at the same time need different parts. If the part is empty, names are as in client-go.
    pub name_part: &'static str,
    /// Maximum number of queued events. Further events are dropped.
    pub queue: usize,
    /// Maximum number of attempts per event.
    pub tries: u32,
    /// The wait between two attempts.
    pub wait: Duration,
    /// The write gate. While the gate is closed because of another controller, events are dropped before correlation.
    /// Otherwise the first events after the gate opens could be dropped as spam.
    pub gate: Option<Arc<Gate>>,
    /// Issues the permission for the events of each HPA. Events without permission are dropped as if the gate were
    /// closed because of another controller. `None` permits all events.
    pub permits: Option<Arc<dyn Permits>>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            component: "horizontal-pod-autoscaler".to_owned(),
            name_part: "",
            queue: 1000,
            tries: 12,
            wait: Duration::from_secs(10),
            gate: None,
            permits: None,
        }
    }
}

/// The results of all events so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventStats {
    /// Events accepted by the server.
    pub sent: u64,
    /// Events dropped by correlation because one object had too many of their type.
    pub spam: u64,
    /// Events dropped because the queue was full or had too many events of the same HPA.
    pub overflow: u64,
    /// Events rejected by the server, or not delivered after all attempts.
    pub failed: u64,
    /// Events refused by the write gate, or without permission.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    stats: Mutex<EventStats>,
    /// The number of queued events.
    queued: AtomicUsize,
    /// The total size of the queued messages, in bytes.
    waiting: AtomicUsize,
    /// The number of queued events by HPA. HPAs without queued events have no entry.
    waiting_by_hpa: Mutex<BTreeMap<ObjectKey, usize>>,
    /// The number of entries in the correlator.
    remembered: AtomicUsize,
}

impl Counters {
    /// Counts one more queued event of an HPA. Returns false if the HPA has too many queued events.
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

    /// Returns whether an HPA has queued events.
    fn has_waiting(&self, object: &ObjectKey) -> bool {
        self.waiting_by_hpa.lock().contains_key(object)
    }
}

/// The sending end of the event queue. Queueing never blocks. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Message>,
    /// Maximum number of queued events.
    capacity: usize,
    /// The channel for deleted objects. It is separate from the queue, so that many deletions do not displace events.
    gone: mpsc::Sender<ObjectKey>,
    clock: SharedClock,
    counters: Arc<Counters>,
}

/// An entry of the queue.
#[derive(Debug)]
enum Message {
    Event(Queued),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Queued {
    target: EventTarget,
    intent: EventIntent,
    at: Timestamp,
}

impl Recorder {
    /// Creates a recorder and the future that sends its events. The future completes when all recorders are
    /// dropped and the queue is empty.
    pub fn new(client: Client, clock: SharedClock, options: EventOptions) -> (Self, BoxFuture<'static, ()>) {
        let capacity = options.queue.max(1);
        let (queue, messages) = mpsc::channel(capacity);
        // Each step of the correlator has at most `CACHE` entries.
        let (gone, deleted) = mpsc::channel(CACHE);
        let counters = Arc::new(Counters::default());
        let recorder = Self { queue, capacity, gone, clock, counters: Arc::clone(&counters) };
        let sender = Sender::new(client, options, counters);
        (recorder, Box::pin(sender.run(messages, deleted)))
    }

    /// Queues an event with the current time.
    pub fn record(&self, target: EventTarget, intent: EventIntent) {
        let size = intent.message.len();
        let object = target.object();
        if !self.counters.add_waiting(&object) {
            self.counters.stats.lock().overflow += 1;
            tracing::debug!(
                namespace = &*target.namespace,
                name = &*target.name,
                "dropped an event: the HPA has too many in the queue"
            );
            return;
        }
        let event = Message::Event(Queued { target, intent, at: self.clock.now() });
        let queued = self.counters.queued.fetch_add(1, Ordering::Relaxed);
        let waiting = self.counters.waiting.fetch_add(size, Ordering::Relaxed);
        let is_full = queued >= self.capacity || waiting.saturating_add(size) > MAX_WAITING;
        if is_full || self.queue.try_send(event).is_err() {
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
            self.counters.waiting.fetch_sub(size, Ordering::Relaxed);
            self.counters.remove_waiting(&object);
            self.counters.stats.lock().overflow += 1;
            tracing::debug!("dropped an event: the queue is full");
        }
    }

    /// Removes a deleted object from the correlator after its queued events. If the channel is full, the entries of the
    /// object stay until they are evicted.
    pub fn forget(&self, namespace: &Arc<str>, name: &Arc<str>, uid: &Arc<str>) {
        let [namespace, name, uid] = [namespace, name, uid].map(Arc::clone);
        let _ = self.gone.try_send(ObjectKey { namespace, name, uid });
    }

    /// Waits until all previously queued events are sent or dropped.
    pub async fn flush(&self) {
        let (done, waiting) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            // An error means that the sender has stopped, so no queued event remains.
            let _ = waiting.await;
        }
    }

    /// Returns the number of entries in the correlator.
    pub fn remembered(&self) -> usize {
        self.counters.remembered.load(Ordering::Relaxed)
    }

    /// Returns the results of all events so far.
    pub fn stats(&self) -> EventStats {
        *self.counters.stats.lock()
    }
}
