//! Sends queued events. Events of one namespace are sent in order, one at a time. Namespaces are independent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use autoscaling::event::EventIntent;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::Method;
use jiff::{Timestamp, Unit};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::correlate::ObjectKey;
use super::{Correlated, Correlator, Counters, EventOptions, EventTarget, Message, Queued, Verdict};
use crate::call::Call;
use crate::client::Client;
use crate::error::ApiError;
use crate::fair::Rotation;
use crate::gate::{Refusal, WritePermit};

/// Maximum number of namespaces with an event in flight. A slow delivery, for example after a response with
/// `Retry-After`, delays only the events of its namespace.
const AT_ONCE: usize = 16;

/// The maximum length of a name in Kubernetes.
const MAX_NAME: usize = 253;

/// The task that sends events.
pub(super) struct Sender {
    delivery: Arc<Delivery>,
    counters: Arc<Counters>,
    correlator: Correlator,
    last_name: Timestamp,
    /// Queued events, in order of arrival within a namespace. Namespaces take turns.
    queued: Rotation<u64, Queued>,
    next: u64,
    /// The events that are queued or in flight.
    unfinished: BTreeSet<u64>,
    /// The namespaces of the events in flight.
    busy: BTreeSet<Arc<str>>,
    in_flight: FuturesUnordered<BoxFuture<'static, Delivered>>,
    /// Callers that wait until all events with a lower number are finished.
    flushes: Vec<(u64, oneshot::Sender<()>)>,
    /// Deleted objects with queued events.
    gone: BTreeSet<ObjectKey>,
}

struct Delivery {
    client: Client,
    options: EventOptions,
}

struct Delivered {
    number: u64,
    namespace: Arc<str>,
    result: Result<(), ApiError>,
    target: EventTarget,
    reason: &'static str,
}

