//! Turns of namespaces, intervals of changes, and workers that wait for keys.

use super::*;

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

/// Waits for a worker that must get a key or stop. Without the timeout, a worker that is never woken would block the
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
    assert_eq!(queue.take(), Some(Due { key: key("a"), lateness: secs(1) }));
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

    // A key that was added while in progress becomes available at the end of its work.
    queue.add(&key("a"));
    let waiting = worker(&queue);
    tokio::task::yield_now().await;
    queue.done(&key("a"));
    let ended = Instant::now();
    assert_eq!(in_time(waiting).await.as_deref(), Some("shop/a"));
    assert_eq!(ended.elapsed(), Duration::ZERO);
    queue.done(&key("a"));

    // The shutdown ends the wait of both kinds of workers.
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
