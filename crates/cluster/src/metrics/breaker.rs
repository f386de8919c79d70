//! Circuit breaking: a metrics API that is down receives one query per second instead of every query.
//!
//! Only failures of the API as a whole count: no connection, a broken connection, a timeout, 429 and 5xx.
//! Five consecutive failures, with no response in between, open the circuit. An open circuit answers a query
//! with the query's stored error of the last minute. Once per second, the next query with a stored error
//! becomes an attempt instead. A query without a stored error is sent as usual. Any response, even a refusal,
//! closes the circuit.
//!
//! Two rules keep the delay after a recovery below one period and prevent starvation of queries. First, a
//! query that arrives during an attempt waits at most a second for its end, and proceeds if the API has
//! responded. Second, a stored error expires after a minute, so that queries in lockstep behind a
//! persistently failing query are then sent.
//!
//! The circuit only stores failures since the last response.
//!
//! A query is any key, so other sources of metrics have the same circuit.

use std::time::Duration;

use autoscaling::query::{Query, QueryError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::lru::Lru;

/// Consecutive failures that open the circuit.
const FAILURES: u32 = 5;
/// The interval between two attempts while the circuit is open, and the maximum wait for an attempt.
const PROBE: Duration = Duration::from_secs(1);
/// Lifetime of a stored error, which answers its query while the circuit is open.
const HOLDS: Duration = Duration::from_mins(1);
/// Maximum number of stored errors. A query with an evicted error is sent again.
const KEPT: usize = 16_384;
/// Maximum size of a stored error text, in bytes. A query with a longer error is sent again.
const MAX_TEXT: usize = 2048;
/// Maximum size of the texts of a query with a stored error, in bytes. A longer query is sent again.
const MAX_QUERY: usize = 2048;

/// The bytes of a query or of an error, which the circuit may store.
pub trait StoredText {
    /// The bytes of its texts.
    fn text_bytes(&self) -> usize;
}

impl StoredText for Query {
    fn text_bytes(&self) -> usize {
        Self::text_bytes(self)
    }
}

impl StoredText for QueryError {
    fn text_bytes(&self) -> usize {
        self.message.len()
    }
}

/// The circuit of one API.
#[derive(Debug)]
pub struct Breaker<Q, E> {
    circuit: Mutex<Circuit<Q, E>>,
    /// Notified at the end of an attempt.
    ended: Notify,
}

/// The decision about a query.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BreakerAction<E> {
    /// Send the query, as the attempt with the given number.
    Ask(u64),
    /// Answer with the given error, unless the attempt in flight succeeds before the given time.
    Wait(E, Instant),
    /// Answer with the given error.
    Fail(E),
}

/// The state of one API. Pure: the time is an argument.
#[derive(Debug)]
struct Circuit<Q, E> {
    /// Consecutive failures since the last response.
    failures: u32,
    /// Time of the last response.
    answered: Option<Instant>,
    attempts: u64,
    /// The last attempt: its start, and whether it is in flight.
    last: Option<(Instant, bool)>,
    /// Errors since the last response, with the time of each error.
    errors: Lru<Q, (Instant, E)>,
}

impl<Q, E> Circuit<Q, E> {
    /// Records that an attempt has ended or was aborted. Later attempts may be in flight.
    fn ended(&mut self, attempt: u64) {
        if attempt == self.attempts
            && let Some((_, in_flight)) = &mut self.last
        {
            *in_flight = false;
        }
    }
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Circuit<Q, E> {
    fn new(kept: usize) -> Self {
        Self { failures: 0, answered: None, attempts: 0, last: None, errors: Lru::new(kept) }
    }

    fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }

    /// The stored error that answers a query while the circuit is open.
    fn stored_error(&self, query: &Q, now: Instant) -> Option<&E> {
        let (since, error) = self.errors.get(query).filter(|_| self.is_open())?;
        (now < *since + HOLDS).then_some(error)
    }

