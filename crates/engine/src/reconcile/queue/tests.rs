mod fairness;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use tokio::time::{advance, timeout};

use super::lanes::KEYS_PER_TURN;
use super::*;
use crate::telemetry::metrics::Metrics;

impl Queue {
    fn add_after(&self, key: &Key, delay: Duration) {
        self.add_at(key, clock::after(Instant::now(), delay));
    }

    /// Waits until a key is due and takes it. `None` once the queue is shut down.
    async fn get(&self) -> Option<Due> {
        while self.wait().await {
            if let Some(due) = self.take() {
                return Some(due);
            }
        }
        None
    }
}

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

/// Takes the next due key and returns its name. `None` if no key is due.
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
    // A sync adds its key again, but the first due time of the key is earlier.
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
    assert_eq!(again, Due { key: key("a"), lateness: secs(2) });
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
    assert_eq!(queue.get().await.unwrap(), Due { key: key("slow"), lateness: secs(3) });
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
    /// Compares the queue with a model that contains the due time of each key, and whether it is due or in progress.
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
    assert_eq!(queue.get().await.unwrap(), Due { key: key("a"), lateness: secs(1) });
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
    advance(secs(5)).await;
    queue.add(&key("c"));
    let first = queue.get().await.unwrap();
    assert_eq!(first, Due { key: key("c"), lateness: secs(2) });
    queue.done(&first.key);
    for name in ["a", "b"] {
        assert_eq!(next(&queue).await.as_deref(), Some(name));
    }
    assert_eq!(next(&queue).await, None);
}
