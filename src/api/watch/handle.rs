//! What others may know of a watch: whether it is synced, how old its last event is, what went wrong last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::error::ApiError;

/// The same trouble is logged at most this often.
const REMIND: Duration = Duration::from_mins(1);

/// Shows the state of one watch. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    resource: Arc<str>,
    begun: Instant,
    namespace: Option<Arc<str>>,
    synced: watch::Sender<bool>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_event: Option<Instant>,
    /// Since when nothing is followed.
    down: Option<Instant>,
    restarts: BTreeMap<Restart, u64>,
    skipped: u64,
    last_error: Option<ApiError>,
    logged: Option<Instant>,
}

/// Why a watch or a list was begun anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server ended the watch, as it does every few minutes.
    Ended,
    /// The server did not end the watch when its time was up: the connection is dead.
    Silent,
    /// The version is no longer known, or not yet: everything is listed again.
    Expired,
    /// The permission is missing.
    Forbidden,
    /// The server answered with another error.
    Refused,
    /// No connection, a broken one, or no answer in time.
    Unreachable,
    /// The answer is not what it should be.
    Unreadable,
}

impl Restart {
    /// As the label `reason` names it.
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
    /// `pods`, `horizontalpodautoscalers.autoscaling`.
    pub resource: Arc<str>,
    /// Where; none is everywhere.
    pub namespace: Option<Arc<str>>,
    /// A list has been complete at least once.
    pub synced: bool,
    /// Time since the last event, bookmark or complete list.
    pub since_last_event: Option<Duration>,
    /// The same; since the watch began if there was none yet.
    pub age: Duration,
    /// How often the watch was begun anew, and why.
    pub restarts: BTreeMap<Restart, u64>,
    /// Objects that could not be decoded.
    pub skipped: u64,
    /// What is wrong now; gone as soon as something arrives.
    pub error: Option<ApiError>,
}

/// A resource and where it is watched: `pods in namespace shop`.
struct Place<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        self.1.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace}"))
    }
}

impl WatchStatus {
    /// What is watched, and where: `pods in namespace shop`.
    pub fn place(&self) -> String {
        Place(&self.resource, self.namespace.as_deref()).to_string()
    }
}

/// All watches of one resource: one, or one for each namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Informer(Arc<[Handle]>);

impl Informer {
    /// Of these watches.
    pub fn new(watches: impl IntoIterator<Item = Handle>) -> Self {
        Self(watches.into_iter().collect())
    }

    /// Each watch.
    pub fn watches(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter()
    }

    /// Whether every watch has completed a list.
    pub fn is_synced(&self) -> bool {
        self.0.iter().all(Handle::is_synced)
    }

    /// Returns as soon as every watch has completed a list.
    pub async fn wait_synced(&self) {
        for watch in self.watches() {
            watch.wait_synced().await;
        }
    }

    /// The state of all together: the oldest event, the sums, and of the first that has an error its namespace.
    pub fn status(&self) -> WatchStatus {
        let mut all = WatchStatus {
            resource: Arc::default(),
            namespace: None,
            synced: true,
            since_last_event: None,
            age: Duration::ZERO,
            restarts: BTreeMap::new(),
            skipped: 0,
            error: None,
        };
        for one in self.watches().map(Handle::status) {
            all.resource = one.resource;
            all.synced &= one.synced;
            all.since_last_event = all.since_last_event.max(one.since_last_event);
            all.age = all.age.max(one.age);
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
    pub(super) fn new(resource: Arc<str>, namespace: Option<Arc<str>>) -> Self {
        let (begun, synced) = (Instant::now(), watch::Sender::new(false));
        let shared = Shared { resource, namespace, begun, synced, inner: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Whether a list has been complete.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Returns as soon as a list has been complete.
    pub async fn wait_synced(&self) {
        // Cannot fail: the sender lives in `shared`.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The state now.
    pub fn status(&self) -> WatchStatus {
        let inner = self.lock();
        WatchStatus {
            resource: self.resource(),
            namespace: self.shared.namespace.clone(),
            synced: self.is_synced(),
            since_last_event: inner.last_event.map(|at| at.elapsed()),
            age: inner.last_event.unwrap_or(self.shared.begun).elapsed(),
            restarts: inner.restarts.clone(),
            skipped: inner.skipped,
            error: inner.last_error.clone(),
        }
    }

    /// As RBAC and error texts name it.
    pub(super) fn resource(&self) -> Arc<str> {
        Arc::clone(&self.shared.resource)
    }

    /// Whether what was taken in may be taken for the cluster: everything was listed, the changes since are followed, or
    /// were until less than `down` ago, and the server has said something within `silence`.
    pub fn is_current(&self, down: Duration, silence: Duration) -> bool {
        let inner = self.lock();
        self.is_synced()
            && inner.down.is_none_or(|since| since.elapsed() < down)
            && inner.last_event.is_some_and(|at| at.elapsed() < silence)
    }

    /// A watch goes on where the one before it ended.
    pub(super) fn resumed(&self) {
        self.lock().down = None;
    }

    pub(super) fn synced(&self) {
        self.event();
        self.shared.synced.send_replace(true);
    }

    pub(super) fn event(&self) {
        let mut inner = self.lock();
        inner.last_event = Some(Instant::now());
        inner.down = None;
        if inner.last_error.take().is_some() && inner.logged.take().is_some() {
            let resource = Place(&self.shared.resource, self.shared.namespace.as_deref());
            tracing::info!(%resource, "the watch works again");
        }
    }

    pub(super) fn restarted(&self, why: Restart) {
        let mut inner = self.lock();
        *inner.restarts.entry(why).or_default() += 1;
        inner.down.get_or_insert_with(Instant::now);
    }

    pub(super) fn skipped(&self) {
        self.lock().skipped += 1;
    }

    /// Remembers an error; says so once, and again once a minute while it lasts. Before the first list is complete it is
    /// said once only: whoever waits for that says so itself.
    pub(super) fn failed(&self, error: &ApiError) {
        let resource = Place(&self.shared.resource, self.shared.namespace.as_deref());
        let mut inner = self.lock();
        *inner.restarts.entry(Restart::after(error)).or_default() += 1;
        inner.down.get_or_insert_with(Instant::now);
        let known = inner.last_error.as_ref().is_some_and(|last| last.same_trouble(error));
        let silent = known && inner.logged.is_some_and(|at| !self.is_synced() || at.elapsed() < REMIND);
        inner.last_error = Some(error.clone());
        if error.is_gone() {
            tracing::info!(%resource, %error, "the watch is too far behind: listing anew");
            return;
        }
        if !silent {
            inner.logged = Some(Instant::now());
            if error.is_forbidden() {
                tracing::warn!(
                    "not allowed to list and watch {resource}, waiting for the permission: {error}"
                );
            } else {
                tracing::warn!("cannot list and watch {resource}, will go on trying: {error}");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
