//! Turns of namespaces and the intervals of changes.

use super::*;

/// Takes all due keys, without ending any work.
pub(super) fn take_all(queue: &Queue) -> Vec<String> {
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
