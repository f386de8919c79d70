//! Sharing of metrics responses between HPAs.
//!
//! A response answers all equal queries within a maximum age. HPAs of one namespace share one list of all its pods if
//! that list is cheaper than a list per HPA ([`Choice`]). The pods of each HPA are selected by the labels in the list.
//! The server would select by the same labels. If no item has labels, or the server refuses to list the namespace, each
//! HPA of the namespace lists its own pods for some time.
//!
//! Sharing does not change errors. All waiting callers receive an error that any query would have received. After any
//! other error, each HPA sends a separate query at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use autoscaling::query::{Answer, Query, QueryError};
use autoscaling::selector::Selector;
use clock::Backoff;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::apis::{FailedQuery, Inner};
use super::flight::{Flight, Flights, SharedAnswer};
use super::panicked;
use super::usage::{self, Reader, Snapshot};
use crate::call::SentTime;

/// The interval between evictions of stale entries.
const SWEEP: Duration = Duration::from_secs(1);

/// Options of sharing.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// The maximum time from the request of a shared response to the query.
    pub age: Duration,
    /// The sync period, which is the interval between two queries of an HPA.
    pub period: Duration,
    /// Provides the number of pods per namespace.
    pub pods: Arc<dyn NamespacePods>,
}

/// The number of pods per namespace, which determines the cost of a list.
pub trait NamespacePods: std::fmt::Debug + Send + Sync {
    /// Returns the known number of pods in a namespace.
    fn count(&self, namespace: &str) -> usize;
}

#[derive(Debug)]
pub(super) struct Shares {
    /// `None` without `--share-metrics`.
    sharing: Option<Sharing>,
    /// The responses to queries that are not answered from a list of a namespace.
    queries: Flights<Query, Answer, QueryError>,
    /// The lists of all pods of a namespace.
    snapshots: Flights<Arc<str>, Arc<Snapshot>, MissingSnapshot>,
    choices: Mutex<BTreeMap<Arc<str>, Choice>>,
    /// Whether the eviction task is running.
    sweeping: AtomicBool,
}

/// The reason for a missing snapshot of a namespace.
#[derive(Debug, Clone)]
enum MissingSnapshot {
    /// An error that any query would have received.
    Api(QueryError),
    /// Each HPA must send a separate query.
    AskAlone,
}

impl Shares {
    /// Creates an instance without responses. Without `sharing`, equal queries share a request only while it is in
    /// flight.
    pub(super) fn new(sharing: Option<Sharing>) -> Self {
        let age = sharing.as_ref().map(|sharing| sharing.age);
        Self {
            queries: Flights::new(age, panicked),
            snapshots: Flights::new(age, || MissingSnapshot::Api(panicked())),
            choices: Mutex::default(),
            sweeping: AtomicBool::new(false),
            sharing,
        }
    }

    /// Returns a recent response to a query, joins the request of an equal query, or starts a request.
    pub(super) fn in_flight(
        &self,
        query: Query,
        age: Duration,
        request: impl FnOnce(SentTime) -> Flight<Answer, QueryError> + Send + 'static,
    ) -> SharedAnswer<Answer, QueryError> {
        self.queries.join_within(query, age, request)
    }

    /// Counts a response of `bytes` with the pods of one HPA.
    pub(super) fn answered(&self, namespace: &Arc<str>, bytes: usize) {
        if let Some(sharing) = &self.sharing {
            self.with_choice(sharing, namespace, |choice| choice.answered(bytes));
        }
    }

