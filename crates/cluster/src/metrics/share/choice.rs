//! Chooses between one list per namespace and one list per selector by cost.
//!
//! The cost of a mode is its requests and bytes within a period, counted at each query. A list of the namespace costs
//! more than it saves for a single HPA, and if the HPAs need few of many pods. Pure: the time is an argument.

use std::time::Duration;

use clock::Backoff;
use tokio::time::Instant;

/// The fixed cost of a request, in bytes of response.
///
/// A list passes the API server and the metrics server, with authentication, authorization, two TLS connections and the
/// pod lookup. On a kube-apiserver v1.37.1 with an aggregated API, a list costs the API server 0.9 to 1.9 ms of CPU,
/// plus 1.5 ns for each byte. Decoding costs the controller 1.5 ns per byte. The cost in metrics-server was not
/// measured. At 10 ns per byte for producing and encoding, as Go's encoder needs, one request is worth about 70 to 140
/// thousand bytes. The constant is close to the lower bound, because listing too much costs more than listing too
/// rarely.
const REQUEST: u64 = 64 << 10;

/// The assumed size of a pod before the first list, in bytes. A pod with two containers and four labels has
/// 449 bytes.
const POD: u64 = 512;

/// The first pause after a failed list of the namespace, in which HPAs fetch their pods separately.
const PAUSE: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(80);

/// The mode in which the HPAs of a namespace fetch their samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMode {
    /// One list per HPA.
    Selectors,
    /// One list of the namespace for all HPAs.
    Namespace,
}

/// The choice for one namespace.
#[derive(Debug)]
pub(super) struct Choice {
    mode: ListMode,
    age: Duration,
    period: Duration,
    asked: Instant,
    period_start: Instant,
    /// The last time at which the namespace mode would have sent a list.
    refreshed: Option<Instant>,
    selectors: Tally,
    namespace: Tally,
    /// Size of the last list of the namespace, in bytes per pod in the store.
    per_pod: u64,
    /// End of the namespace mode's pause.
    paused: Option<Instant>,
    backoff: Backoff,
}

/// The hypothetical cost of one mode in the current period.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
}

impl Tally {
    fn cost(self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Whether the cost is lower by more than a fifth, the threshold for a change of mode.
    fn is_clearly_below(self, other: Self) -> bool {
        self.cost().saturating_mul(5) < other.cost().saturating_mul(4)
    }
}

impl Choice {
    pub(super) fn new(now: Instant, age: Duration, period: Duration) -> Self {
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

    /// Counts a query and returns the mode for it. `pods` is the number of pods in the namespace. `limit` is
    /// the size limit of a response, in bytes.
    pub(super) fn asked(&mut self, now: Instant, pods: usize, limit: usize) -> ListMode {
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
        // The costs are compared at every query and not only at the end of a period, because the mode matters
        // most at a start with many HPAs.
        if self.namespace.is_clearly_below(self.selectors) {
            self.mode = ListMode::Namespace;
        }
        // A list above the size limit fails. Half of the limit is reserved for future pods.
        let has_room = whole <= u64::try_from(limit / 2).unwrap_or(u64::MAX);
        let is_paused = self.paused.is_some_and(|until| now < until);
        if has_room && !is_paused { self.mode } else { ListMode::Selectors }
    }

    /// Counts a response with the pods of one HPA. `bytes` is its size.
    pub(super) fn answered(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.selectors.bytes = self.selectors.bytes.saturating_add(bytes);
    }

    /// Records a list of the namespace, which had `pods` pods in the store.
    pub(super) fn listed(&mut self, bytes: usize, pods: usize) {
        // A server that has just started returns an empty list.
        if bytes > 0 && pods > 0 {
            self.per_pod = u64::try_from(bytes.div_ceil(pods)).unwrap_or(u64::MAX);
        }
        self.paused = None;
        self.backoff.reset();
    }

    /// Records that the namespace could not be listed although the API responded. Returns whether this is the
    /// first failure in a row.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.paused = now.checked_add(self.backoff.fail());
        self.backoff.failures() == 1
    }

    /// Whether no HPA has queried for two periods.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) > self.period.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests;