    fn next_action(&mut self, query: &Q, now: Instant) -> BreakerAction<E> {
        if let Some(error) = self.stored_error(query, now)
            && let Some((started, in_flight)) = self.last
            && now < started + PROBE
        {
            let error = error.clone();
            return if in_flight {
                BreakerAction::Wait(error, started + PROBE)
            } else {
                BreakerAction::Fail(error)
            };
        }
        self.attempts += 1;
        self.last = Some((now, true));
        BreakerAction::Ask(self.attempts)
    }

    /// Records that a query sent at `asked` failed because of the API. Returns whether the failure opened the
    /// circuit.
    fn failed(&mut self, query: &Q, asked: Instant, now: Instant, error: &E) -> bool {
        if self.answered.is_some_and(|answered| asked < answered) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if error.text_bytes() <= MAX_TEXT && query.text_bytes() <= MAX_QUERY {
            self.errors.insert(query, (now, error.clone()));
        }
        self.failures == FAILURES
    }

    /// Records a response of the API. Returns whether the response closed the circuit.
    fn answered(&mut self, now: Instant) -> bool {
        let was_open = self.is_open();
        self.failures = 0;
        self.answered = Some(now);
        self.errors.clear();
        was_open
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult<'a, E> {
    /// The API responded, with an answer or an error about this query.
    Answered,
    /// The API failed.
    Failed(&'a E),
    /// The request did not reach the API, or the result is unknown.
    Unknown,
}

/// The effect of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The circuit is now open.
    Opened,
    /// The circuit is now closed.
    Closed,
}

/// An admitted query. Dropping the attempt aborts it.
#[derive(Debug)]
pub struct Attempt<'a, Q, E> {
    breaker: &'a Breaker<Q, E>,
    query: &'a Q,
    number: u64,
    asked: Instant,
    /// Whether the circuit was open when the attempt started.
    probes: bool,
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Default for Breaker<Q, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Breaker<Q, E> {
    /// A closed circuit.
    pub fn new() -> Self {
        Self { circuit: Mutex::new(Circuit::new(KEPT)), ended: Notify::new() }
    }

    /// Admits a query, or answers it with its last error.
    pub async fn enter<'a>(&'a self, query: &'a Q) -> Result<Attempt<'a, Q, E>, E> {
        let next_action = self.circuit.lock().next_action(query, Instant::now());
        match next_action {
            BreakerAction::Ask(number) => Ok(self.attempt(query, number)),
            BreakerAction::Fail(error) => Err(error),
            BreakerAction::Wait(error, until) => {
                let _ = timeout_at(until, self.last_attempt_ended()).await;
                let next_action = {
                    let mut circuit = self.circuit.lock();
                    // A query fails if the attempt that it waited for failed. As the next attempt, the query
                    // would make other queries wait.
                    if circuit.is_open() {
                        return Err(error);
                    }
                    circuit.next_action(query, Instant::now())
                };
                match next_action {
                    BreakerAction::Ask(number) => Ok(self.attempt(query, number)),
                    BreakerAction::Wait(error, _) | BreakerAction::Fail(error) => Err(error),
                }
            }
        }
    }

    /// Whether the circuit is open.
    pub fn is_open(&self) -> bool {
        self.circuit.lock().is_open()
    }

    fn attempt<'a>(&'a self, query: &'a Q, number: u64) -> Attempt<'a, Q, E> {
        Attempt { breaker: self, query, number, asked: Instant::now(), probes: self.is_open() }
    }

    /// Waits until the last attempt is not in flight.
    async fn last_attempt_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.circuit.lock().last.is_none_or(|(_, in_flight)| !in_flight) {
                return;
            }
            ended.await;
        }
    }
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Attempt<'_, Q, E> {
    /// Records the start of the request, which may be long after the admission of the query. Fails with the
    /// query's stored error if the circuit has opened in the meantime.
    pub fn start(&mut self) -> Result<(), E> {
        let now = Instant::now();
        self.asked = now;
        let circuit = self.breaker.circuit.lock();
        match circuit.stored_error(self.query, now) {
            Some(error) if !self.probes => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records the result.
    pub fn end(self, ending: &AttemptResult<'_, E>) -> Option<Change> {
        let mut circuit = self.breaker.circuit.lock();
        match ending {
            AttemptResult::Answered => circuit.answered(Instant::now()).then_some(Change::Closed),
            AttemptResult::Failed(error) => {
                circuit.failed(self.query, self.asked, Instant::now(), error).then_some(Change::Opened)
            }
            AttemptResult::Unknown => None,
        }
    }
}

impl<Q, E> Drop for Attempt<'_, Q, E> {
    fn drop(&mut self) {
        self.breaker.circuit.lock().ended(self.number);
        self.breaker.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::failure::MetricFailureClass;
    use futures::FutureExt;

    use super::*;

    fn query(name: &str) -> Query {
        Query::External { namespace: "shop".into(), metric: name.into(), selector: "".into() }
    }

    fn error(text: &str) -> QueryError {
        QueryError::new(MetricFailureClass::Other, text)
    }

    /// A circuit that is driven step by step.
    struct Steps {
        circuit: Circuit<Query, QueryError>,
        start: Instant,
    }

    impl Steps {
        fn new() -> Self {
            Self { circuit: Circuit::new(4), start: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        /// Sends a query. `None` if it was admitted.
        fn ask(&mut self, name: &str, millis: u64) -> Option<String> {
            match self.circuit.next_action(&query(name), self.at(millis)) {
                BreakerAction::Ask(_) => None,
                BreakerAction::Wait(error, _) | BreakerAction::Fail(error) => Some(error.message.to_string()),
            }
        }

        /// Sends a query that fails at once. Panics if the query was not admitted.
        fn fail(&mut self, name: &str, millis: u64) -> bool {
            let now = self.at(millis);
            let BreakerAction::Ask(number) = self.circuit.next_action(&query(name), now) else {
                panic!("{name} was not admitted")
            };
            self.circuit.ended(number);
            self.circuit.failed(&query(name), now, now, &error(&format!("{name} at {millis}")))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn circuit_opens_at_five_failures_and_not_at_four() {
        let mut steps = Steps::new();
        for n in 0..4 {
            assert!(!steps.fail("a", n));
        }
        assert_eq!(steps.ask("a", 4), None);
        assert!(steps.fail("a", 5));
        assert_eq!(steps.ask("a", 6).as_deref(), Some("a at 5"), "the query's last error");
        assert_eq!(steps.ask("b", 7), None, "b has no stored error");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_long_queries_are_not_stored() {
        for (length, stored) in [(MAX_QUERY, 1), (MAX_QUERY + 1, 0)] {
            let mut steps = Steps::new();
            // The texts of a query are its metric and its namespace, `shop`.
            let (query, now) = (query(&"a".repeat(length - "shop".len())), steps.at(0));
            steps.circuit.failed(&query, now, now, &error("down"));
            assert_eq!(steps.circuit.errors.len(), stored, "{length}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn circuit_closes_or_stays_closed_at_any_response() {
        let mut steps = Steps::new();
        for n in 0..100 {
            assert!(!steps.fail("a", n));
            if n % 4 == 3 {
                assert!(!steps.circuit.answered(steps.at(n)));
            }
        }
        for n in 100..105 {
            steps.fail("a", n);
        }
        assert!(steps.circuit.is_open());
        assert!(steps.circuit.answered(steps.at(200)));
        assert_eq!(steps.ask("a", 201), None);
        assert_eq!(steps.circuit.errors.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_is_ignored_when_sent_before_the_last_response() {
        let mut steps = Steps::new();
        steps.circuit.answered(steps.at(10));
        for _ in 0..10 {
            assert!(!steps.circuit.failed(&query("a"), steps.at(9), steps.at(40), &error("late")));
        }
        assert!(!steps.circuit.is_open());
        assert_eq!(steps.circuit.errors.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn open_circuit_sends_one_query_per_second() {
        let mut steps = Steps::new();
        for _ in 0..5 {
            steps.fail("a", 0);
        }
        for second in 1..30 {
            assert!(steps.ask("a", second * 1000 - 1).is_some(), "{second}");
            steps.fail("a", second * 1000);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn query_behind_a_failing_one_is_sent_once_a_minute() {
        let mut steps = Steps::new();
        for _ in 0..5 {
            steps.fail("broken", 0);
        }
        steps.fail("good", 0);
        // Both queries are sent every 15 s, `good` always shortly after `broken`.
        for period in 1..4 {
            steps.fail("broken", period * 15_000);
            assert!(steps.ask("good", period * 15_000 + 5).is_some(), "{period}");
        }
        steps.fail("broken", 60_000);
        assert_eq!(steps.ask("good", 60_005), None);
    }

    #[tokio::test(start_paused = true)]
    async fn single_query_per_period_is_always_sent() {
        let mut steps = Steps::new();
        for period in 0..100 {
            steps.fail("a", period * 15_000);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_bounded_and_evicted_queries_are_sent_again() {
        let mut steps = Steps::new();
        for name in ["a", "b", "c", "d", "e", "f"] {
            steps.fail(name, 0);
        }
        assert_eq!(steps.circuit.errors.len(), 4);
        assert!(steps.ask("f", 1).is_some());
        assert_eq!(steps.ask("a", 1), None);
        let long = error(&"x".repeat(MAX_TEXT + 1));
        steps.circuit.failed(&query("g"), steps.at(1), steps.at(1), &long);
        assert_eq!(steps.ask("g", 2), None);
    }

    async fn open(breaker: &Breaker<Query, QueryError>, names: &[&str]) {
        for name in names.iter().cycle().take(FAILURES as usize) {
            let query = query(name);
            let attempt = breaker.enter(&query).await.unwrap();
            attempt.end(&AttemptResult::Failed(&error(name)));
        }
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn query_waits_for_an_attempt_and_proceeds_if_it_succeeds() {
        let breaker = Breaker::new();
        open(&breaker, &["a", "b", "c"]).await;
        tokio::time::advance(PROBE).await;
        let (a, b, c) = (query("a"), query("b"), query("c"));
        let probe = breaker.enter(&a).await.unwrap();
        let mut waiting = Box::pin(breaker.enter(&b));
        assert!((&mut waiting).now_or_never().is_none());
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(probe.end(&AttemptResult::Answered), Some(Change::Closed));
        assert!(waiting.await.is_ok());
        assert!(breaker.enter(&c).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_wait_ends_with_the_attempt_or_after_a_second() {
        let breaker = Breaker::new();
        open(&breaker, &["a", "b"]).await;
        let (a, b) = (query("a"), query("b"));
        for abandoned in [true, false] {
            tokio::time::advance(PROBE).await;
            let start = Instant::now();
            let probe = breaker.enter(&a).await.unwrap();
            let probe_in_flight = if abandoned {
                drop(probe);
                None
            } else {
                Some(probe)
            };
            assert_eq!(breaker.enter(&b).await.unwrap_err(), error("b"));
            assert_eq!(start.elapsed(), if abandoned { Duration::ZERO } else { PROBE });
            drop(probe_in_flight);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queued_query_fails_at_start_when_the_circuit_opened_meanwhile() {
        let breaker = Breaker::new();
        let (a, new) = (query("a"), query("new"));
        let (mut queued, mut first) = (breaker.enter(&a).await.unwrap(), breaker.enter(&new).await.unwrap());
        open(&breaker, &["a"]).await;
        assert_eq!(queued.start(), Err(error("a")));
        assert_eq!(first.start(), Ok(()));
        tokio::time::advance(PROBE).await;
        assert_eq!(breaker.enter(&a).await.unwrap().start(), Ok(()), "this second's attempt");
    }
}
