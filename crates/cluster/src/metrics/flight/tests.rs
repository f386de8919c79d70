use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

type Test = Flights<&'static str, u32, &'static str>;

fn flights(age: Option<u64>) -> Test {
    Flights::new(age.map(Duration::from_secs), || "panicked")
}

/// Returns a request that is sent at once and takes `seconds`. Its answer is the number of previous requests.
fn takes(seconds: u64, count: &Arc<AtomicU32>) -> impl FnOnce(SentTime) -> Flight<u32, &'static str> + use<> {
    let count = Arc::clone(count);
    move |sent| {
        async move {
            sent.now();
            let number = count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(number)
        }
        .boxed()
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn equal_queries_in_flight_share_a_request_and_later_ones_do_not() {
    let (flights, count) = (flights(None), Arc::default());
    let (a, b) = (flights.join("q", takes(1, &count)), flights.join("q", takes(1, &count)));
    let other = flights.join("r", takes(1, &count));
    assert_eq!(futures::join!(a, b, other), (Ok(0), Ok(0), Ok(1)));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(2));
    assert!(flights.inner.lock().by_key.is_empty());
}

#[tokio::test(start_paused = true)]
async fn any_request_in_flight_is_joined_without_an_age() {
    let (flights, count) = (flights(None), Arc::default());
    let first = tokio::spawn(flights.join("q", takes(60, &count)));
    pass(59).await;
    assert_eq!(flights.join("q", takes(60, &count)).await, Ok(0));
    assert_eq!(first.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn answer_serves_until_its_request_is_an_age_old() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(0));
    pass(3).await;
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(0), "5 s after it was sent");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn caller_may_want_a_younger_answer() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let ask = |wanted| flights.join_within("q", Duration::from_secs(wanted), takes(0, &count));
    assert_eq!(ask(1).await, Ok(0));
    pass(2).await;
    assert_eq!(ask(2).await, Ok(0));
    assert_eq!(ask(1).await, Ok(1));
    // Other callers share the younger answer. No answer is older than the maximum age.
    pass(4).await;
    assert_eq!(flights.join("q", takes(0, &count)).await, Ok(1));
    pass(2).await;
    assert_eq!(ask(60).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn caller_waits_for_a_request_that_is_too_old_at_most_for_its_own_age() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let first = tokio::spawn(flights.join("q", takes(30, &count)));
    pass(2).await;
    let start = Instant::now();
    assert_eq!(flights.join_within("q", Duration::from_secs(1), takes(0, &count)).await, Ok(1));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(first.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn unsent_request_is_joined_after_any_wait() {
    let (flights, count) = (flights(Some(5)), Arc::<AtomicU32>::default());
    let request = takes(1, &count);
    let waits = flights.join("q", |sent| {
        async {
            pass(20).await;
            request(sent).await
        }
        .boxed()
    });
    let waits = tokio::spawn(waits);
    pass(19).await;
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(0));
    assert_eq!(waits.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn slow_request_is_repeated_in_parallel_once_per_age() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let mut asked = Vec::new();
    for second in 0..30_u32 {
        asked.push((second, tokio::spawn(flights.join("q", takes(30, &count)))));
        pass(1).await;
    }
    for (second, answer) in asked {
        assert_eq!(answer.await.unwrap(), Ok(second / 6), "{second}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_callers_share_the_next_request_when_the_age_is_zero() {
    let (flights, count) = (flights(Some(0)), Arc::default());
    let ask = |millis| {
        let joined = flights.join("q", takes_millis(millis, &count));
        tokio::spawn(joined)
    };
    let first = [ask(300), ask(300)];
    tokio::time::sleep(Duration::from_millis(100)).await;
    let late = [ask(300), ask(300), ask(300)];
    for answer in first {
        assert_eq!(answer.await.unwrap(), Ok(0));
    }
    for answer in late {
        assert_eq!(answer.await.unwrap(), Ok(1));
    }
    // A second request waits until the hanging request is a second old.
    ask(10_000);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (start, late) = (Instant::now(), ask(0));
    assert_eq!(late.await.unwrap(), Ok(3));
    assert_eq!(start.elapsed(), Duration::from_millis(600));
}

fn takes_millis(
    millis: u64,
    count: &Arc<AtomicU32>,
) -> impl FnOnce(SentTime) -> Flight<u32, &'static str> + use<> {
    let count = Arc::clone(count);
    move |sent| {
        async move {
            sent.now();
            let number = count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok(number)
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn error_goes_to_the_joined_callers_and_to_no_later_one() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let fails = |sent: SentTime| {
        async move {
            sent.now();
            pass(1).await;
            Err("down")
        }
        .boxed()
    };
    let (a, b) = (flights.join("q", fails), flights.join("q", fails));
    assert_eq!(futures::join!(a, b), (Err("down"), Err("down")));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn panic_is_an_error_for_the_joined_callers_and_no_later_one() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let panics = |_| {
        async {
            pass(1).await;
            panic!("this request panics")
        }
        .boxed()
    };
    let (a, b) = (flights.join("q", panics), flights.join("q", panics));
    assert_eq!(futures::join!(a, b), (Err("panicked"), Err("panicked")));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn abandoned_request_is_removed_and_one_of_two_callers_may_leave() {
    for age in [None, Some(5)] {
        let (flights, count) = (flights(age), Arc::default());
        let leaving = flights.join("q", takes(1, &count));
        let staying = flights.join("q", takes(1, &count));
        let _ = tokio::time::timeout(Duration::from_millis(1), leaving).await;
        assert_eq!(staying.await, Ok(0));
        drop(flights.join("r", takes(1, &count)));
        assert!(!flights.inner.lock().by_key.contains_key("r"));
    }
}

#[tokio::test(start_paused = true)]
async fn request_abandoned_while_waiting_delays_no_other_caller() {
    let (flights, count) = (flights(Some(0)), Arc::default());
    let first = tokio::spawn(flights.join("q", takes(1, &count)));
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(flights.join("q", takes(1, &count)));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(1));
    assert_eq!(first.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn sweep_keeps_only_fresh_answers_and_requests_in_flight() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    flights.join("a", takes(0, &count)).await.unwrap();
    pass(3).await;
    flights.join("b", takes(0, &count)).await.unwrap();
    let in_flight = flights.join("c", takes(60, &count));
    pass(3).await;
    assert!(flights.sweep(Instant::now()));
    assert_eq!(flights.inner.lock().by_key.keys().copied().collect::<Vec<_>>(), ["b", "c"]);
    drop(in_flight);
    pass(3).await;
    assert!(!flights.sweep(Instant::now()));
}