impl Sender {
    pub(super) fn new(client: Client, options: EventOptions, counters: Arc<Counters>) -> Self {
        Self {
            delivery: Arc::new(Delivery { client, options }),
            counters,
            correlator: Correlator::default(),
            last_name: Timestamp::MIN,
            queued: Rotation::default(),
            next: 0,
            unfinished: BTreeSet::new(),
            busy: BTreeSet::new(),
            in_flight: FuturesUnordered::new(),
            flushes: Vec::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Sends events until the queue is closed and empty.
    pub(super) async fn run(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        mut gone: mpsc::Receiver<ObjectKey>,
    ) {
        let mut is_open = true;
        loop {
            self.start_deliveries();
            self.answer_flushes();
            tokio::select! {
                // Queued events of an object are handled before its deletion.
                biased;
                message = messages.recv(), if is_open => match message {
                    None => is_open = false,
                    Some(Message::Flush(done)) => self.flushes.push((self.next, done)),
                    Some(Message::Event(event)) => {
                        let namespace = Arc::clone(&event.target.namespace);
                        self.queued.insert(&namespace, 0, self.next, event);
                        self.unfinished.insert(self.next);
                        self.next += 1;
                    }
                },
                Some(delivered) = self.in_flight.next() => self.finish(delivered),
                Some(object) = gone.recv() => {
                    if self.counters.has_waiting(&object) {
                        self.gone.insert(object);
                    } else {
                        self.correlator.forget(&object);
                        self.count_remembered();
                    }
                }
                else => break,
            }
        }
    }

    /// Starts the next delivery of namespaces without a delivery in flight.
    fn start_deliveries(&mut self) {
        while self.busy.len() < AT_ONCE {
            let busy = &self.busy;
            let next = self.queued.pop_where(|namespace| !busy.contains(namespace));
            let Some((namespace, number, event)) = next else { return };
            let object = event.target.object();
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
            self.counters.waiting.fetch_sub(event.intent.message.len(), Ordering::Relaxed);
            self.counters.remove_waiting(&object);
            match self.correlate(&event) {
                None => {
                    self.unfinished.remove(&number);
                }
                Some((is_new, correlated, permit)) => {
                    self.busy.insert(Arc::clone(&namespace));
                    let delivery = Arc::clone(&self.delivery);
                    self.in_flight.push(Box::pin(async move {
                        let Queued { target, intent, .. } = event;
                        let result = delivery.deliver(&target, &intent, &correlated, is_new, permit).await;
                        Delivered { number, namespace, result, target, reason: intent.reason }
                    }));
                }
            }
            if !self.counters.has_waiting(&object) && self.gone.remove(&object) {
                self.correlator.forget(&object);
                self.count_remembered();
            }
        }
    }

    /// Completes the flushes whose events are all sent or dropped. Ignores callers that have stopped waiting.
    fn answer_flushes(&mut self) {
        let first = self.unfinished.first().copied().unwrap_or(self.next);
        for (_, done) in self.flushes.extract_if(.., |(before, _)| *before <= first) {
            let _ = done.send(());
        }
    }

    fn count_remembered(&self) {
        self.counters.remembered.store(self.correlator.len(), Ordering::Relaxed);
    }

    /// Returns whether the event is new in the cluster, the correlated event, and its permit. `None` if nothing is
    /// sent.
    fn correlate(
        &mut self,
        Queued { target, intent, at }: &Queued,
    ) -> Option<(bool, Correlated, Option<WritePermit>)> {
        let gate = self.delivery.options.gate.as_ref();
        let permit = self.delivery.permit(target);
        if gate.and_then(|gate| gate.refusal()) == Some(Refusal::TakeOver)
            || permit.as_ref().is_some_and(|permit| !permit.0.may_write())
        {
            self.counters.stats.lock().refused += 1;
            return None;
        }
        let (last_name, part) = (&mut self.last_name, self.delivery.options.name_part);
        let name = || {
            // Two events with equal times must have different names.
            let next = last_name.checked_add(Duration::from_nanos(1)).unwrap_or(*at);
            *last_name = next.max(*at);
            event_name(target, part, *last_name)
        };
        let verdict = self.correlator.correlate(target, intent, *at, name);
        self.count_remembered();
        match verdict {
            Verdict::Drop => {
                self.counters.stats.lock().spam += 1;
                None
            }
            Verdict::Create(event) => Some((true, event, permit)),
            Verdict::Update(event) => Some((false, event, permit)),
        }
    }

    fn finish(&mut self, delivered: Delivered) {
        let Delivered { number, namespace, result, target, reason } = delivered;
        self.busy.remove(&namespace);
        self.unfinished.remove(&number);
        match result {
            Ok(()) => self.counters.stats.lock().sent += 1,
            Err(error) if error.is_refused() => self.counters.stats.lock().refused += 1,
            Err(error) => {
                let quiet = error.is_namespace_terminating() || error.is_not_found();
                if quiet {
                    tracing::debug!(namespace = &*target.namespace, name = &*target.name, %error, "dropped an event");
                } else {
                    tracing::warn!(
                        namespace = &*target.namespace, name = &*target.name, reason, %error,
                        "failed to send an event, dropping it"
                    );
                }
                self.counters.stats.lock().failed += 1;
            }
        }
    }
}

impl Delivery {
    fn permit(&self, target: &EventTarget) -> Option<WritePermit> {
        let permits = self.options.permits.as_ref()?;
        Some(permits.permit(&target.namespace, &target.name))
    }

    /// Sends one event. Retries while the server does not respond. An error response other than 404 for an update or
    /// 409 after a retry drops the event.
    async fn deliver(
        &self,
        target: &EventTarget,
        intent: &EventIntent,
        event: &Correlated,
        new: bool,
        permit: Option<WritePermit>,
    ) -> Result<(), ApiError> {
        let mut create = new;
        let mut tries = 1;
        loop {
            let call = if create { self.create(target, intent, event) } else { patch(target, event) };
            let turn = self.client.turn(call.namespace()).await.for_write(permit.clone());
            match self.client.bytes_in(turn, &call).await {
                Ok(_) => return Ok(()),
                // By default, the server deletes events after an hour, so the event to update may no longer exist.
                Err(error) if !create && error.is_not_found() => create = true,
                // The event exists, because a previous attempt with an unknown outcome has succeeded.
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
            // client-go omits the component from combined events.
            "reportingComponent": if event.combined { "" } else { &*self.options.component },
            "reportingInstance": "",
        });
        let path = ["api", "v1", "namespaces", &target.namespace, "events"];
        Call::send(Method::POST, path, "application/json", body.to_string().into_bytes()).about("events", "")
    }
}

/// Returns the name of an event, which consists of the object's name and the time, as in client-go. If the name is too
/// long, client-go uses a random UUID, and this function uses the object's UID instead of its name.
fn event_name(target: &EventTarget, part: &str, at: Timestamp) -> String {
    let named = |object: &str| format!("{object}{part}.{:x}", at.as_nanosecond());
    let name = named(&target.name);
    if name.len() <= MAX_NAME { name } else { named(&target.uid) }
}

fn patch(target: &EventTarget, event: &Correlated) -> Call {
    let body = json!({"count": event.count, "lastTimestamp": seconds(event.last), "message": event.message});
    let path = ["api", "v1", "namespaces", &target.namespace, "events", &event.name];
    Call::send(Method::PATCH, path, "application/strategic-merge-patch+json", body.to_string().into_bytes())
        .about("events", &event.name)
}

/// Formats a time as in Kubernetes, in whole seconds, rounded down.
fn seconds(time: Timestamp) -> String {
    let options = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Trunc);
    time.round(options).unwrap_or(time).to_string()
}
