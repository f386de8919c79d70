use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

type Test = Flights<&'static str, u32, &'static str>;

fn flights(age: Option<u64>) -> Test {
    Flights::new(age.map(Duration::from_secs), || "panicked")
}

/// Is sent at once and takes so many seconds; answers how many requests there were before.
fn takes(seconds: u64, count: &Arc<AtomicU32>) -> impl FnOnce(Sent) -> Flight<u32, &'static str> + use<> {
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
async fn equal_queriesunder_way_are_one_request_and_later_ones_are_new() {
    let (flights, count) = (flights(None), Arc::default());
    let (a, b) = (flights.join("q", takes(1, &count)), flights.join("q", takes(1, &count)));
    let other = flights.join("r", takes(1, &count));
    assert_eq!(futures::join!(a, b, other), (Ok(0), Ok(0), Ok(1)));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(2));
    assert!(flights.lock().by_key.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_an_age_whatever_isunder_way_is_joined() {
    let (flights, count) = (flights(None), Arc::default());
    let first = tokio::spawn(flights.join("q", takes(60, &count)));
    pass(59).await;
    assert_eq!(flights.join("q", takes(60, &count)).await, Ok(0));
    assert_eq!(first.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_serves_until_its_request_is_an_age_old() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(0));
    pass(3).await;
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(0), "5 s after it was sent");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(flights.join("q", takes(2, &count)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_to_be_sent_is_joined_however_long_it_waits() {
    let (flights, count) = (flights(Some(5)), Arc::<AtomicU32>::default());
    let begin = takes(1, &count);
    let waits = flights.join("q", |sent| {
        async {
            pass(20).await;
            begin(sent).await
        }
        .boxed()
    });
    let waits = tokio::spawn(waits);
    pass(19).await;
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(0));
    assert_eq!(waits.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_is_asked_again_beside_once_an_age() {
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
async fn with_no_age_at_all_those_who_come_late_share_the_next_request() {
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
    // Of one that hangs, a second is waited for.
    ask(10_000);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (start, late) = (Instant::now(), ask(0));
    assert_eq!(late.await.unwrap(), Ok(3));
    assert_eq!(start.elapsed(), Duration::from_millis(600));
}

fn takes_millis(
    millis: u64,
    count: &Arc<AtomicU32>,
) -> impl FnOnce(Sent) -> Flight<u32, &'static str> + use<> {
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
async fn an_error_is_told_to_those_who_joined_and_to_nobody_later() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    let fails = |sent: Sent| {
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
async fn a_panic_is_an_error_for_those_who_joined_and_nothing_to_those_who_come_later() {
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
async fn an_abandoned_request_is_forgotten_and_one_of_two_may_leave() {
    for age in [None, Some(5)] {
        let (flights, count) = (flights(age), Arc::default());
        let leaving = flights.join("q", takes(1, &count));
        let staying = flights.join("q", takes(1, &count));
        let _ = tokio::time::timeout(Duration::from_millis(1), leaving).await;
        assert_eq!(staying.await, Ok(0));
        drop(flights.join("r", takes(1, &count)));
        assert!(!flights.lock().by_key.contains_key("r"));
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_abandoned_while_it_waits_for_another_keeps_nobody_waiting() {
    let (flights, count) = (flights(Some(0)), Arc::default());
    let first = tokio::spawn(flights.join("q", takes(1, &count)));
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(flights.join("q", takes(1, &count)));
    assert_eq!(flights.join("q", takes(1, &count)).await, Ok(1));
    assert_eq!(first.await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_leaves_only_what_may_still_serve() {
    let (flights, count) = (flights(Some(5)), Arc::default());
    flights.join("a", takes(0, &count)).await.unwrap();
    pass(3).await;
    flights.join("b", takes(0, &count)).await.unwrap();
    let under_way = flights.join("c", takes(60, &count));
    pass(3).await;
    assert!(flights.sweep(Instant::now()));
    assert_eq!(flights.lock().by_key.keys().copied().collect::<Vec<_>>(), ["b", "c"]);
    drop(under_way);
    pass(3).await;
    assert!(!flights.sweep(Instant::now()));
}