    /// Selects, from the list of the namespace, the usage of the pods that a query's selector matches. `None` if the
    /// query must be sent separately.
    pub(super) async fn select(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        query: &Query,
        age: Duration,
    ) -> Option<Result<Answer, QueryError>> {
        let sharing = self.sharing.as_ref()?;
        self.sweep_later();
        let Query::Resource { namespace, selector: text } = query else { return None };
        let selector = Selector::parse(text).ok().filter(|selector| !selector.is_empty())?;
        let pods = sharing.pods.count(namespace);
        let now = Instant::now();
        let asked = |choice: &mut Choice| choice.asked(now, pods, inner.max_response());
        let mode = self.with_choice(sharing, namespace, asked);
        if mode == ListMode::Selectors {
            return None;
        }
        let (shares, inner, namespace_key) = (Arc::clone(self), Arc::clone(inner), Arc::clone(namespace));
        let request =
            move |sent: SentTime| async move { shares.snapshot(&inner, &namespace_key, &sent).await }.boxed();
        match self.snapshots.join_within(Arc::clone(namespace), age, request).await {
            Ok(snapshot) => {
                let usage = snapshot.select(&selector);
                self.answered(namespace, snapshot.bytes_of(usage.len()));
                // An empty result is rare. The server may select by labels other than those in the list, so the query
                // is sent separately.
                let doubtful = usage.is_empty() && !snapshot.is_empty();
                (!doubtful).then_some(Ok(Answer::Resource(usage)))
            }
            Err(MissingSnapshot::Api(QueryError { class, message })) => {
                let message =
                    usage::with_requested_url(&message, namespace, text).map_or(message, Into::into);
                Some(Err(QueryError { class, message }))
            }
            Err(MissingSnapshot::AskAlone) => None,
        }
    }

    /// Lists all pods of a namespace.
    async fn snapshot(
        &self,
        inner: &Inner,
        namespace: &Arc<str>,
        sent: &SentTime,
    ) -> Result<Arc<Snapshot>, MissingSnapshot> {
        let usage = inner.usage(namespace, &"".into(), Reader::with_labels(), sent).await;
        let Some(sharing) = &self.sharing else { return Err(MissingSnapshot::AskAlone) };
        let pods = sharing.pods.count(namespace);
        let now = Instant::now();
        match usage {
            Ok(usage) if usage.is_empty() || usage.has_labels() => {
                self.with_choice(sharing, namespace, |choice| choice.listed(usage.bytes(), pods));
                Ok(Arc::new(usage))
            }
            Ok(_) => {
                if self.with_choice(sharing, namespace, |choice| choice.failed(now)) {
                    tracing::debug!(
                        namespace = &**namespace,
                        "metrics.k8s.io returned pods without labels, fetching the pods of each HPA separately"
                    );
                }
                Err(MissingSnapshot::AskAlone)
            }
            Err(FailedQuery { error, is_of_api: true }) => Err(MissingSnapshot::Api(error)),
            Err(FailedQuery { error, is_of_api: false }) => {
                if self.with_choice(sharing, namespace, |choice| choice.failed(now)) {
                    tracing::debug!(
                        namespace = &**namespace,
                        %error,
                        "failed to list the pod metrics of this namespace, fetching the pods of each HPA separately"
                    );
                }
                Err(MissingSnapshot::AskAlone)
            }
        }
    }

    fn with_choice<R>(
        &self,
        sharing: &Sharing,
        namespace: &Arc<str>,
        act: impl FnOnce(&mut Choice) -> R,
    ) -> R {
        let new_choice = || Choice::new(Instant::now(), sharing.age, sharing.period);
        act(self.choices.lock().entry(Arc::clone(namespace)).or_insert_with(new_choice))
    }

    /// Starts a task that evicts stale responses and the choices of namespaces without HPAs.
    fn sweep_later(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let shares = Arc::downgrade(self);
        // If the sweep panics, the next query starts another task.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(shares) = shares.upgrade() else { return };
                // The flag is cleared before the sweep, so that a query during the sweep starts another task.
                shares.sweeping.store(false, Ordering::Release);
                if !shares.sweep(Instant::now()) || shares.sweeping.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// Evicts stale entries. Returns whether an entry remains.
    fn sweep(&self, now: Instant) -> bool {
        let queries = self.queries.sweep(now);
        let snapshots = self.snapshots.sweep(now);
        let mut choices = self.choices.lock();
        choices.retain(|_, choice| !choice.is_idle(now));
        queries || snapshots || !choices.is_empty()
    }
}

/// The fixed cost of a request, as the number of response bytes with the same cost.
///
/// A list passes the API server and metrics-server, with authentication, authorization, two TLS connections and the
/// lookup of pods. On a kube-apiserver v1.37.1 with an aggregated API, a list costs 0.9 to 1.9 ms of CPU time, plus 1.5
/// ns per byte. Decoding costs the controller 1.5 ns per byte. The cost in metrics-server was not measured. Go's
/// encoder needs about 10 ns per byte. At this rate, one request costs the same as 70 to 140 thousand bytes. The
/// constant is close to the lower bound, because a list of too many pods costs more than it saves.
const REQUEST: u64 = 64 << 10;

/// The assumed size of a pod before the first list, in bytes. An item with two containers and four labels has 449
/// bytes.
const POD: u64 = 512;

/// The first pause after a failed list of the namespace. During a pause, each HPA lists its own pods.
const PAUSE: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(80);

/// The mode in which the HPAs of a namespace fetch their samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListMode {
    /// One list per HPA.
    Selectors,
    /// One list of the namespace for all HPAs.
    Namespace,
}

