//! WATCH: the changes of a collection as a stream of JSON lines, and as a feed for the modules of this crate.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Cluster;
use super::faults::{FaultAction, FaultSubject};
use super::list::{self, Format, invalid_options};
use super::object;
use super::registry::ResourceType;
use super::requests::Pieces;
use super::route::Filter;
use super::status::{FieldError, Status};
use super::store::{Change, ChangeKind, StoredObject};

/// The interval between bookmarks, as in Kubernetes.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// The time between the last bookmark and the end of the watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Lifetime of a watch without `timeoutSeconds`. Kubernetes chooses a random lifetime between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);
/// Approximate maximum size in bytes of a chunk of joined events.
const CHUNK: usize = 64 * 1024;

#[derive(Debug, Clone, Default)]
pub(crate) struct WatchOptions {
    pub(crate) filter: Filter,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) bookmarks: bool,
    /// `sendInitialEvents`, if set.
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    cluster: Cluster,
    ty: &'static ResourceType,
    filter: Filter,
    format: Format,
    subject: FaultSubject,
    pending: VecDeque<Pending>,
    live: UnboundedReceiver<Arc<Change>>,
    /// The version after which the watch starts. The server may not have reached it.
    from: u64,
    faults_changed: watch::Receiver<u64>,
    bookmark_at: Option<Instant>,
    ends_at: Instant,
    finished: bool,
}

/// An item that the watch has not sent yet.
#[derive(Debug)]
enum Pending {
    Initial(Arc<StoredObject>),
    InitialEnd(u64),
    Change(Arc<Change>),
    Error(Status),
}

impl Watcher {
    /// Opens a watch. Invalid parameters fail immediately. A version that is too old fails within the stream, as in
    /// Kubernetes.
    pub(crate) fn open(
        cluster: &Cluster,
        ty: &'static ResourceType,
        namespace: Option<&str>,
        options: WatchOptions,
        format: Format,
        subject: FaultSubject,
    ) -> Result<Self, Status> {
        check(&options)?;
        let version = if options.version.is_empty() { 0 } else { list::parse_version(&options.version)? };
        let mut state = cluster.lock();
        let newest = state.newest();
        let snapshot = options.initial_events.unwrap_or(version == 0);
        let from = if snapshot || version == 0 { newest } else { version };
        if snapshot && version > newest {
            return Err(Status::resource_version_too_large(version, newest));
        }
        let mut pending = VecDeque::new();
        if snapshot {
            let objects = state.list(ty, namespace, None).filter(|stored| options.filter.matches(stored));
            pending.extend(objects.cloned().map(Pending::Initial));
            if options.initial_events == Some(true) {
                pending.push_back(Pending::InitialEnd(newest));
            }
        }
        let live = match state.subscribe(ty, namespace, from) {
            Ok(subscription) => {
                pending.extend(subscription.backlog.into_iter().map(Pending::Change));
                subscription.live
            }
            Err(oldest) => {
                let message = format!("too old resource version: {version} ({oldest})");
                pending.push_back(Pending::Error(Status::expired(message)));
                mpsc::unbounded_channel().1
            }
        };
        drop(state);
        let ends_at = Instant::now() + options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        Ok(Self {
            cluster: cluster.clone(),
            ty,
            filter: options.filter,
            format,
            subject,
            pending,
            live,
            from,
            faults_changed: cluster.faults().changed(),
            bookmark_at: options.bookmarks.then(|| next_bookmark(ends_at)),
            ends_at,
            finished: false,
        })
    }

    /// Returns the stream of chunks.
    pub(crate) fn pieces(self) -> Pieces {
        Box::pin(stream::unfold(self, |mut watcher| async move {
            let piece = watcher.next().await?;
            Some((Ok(piece), watcher))
        }))
    }

