//! The server-sent events of one client: rows and their changes, and the state of the watch.
//!
//! Changes are coalesced. A slow client receives fewer and larger events, because an event is computed only after the
//! previous event has been sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::watch::{Informer, MAX_SILENCE};
use futures::Stream;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::Key;
use crate::row::Row;
use crate::store::Store;

/// The delay of an event after a change. Further changes within this time are part of the same event.
const COALESCE: Duration = Duration::from_millis(100);
/// The interval between two checks of the watch's state.
const CHECK: Duration = Duration::from_secs(1);
/// The number of checks after which a status event is sent even if the status is unchanged. The event shows the client
/// that the server runs.
const SILENT_CHECKS: u32 = 5;
/// Maximum number of rows in one event.
const ROWS: usize = 500;

#[derive(Serialize)]
struct RowsEvent<'a> {
    /// Whether the client drops its rows first.
    all: bool,
    rows: &'a [Arc<Row>],
    removed: &'a [Key],
}

/// The state of the watch.
#[derive(Serialize, PartialEq, Clone, Default)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// Whether the list has been complete at least once.
    synced: bool,
    /// The error of the watch. `None` while the watch is current.
    error: Option<String>,
    /// The reason why the file of `--advice` cannot be read. `None` without a failure.
    advice: Option<String>,
}

/// Rows that are not yet sent. Each batch is encoded just before it is sent, so a slow client needs memory for only one
/// encoded event.
struct Unsent {
    all: bool,
    rows: VecDeque<Arc<Row>>,
    removed: Vec<Key>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusEvent<'a> {
    #[serde(flatten)]
    status: &'a Status,
    /// Seconds since the last event of the API server.
    age_seconds: u64,
}

struct Client {
    store: Store,
    watches: Informer,
    versions: watch::Receiver<u64>,
    /// The version of the store that was last sent to the client.
    version: Option<u64>,
    checks: Interval,
    silent: u32,
    status: Option<Status>,
    /// Encoded events that are not yet sent.
    queue: VecDeque<Bytes>,
    unsent: Option<Unsent>,
}

/// Returns the events for a new client, without an end.
pub(crate) fn events(store: &Store, watches: &Informer) -> impl Stream<Item = Bytes> + Send + use<> {
    futures::stream::unfold(Client::new(store, watches), |mut client| async move {
        let event = client.next().await;
        Some((event, client))
    })
}

impl Client {
    fn new(store: &Store, watches: &Informer) -> Self {
        let mut checks = interval(CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            store: store.clone(),
            watches: watches.clone(),
            versions: store.versions(),
            version: None,
            checks,
            silent: 0,
            status: None,
            queue: VecDeque::new(),
            unsent: None,
        }
    }

    async fn next(&mut self) -> Bytes {
        if self.version.is_none() {
            self.check();
            self.read();
        }
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            if self.unsent.is_some() {
                self.send_rows();
                continue;
            }
            tokio::select! {
                biased;
                _ = self.checks.tick() => self.check(),
                changed = self.versions.changed() => {
                    // `changed` is never an error, because the client's store owns the sender.
                    if changed.is_ok() {
                        tokio::time::sleep(COALESCE).await;
                        self.read();
                    }
                }
            }
        }
    }

    /// Collects the changes since the client's version.
    fn read(&mut self) {
        self.versions.mark_unchanged();
        let changes = self.store.since(self.version);
        self.version = Some(changes.version);
        self.unsent = Some(Unsent { all: changes.all, rows: changes.rows.into(), removed: changes.removed });
    }

    /// Queues the next batch of unsent rows, unless the event would be empty.
    fn send_rows(&mut self) {
        let Some(mut unsent) = self.unsent.take() else { return };
        let count = unsent.rows.len().min(ROWS);
        let rows: Vec<_> = unsent.rows.drain(..count).collect();
        if !unsent.all && rows.is_empty() && unsent.removed.is_empty() {
            return;
        }
        self.queue("rows", &RowsEvent { all: unsent.all, rows: &rows, removed: &unsent.removed });
        if !unsent.rows.is_empty() {
            self.unsent = Some(Unsent { all: false, removed: Vec::new(), ..unsent });
        }
    }

    /// Queues the state of the watch if it has changed, or was not sent in the last [`SILENT_CHECKS`] checks.
    fn check(&mut self) {
        let watch = self.watches.status();
        // The informer keeps an error until the next event, even if the watch is open again.
        let is_current = self.watches.watches().all(|watch| watch.is_current(Duration::ZERO, MAX_SILENCE));
        let error = watch.error.filter(|_| !is_current);
        let status = Status {
            synced: watch.synced,
            error: error.map(|error| error.to_string()),
            advice: self.store.advice_problem(),
        };
        self.silent += 1;
        if self.status.as_ref() == Some(&status) && self.silent < SILENT_CHECKS {
            return;
        }
        self.silent = 0;
        self.queue("status", &StatusEvent { status: &status, age_seconds: watch.age.as_secs() });
        self.status = Some(status);
    }

    fn queue(&mut self, event: &str, data: &impl Serialize) {
        // Compact JSON has no line breaks, because strings escape them.
        match serde_json::to_string(data) {
            Ok(data) => self.queue.push_back(format!("event: {event}\ndata: {data}\n\n").into()),
            Err(error) => tracing::error!(%error, "failed to encode a console event"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clock::SystemClock;
    use cluster::decode;
    use serde_json::json;

    use super::*;

    fn put(store: &Store, namespace: &str, name: &str, replicas: i32) {
        let hpa = json!({
            "metadata": {"namespace": namespace, "name": name}, "spec": {"maxReplicas": 9},
            "status": {"desiredReplicas": replicas},
        });
        store.put(&decode::hpa(hpa.to_string().as_bytes()).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_encoded_when_the_client_reads_them() {
        let store = Store::new(Arc::new(SystemClock));
        for number in 0..3 * ROWS {
            put(&store, "shop", &format!("web-{number}"), 1);
        }
        let mut client = Client::new(&store, &Informer::new([]));
        client.next().await;
        while client.unsent.is_none() {
            client.next().await;
        }
        assert!(client.queue.len() <= 1, "{}", client.queue.len());
    }
}