/// The choice between one list of a namespace and one list per HPA, by cost. The time is an argument of its methods.
#[derive(Debug)]
struct Choice {
    mode: ListMode,
    age: Duration,
    period: Duration,
    asked: Instant,
    period_start: Instant,
    /// The last time in the period at which the mode `Namespace` would have sent a list.
    refreshed: Option<Instant>,
    selectors: Tally,
    namespace: Tally,
    /// The size of the last list of the namespace, in bytes per pod.
    per_pod: u64,
    /// The end of the current pause of the mode `Namespace`.
    paused: Option<Instant>,
    backoff: Backoff,
}

/// The cost of a mode in the current period. The costs of both modes are counted, even of the mode that is not in use.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
}

impl Tally {
    fn cost(self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Returns whether the cost is lower by more than a fifth, which is the threshold for a change of mode.
    fn is_clearly_below(self, other: Self) -> bool {
        self.cost().saturating_mul(5) < other.cost().saturating_mul(4)
    }
}

impl Choice {
    fn new(now: Instant, age: Duration, period: Duration) -> Self {
        Self {
            mode: ListMode::Selectors,
            age,
            period,
            asked: now,
            period_start: now,
            refreshed: None,
            selectors: Tally::default(),
            namespace: Tally::default(),
            per_pod: POD,
            paused: None,
            backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
        }
    }

    /// Counts a query. Returns the mode for the query. `pods` is the number of pods in the namespace. `limit` is the
    /// size limit of a response, in bytes.
    fn asked(&mut self, now: Instant, pods: usize, limit: usize) -> ListMode {
        self.asked = now;
        if now.saturating_duration_since(self.period_start) >= self.period {
            if self.selectors.is_clearly_below(self.namespace) {
                self.mode = ListMode::Selectors;
            }
            (self.selectors, self.namespace) = (Tally::default(), Tally::default());
            (self.period_start, self.refreshed) = (now, None);
        }
        let whole = u64::try_from(pods).unwrap_or(u64::MAX).saturating_mul(self.per_pod);
        self.selectors.requests += 1;
        if self.refreshed.is_none_or(|at| now.saturating_duration_since(at) > self.age) {
            self.refreshed = Some(now);
            self.namespace.requests += 1;
            self.namespace.bytes = self.namespace.bytes.saturating_add(whole);
        }
        // The costs are compared at every query, because the mode matters most when the queries of many HPAs start
        // together.
        if self.namespace.is_clearly_below(self.selectors) {
            self.mode = ListMode::Namespace;
        }
        // A list above the size limit fails. Half of the limit is reserved for future pods.
        let has_room = whole <= u64::try_from(limit / 2).unwrap_or(u64::MAX);
        let is_paused = self.paused.is_some_and(|until| now < until);
        if has_room && !is_paused { self.mode } else { ListMode::Selectors }
    }

    /// Counts a response with the pods of one HPA. `bytes` is the size of the response.
    fn answered(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.selectors.bytes = self.selectors.bytes.saturating_add(bytes);
    }

    /// Records a list of the namespace. `pods` is the known number of pods in the namespace.
    fn listed(&mut self, bytes: usize, pods: usize) {
        // A metrics server that has just started returns an empty list.
        if bytes > 0 && pods > 0 {
            self.per_pod = u64::try_from(bytes.div_ceil(pods)).unwrap_or(u64::MAX);
        }
        self.paused = None;
        self.backoff.reset();
    }

    /// Records that the API responded without a usable list of the namespace. Returns whether this is the first failure
    /// in a row.
    fn failed(&mut self, now: Instant) -> bool {
        self.paused = now.checked_add(self.backoff.fail());
        self.backoff.failures() == 1
    }

    /// Returns whether no HPA has sent a query for two periods.
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) > self.period.saturating_mul(2)
    }
}

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod tests;
