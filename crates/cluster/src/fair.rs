//! Fairness between namespaces. Namespaces take turns at a limited resource.
//!
//! Within a namespace, items are ordered by position. Namespaces are served round robin. After its turn, a namespace
//! moves behind all other namespaces of its rank. Without contention, items are served in order of arrival. An idle
//! namespace keeps no state.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A queue in which namespaces take turns. `P` is the position of an item within its namespace. Operations take
/// logarithmic time, except for [`Rotation::pop_where`] and [`Rotation::drain`].
#[derive(Debug)]
pub struct Rotation<P, T> {
    namespaces: BTreeMap<Arc<str>, Line<P, T>>,
    turns: BTreeMap<Turn, Arc<str>>,
    next: u64,
    len: usize,
}

/// The items of one namespace.
#[derive(Debug)]
struct Line<P, T> {
    turn: Turn,
    items: BTreeMap<P, T>,
}

/// The place of a namespace in the rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Namespaces of a lower rank come first.
    pub rank: u64,
    /// The order in which namespaces joined the end of the rotation.
    pub number: u64,
}

impl<P, T> Default for Rotation<P, T> {
    fn default() -> Self {
        Self { namespaces: BTreeMap::new(), turns: BTreeMap::new(), next: 0, len: 0 }
    }
}

impl<P: Ord + Copy, T> Rotation<P, T> {
    /// Adds an item. A namespace without items joins the end of `rank`. A namespace with items keeps its turn.
    pub fn insert(&mut self, namespace: &Arc<str>, rank: u64, position: P, item: T) {
        if let Some(line) = self.namespaces.get_mut(namespace) {
            self.len += usize::from(line.items.insert(position, item).is_none());
            return;
        }
        let turn = Turn { rank, number: self.next };
        self.next += 1;
        self.len += 1;
        self.turns.insert(turn, Arc::clone(namespace));
        let line = Line { turn, items: BTreeMap::from([(position, item)]) };
        self.namespaces.insert(Arc::clone(namespace), line);
    }

    /// Removes an item, if it is present.
    pub fn remove(&mut self, namespace: &str, position: &P) -> Option<T> {
        let line = self.namespaces.get_mut(namespace)?;
        let item = line.items.remove(position)?;
        self.len -= 1;
        if line.items.is_empty() {
            let turn = line.turn;
            self.turns.remove(&turn);
            self.namespaces.remove(namespace);
        }
        Some(item)
    }

    /// Returns the item at a position.
    pub fn get_mut(&mut self, namespace: &str, position: &P) -> Option<&mut T> {
        self.namespaces.get_mut(namespace)?.items.get_mut(position)
    }

    /// Returns the turn of the first namespace.
    pub fn first(&self) -> Option<Turn> {
        self.turns.first_key_value().map(|(turn, _)| *turn)
    }

    /// Removes and returns the first item of the first namespace. The namespace moves to the end of its rank.
    pub fn pop(&mut self) -> Option<(Arc<str>, P, T)> {
        self.pop_where(|_| true)
    }

    /// Removes and returns the first item of the first namespace. The namespace keeps its turn.
    pub fn pop_in_turn(&mut self) -> Option<(Arc<str>, P, T)> {
        let namespace = self.turns.first_key_value()?.1;
        let position = *self.namespaces.get(namespace)?.items.first_key_value()?.0;
        let namespace = Arc::clone(namespace);
        let item = self.remove(&namespace, &position)?;
        Some((namespace, position, item))
    }

