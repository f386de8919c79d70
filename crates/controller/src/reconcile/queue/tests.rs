use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use tokio::time::{advance, timeout};

use super::lanes::KEYS_PER_TURN;
use super::*;
use crate::telemetry::metrics::Metrics;

const PERIOD: Duration = Duration::from_secs(15);

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn queue() -> Queue {
    Queue::new(Metrics::new().workqueue("test"))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The name of the next due key, if any.
async fn next(queue: &Queue) -> Option<String> {
    timeout(Duration::ZERO, queue.get()).await.ok().flatten().map(|due| due.key.name.to_string())
}

#[tokio::test(start_paused = true)]
async fn keys_come_in_the_order_of_their_due_times() {
    let queue = queue();
    queue.add_after(&key("c"), secs(2));
    queue.add_after(&key("a"), secs(1));
    queue.add_after(&key("b"), secs(1));
    advance(secs(3)).await;
    for name in ["a", "b", "c"] {
        assert_eq!(next(&queue).await.as_deref(), Some(name));
    }
    assert_eq!(next(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn earlier_of_two_due_times_wins() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after(&key("a"), PERIOD);
    queue.add_after(&key("a"), secs(20));
    queue.add_after(&key("a"), secs(5));
    queue.add_after(&key("a"), secs(9));
    assert_eq!(queue.waiting(), 1);
    let due = queue.get().await.unwrap();
    assert_eq!((start.elapsed(), due.lateness), (secs(5), Duration::ZERO));
    queue.done(&due.key);
    assert_eq!((queue.waiting(), queue.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn immediate_add_keeps_the_periodic_sync_due() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after(&key("a"), PERIOD);
    advance(secs(4)).await;
    queue.add(&key("a"));
    queue.add(&key("a"));
    let due = queue.get().await.unwrap();
    assert_eq!(start.elapsed(), secs(4));
    // Add the key again as after every sync. The waiting time is earlier.
    queue.add_after(&due.key, PERIOD);
    queue.done(&due.key);
    queue.get().await.unwrap();
    assert_eq!(start.elapsed(), PERIOD);
}

#[tokio::test(start_paused = true)]
async fn key_is_never_handed_out_twice_at_once() {
    let queue = queue();
    queue.add(&key("a"));
    let due = queue.get().await.unwrap();
    advance(secs(1)).await;
    queue.add(&due.key);
    queue.add(&due.key);
    advance(secs(2)).await;
    assert_eq!((next(&queue).await, queue.len()), (None, 0));
    queue.done(&due.key);
    let again = queue.get().await.unwrap();
    assert_eq!(again, Due { key: key("a"), lateness: secs(2), at: None });
    queue.done(&again.key);
    assert_eq!(next(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn key_due_while_in_progress_comes_after_done() {
    let queue = queue();
    queue.add(&key("slow"));
    let due = queue.get().await.unwrap();
    let at = Instant::now() + secs(2);
    queue.add_at(&due.key, at);
    queue.add_after(&key("earlier"), secs(1));
    queue.add_after(&key("later"), secs(3));
    advance(secs(5)).await;
    assert_eq!(next(&queue).await.as_deref(), Some("earlier"));
    queue.done(&due.key);
    assert_eq!(queue.get().await.unwrap(), Due { key: key("slow"), lateness: secs(3), at: Some(at) });
    assert_eq!(next(&queue).await.as_deref(), Some("later"));
}

#[tokio::test(start_paused = true)]
async fn forgotten_key_is_not_handed_out() {
    let queue = queue();
    queue.add_after(&key("later"), secs(1));
    queue.add(&key("now"));
    queue.add(&key("running"));
    queue.forget(&key("now"));
    let running = queue.get().await.unwrap();
    assert_eq!(running.key, key("running"));
    queue.add(&running.key);
    for name in ["later", "running", "unknown"] {
        queue.forget(&key(name));
    }
    queue.done(&running.key);
    advance(secs(10)).await;
    assert_eq!((next(&queue).await, queue.len(), queue.waiting()), (None, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn key_stays_until_it_is_taken_after_a_wait() {
    let queue = queue();
    queue.add_after(&key("a"), secs(1));
    assert!(queue.take().is_none());
    assert!(queue.wait().await && queue.wait().await);
    advance(secs(2)).await;
    let due = queue.take().unwrap();
    assert_eq!((&*due.key.name, due.lateness), ("a", secs(2)));
    assert!(queue.take().is_none());
    queue.shut_down();
    assert!(!queue.wait().await);
}

#[tokio::test(start_paused = true)]
async fn every_waiting_worker_gets_its_key_in_time() {
    let queue = Arc::new(queue());
    let start = Instant::now();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { (queue.get().await.unwrap(), start.elapsed()) })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_after(&key("a"), secs(10));
    queue.add_after(&key("b"), secs(3));
    queue.add_after(&key("c"), secs(5));
    let mut handed = BTreeSet::new();
    for worker in workers {
        let (due, at) = worker.await.unwrap();
        assert_eq!(due.lateness, Duration::ZERO);
        handed.insert((at, due.key));
    }
    let expected = [(secs(3), key("b")), (secs(5), key("c")), (secs(10), key("a"))];
    assert_eq!(handed, BTreeSet::from(expected));
}

#[tokio::test(start_paused = true)]
async fn worker_that_stops_waiting_loses_no_key() {
    let queue = Arc::new(queue());
    let patient = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    let impatient = timeout(secs(1), queue.get());
    queue.add_after(&key("a"), secs(2));
    assert!(impatient.await.is_err());
    assert_eq!(patient.await.unwrap().unwrap().key, key("a"));
}

#[tokio::test(start_paused = true)]
async fn shut_down_queue_releases_workers_and_accepts_nothing() {
    let queue = Arc::new(queue());
    queue.add(&key("running"));
    let running = queue.get().await.unwrap();
    queue.add_after(&key("later"), secs(1));
    let worker = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    queue.shut_down();
    assert_eq!(worker.await.unwrap(), None);
    queue.add(&key("new"));
    queue.add_after(&key("new"), secs(1));
    queue.done(&running.key);
    assert_eq!(queue.get().await, None);
}

#[tokio::test(start_paused = true)]
async fn delay_beyond_the_clock_range_is_accepted() {
    let queue = queue();
    queue.add_after(&key("a"), Duration::MAX);
    assert_eq!((queue.waiting(), next(&queue).await), (1, None));
}

#[tokio::test(start_paused = true)]
async fn queue_metrics_have_the_names_of_client_go() {
    let metrics = Metrics::new();
    let queue = Queue::new(metrics.workqueue("horizontalpodautoscaler"));
    queue.add(&key("a"));
    queue.add_after(&key("b"), secs(2));
    advance(secs(4)).await;
    queue.get().await.unwrap();
    advance(secs(6)).await;
    queue.publish();
    let text = metrics.render();
    for line in [
        "adds_total",
        "retries_total",
        "depth",
        "unfinished_work_seconds",
        "longest_running_processor_seconds",
    ]
    .map(|name| format!("workqueue_{name}{{name=\"horizontalpodautoscaler\"}}"))
    .iter()
    .zip([" 2", " 1", " 1", " 6", " 6"])
    .map(|(series, value)| format!("{series}{value}\n"))
    {
        assert!(text.contains(&line), "{line} in {text}");
    }
    queue.done(&key("a"));
    queue.publish();
    let text = metrics.render();
    assert!(
        text.contains("workqueue_unfinished_work_seconds{name=\"horizontalpodautoscaler\"} 0\n"),
        "{text}"
    );
    assert!(
        text.contains("workqueue_work_duration_seconds_sum{name=\"horizontalpodautoscaler\"} 6\n"),
        "{text}"
    );
    assert!(
        text.contains("workqueue_queue_duration_seconds_sum{name=\"horizontalpodautoscaler\"} 4\n"),
        "{text}"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    Advance(u64),
    Get,
    DoneOldest,
    Forget(u8),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u8).prop_map(Step::Add),
        (0..4u8, 0..6u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        (1..4u64).prop_map(Step::Advance),
        Just(Step::Get),
        Just(Step::DoneOldest),
        (0..4u8).prop_map(Step::Forget),
    ]
}

proptest! {
    /// Compares the queue with a model: per key its waiting time, whether it is due, and whether it is in
    /// progress.
    #[test]
    fn keys_follow_the_model_under_any_order_of_calls(
        steps in proptest::collection::vec(steps(), 1..80)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let queue = queue();
            let (mut waiting, mut due, mut running) = ([None::<Instant>; 4], [false; 4], Vec::<u8>::new());
            for step in steps {
                match step {
                    Step::Add(at) => {
                        queue.add(&key(&at.to_string()));
                        due[usize::from(at)] = true;
                    }
                    Step::AddAfter(at, 0) => {
                        queue.add_after(&key(&at.to_string()), Duration::ZERO);
                        due[usize::from(at)] = true;
                    }
                    Step::AddAfter(at, delay) => {
                        queue.add_after(&key(&at.to_string()), secs(delay));
                        let then = Instant::now() + secs(delay);
                        let slot = &mut waiting[usize::from(at)];
                        *slot = Some(slot.map_or(then, |earlier| earlier.min(then)));
                    }
                    Step::Advance(by) => {
                        advance(secs(by)).await;
                        for at in 0..4 {
                            if waiting[at].is_some_and(|then| then <= Instant::now()) {
                                (waiting[at], due[at]) = (None, true);
                            }
                        }
                    }
                    Step::Get => {
                        let free = (0..4u8).filter(|at| due[usize::from(*at)] && !running.contains(at)).count();
                        prop_assert_eq!(queue.len(), free);
                        let handed = next(&queue).await;
                        prop_assert_eq!(handed.is_some(), free > 0);
                        if let Some(name) = handed {
                            let at: u8 = name.parse().unwrap();
                            prop_assert!(due[usize::from(at)] && !running.contains(&at));
                            due[usize::from(at)] = false;
                            running.push(at);
                        }
                    }
                    Step::DoneOldest => {
                        if !running.is_empty() {
                            queue.done(&key(&running.remove(0).to_string()));
                        }
                    }
                    Step::Forget(at) => {
                        queue.forget(&key(&at.to_string()));
                        (waiting[usize::from(at)], due[usize::from(at)]) = (None, false);
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn begin_resets_the_lateness_of_due_keys() {
    let queue = queue();
    queue.add(&key("a"));
    tokio::time::sleep(secs(600)).await;
    queue.begin();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(queue.get().await.unwrap(), Due { key: key("a"), lateness: secs(1), at: None });
}

#[tokio::test(start_paused = true)]
async fn new_keys_come_before_keys_due_at_begin() {
    let queue = queue();
    for name in ["a", "b", "c"] {
        queue.add(&key(name));
    }
    queue.begin();
    assert_eq!(next(&queue).await.as_deref(), Some("a"));
    queue.add(&key("new"));
    for name in ["new", "b", "c"] {
        assert_eq!(next(&queue).await.as_deref(), Some(name));
    }
}

#[tokio::test(start_paused = true)]
async fn changed_key_moves_to_the_front_and_keeps_its_due_time() {
    let queue = queue();
    for (name, after) in [("a", 1), ("b", 2), ("c", 3)] {
        queue.add_after(&key(name), secs(after));
    }
    let due = Instant::now() + secs(3);
    advance(secs(5)).await;
    queue.add(&key("c"));
    let first = queue.get().await.unwrap();
    assert_eq!(first, Due { key: key("c"), lateness: secs(2), at: Some(due) });
    queue.done(&first.key);
    for name in ["a", "b"] {
        assert_eq!(next(&queue).await.as_deref(), Some(name));
    }
    assert_eq!(next(&queue).await, None);
}

/// Takes all due keys, without ending any work.
fn take_all(queue: &Queue) -> Vec<String> {
    std::iter::from_fn(|| queue.take().map(|due| due.key.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_namespace_alternate_with_turns_of_its_periodic_keys() {
    let queue = queue();
    for index in 0..2 * KEYS_PER_TURN {
        queue.add_after(&key(&format!("periodic-{index:02}")), secs(1));
    }
    advance(secs(2)).await;
    let mut changed_at = Vec::new();
    for index in 0..2 * KEYS_PER_TURN + 3 {
        queue.add(&key("changed"));
        let due = queue.get().await.unwrap();
        queue.done(&due.key);
        if &*due.key.name == "changed" {
            changed_at.push(index);
        }
    }
    assert_eq!(changed_at, [0, KEYS_PER_TURN + 1, 2 * KEYS_PER_TURN + 2]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_in_both_lanes() {
    let queue = queue();
    for name in ["1", "2", "3"] {
        queue.add_after(&Key::new("large", name), secs(1));
        queue.add(&Key::new("large", format!("new-{name}")));
    }
    queue.add_after(&Key::new("small", "1"), secs(1));
    queue.add(&Key::new("small", "new-1"));
    assert_eq!(take_all(&queue), ["large/new-1", "small/new-1", "large/new-2", "large/new-3"]);
    for index in 0..=KEYS_PER_TURN {
        queue.add_after(&Key::new("huge", format!("{index:02}")), Duration::from_millis(500));
    }
    advance(secs(2)).await;
    let all = take_all(&queue);
    let (first, rest) = all.split_at(KEYS_PER_TURN.try_into().unwrap());
    assert!(first.iter().all(|key| key.starts_with("huge/")), "{first:?}");
    assert_eq!(rest, ["large/1", "large/2", "large/3", "small/1", "huge/16"]);
}

#[tokio::test(start_paused = true)]
async fn changes_beyond_the_share_of_a_namespace_come_after_periodic_keys() {
    let queue = queue();
    for namespace in ["a", "b", "c"] {
        for name in ["1", "2"] {
            queue.add_after(&Key::new(namespace, name), secs(1));
        }
    }
    advance(secs(2)).await;
    for name in ["1", "2", "3"] {
        queue.add(&Key::new("hostile", name));
    }
    queue.add(&Key::new("shop", "new"));
    let expected =
        ["hostile/1", "shop/new", "a/1", "a/2", "b/1", "b/2", "c/1", "c/2", "hostile/2", "hostile/3"];
    assert_eq!(take_all(&queue), expected);
}

#[tokio::test(start_paused = true)]
async fn key_that_changes_all_the_time_is_handed_out_at_growing_intervals() {
    let queue = Arc::new(queue());
    let (start, changed) = (Instant::now(), key("changed"));
    queue.add_changed(&changed);
    let fresh = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            let mut times = Vec::new();
            while queue.wait_fresh().await {
                if let Some(due) = queue.take_fresh() {
                    times.push((start.elapsed(), due.lateness));
                    queue.done(&due.key);
                }
            }
            times
        }
    });
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(310)).await;
        queue.add_changed(&changed);
    }
    tokio::time::sleep(secs(30)).await;
    queue.shut_down();
    let times: Vec<_> = [0, 1, 3, 7, 15, 23, 31].map(|second| (secs(second), Duration::ZERO)).into();
    assert_eq!(fresh.await.unwrap(), times, "the change at 31 s was synced at once");
    assert_eq!(queue.state.lock().recent.next(), None);
}

#[tokio::test(start_paused = true)]
async fn periodic_sync_takes_over_a_deferred_change() {
    let queue = queue();
    queue.add_changed(&key("a"));
    assert_eq!(next(&queue).await.as_deref(), Some("a"));
    queue.done(&key("a"));
    queue.add_after(&key("a"), Duration::from_millis(500));
    queue.add_changed(&key("a"));
    advance(Duration::from_millis(600)).await;
    assert_eq!(next(&queue).await.as_deref(), Some("a"));
    queue.done(&key("a"));
    advance(secs(2)).await;
    assert_eq!(next(&queue).await, None);
    queue.add_changed(&key("a"));
    assert_eq!(next(&queue).await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn namespace_with_syncs_that_wait_for_tokens_gets_no_more_keys() {
    let queue = Arc::new(queue());
    let keys: Vec<_> = (0..9).map(|name| Key::new("hostile", name.to_string())).collect();
    let mut waits: Vec<_> = keys.iter().take(8).map(|key| queue.token_wait(key)).collect();
    queue.add(&Key::new("hostile", "new"));
    queue.add_after(&Key::new("hostile", "periodic"), secs(1));
    queue.add_after(&Key::new("shop", "periodic"), secs(1));
    advance(secs(2)).await;
    assert_eq!((take_all(&queue), queue.len()), (vec!["shop/periodic".to_owned()], 2));
    let blocked = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    assert!(!blocked.is_finished() && queue.take_fresh().is_none());
    waits.pop();
    assert_eq!(blocked.await.unwrap().unwrap().key.to_string(), "hostile/new");
    assert_eq!(take_all(&queue), ["hostile/periodic"]);
}

#[tokio::test(start_paused = true)]
async fn key_has_a_time_until_it_is_handed_out_for_it() {
    let queue = queue();
    let at = Instant::now() + secs(3);
    assert!(!queue.has_time(&key("a")));
    queue.add_at(&key("a"), at);
    queue.add(&key("a"));
    let changed = queue.get().await.unwrap();
    assert!(queue.has_time(&key("a")) && changed.at.is_none());
    advance(secs(4)).await;
    assert!(queue.has_time(&key("a")), "it became due while in progress");
    queue.done(&changed.key);
    assert_eq!(queue.get().await.unwrap(), Due { key: key("a"), lateness: secs(1), at: Some(at) });
    assert!(!queue.has_time(&key("a")));
}

#[tokio::test(start_paused = true)]
async fn fresh_worker_gets_only_fresh_keys() {
    let queue = Arc::new(queue());
    let fresh = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.wait_fresh().await.then(|| queue.take_fresh()).flatten() }
    });
    queue.add_after(&key("periodic"), secs(1));
    advance(secs(2)).await;
    assert!(queue.wait().await && queue.take_fresh().is_none());
    assert!(!fresh.is_finished());
    queue.add(&key("new"));
    assert_eq!(fresh.await.unwrap().unwrap().key, key("new"));
    assert_eq!(next(&queue).await.as_deref(), Some("periodic"));
    queue.shut_down();
    assert!(!queue.wait_fresh().await);
}

/// Waits for a worker that must get a key, or must end. Without it, a worker that is never woken would hang the test.
async fn in_time<T>(worker: tokio::task::JoinHandle<T>) -> T {
    timeout(secs(60), worker).await.expect("the worker was not woken").unwrap()
}

fn worker(queue: &Arc<Queue>) -> tokio::task::JoinHandle<Option<String>> {
    let queue = Arc::clone(queue);
    tokio::spawn(async move { queue.get().await.map(|due| due.key.to_string()) })
}

fn fresh_worker(queue: &Arc<Queue>) -> tokio::task::JoinHandle<Option<String>> {
    let queue = Arc::clone(queue);
    tokio::spawn(async move {
        queue.wait_fresh().await.then(|| queue.take_fresh()).flatten().map(|due| due.key.to_string())
    })
}

#[tokio::test(start_paused = true)]
async fn time_that_has_passed_makes_a_key_due_at_once() {
    let queue = queue();
    let now = Instant::now();
    queue.add_at(&key("a"), now);
    let counts = {
        let state = queue.state.lock();
        (state.waiting.len(), state.lanes.len())
    };
    assert_eq!(counts, (0, 1));
    advance(secs(1)).await;
    assert_eq!(queue.take(), Some(Due { key: key("a"), lateness: secs(1), at: Some(now) }));
}

#[tokio::test(start_paused = true)]
async fn workers_are_woken_when_a_key_becomes_available() {
    let queue = Arc::new(queue());
    // A due key becomes fresh while a fresh worker waits.
    queue.add_after(&key("a"), secs(1));
    advance(secs(2)).await;
    assert_eq!(queue.len(), 1);
    let waiting = fresh_worker(&queue);
    tokio::task::yield_now().await;
    queue.add(&key("a"));
    assert_eq!(in_time(waiting).await.as_deref(), Some("shop/a"));

    // A key that was added in the meantime becomes available at the end of its work.
    queue.add(&key("a"));
    let waiting = worker(&queue);
    tokio::task::yield_now().await;
    queue.done(&key("a"));
    let ended = Instant::now();
    assert_eq!(in_time(waiting).await.as_deref(), Some("shop/a"));
    assert_eq!(ended.elapsed(), Duration::ZERO);
    queue.done(&key("a"));

    // The shutdown ends workers that wait for any key.
    let waiting = [worker(&queue), fresh_worker(&queue)];
    tokio::time::sleep(secs(20)).await;
    queue.shut_down();
    for waiting in waiting {
        assert_eq!(in_time(waiting).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn worker_with_a_key_wakes_the_next_worker() {
    let queue = Arc::new(queue());
    // The first notification reaches a worker that takes nothing.
    let gone = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.wait().await }
    });
    let workers = [worker(&queue), worker(&queue)];
    tokio::task::yield_now().await;
    for name in ["a", "b"] {
        queue.add(&key(name));
    }
    assert!(in_time(gone).await);
    for (worker, expected) in workers.into_iter().zip(["shop/a", "shop/b"]) {
        assert_eq!(in_time(worker).await.as_deref(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_change_wakes_a_worker_at_the_end_of_its_interval() {
    let queue = Arc::new(queue());
    let start = Instant::now();
    let [first, second] = [fresh_worker(&queue), fresh_worker(&queue)];
    tokio::task::yield_now().await;
    queue.add_changed(&key("a"));
    assert_eq!(in_time(first).await.as_deref(), Some("shop/a"));
    queue.done(&key("a"));
    queue.add_changed(&key("a"));
    assert_eq!((in_time(second).await.as_deref(), start.elapsed().as_secs()), (Some("shop/a"), 1));
    queue.done(&key("a"));
    queue.add_changed(&key("a"));
    assert_eq!((in_time(worker(&queue)).await.as_deref(), start.elapsed().as_secs()), (Some("shop/a"), 3));
}

#[tokio::test(start_paused = true)]
async fn deferred_change_of_a_deleted_hpa_is_dropped() {
    let queue = queue();
    queue.add_changed(&key("a"));
    assert_eq!(take_all(&queue), ["shop/a"]);
    queue.done(&key("a"));
    queue.add_changed(&key("a"));
    queue.forget(&key("a"));
    advance(secs(2)).await;
    assert!(take_all(&queue).is_empty());
}

#[tokio::test(start_paused = true)]
async fn share_of_changes_is_renewed_in_each_round() {
    let queue = queue();
    for round in ["1", "2"] {
        for namespace in ["x", "y", "z"] {
            queue.add_after(&Key::new(namespace, round), secs(1));
        }
        advance(secs(2)).await;
        assert_eq!(queue.take().map(|due| due.key.to_string()), Some(format!("x/{round}")));
        queue.add(&Key::new("shop", round));
        let expected = [format!("shop/{round}"), format!("y/{round}"), format!("z/{round}")];
        assert_eq!(take_all(&queue), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_a_wait_for_a_token_wakes_a_fresh_worker() {
    let queue = Arc::new(queue());
    let keys: Vec<_> = (0..8).map(|name| Key::new("hostile", name.to_string())).collect();
    let mut waits: Vec<_> = keys.iter().map(|key| queue.token_wait(key)).collect();
    queue.add(&Key::new("hostile", "new"));
    let waiting = fresh_worker(&queue);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    waits.pop();
    assert_eq!(in_time(waiting).await.as_deref(), Some("hostile/new"));
}
