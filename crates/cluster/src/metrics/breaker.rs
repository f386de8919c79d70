//! A circuit breaker. While a metrics API is down, stored errors answer the queries that have failed, and one of these
//! queries per second is sent.
//!
//! Only failures of the API as a whole count: no connection, a broken connection, a timeout, 429 and 5xx. Five
//! consecutive failures, without a response in between, open the circuit. An open circuit answers a query with the
//! error that was stored for this query in the last minute. Once per second, a query with a stored error is sent
//! instead. A query without a stored error is sent as usual. Any response, even an error about the query, closes the
//! circuit.
//!
//! Two rules bound the delay of queries after a recovery. First, a query that arrives during an attempt waits at most a
//! second for the result of that attempt. If the API has responded, the query is sent. Second, a stored error expires
//! after a minute. Otherwise, a query that always follows a failing query within the same second would never be sent.
//!
//! The type of a query is a parameter, so that other sources of metrics can use the breaker.

use std::time::Duration;

use autoscaling::query::{Query, QueryError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::cache::Lru;

/// The number of consecutive failures that opens the circuit.
const FAILURES: u32 = 5;
/// The interval between two attempts while the circuit is open. Also the maximum wait for the end of an attempt.
const PROBE: Duration = Duration::from_secs(1);
/// The lifetime of a stored error.
const HOLDS: Duration = Duration::from_mins(1);
/// Maximum number of stored errors. A query whose error was evicted is sent again.
const KEPT: usize = 16_384;
/// Maximum size of a stored error text, in bytes. A longer error is not stored, so the query is sent again.
const MAX_TEXT: usize = 2048;
/// Maximum size of the texts of a query, in bytes. The error of a longer query is not stored, so the query is sent
/// again.
const MAX_QUERY: usize = 2048;

/// A query or an error that the circuit may store.
pub trait StoredText {
    /// Returns the total size of the texts, in bytes.
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

/// The circuit breaker of one API.
#[derive(Debug)]
pub struct Breaker<Q, E> {
    circuit: Mutex<Circuit<Q, E>>,
    /// Notified at the end of an attempt.
    ended: Notify,
}

/// The decision about a query.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BreakerAction<E> {
    /// Send the query. The attempt has the given number.
    Ask(u64),
    /// Answer with the given error, unless the attempt in flight succeeds before the given time.
    Wait(E, Instant),
    /// Answer with the given error.
    Fail(E),
}

/// The state of one API. The time is an argument of its methods.
#[derive(Debug)]
struct Circuit<Q, E> {
    /// Consecutive failures since the last response.
    failures: u32,
    /// The time of the last response.
    answered: Option<Instant>,
    attempts: u64,
    /// The start of the last attempt, and whether the attempt is in flight.
    last: Option<(Instant, bool)>,
    /// The errors since the last response, with the time of each error.
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

    /// Returns the stored error that answers a query while the circuit is open. `None` if the circuit is closed, or if
    /// no error of the last minute is stored for the query.
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

    /// Records that a query, sent at `asked`, failed because of the API. Ignores a query that was sent before the last
    /// response. Returns whether the failure opened the circuit.
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
    /// The API failed, with the error of the query.
    Failed(&'a E),
    /// The request did not reach the API, or the result is unknown.
    Unknown,
}

/// The effect of an attempt on the circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The circuit is now open.
    Opened,
    /// The circuit is now closed.
    Closed,
}

/// An admitted query. Dropping the attempt before its end aborts the attempt.
#[derive(Debug)]
pub struct Attempt<'a, Q, E> {
    breaker: &'a Breaker<Q, E>,
    query: &'a Q,
    number: u64,
    asked: Instant,
    /// Whether the circuit was open when the query was admitted.
    probes: bool,
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Default for Breaker<Q, E> {
    fn default() -> Self {
        Self { circuit: Mutex::new(Circuit::new(KEPT)), ended: Notify::new() }
    }
}

impl<Q: StoredText + Ord + Clone, E: StoredText + Clone> Breaker<Q, E> {
    /// Admits a query, or fails with the stored error of the query.
    pub async fn enter<'a>(&'a self, query: &'a Q) -> Result<Attempt<'a, Q, E>, E> {
        let next_action = self.circuit.lock().next_action(query, Instant::now());
        match next_action {
            BreakerAction::Ask(number) => Ok(self.attempt(query, number)),
            BreakerAction::Fail(error) => Err(error),
            BreakerAction::Wait(error, until) => {
                let _ = timeout_at(until, self.last_attempt_ended()).await;
                let next_action = {
                    let mut circuit = self.circuit.lock();
                    // The awaited attempt has failed or is still in flight. As the next attempt, this query would make
                    // further queries wait.
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

    /// Returns whether the circuit is open.
    pub fn is_open(&self) -> bool {
        self.circuit.lock().is_open()
    }

    fn attempt<'a>(&'a self, query: &'a Q, number: u64) -> Attempt<'a, Q, E> {
        Attempt { breaker: self, query, number, asked: Instant::now(), probes: self.is_open() }
    }

    /// Waits until the last attempt is no longer in flight.
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
    /// Records the start of the request, which may be long after the admission of the query. Fails with the query's
    /// stored error if the circuit has opened since the admission.
    pub fn start(&mut self) -> Result<(), E> {
        let now = Instant::now();
        self.asked = now;
        let circuit = self.breaker.circuit.lock();
        match circuit.stored_error(self.query, now) {
            Some(error) if !self.probes => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records the result of the attempt.
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
mod tests;
