//! One list of a namespace, or one for each selector: whichever costs less.
//!
//! Both are counted as HPAs ask: how many requests each way would have made within a period, and how many bytes would
//! have come. A namespace is never listed for one HPA alone, and a namespace of many pods of which HPAs want few is not
//! listed either. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// What one request costs, as so many bytes more in another.
///
/// A list passes API server and metrics server: authentication, authorization, two times TLS, the search for pods. On a
/// kube-apiserver v1.37.1 with an aggregated API behind it, a list takes it 0.9 to 1.9 ms of CPU and 1.5 ns more for each
/// byte that it passes on; to read a byte here takes 1.5 ns. What metrics-server itself takes was not measured; with
/// 10 ns to make and write a byte, as Go's encoder needs, one request is worth some 70 to 140 thousand bytes. The
/// lesser of it counts: who listed too much would lose more than who listed too seldom.
const REQUEST: u64 = 64 << 10;

/// What a pod is taken to be before a list has shown it, in bytes: two containers and four labels are 449.
const POD: u64 = 512;

/// How long each asks for itself after a namespace could not be listed; doubled with each time that follows.
const PAUSE: Duration = Duration::from_mins(5);
/// So often at most: to 80 minutes.
const DOUBLINGS: u32 = 4;

/// How HPAs of a namespace get their samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Each by a list of its own.
    Selectors,
    /// All by one list of the namespace.
    Namespace,
}

/// The choice for one namespace.
#[derive(Debug)]
pub(super) struct Choice {
    way: Way,
    age: Duration,
    period: Duration,
    asked: Instant,
    began: Instant,
    /// When the namespace would have been listed last.
    refreshed: Option<Instant>,
    selectors: Tally,
    namespace: Tally,
    /// Bytes per pod that the store knows of, as the last list of the namespace had it.
    per_pod: u64,
    /// Until when each asks for itself, and how often in a row that came to be.
    paused: Option<Instant>,
    failures: u32,
}

/// What one way would have cost so far in this period.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
}

impl Tally {
    fn cost(self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Whether it costs so much less that a change is worth it: a fifth.
    fn is_clearly_below(self, other: Self) -> bool {
        self.cost().saturating_mul(5) < other.cost().saturating_mul(4)
    }
}

impl Choice {
    pub(super) fn new(now: Instant, age: Duration, period: Duration) -> Self {
        Self {
            way: Way::Selectors,
            age,
            period,
            asked: now,
            began: now,
            refreshed: None,
            selectors: Tally::default(),
            namespace: Tally::default(),
            per_pod: POD,
            paused: None,
            failures: 0,
        }
    }

    /// An HPA asks; the namespace has so many pods, and an answer may have so many bytes.
    pub(super) fn asked(&mut self, now: Instant, pods: usize, limit: usize) -> Way {
        self.asked = now;
        if now.saturating_duration_since(self.began) >= self.period {
            if self.selectors.is_clearly_below(self.namespace) {
                self.way = Way::Selectors;
            }
            (self.selectors, self.namespace) = (Tally::default(), Tally::default());
            (self.began, self.refreshed) = (now, None);
        }
        let whole = u64::try_from(pods).unwrap_or(u64::MAX).saturating_mul(self.per_pod);
        self.selectors.requests += 1;
        if self.refreshed.is_none_or(|at| now.saturating_duration_since(at) > self.age) {
            self.refreshed = Some(now);
            self.namespace.requests += 1;
            self.namespace.bytes = self.namespace.bytes.saturating_add(whole);
        }
        // Not at the end of a period only: a start with many HPAs is when it counts most.
        if self.namespace.is_clearly_below(self.selectors) {
            self.way = Way::Namespace;
        }
        // An answer that has no room is no answer; half of it is left for pods to come.
        let has_room = whole <= u64::try_from(limit / 2).unwrap_or(u64::MAX);
        let is_paused = self.paused.is_some_and(|until| now < until);
        if has_room && !is_paused { self.way } else { Way::Selectors }
    }

    /// What its pods took of a list, in bytes.
    pub(super) fn answered(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.selectors.bytes = self.selectors.bytes.saturating_add(bytes);
    }

    /// The namespace was listed, when it had so many pods.
    pub(super) fn listed(&mut self, bytes: usize, pods: usize) {
        // An empty list is that of a server that has just started.
        if bytes > 0 && pods > 0 {
            self.per_pod = u64::try_from(bytes.div_ceil(pods)).unwrap_or(u64::MAX);
        }
        (self.paused, self.failures) = (None, 0);
    }

    /// The namespace cannot be listed, although its API answers. Whether that is new.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.paused = now.checked_add(PAUSE * 2_u32.pow(self.failures.min(DOUBLINGS)));
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    /// Whether no HPA has asked for two periods.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) > self.period.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests;
