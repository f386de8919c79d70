//! The published state of a watch, such as its sync status, the age of its last event, and its last error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::ApiError;

/// Minimum interval between two log lines about a persistent error.
const REMIND: Duration = Duration::from_mins(1);

/// Read access to the state of one watch. Clones share the state.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    resource: Arc<str>,
    started: Instant,
    namespace: Option<Arc<str>>,
    synced: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether the server sends no bookmarks.
    without_bookmarks: bool,
    last_event: Option<Instant>,
    /// The start of the current interruption.
    down: Option<Instant>,
    restarts: BTreeMap<Restart, u64>,
    skipped: u64,
    last_error: Option<ApiError>,
    logged: Option<Instant>,
}

/// The reason for a restart of a watch or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server ended the watch, as it does every few minutes.
    Ended,
    /// No event and no bookmark arrived for 90 s, or the server did not end the watch at its timeout. The connection is
    /// considered lost.
    Silent,
    /// The resourceVersion has expired, or the server has not reached it. All objects are listed again.
    Expired,
    /// The permission to list or watch is missing.
    Forbidden,
    /// The server responded with another error.
    Refused,
    /// The connection failed or broke, or the request timed out.
    Unreachable,
    /// The response could not be decoded, or is too large.
    Unreadable,
}

impl Restart {
    /// Returns the value of the metric label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Silent => "silent",
            Self::Expired => "expired",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Unreadable => "unreadable",
        }
    }

    fn after(error: &ApiError) -> Self {
        match error {
            _ if super::expired(error) => Self::Expired,
            _ if error.is_forbidden() => Self::Forbidden,
            ApiError::Status { .. } => Self::Refused,
            ApiError::Decode(_) | ApiError::TooLarge { .. } => Self::Unreadable,
            _ => Self::Unreachable,
        }
    }
}

/// A snapshot of a watch's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// The resource with its group, such as `horizontalpodautoscalers.autoscaling`.
    pub resource: Arc<str>,
    /// The watched namespace. `None` for all namespaces.
    pub namespace: Option<Arc<str>>,
    /// Whether at least one list has been completed.
    pub synced: bool,
    /// The time since the last event, bookmark or complete list. Without any of them, the time since the start of the
    /// watch.
    pub age: Duration,
    /// Whether a bookmark is expected about once a minute.
    pub bookmarks: bool,
    /// The number of restarts by reason.
    pub restarts: BTreeMap<Restart, u64>,
    /// The number of objects that could not be decoded.
    pub skipped: u64,
    /// The current error, which the next event clears.
    pub error: Option<ApiError>,
}

/// A resource and its namespace, such as `pods in namespace shop`.
struct Scope<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

impl WatchStatus {
    /// Returns the resource and its namespace, such as `pods in namespace shop`.
    pub fn place(&self) -> String {
        Scope(&self.resource, self.namespace.as_deref()).to_string()
    }

    /// Returns whether no event has arrived for longer than `limit` although bookmarks are expected. `limit` must be
    /// longer than a minute.
    pub fn is_silent(&self, limit: Duration) -> bool {
        self.bookmarks && self.age > limit
    }
}

/// All watches of one resource: a single cluster-wide watch, or a watch per namespace. Clones share the watches.
#[derive(Debug, Clone)]
pub struct Informer(Arc<[Handle]>);

impl Informer {
    /// Combines the given watches.
    pub fn new(watches: impl IntoIterator<Item = Handle>) -> Self {
        Self(watches.into_iter().collect())
    }

    /// Returns the individual watches.
    pub fn watches(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter()
    }

    /// Returns whether every watch has completed a list.
    pub fn is_synced(&self) -> bool {
        self.0.iter().all(Handle::is_synced)
    }

    /// Returns as soon as every watch has completed a list.
    pub async fn wait_synced(&self) {
        for watch in self.watches() {
            watch.wait_synced().await;
        }
    }

