//! The server-sent events of one client: rows and their changes, and the state of the watch.
//!
//! Changes are coalesced. A slow client receives fewer and larger events, because an event is computed only after the
//! previous event has been sent. A client with access to some namespaces receives only their rows. Its access is
//! reviewed while the stream is open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::watch::{Informer, MAX_SILENCE};
use futures::Stream;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::row::Row;
use crate::store::Store;
use crate::{Key, Review, Visible};

/// The delay of an event after a change. Further changes within this time are part of the same event.
const COALESCE: Duration = Duration::from_millis(100);
/// The interval between two checks of the watch's state.
const CHECK: Duration = Duration::from_secs(1);
/// The number of checks after which a status event is sent even if the status is unchanged. The event shows the client
/// that the server runs.
const SILENT_CHECKS: u32 = 5;
/// The interval between two reviews of a client's access.
const REVIEW: Duration = Duration::from_secs(30);
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
    /// The number of namespaces that the client may see. Absent if the client may see all.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<usize>,
    /// The number of namespaces beyond the maximum, which were not reviewed.
    #[serde(skip_serializing_if = "is_zero")]
    unreviewed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde needs")]
fn is_zero(number: &usize) -> bool {
    *number == 0
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
    review: Option<Arc<dyn Review>>,
    visible: Visible,
    versions: watch::Receiver<u64>,
    /// The version of the store that was last sent to the client.
    version: Option<u64>,
    checks: Interval,
    reviews: Interval,
    silent: u32,
    status: Option<Status>,
    /// Encoded events that are not yet sent.
    queue: VecDeque<Bytes>,
    unsent: Option<Unsent>,
}

/// Returns the events for a new client. Without `review`, the client may see all HPAs, and the stream never ends.
pub(crate) fn events(
    store: &Store,
    watches: &Informer,
    review: Option<Arc<dyn Review>>,
) -> impl Stream<Item = Bytes> + Send + use<> {
    futures::stream::unfold(Client::new(store, watches, review), |mut client| async move {
        let event = client.next().await?;
        Some((event, client))
    })
}

impl Client {
    fn new(store: &Store, watches: &Informer, review: Option<Arc<dyn Review>>) -> Self {
        let every = |period| {
            let mut interval = interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        Self {
            store: store.clone(),
            watches: watches.clone(),
            review,
            visible: Visible::All,
            versions: store.versions(),
            version: None,
            checks: every(CHECK),
            reviews: every(REVIEW),
            silent: 0,
            status: None,
            queue: VecDeque::new(),
            unsent: None,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.unsent.is_some() {
                self.send_rows();
                continue;
            }
            tokio::select! {
                biased;
                // The first tick is immediate, so that nothing is sent before the first review.
                _ = self.reviews.tick() => {
                    self.review().await?;
                    if self.version.is_none() {
                        self.check();
                        self.read();
                    }
                }
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

    /// Reviews the client's access. If it has changed, the client receives all rows again. `None` ends the stream.
    async fn review(&mut self) -> Option<()> {
        let Some(review) = &self.review else { return Some(()) };
        let visible = review.review(self.store.namespaces()).await?;
        if self.visible != visible {
            self.visible = visible;
            self.version = None;
        }
        Some(())
    }

    /// Collects the changes since the client's version.
    fn read(&mut self) {
        self.versions.mark_unchanged();
        let changes = self.store.since(self.version);
        self.version = Some(changes.version);
        let rows = changes.rows.into_iter().filter(|row| self.visible.contains(&row.namespace)).collect();
        let is_visible = |(namespace, _): &Key| self.visible.contains(namespace);
        let removed = changes.removed.into_iter().filter(is_visible).collect();
        self.unsent = Some(Unsent { all: changes.all, rows, removed });
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
        let (namespaces, unreviewed) = match &self.visible {
            Visible::All => (None, 0),
            Visible::Namespaces { names, unreviewed } => (Some(names.len()), *unreviewed),
        };
        let error = error.map(|error| error.to_string());
        let status = Status { synced: watch.synced, error, namespaces, unreviewed };
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
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use std::collections::BTreeSet;

    use clock::SystemClock;
    use cluster::decode;
    use futures::StreamExt as _;
    use futures::future::BoxFuture;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    /// The results of successive reviews.
    #[derive(Debug)]
    struct Answers(Mutex<VecDeque<Option<Visible>>>);

    impl Review for Answers {
        fn review(&self, namespaces: BTreeSet<String>) -> BoxFuture<'static, Option<Visible>> {
            assert_eq!(namespaces.into_iter().collect::<Vec<_>>(), ["bank", "shop"]);
            let answer = self.0.lock().pop_front().flatten();
            Box::pin(std::future::ready(answer))
        }
    }

    fn only(name: &str) -> Visible {
        Visible::Namespaces { names: [name.to_owned()].into(), unreviewed: 0 }
    }

    fn put(store: &Store, namespace: &str, name: &str, replicas: i32) {
        let hpa = json!({
            "metadata": {"namespace": namespace, "name": name}, "spec": {"maxReplicas": 9},
            "status": {"desiredReplicas": replicas},
        });
        store.put(&decode::hpa(hpa.to_string().as_bytes()).unwrap());
    }

    async fn next_rows(events: &mut (impl Stream<Item = Bytes> + Unpin)) -> Value {
        loop {
            let event = events.next().await.unwrap();
            let text = std::str::from_utf8(&event).unwrap();
            if let Some(data) = text.strip_prefix("event: rows\ndata: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rows_follow_what_the_client_may_see_until_it_may_see_nothing() {
        let store = Store::new(Arc::new(SystemClock));
        put(&store, "shop", "web", 1);
        put(&store, "bank", "web", 1);
        let answers = Answers(Mutex::new([Some(only("shop")), Some(only("bank")), None].into()));
        let events = events(&store, &Informer::new([]), Some(Arc::new(answers)));
        let mut events = std::pin::pin!(events);
        let first = next_rows(&mut events).await;
        assert_eq!((&first["all"], &first["rows"][0]["namespace"]), (&json!(true), &json!("shop")));
        // No event is sent for a change of an HPA that the client may not see.
        put(&store, "bank", "web", 2);
        put(&store, "shop", "web", 2);
        let change = next_rows(&mut events).await;
        assert_eq!(
            (&change["rows"][0]["namespace"], change["rows"].as_array().unwrap().len()),
            (&json!("shop"), 1)
        );
        let start = tokio::time::Instant::now();
        let second = next_rows(&mut events).await;
        assert_eq!((&second["all"], &second["rows"][0]["namespace"]), (&json!(true), &json!("bank")));
        assert!(start.elapsed() <= REVIEW, "{:?}", start.elapsed());
        while events.next().await.is_some() {}
        assert!(start.elapsed() <= 2 * REVIEW, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_encoded_when_the_client_reads_them() {
        let store = Store::new(Arc::new(SystemClock));
        for number in 0..3 * ROWS {
            put(&store, "shop", &format!("web-{number}"), 1);
        }
        let mut client = Client::new(&store, &Informer::new([]), None);
        client.next().await.unwrap();
        while client.unsent.is_none() {
            client.next().await.unwrap();
        }
        assert!(client.queue.len() <= 1, "{}", client.queue.len());
    }
}
