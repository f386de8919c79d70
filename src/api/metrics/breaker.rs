//! Circuit breaking: a metrics API that is down is asked once a second instead of once for every query.
//!
//! Only failures of the API as a whole count: no connection, a broken one, no answer in time, 429 and 5xx. Five in a row,
//! without an answer of any kind between, open the circuit. From then on a query that failed itself within the last minute
//! is answered with the error that it got, unless the last attempt began a second ago or earlier: then it is the next
//! attempt. A query without such an error is asked as ever. Any answer, even one that says no, closes the circuit.
//!
//! Two rules keep the delay after a recovery below one period and starve nobody. A query that meets an attempt under way
//! waits for it, for a second at most, and goes on if the API has answered. And an error holds for a minute after it came:
//! queries that come in lockstep behind one that goes on failing are asked then.
//!
//! Remembered is only what failed since the last answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use autoscaling::query::{Query, QueryError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::api::lru::Lru;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// Between the beginnings of two attempts while it is open; so long others wait for one.
const PROBE: Duration = Duration::from_secs(1);
/// How long the error of a query stands for an answer, from when it came.
const HOLDS: Duration = Duration::from_mins(1);
/// Errors remembered. A query whose error had to go is asked again.
const KEPT: usize = 16_384;
/// The longest error text that is remembered, in bytes; likewise.
const MAX_TEXT: usize = 2048;

/// The circuit of one API.
#[derive(Debug)]
pub(super) struct Breaker {
    circuit: Mutex<Circuit>,
    /// Tells when an attempt has ended.
    ended: Notify,
}

/// What a query is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    /// Ask, as the attempt of this number.
    Ask(u64),
    /// Take this for an answer, unless the attempt under way succeeds before then.
    Wait(QueryError, Instant),
    /// Take this for an answer.
    Fail(QueryError),
}

/// What is known of one API. Pure: the time is an argument.
#[derive(Debug)]
struct Circuit {
    /// In a row, without an answer between.
    failures: u32,
    /// When an answer came last.
    answered: Option<Instant>,
    attempts: u64,
    /// The last attempt: when it began, and whether it is under way.
    last: Option<(Instant, bool)>,
    /// What failed since the last answer: when that was known, and why.
    errors: Lru<Query, (Instant, QueryError)>,
}

impl Circuit {
    fn new(kept: usize) -> Self {
        Self { failures: 0, answered: None, attempts: 0, last: None, errors: Lru::new(kept) }
    }

    fn is_open(&self) -> bool {
        self.failures >= FAILURES
    }

    /// What stands for the answer to a query, while the circuit is open.
    fn known(&self, query: &Query, now: Instant) -> Option<&QueryError> {
        let (since, error) = self.errors.get(query).filter(|_| self.is_open())?;
        (now < *since + HOLDS).then_some(error)
    }

    fn turn(&mut self, query: &Query, now: Instant) -> Turn {
        if let Some(error) = self.known(query, now)
            && let Some((began, under_way)) = self.last
            && now < began + PROBE
        {
            let error = error.clone();
            return if under_way { Turn::Wait(error, began + PROBE) } else { Turn::Fail(error) };
        }
        self.attempts += 1;
        self.last = Some((now, true));
        Turn::Ask(self.attempts)
    }

    /// An attempt has ended, or was given up. Others may have begun since.
    fn ended(&mut self, attempt: u64) {
        if attempt == self.attempts
            && let Some((_, under_way)) = &mut self.last
        {
            *under_way = false;
        }
    }

    /// A query that was asked at `asked` failed, and with it the API. Whether that opened the circuit.
    fn failed(&mut self, query: &Query, asked: Instant, now: Instant, error: &QueryError) -> bool {
        if self.answered.is_some_and(|answered| asked < answered) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if error.message.len() <= MAX_TEXT {
            self.errors.insert(query, (now, error.clone()));
        }
        self.failures == FAILURES
    }

