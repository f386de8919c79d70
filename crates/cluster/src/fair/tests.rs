use futures::FutureExt;

use super::*;

fn namespace(name: &str) -> Arc<str> {
    name.into()
}

fn rotation(items: &[(&str, u32)]) -> Rotation<u32, u32> {
    let mut rotation = Rotation::default();
    for (name, position) in items {
        rotation.insert(&namespace(name), 0, *position, *position);
    }
    rotation
}

fn order(rotation: &mut Rotation<u32, u32>) -> Vec<u32> {
    std::iter::from_fn(|| rotation.pop().map(|(_, _, item)| item)).collect()
}

#[test]
fn namespaces_take_turns_and_keep_their_own_order() {
    let mut rotation = rotation(&[("a", 3), ("a", 1), ("a", 2), ("b", 10), ("c", 20), ("c", 21)]);
    assert_eq!(rotation.len(), 6);
    assert_eq!(order(&mut rotation), [1, 10, 20, 2, 21, 3]);
    assert!(rotation.is_empty() && rotation.namespaces.is_empty() && rotation.turns.is_empty());
}

#[test]
fn lower_rank_comes_first_and_removed_items_leave_no_state() {
    let mut rotation = rotation(&[("a", 1), ("a", 2), ("b", 3)]);
    rotation.set_rank("a", 7);
    rotation.set_rank("unknown", 7);
    assert_eq!(rotation.first(), Some(Turn { rank: 0, number: 1 }));
    assert_eq!((rotation.remove("a", &1), rotation.remove("a", &1)), (Some(1), None));
    assert_eq!(order(&mut rotation), [3, 2]);
    assert!(rotation.namespaces.is_empty() && rotation.turns.is_empty());
}

#[test]
fn skipped_namespace_keeps_its_turn() {
    let mut rotation = rotation(&[("a", 1), ("b", 2), ("b", 3), ("c", 4)]);
    assert_eq!(rotation.pop_where(|name| name != "a").map(|(_, _, item)| item), Some(2));
    assert_eq!(rotation.pop_where(|_| false), None);
    assert_eq!(order(&mut rotation), [1, 4, 3]);
}

#[test]
fn namespace_may_keep_its_turn() {
    let mut rotation = rotation(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]);
    assert_eq!(rotation.pop_in_turn().map(|(_, _, item)| item), Some(1));
    assert_eq!(rotation.first(), Some(Turn { rank: 0, number: 0 }));
    assert_eq!(order(&mut rotation), [2, 4, 3]);
    assert!(rotation.pop_in_turn().is_none() && rotation.is_empty());
}

#[tokio::test]
async fn waiters_of_a_semaphore_take_turns_by_namespace() {
    let semaphore = Arc::new(FairSemaphore::new(1, Share::All));
    let first = semaphore.acquire(&namespace("a")).await;
    let waiters = ["a", "a", "a", "b"].map(|name| {
        let semaphore = Arc::clone(&semaphore);
        Box::pin(async move { semaphore.acquire(&namespace(name)).await })
    });
    let [mut second, third, mut fourth, mut other] = waiters;
    let mut third = Some(third);
    assert!((&mut second).now_or_never().is_none());
    assert!(third.as_mut().is_some_and(|third| third.now_or_never().is_none()));
    assert!((&mut fourth).now_or_never().is_none() && (&mut other).now_or_never().is_none());
    drop(first);
    let held = (&mut second).now_or_never().expect("first in order of arrival");
    drop(third.take());
    drop(held);
    let held = (&mut other).now_or_never().expect("the other namespace has its turn");
    assert!((&mut fourth).now_or_never().is_none());
    drop(held);
    assert!((&mut fourth).now_or_never().is_some());
    assert!(semaphore.acquire(&namespace("a")).now_or_never().is_some());
}

#[tokio::test]
async fn abandoned_grant_returns_to_the_semaphore() {
    let semaphore = Arc::new(FairSemaphore::new(1, Share::All));
    let held = semaphore.acquire(&namespace("a")).await;
    let b = namespace("b");
    let mut waiter = Box::pin(semaphore.acquire(&b));
    assert!((&mut waiter).now_or_never().is_none());
    drop(held);
    drop(waiter);
    assert!(semaphore.acquire(&namespace("c")).now_or_never().is_some());
}

#[tokio::test]
async fn namespace_never_holds_more_permits_than_are_free() {
    let semaphore = Arc::new(FairSemaphore::new(255, Share::AsFree));
    let take = |name: &str| tokio::task::unconstrained(semaphore.acquire(&namespace(name))).now_or_never();
    let mut held = Vec::new();
    for (name, expected) in [("a", 128), ("b", 64), ("c", 32), ("d", 16)] {
        let mut count = 0;
        while let Some(permit) = take(name) {
            held.push(permit);
            count += 1;
        }
        assert_eq!(count, expected, "{name}");
    }
    held.drain(..100);
    assert!(take("a").is_some());
    drop(held);
    let (mut held, mut count) = (Vec::new(), 0);
    while let Some(permit) = take("a") {
        held.push(permit);
        count += 1;
    }
    assert_eq!(count, 128);
}
