//! Workers that wait for keys.

use super::fairness::take_all;
use super::*;

/// Waits for a worker that must get a key or end. Without the timeout, a worker that is never woken would hang the
/// test.
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