    /// The API answered. Whether that closed the circuit.
    fn answered(&mut self, now: Instant) -> bool {
        let was_open = self.is_open();
        self.failures = 0;
        self.answered = Some(now);
        self.errors.clear();
        was_open
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending<'a> {
    /// The API answered, with what was asked for or not.
    Answered,
    /// The API failed.
    Failed(&'a QueryError),
    /// It did not come to the API, or nobody knows.
    Unknown,
}

/// What an attempt changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The circuit is open from now on.
    Opened,
    /// The circuit is closed from now on.
    Closed,
}

/// A query that is asked. Dropped, it was given up.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    query: &'a Query,
    number: u64,
    asked: Instant,
    /// Whether it is asked although the circuit is open.
    probes: bool,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { circuit: Mutex::new(Circuit::new(KEPT)), ended: Notify::new() }
    }

    /// Lets a query pass, or answers it with the error that it got last.
    pub(super) async fn enter<'a>(&'a self, query: &'a Query) -> Result<Attempt<'a>, QueryError> {
        let turn = self.lock().turn(query, Instant::now());
        match turn {
            Turn::Ask(number) => Ok(self.attempt(query, number)),
            Turn::Fail(error) => Err(error),
            Turn::Wait(error, until) => {
                let _ = timeout_at(until, self.last_to_end()).await;
                let turn = {
                    let mut circuit = self.lock();
                    // Whoever waited in vain fails: were it the next attempt, others would wait for it in turn.
                    if circuit.is_open() {
                        return Err(error);
                    }
                    circuit.turn(query, Instant::now())
                };
                match turn {
                    Turn::Ask(number) => Ok(self.attempt(query, number)),
                    Turn::Wait(error, _) | Turn::Fail(error) => Err(error),
                }
            }
        }
    }

    /// Whether the circuit is open.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open()
    }

    fn attempt<'a>(&'a self, query: &'a Query, number: u64) -> Attempt<'a> {
        Attempt { breaker: self, query, number, asked: Instant::now(), probes: self.is_open() }
    }

    /// Waits until no attempt is under way that began last.
    async fn last_to_end(&self) {
        loop {
            let ended = self.ended.notified();
            if self.lock().last.is_none_or(|(_, under_way)| !under_way) {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// To be called when its request is about to be made, which may be long after it was let pass. If the circuit has
    /// opened meanwhile, there may be an answer already.
    pub(super) fn begin(&mut self) -> Result<(), QueryError> {
        let now = Instant::now();
        self.asked = now;
        let circuit = self.breaker.lock();
        match circuit.known(self.query, now) {
            Some(error) if !self.probes => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Takes in how it ended.
    pub(super) fn end(self, ending: Ending<'_>) -> Option<Change> {
        let mut circuit = self.breaker.lock();
        match ending {
            Ending::Answered => circuit.answered(Instant::now()).then_some(Change::Closed),
            Ending::Failed(error) => {
                circuit.failed(self.query, self.asked, Instant::now(), error).then_some(Change::Opened)
            }
            Ending::Unknown => None,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.breaker.lock().ended(self.number);
        self.breaker.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn query(name: &str) -> Query {
        Query::External { namespace: "shop".into(), metric: name.into(), selector: "".into() }
    }

    fn error(text: &str) -> QueryError {
        QueryError { message: text.into() }
    }

    /// A circuit that is asked in steps.
    struct Steps {
        circuit: Circuit,
        began: Instant,
    }

    impl Steps {
        fn new() -> Self {
            Self { circuit: Circuit::new(4), began: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.began + Duration::from_millis(millis)
        }

        /// Asks; `None` if the query was let pass.
        fn ask(&mut self, name: &str, millis: u64) -> Option<String> {
            match self.circuit.turn(&query(name), self.at(millis)) {
                Turn::Ask(_) => None,
                Turn::Wait(error, _) | Turn::Fail(error) => Some(error.message.to_string()),
            }
        }

        /// Asks and fails at once. Panics if it was not let pass.
        fn fail(&mut self, name: &str, millis: u64) -> bool {
            let now = self.at(millis);
            let Turn::Ask(number) = self.circuit.turn(&query(name), now) else {
                panic!("{name} was not asked")
            };
            self.circuit.ended(number);
            self.circuit.failed(&query(name), now, now, &error(&format!("{name} at {millis}")))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_four_do_not() {
        let mut steps = Steps::new();
        for n in 0..4 {
            assert!(!steps.fail("a", n));
        }
        assert_eq!(steps.ask("a", 4), None);
        assert!(steps.fail("a", 5));
        assert_eq!(steps.ask("a", 6).as_deref(), Some("a at 5"), "its own last error");
        assert_eq!(steps.ask("b", 7), None, "b has no error of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_between_failures_keeps_it_closed_and_one_after_them_closes_it() {
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
    async fn what_was_asked_before_the_last_answer_counts_no_more_when_it_fails() {
        let mut steps = Steps::new();
        steps.circuit.answered(steps.at(10));
        for _ in 0..10 {
            assert!(!steps.circuit.failed(&query("a"), steps.at(9), steps.at(40), &error("late")));
        }
        assert!(!steps.circuit.is_open());
        assert_eq!(steps.circuit.errors.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn while_open_one_query_a_second_is_asked() {
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
    async fn a_query_behind_one_that_goes_on_failing_is_asked_once_a_minute() {
        let mut steps = Steps::new();
        for _ in 0..5 {
            steps.fail("broken", 0);
        }
        steps.fail("good", 0);
        // Both come every 15 s, `good` always right after the other.
        for period in 1..4 {
            steps.fail("broken", period * 15_000);
            assert!(steps.ask("good", period * 15_000 + 5).is_some(), "{period}");
        }
        steps.fail("broken", 60_000);
        assert_eq!(steps.ask("good", 60_005), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_query_every_period_is_always_asked() {
        let mut steps = Steps::new();
        for period in 0..100 {
            steps.fail("a", period * 15_000);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_bounded_and_what_was_forgotten_is_asked_again() {
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

    async fn open(breaker: &Breaker, names: &[&str]) {
        for name in names.iter().cycle().take(FAILURES as usize) {
            let query = query(name);
            let attempt = breaker.enter(&query).await.unwrap();
            attempt.end(Ending::Failed(&error(name)));
        }
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_meets_an_attempt_waits_for_it_and_goes_on_if_the_api_answers() {
        let breaker = Breaker::new();
        open(&breaker, &["a", "b", "c"]).await;
        tokio::time::advance(PROBE).await;
        let (a, b, c) = (query("a"), query("b"), query("c"));
        let probe = breaker.enter(&a).await.unwrap();
        let mut waiting = Box::pin(breaker.enter(&b));
        assert!((&mut waiting).now_or_never().is_none());
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(probe.end(Ending::Answered), Some(Change::Closed));
        assert!(waiting.await.is_ok());
        assert!(breaker.enter(&c).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_in_vain_ends_with_the_attempt_or_after_a_second() {
        let breaker = Breaker::new();
        open(&breaker, &["a", "b"]).await;
        let (a, b) = (query("a"), query("b"));
        for abandoned in [true, false] {
            tokio::time::advance(PROBE).await;
            let start = Instant::now();
            let probe = breaker.enter(&a).await.unwrap();
            let held = if abandoned {
                drop(probe);
                None
            } else {
                Some(probe)
            };
            assert_eq!(breaker.enter(&b).await.unwrap_err(), error("b"));
            assert_eq!(start.elapsed(), if abandoned { Duration::ZERO } else { PROBE });
            drop(held);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waited_for_its_turn_while_the_circuit_opened_is_not_asked_if_its_error_is_known() {
        let breaker = Breaker::new();
        let (a, new) = (query("a"), query("new"));
        let (mut queued, mut first) = (breaker.enter(&a).await.unwrap(), breaker.enter(&new).await.unwrap());
        open(&breaker, &["a"]).await;
        assert_eq!(queued.begin(), Err(error("a")));
        assert_eq!(first.begin(), Ok(()));
        tokio::time::advance(PROBE).await;
        assert_eq!(breaker.enter(&a).await.unwrap().begin(), Ok(()), "the attempt of this second");
    }
}
