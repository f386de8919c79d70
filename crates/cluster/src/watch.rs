//! The list and watch loop of a resource. The loop updates a [`Sink`] and recovers from every failure of the server.
//!
//! The loop has the following invariants:
//! - The sink keeps its previous view until the next list is complete, from [`Sink::start`] to [`Sink::done`].
//! - An object that cannot be decoded is logged and skipped. It does not end the watch.
//! - The waits between consecutive failures grow.
//!
//! The transitions are in `state`. This file contains the I/O.

mod handle;
mod intake;
mod state;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use self::state::{Machine, Outcome, State};
use super::body::Lines;
use super::call::Call;
use super::client::Client;
use super::decode::DecodeError;
use super::error::ApiError;
use crate::turn::Turn;
use clock::Jitter;

pub use handle::{Handle, Informer, Restart, WatchStatus};
pub use intake::{Collection, HpaCache, Hpas, Pods, Watched, each, each_labelled};
pub(super) use intake::{Intake, Line};

/// The number of objects per page of a list.
const PAGE: &str = "500";
/// Timeout of one page.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of a page, in bytes, which suffices for 500 objects of the maximum size in etcd.
const MAX_PAGE: usize = 1 << 30;
/// Maximum length of a line of a watch, in bytes, far above the maximum object size in etcd.
const MAX_LINE: usize = 16 << 20;
/// Timeout of the response to a watch request.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a streaming list. The loop then falls back to pages, because some servers ignore
/// `sendInitialEvents`.
const STREAMING_LIST_TIMEOUT: Duration = Duration::from_mins(1);
/// The minimum `timeoutSeconds` of a watch. The actual value is up to twice as long, to spread watches.
const SHORTEST_WATCH: Duration = Duration::from_secs(290);
/// The time after the `timeoutSeconds` of a watch at which the client ends the watch, because the connection may be
/// lost.
const GRACE: Duration = Duration::from_secs(15);
/// Maximum time without an event or a bookmark. A server that supports bookmarks sends one about once a minute. After a
/// longer silence the connection may be lost, so the loop opens another watch, and the cached view is not current.
pub const MAX_SILENCE: Duration = Duration::from_secs(90);

/// The receiver of the objects of a watch. No method may block.
pub trait Sink<T>: Send {
    /// Starts a list. The objects applied until [`Sink::done`] replace the previous view. If the list restarts, `start`
    /// is called again without `done`.
    fn start(&mut self);
    /// Adds or replaces an object. A list may contain an object twice.
    fn apply(&mut self, object: T);
    /// Removes an object.
    fn delete(&mut self, object: DeletedObject);
    /// Completes the list.
    fn done(&mut self);
}

/// The identity of a deleted object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedObject {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

/// Options of a watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The namespace. `None` watches all namespaces.
    pub namespace: Option<Arc<str>>,
    /// Whether to start with a streaming list (`sendInitialEvents`). If the server does not support streaming lists,
    /// the loop falls back to pages.
    pub streaming_lists: bool,
    /// Maximum wait after failures. The default is half of the default sync period, so that the loop notices a recovery
    /// within one period.
    pub longest_wait: Duration,
    /// Spreads the waits and the lengths of watches.
    pub jitter: Jitter,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            streaming_lists: true,
            longest_wait: Duration::from_millis(7_500),
            jitter: Jitter::seeded(0),
        }
    }
}

