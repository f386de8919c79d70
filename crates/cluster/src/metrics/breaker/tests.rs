use autoscaling::failure::MetricFailureClass;
use futures::FutureExt;

use super::*;

fn query(name: &str) -> Query {
    Query::External { namespace: "shop".into(), metric: name.into(), selector: "".into() }
}

fn error(text: &str) -> QueryError {
    QueryError::new(MetricFailureClass::Other, text)
}

/// A circuit with a start time, for steps at given milliseconds.
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

    /// Sends a query. Returns the error text, or `None` if the query was admitted.
    fn ask(&mut self, name: &str, millis: u64) -> Option<String> {
        match self.circuit.next_action(&query(name), self.at(millis)) {
            BreakerAction::Ask(_) => None,
            BreakerAction::Wait(error, _) | BreakerAction::Fail(error) => Some(error.message.to_string()),
        }
    }

    /// Sends a query that fails at once. Returns whether the failure opened the circuit. Panics if the query was not
    /// admitted.
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
    // Both queries arrive every 15 s, `good` always shortly after `broken`.
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
    let breaker = Breaker::default();
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
    let breaker = Breaker::default();
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
    let breaker = Breaker::default();
    let (a, new) = (query("a"), query("new"));
    let (mut queued, mut first) = (breaker.enter(&a).await.unwrap(), breaker.enter(&new).await.unwrap());
    open(&breaker, &["a"]).await;
    assert_eq!(queued.start(), Err(error("a")));
    assert_eq!(first.start(), Ok(()));
    tokio::time::advance(PROBE).await;
    assert_eq!(breaker.enter(&a).await.unwrap().start(), Ok(()), "this second's attempt");
}
