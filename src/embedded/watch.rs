//! WATCH: the changes of a collection as a stream of JSON lines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Cluster;
use super::faults::{FaultAction, FaultSubject};
use super::format::Format;
use super::list::{self, invalid_options};
use super::object;
use super::registry::ResourceType;
use super::selectors::Filter;
use super::status::{FieldError, Status};
use super::store::{Change, ChangeKind, Stored};

/// Between two bookmarks, as in Kubernetes.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// The last bookmark comes so long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The life of a watch that names none; Kubernetes draws one between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);
/// Events are joined into pieces of about this size.
const PIECE: usize = 64 * 1024;

/// The parameters of a watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchOptions {
    pub(crate) filter: Filter,
    pub(crate) version: String,
    pub(crate) version_match: String,
    pub(crate) bookmarks: bool,
    /// `sendInitialEvents`, if it is given.
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout: Option<Duration>,
}

/// A running watch.
#[derive(Debug)]
pub(crate) struct Watcher {
    cluster: Cluster,
    ty: &'static ResourceType,
    filter: Filter,
    format: Format,
    subject: FaultSubject,
    pending: VecDeque<Pending>,
    live: UnboundedReceiver<Arc<Change>>,
    faults_changed: watch::Receiver<u64>,
    bookmark_at: Option<Instant>,
    ends_at: Instant,
    finished: bool,
}

/// What the watch has still to say.
#[derive(Debug)]
enum Pending {
    Initial(Arc<Stored>),
    InitialEnd(u64),
    Change(Arc<Change>),
    Error(Status),
}

impl Watcher {
    /// Starts a watch. Errors of its parameters are answered at once, a version that is too old in the stream, as
    /// Kubernetes does.
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
            Err(forgotten) => {
                let message = format!("too old resource version: {version} ({forgotten})");
                pending.push_back(Pending::Error(Status::expired(message)));
                tokio::sync::mpsc::unbounded_channel().1
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
            faults_changed: cluster.faults().changed(),
            bookmark_at: options.bookmarks.then(|| next_bookmark(ends_at)),
            ends_at,
            finished: false,
        })
    }

    /// The next piece of the stream; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.is_empty() && !self.finished {
            self.faults_changed.mark_unchanged();
            match self.cluster.faults().for_watch(&self.subject) {
                Some(FaultAction::WatchClose) => self.finished = true,
                Some(FaultAction::WatchError(status)) => self.say(Pending::Error(status), &mut out).await,
                Some(_) => self.wait_in_silence().await,
                None => {
                    self.take_live();
                    if self.pending.is_empty() {
                        // What comes is said in the next round, after another look at the faults.
                        self.wait(&mut out).await;
                        continue;
                    }
                    // Where faults may hold an event back, those before it must not wait with it.
                    let piece = if self.cluster.faults().active() == 0 { PIECE } else { 1 };
                    while out.len() < piece
                        && !self.finished
                        && let Some(pending) = self.pending.pop_front()
                    {
                        self.say(pending, &mut out).await;
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

    /// Waits for a change, a bookmark's time, the end or new faults.
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

    async fn wait_in_silence(&mut self) {
        tokio::select! {
            biased;
            _ = self.faults_changed.changed() => {}
            () = tokio::time::sleep_until(self.ends_at) => self.finished = true,
        }
    }

    /// A bookmark says that everything up to its version has been sent: so what waits goes first.
    async fn bookmark(&mut self, out: &mut Vec<u8>) {
        let newest = self.cluster.resource_version();
        self.take_live();
        while let Some(pending) = self.pending.pop_front() {
            self.say(pending, out).await;
        }
        Format::bookmark(self.ty, newest, false, out);
    }

    async fn say(&mut self, pending: Pending, out: &mut Vec<u8>) {
        let now = self.cluster.now();
        match pending {
            Pending::Initial(stored) => self.format.event("ADDED", &stored, now, out),
            Pending::InitialEnd(version) => Format::bookmark(self.ty, version, true, out),
            Pending::Error(status) => {
                write_error(&status, out);
                self.finished = true;
            }
            Pending::Change(change) => {
                let Some((kind, stored)) = seen_as(&change, &self.filter) else {
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

/// A period from now, or shortly before the end, so that the next watch can start from there.
fn next_bookmark(ends_at: Instant) -> Instant {
    let now = Instant::now();
    let last = ends_at.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let next = now + BOOKMARK_PERIOD;
    last.map_or(next, |last| next.min(last))
}

fn write_error(status: &Status, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"ERROR\",\"object\":");
    object::append(&status.to_json(), out);
    out.extend_from_slice(b"}\n");
}

/// What a change is to somebody who sees the collection through a filter.
fn seen_as(change: &Change, filter: &Filter) -> Option<(&'static str, Arc<Stored>)> {
    let before = change.before.as_ref().is_some_and(|before| filter.matches(before));
    let now = change.kind != ChangeKind::Deleted && filter.matches(&change.now);
    match (before, now) {
        (false, false) => None,
        (false, true) => Some(("ADDED", Arc::clone(&change.now))),
        (true, true) => Some(("MODIFIED", Arc::clone(&change.now))),
        (true, false) if change.kind == ChangeKind::Deleted => Some(("DELETED", Arc::clone(&change.now))),
        (true, false) => {
            // It left the view: the version that was last seen, under the version of the change.
            let mut value = change.before.as_ref()?.value();
            let version = change.now.resource_version.to_string();
            object::section(&mut value, "metadata").insert("resourceVersion".to_owned(), version.into());
            Some(("DELETED", super::store::State::preview(change.now.ty, value)))
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
