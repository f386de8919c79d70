//! The server-sent events of one client: rows and their changes, and the state of the watch.
//!
//! Changes are coalesced. A slow client receives fewer, larger events, because the next event is computed only
//! when the previous one has been sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::watch::{Handle, MAX_SILENCE};
use futures::Stream;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::row::Row;
use crate::store::{Key, Store};

/// The wait after a change, in which further changes join it.
const COALESCE: Duration = Duration::from_millis(100);
/// The interval between two checks of the watch's state.
const CHECK: Duration = Duration::from_secs(1);
/// Maximum number of checks without an event. The next event also shows the client that the server runs.
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
    /// The current error.
    error: Option<String>,
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
    handle: Handle,
    versions: watch::Receiver<u64>,
    /// The version that the client has.
    version: Option<u64>,
    checks: Interval,
    silent: u32,
    status: Option<Status>,
    /// Encoded events that are not yet sent.
    queue: VecDeque<Bytes>,
}

/// Returns the events for a new client. The stream does not end.
pub(crate) fn events(store: &Store, handle: &Handle) -> impl Stream<Item = Bytes> + Send + use<> {
    let mut checks = interval(CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let client = Client {
        store: store.clone(),
        handle: handle.clone(),
        versions: store.versions(),
        version: None,
        checks,
        silent: 0,
        status: None,
        queue: VecDeque::new(),
    };
    futures::stream::unfold(client, |mut client| async move {
        let event = client.next().await;
        Some((event, client))
    })
}

impl Client {
    async fn next(&mut self) -> Bytes {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            if self.version.is_none() {
                self.check();
                self.read();
                continue;
            }
            tokio::select! {
                biased;
                changed = self.versions.changed() => {
                    // The store has the sender, and this client has the store.
                    if changed.is_ok() {
                        tokio::time::sleep(COALESCE).await;
                        self.read();
                    }
                }
                _ = self.checks.tick() => self.check(),
            }
        }
    }

    /// Queues the changes since the client's version.
    fn read(&mut self) {
        self.versions.mark_unchanged();
        let changes = self.store.since(self.version);
        self.version = Some(changes.version);
        let mut parts = changes.rows.chunks(ROWS);
        let first = parts.next().unwrap_or_default();
        if !changes.all && first.is_empty() && changes.removed.is_empty() {
            return;
        }
        self.queue("rows", &RowsEvent { all: changes.all, rows: first, removed: &changes.removed });
        for rows in parts {
            self.queue("rows", &RowsEvent { all: false, rows, removed: &[] });
        }
    }

    /// Queues the state of the watch, if it has changed or nothing was sent for a while.
    fn check(&mut self) {
        let watch = self.handle.status();
        // An error stays until the next event, although the watch may be open again.
        let error = watch.error.filter(|_| !self.handle.is_current(Duration::ZERO, MAX_SILENCE));
        let status = Status { synced: watch.synced, error: error.map(|error| error.to_string()) };
        self.silent += 1;
        if self.status.as_ref() == Some(&status) && self.silent < SILENT_CHECKS {
            return;
        }
        self.silent = 0;
        self.queue("status", &StatusEvent { status: &status, age_seconds: watch.age.as_secs() });
        self.status = Some(status);
    }

    fn queue(&mut self, event: &str, data: &impl Serialize) {
        // JSON of a value has no line breaks outside of texts, where they are escaped.
        match serde_json::to_string(data) {
            Ok(data) => self.queue.push_back(format!("event: {event}\ndata: {data}\n\n").into()),
            Err(error) => tracing::error!(%error, "failed to encode an event of the console"),
        }
    }
}