    /// Like [`Self::pop`], but skips namespaces for which `accepts` is false. Takes time in proportion to the number of
    /// skipped namespaces.
    pub fn pop_where(&mut self, accepts: impl Fn(&str) -> bool) -> Option<(Arc<str>, P, T)> {
        let turn = *self.turns.iter().find(|(_, namespace)| accepts(namespace))?.0;
        let namespace = self.turns.remove(&turn)?;
        let line = self.namespaces.get_mut(&namespace)?;
        let (position, item) = line.items.pop_first()?;
        self.len -= 1;
        if line.items.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            line.turn = Turn { number: self.next, ..turn };
            self.next += 1;
            self.turns.insert(line.turn, Arc::clone(&namespace));
        }
        Some((namespace, position, item))
    }

    /// Changes the rank of a namespace, if it has items.
    pub fn set_rank(&mut self, namespace: &str, rank: u64) {
        if let Some(line) = self.namespaces.get_mut(namespace)
            && let Some(namespace) = self.turns.remove(&line.turn)
        {
            line.turn.rank = rank;
            self.turns.insert(line.turn, namespace);
        }
    }

    /// Returns the number of the next turn. All existing turns have a lower number.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes and returns all items.
    pub fn drain(&mut self) -> impl Iterator<Item = (P, T)> + use<P, T> {
        self.turns.clear();
        self.len = 0;
        std::mem::take(&mut self.namespaces).into_values().flat_map(|line| line.items)
    }
}

/// The limit on the permits of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A namespace may hold all permits.
    All,
    /// A namespace gets another permit only while more permits are free than the namespace holds. A single busy
    /// namespace holds at most half of the permits, rounded up. As permits return, the share of each of `n` busy
    /// namespaces approaches 1 / (`n` + 1). A share of the same size stays free for other namespaces.
    AsFree,
}

/// A semaphore at which namespaces take turns. Callers of one namespace receive permits in order of arrival.
#[derive(Debug)]
pub struct FairSemaphore {
    share: Share,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The number of permits by namespace. Namespaces without permits have no entry.
    held: BTreeMap<Arc<str>, usize>,
    waiting: Rotation<u64, oneshot::Sender<()>>,
    arrived: u64,
}

/// A permit, which returns to the semaphore on drop.
#[derive(Debug)]
pub struct FairPermit {
    semaphore: Arc<FairSemaphore>,
    namespace: Arc<str>,
}

impl FairSemaphore {
    /// Creates a semaphore with `permits` permits.
    pub fn new(permits: usize, share: Share) -> Self {
        let state = State { free: permits, held: BTreeMap::new(), waiting: Rotation::default(), arrived: 0 };
        Self { share, state: Mutex::new(state) }
    }

    /// Waits for a permit on behalf of a namespace.
    pub async fn acquire(self: &Arc<Self>, namespace: &Arc<str>) -> FairPermit {
        let (grant, granted) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            state.arrived += 1;
            let number = state.arrived;
            state.waiting.insert(namespace, 0, number, grant);
            state.hand_out(self.share);
            number
        };
        let waiter = Waiter { semaphore: self, namespace, number };
        // The sender is dropped only after it has sent a grant.
        let _ = granted.await;
        std::mem::forget(waiter);
        FairPermit { semaphore: Arc::clone(self), namespace: Arc::clone(namespace) }
    }
}

impl State {
    fn hand_out(&mut self, share: Share) {
        while self.free > 0 {
            let (free, held) = (self.free, &self.held);
            let accepts =
                |namespace: &str| share == Share::All || held.get(namespace).is_none_or(|held| *held < free);
            let Some((namespace, _, grant)) = self.waiting.pop_where(accepts) else { return };
            self.free -= 1;
            *self.held.entry(namespace).or_default() += 1;
            // A waiter is removed from the queue under the lock before its receiver is dropped, so the grant always
            // arrives.
            let _ = grant.send(());
        }
    }

    fn release(&mut self, namespace: &str, share: Share) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(namespace);
            }
        }
        self.hand_out(share);
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        self.semaphore.state.lock().release(&self.namespace, self.semaphore.share);
    }
}

/// A waiting caller. On drop, the caller is removed from the queue, or its granted permit returns to the semaphore.
struct Waiter<'a> {
    semaphore: &'a FairSemaphore,
    namespace: &'a Arc<str>,
    number: u64,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.semaphore.state.lock();
        if state.waiting.remove(self.namespace, &self.number).is_none() {
            state.release(self.namespace, self.semaphore.share);
        }
    }
}

#[cfg(test)]
mod tests {
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
        let take =
            |name: &str| tokio::task::unconstrained(semaphore.acquire(&namespace(name))).now_or_never();
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
}