    /// Returns the next chunk of the stream, or `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.is_empty() && !self.finished {
            self.faults_changed.mark_unchanged();
            match self.cluster.faults().for_watch(&self.subject) {
                Some(FaultAction::WatchClose) => self.finished = true,
                Some(FaultAction::WatchError(status)) => self.send(Pending::Error(status), &mut out).await,
                Some(FaultAction::WatchHang) => std::future::pending().await,
                // Silence also withholds the end of the watch.
                Some(_) => drop(self.faults_changed.changed().await),
                None => {
                    self.take_live();
                    if self.pending.is_empty() {
                        // The next iteration checks the faults again before it sends the change.
                        self.wait(&mut out).await;
                        continue;
                    }
                    // A fault may delay an event. While fault rules are active, each event is a separate chunk, so that
                    // earlier events do not wait for the delayed event.
                    let chunk = if self.cluster.faults().active() == 0 { CHUNK } else { 1 };
                    while out.len() < chunk
                        && !self.finished
                        && let Some(pending) = self.pending.pop_front()
                    {
                        self.send(pending, &mut out).await;
                    }
                }
            }
        }
        if out.is_empty() { None } else { Some(out.into()) }
    }

    fn take_live(&mut self) {
        while let Ok(change) = self.live.try_recv() {
            self.pending.push_back(Pending::Change(change));
        }
    }

    /// Waits for a change, the next bookmark, the end or a change of the fault rules.
    async fn wait(&mut self, out: &mut Vec<u8>) {
        let bookmark_at = self.bookmark_at.unwrap_or(self.ends_at);
        tokio::select! {
            biased;
            change = self.live.recv() => match change {
                Some(change) => self.pending.push_back(Pending::Change(change)),
                None => self.finished = true,
            },
            _ = self.faults_changed.changed() => {}
            () = tokio::time::sleep_until(self.ends_at) => self.finished = true,
            () = tokio::time::sleep_until(bookmark_at), if self.bookmark_at.is_some() => {
                self.bookmark_at = Some(next_bookmark(self.ends_at));
                self.bookmark(out).await;
            }
        }
    }

    /// Sends a bookmark after all pending events, because a bookmark states that all events up to its version have been
    /// sent.
    async fn bookmark(&mut self, out: &mut Vec<u8>) {
        let newest = self.cluster.resource_version();
        self.take_live();
        while let Some(pending) = self.pending.pop_front() {
            self.send(pending, out).await;
        }
        if newest >= self.from {
            Format::bookmark(self.ty, newest, false, out);
        }
    }

    async fn send(&mut self, pending: Pending, out: &mut Vec<u8>) {
        let now = self.cluster.now();
        match pending {
            Pending::Initial(stored) => self.format.event("ADDED", &stored, now, out),
            Pending::InitialEnd(version) => Format::bookmark(self.ty, version, true, out),
            Pending::Error(status) => {
                out.extend_from_slice(b"{\"type\":\"ERROR\",\"object\":");
                object::append(&status.to_json(), out);
                out.extend_from_slice(b"}\n");
                self.finished = true;
            }
            // As in Kubernetes, the watch starts after the requested version, which may be in the future.
            Pending::Change(change) if change.now.resource_version <= self.from => {}
            Pending::Change(change) => {
                let Some((kind, stored)) = filtered_event(&change, &self.filter) else {
                    return;
                };
                let mut times = 1;
                match self.cluster.faults().for_event(&self.subject) {
                    Some(FaultAction::WatchDrop) => times = 0,
                    Some(FaultAction::WatchDuplicate) => times = 2,
                    Some(FaultAction::WatchDelay(delay)) => tokio::time::sleep(delay).await,
                    _ => {}
                }
                for _ in 0..times {
                    self.format.event(kind, &stored, now, out);
                }
            }
        }
    }
}

/// Returns the time of the next bookmark: after one period, or shortly before the end of the watch. The next watch can
/// start from the last bookmark.
fn next_bookmark(ends_at: Instant) -> Instant {
    let now = Instant::now();
    let last = ends_at.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let next = now + BOOKMARK_PERIOD;
    last.map_or(next, |last| next.min(last))
}

/// Returns the event for a change in a filtered collection, or `None` if the change is not visible.
fn filtered_event(change: &Change, filter: &Filter) -> Option<(&'static str, Arc<StoredObject>)> {
    let before = change.before.as_ref().is_some_and(|before| filter.matches(before));
    let now = change.kind != ChangeKind::Deleted && filter.matches(&change.now);
    match (before, now) {
        (false, false) => None,
        (false, true) => Some(("ADDED", Arc::clone(&change.now))),
        (true, true) => Some(("MODIFIED", Arc::clone(&change.now))),
        (true, false) if change.kind == ChangeKind::Deleted => Some(("DELETED", Arc::clone(&change.now))),
        (true, false) => {
            // The object no longer matches. The event contains its last matching state with the version of the change.
            let mut value = change.before.as_ref()?.value();
            let version = change.now.resource_version.to_string();
            object::section(&mut value, "metadata").insert("resourceVersion".to_owned(), version.into());
            Some(("DELETED", Arc::new(StoredObject::new(change.now.ty, value))))
        }
    }
}

fn check(options: &WatchOptions) -> Result<(), Status> {
    let forbidden = |field: &str, detail: &str| Err(invalid_options(FieldError::forbidden(field, detail)));
    match options.initial_events {
        Some(_) if options.version_match != "NotOlderThan" => forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        Some(_) if !options.bookmarks => {
            forbidden("allowWatchBookmarks", "sendInitialEvents requires allowWatchBookmarks to be true")
        }
        None if !options.version_match.is_empty() => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The object exists: it is new or changed.
    Present(Arc<StoredObject>),
    /// The object was deleted. The value is its last state.
    Deleted(Arc<StoredObject>),
}

/// The existing objects of one resource, followed by all later changes.
#[derive(Debug)]
pub(crate) struct Feed {
    existing: Vec<Arc<StoredObject>>,
    live: Option<mpsc::UnboundedReceiver<Arc<Change>>>,
}

impl Feed {
    /// Opens a feed that starts now. The feed of an unregistered resource has no events.
    pub(crate) fn open(cluster: &Cluster, resource: &str) -> Self {
        let Some(ty) = ResourceType::named(resource) else {
            return Self { existing: Vec::new(), live: None };
        };
        let mut state = cluster.lock();
        let existing = state.list(ty, None, None).cloned().collect();
        let newest = state.newest();
        let live = state.subscribe(ty, None, newest).ok().map(|subscription| subscription.live);
        Self { existing, live }
    }

    /// Returns whether the cluster has ended the feed, as a restore does.
    pub(crate) fn is_closed(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_closed() && live.is_empty())
    }

    /// Returns the events since the previous call, in order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = FeedEvent> {
        let live = self.live.as_mut().into_iter();
        let changes = live.flat_map(|live| std::iter::from_fn(|| live.try_recv().ok()));
        std::mem::take(&mut self.existing).into_iter().map(FeedEvent::Present).chain(changes.map(|change| {
            let now = Arc::clone(&change.now);
            if change.kind == ChangeKind::Deleted { FeedEvent::Deleted(now) } else { FeedEvent::Present(now) }
        }))
    }
}