    /// Returns the combined state, with the longest age, the sums of the counts, and the first error with its
    /// namespace.
    pub fn status(&self) -> WatchStatus {
        let mut all = WatchStatus {
            resource: Arc::default(),
            namespace: None,
            synced: true,
            age: Duration::ZERO,
            bookmarks: true,
            restarts: BTreeMap::new(),
            skipped: 0,
            error: None,
        };
        for one in self.watches().map(Handle::status) {
            all.resource = one.resource;
            all.synced &= one.synced;
            all.age = all.age.max(one.age);
            all.bookmarks &= one.bookmarks;
            for (reason, count) in one.restarts {
                *all.restarts.entry(reason).or_default() += count;
            }
            all.skipped += one.skipped;
            if all.error.is_none() {
                (all.error, all.namespace) = (one.error, one.namespace);
            }
        }
        all
    }
}

impl Handle {
    pub(crate) fn new(resource: Arc<str>, namespace: Option<Arc<str>>) -> Self {
        let (started, synced) = (Instant::now(), watch::Sender::new(false));
        let shared = Shared { resource, namespace, started, synced, inner: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns whether a list has been completed.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Returns as soon as a list has been completed.
    pub async fn wait_synced(&self) {
        // The wait cannot fail, because `shared` owns the sender.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Returns the current state.
    pub fn status(&self) -> WatchStatus {
        let inner = self.shared.inner.lock();
        WatchStatus {
            resource: self.resource(),
            namespace: self.shared.namespace.clone(),
            synced: self.is_synced(),
            age: inner.last_event.unwrap_or(self.shared.started).elapsed(),
            bookmarks: !inner.without_bookmarks,
            restarts: inner.restarts.clone(),
            skipped: inner.skipped,
            error: inner.last_error.clone(),
        }
    }

    /// Returns the resource with its group, as in RBAC rules and error texts.
    pub(super) fn resource(&self) -> Arc<str> {
        Arc::clone(&self.shared.resource)
    }

    /// Returns whether the cached view is current. A list must be complete, the last event must be younger than
    /// `silence`, and an interruption must be shorter than `down`.
    pub fn is_current(&self, down: Duration, silence: Duration) -> bool {
        let inner = self.shared.inner.lock();
        self.is_synced()
            && inner.down.is_none_or(|since| since.elapsed() < down)
            && inner.last_event.is_some_and(|at| at.elapsed() < silence)
    }

    /// Records that a watch has continued at the last resourceVersion.
    pub(super) fn resumed(&self) {
        self.shared.inner.lock().down = None;
    }

    pub(super) fn synced(&self) {
        self.event();
        self.shared.synced.send_replace(true);
    }

    pub(super) fn event(&self) {
        let mut inner = self.shared.inner.lock();
        inner.last_event = Some(Instant::now());
        inner.down = None;
        if inner.last_error.take().is_some() && inner.logged.take().is_some() {
            let resource = Scope(&self.shared.resource, self.shared.namespace.as_deref());
            tracing::info!(%resource, "watch recovered");
        }
    }

    pub(super) fn restarted(&self, why: Restart) {
        let mut inner = self.shared.inner.lock();
        *inner.restarts.entry(why).or_default() += 1;
        inner.down.get_or_insert_with(Instant::now);
    }

    pub(super) fn expects_bookmarks(&self, expected: bool) {
        self.shared.inner.lock().without_bookmarks = !expected;
    }

    pub(super) fn skipped(&self) {
        self.shared.inner.lock().skipped += 1;
    }

    /// Records an error. Logs the error once, and again every minute while it lasts. Before the first list is complete,
    /// the error is logged only once, because the startup code logs its wait for the list. Every expired
    /// resourceVersion is logged.
    pub(super) fn failed(&self, error: &ApiError) {
        let resource = Scope(&self.shared.resource, self.shared.namespace.as_deref());
        let mut inner = self.shared.inner.lock();
        *inner.restarts.entry(Restart::after(error)).or_default() += 1;
        inner.down.get_or_insert_with(Instant::now);
        let known = inner.last_error.as_ref().is_some_and(|last| last.has_same_cause(error));
        let silent = known && inner.logged.is_some_and(|at| !self.is_synced() || at.elapsed() < REMIND);
        inner.last_error = Some(error.clone());
        if error.is_gone() {
            tracing::info!(%resource, %error, "watch expired, listing again");
            return;
        }
        if !silent {
            inner.logged = Some(Instant::now());
            if error.is_forbidden() {
                tracing::warn!(%resource, %error, "not allowed to list and watch, waiting for the permission");
            } else {
                tracing::warn!(%resource, %error, "failed to list and watch, retrying");
            }
        }
    }
}