/// Watches a resource ([`Pods`], [`Hpas`]) until the returned future is dropped. The future never completes.
///
/// The client should have no token bucket.
pub fn watch<W, S>(client: Client, options: WatchOptions, sink: S) -> (Handle, BoxFuture<'static, ()>)
where
    W: Watched + Default,
    S: for<'a> Sink<W::Object<'a>> + 'static,
{
    watch_of(W::default(), client, options, sink)
}

/// Like [`watch`], but for a resource that is chosen at run time.
pub fn watch_of<W, S>(
    resource: W,
    client: Client,
    options: WatchOptions,
    sink: S,
) -> (Handle, BoxFuture<'static, ()>)
where
    W: Watched,
    S: for<'a> Sink<W::Object<'a>> + 'static,
{
    let handle = Handle::new(resource.name(), options.namespace.clone());
    let machine = Machine::new(options.streaming_lists, options.longest_wait, options.jitter.clone());
    let intake = Intake::<W, S> { sink, handle: handle.clone(), watched: resource };
    let WatchOptions { namespace, jitter, .. } = options;
    let watcher =
        Watcher { client, namespace, machine, intake, jitter, handle: handle.clone(), listed: None };
    (handle, Box::pin(watcher.run()))
}

struct Watcher<W, S> {
    client: Client,
    namespace: Option<Arc<str>>,
    machine: Machine,
    intake: Intake<W, S>,
    jitter: Jitter,
    handle: Handle,
    /// The time of the last complete list. `None` while a list is read.
    listed: Option<Instant>,
}

impl<W, S> Watcher<W, S>
where
    W: Watched,
    S: for<'a> Sink<W::Object<'a>>,
{
    async fn run(mut self) {
        loop {
            let outcome = match self.machine.state().clone() {
                State::Streaming => self.stream().await,
                State::Listing { next } => self.page(&next).await,
                State::Watching { resource_version } => self.follow(&resource_version).await,
            };
            tracing::debug!(resource = &*self.handle.resource(), ?outcome, "list or watch request finished");
            let wait = self.machine.step(outcome);
            self.handle.expects_bookmarks(self.machine.max_silence().is_some());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn call(&self) -> Call {
        let path = self.intake.watched.path();
        let (resource, group) = path.split_last().unwrap_or((&"", &[]));
        let namespace = self.namespace.as_deref().map(|namespace| ["namespaces", namespace]);
        let segments = group.iter().copied().chain(namespace.into_iter().flatten()).chain([*resource]);
        Call::get(segments).about(&*self.handle.resource(), "")
    }

    /// Returns the request of a watch after `resource_version`, or of a streaming list if it is `None`.
    fn watch_call(&self, resource_version: Option<&str>, length: Duration) -> Call {
        let if_streaming = |value| if resource_version.is_none() { value } else { "" };
        self.call()
            .query("allowWatchBookmarks", "true")
            .query("labelSelector", self.intake.watched.labels())
            .query("resourceVersion", resource_version.unwrap_or_default())
            .query("resourceVersionMatch", if_streaming("NotOlderThan"))
            .query("sendInitialEvents", if_streaming("true"))
            .query("timeoutSeconds", &length.as_secs().to_string())
            .query("watch", "true")
            .within(OPEN_TIMEOUT)
    }

    async fn page(&mut self, next: &str) -> Outcome {
        if next.is_empty() {
            self.start_list();
        }
        let call = self
            .call()
            .query("continue", next)
            .query("labelSelector", self.intake.watched.labels())
            .query("limit", PAGE)
            .within(PAGE_TIMEOUT)
            .at_most(MAX_PAGE);
        let intake = &mut self.intake;
        let listed = self.client.items(&call, |item| {
            intake.apply(item);
            Ok(())
        });
        match listed.await {
            Ok(envelope) if envelope.metadata.resource_version.is_empty() => self.failed(&ApiError::Decode(
                DecodeError::new(format!("{} is not a list of {}", envelope.kind, self.handle.resource())),
            )),
            Ok(envelope) => {
                let (next, resource_version) =
                    (envelope.metadata.r#continue, envelope.metadata.resource_version);
                if next.is_empty() {
                    self.listed();
                }
                Outcome::Page { next, resource_version }
            }
            Err(error) => match self.failed(&error) {
                // A server that refuses a continue token, for example after an upgrade, always refuses it, so the list
                // restarts.
                Outcome::Failed { .. } if !next.is_empty() && error.code() == Some(400) => {
                    Outcome::Expired { view_age: None }
                }
                outcome => outcome,
            },
        }
    }

    fn start_list(&mut self) {
        self.listed = None;
        self.intake.start();
    }

    fn listed(&mut self) {
        self.intake.done();
        self.handle.synced();
        self.listed = Some(Instant::now());
    }

    /// Reads all objects as the initial events of a watch, then follows the changes.
    async fn stream(&mut self) -> Outcome {
        self.start_list();
        let length = self.watch_length();
        let call = self.watch_call(None, length);
        let opened = Instant::now();
        let answer = match self.client.open(&call).await {
            Ok(answer) => answer,
            Err(error) if refuses_streaming(&error) => {
                tracing::info!(
                    resource = &*self.handle.resource(),
                    "server does not support streaming lists, falling back to pages"
                );
                return Outcome::StreamingUnsupported;
            }
            Err(error) => return self.failed(&error),
        };
        let (mut lines, mut turn) = (Lines::new(answer.into_body(), MAX_LINE), Turn::default());
        loop {
            let line = match timeout_at(opened + STREAMING_LIST_TIMEOUT, lines.next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) => {
                    self.handle.restarted(Restart::Ended);
                    return Outcome::Ended { lasted: opened.elapsed(), events: 0 };
                }
                Ok(Err(error)) => return self.failed(&error),
                Err(_) => {
                    tracing::info!(
                        resource = &*self.handle.resource(),
                        limit = ?STREAMING_LIST_TIMEOUT,
                        "streaming list timed out, falling back to pages"
                    );
                    return Outcome::StreamingUnsupported;
                }
            };
            match self.intake.line(&line) {
                Ok(Line::InitialEventsEnd { resource_version }) => {
                    self.listed();
                    self.machine.step(Outcome::Listed { resource_version });
                    return self.read(lines, opened, length).await;
                }
                Ok(Line::Event { .. } | Line::Skipped) => {}
                Err(error) if refuses_streaming(&error) => return Outcome::StreamingUnsupported,
                Err(error) => return self.failed(&error),
            }
            turn.add(line.len()).await;
        }
    }

    /// Follows the changes after a resourceVersion.
    async fn follow(&mut self, resource_version: &str) -> Outcome {
        let length = self.watch_length();
        let call = self.watch_call(Some(resource_version), length);
        let opened = Instant::now();
        match self.client.open(&call).await {
            Ok(answer) => {
                self.handle.resumed();
                self.read(Lines::new(answer.into_body(), MAX_LINE), opened, length).await
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Reads events until the watch ends, or is silent for too long.
    async fn read(&mut self, mut lines: Lines, opened: Instant, length: Duration) -> Outcome {
        let (mut events, mut turn) = (0, Turn::default());
        let end = opened + length + GRACE;
        let mut received = Instant::now();
        loop {
            let silent = self.machine.max_silence().map(|limit| received + limit).filter(|at| *at < end);
            let line = match timeout_at(silent.unwrap_or(end), lines.next()).await {
                Ok(Ok(Some(line))) => line,
                // The server has ended the watch. The loop resumes at the last resourceVersion.
                Ok(Ok(None)) => {
                    self.handle.restarted(Restart::Ended);
                    return Outcome::Ended { lasted: opened.elapsed(), events };
                }
                Ok(Err(error)) => return self.failed(&error),
                Err(_) => {
                    self.handle.restarted(Restart::Silent);
                    return match silent {
                        Some(_) => Outcome::Silent { view_age: self.view_age() },
                        None => Outcome::Ended { lasted: opened.elapsed(), events },
                    };
                }
            };
            received = Instant::now();
            events += 1;
            match self.intake.line(&line) {
                Ok(Line::InitialEventsEnd { resource_version }) => self.progress(resource_version, false),
                Ok(Line::Event { resource_version, bookmark }) => self.progress(resource_version, bookmark),
                Ok(Line::Skipped) => {}
                Err(error) => return self.failed(&error),
            }
            turn.add(line.len()).await;
        }
    }

    fn progress(&mut self, resource_version: String, bookmark: bool) {
        self.handle.event();
        self.machine.step(Outcome::Progress { resource_version, bookmark });
        if bookmark {
            self.handle.expects_bookmarks(true);
        }
    }

    /// Records an error and maps it to an outcome.
    fn failed(&mut self, error: &ApiError) -> Outcome {
        self.handle.failed(error);
        if expired(error) {
            Outcome::Expired { view_age: self.view_age() }
        } else {
            Outcome::Failed { retry_after: error.retry_after() }
        }
    }

    /// Returns the time since the last complete list. `None` while a list is read.
    fn view_age(&self) -> Option<Duration> {
        self.listed.map(|at| at.elapsed())
    }

    fn watch_length(&mut self) -> Duration {
        let length = SHORTEST_WATCH.mul_f64(1.0 + self.jitter.fraction());
        Duration::from_secs(length.as_secs())
    }
}

/// Returns whether the error can mean that the server does not support streaming lists.
fn refuses_streaming(error: &ApiError) -> bool {
    match error.code() {
        Some(400 | 422) => true,
        Some(403) => error.to_string().contains("sendInitialEvents"),
        _ => false,
    }
}

/// Returns whether the loop must list again because its resourceVersion has expired, or is newer than that of the
/// server after a restore of etcd.
fn expired(error: &ApiError) -> bool {
    match error {
        ApiError::Status { cause, message, .. } => {
            error.is_gone()
                || cause.as_deref() == Some("ResourceVersionTooLarge")
                || message.contains("Too large resource version")
        }
        _ => false,
    }
}
