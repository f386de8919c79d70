//! A semaphore whose waiters take turns by namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Rotation;

/// The number of permits that one namespace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All permits.
    All,
    /// A further permit only while more permits are free than the namespace holds. One namespace alone holds
    /// at most half of the permits. As permits return, `n` busy namespaces approach one part in `n + 1` each,
    /// and one such part stays free for all others.
    AsFree,
}

/// A semaphore whose waiters take turns by namespace, and in order of arrival within a namespace.
#[derive(Debug)]
pub struct FairSemaphore {
    share: Share,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Number of permits by namespace, without zeros.
    held: BTreeMap<Arc<str>, usize>,
    waiting: Rotation<u64, oneshot::Sender<()>>,
    arrived: u64,
}

/// A permit. Dropping it hands it to the next waiter.
#[derive(Debug)]
pub struct FairPermit {
    semaphore: Arc<FairSemaphore>,
    namespace: Arc<str>,
}

impl FairSemaphore {
    /// Creates a semaphore of `permits`.
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
        // The sender is dropped only after a grant.
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
            // A waiter leaves under the lock before it drops its receiver, so the grant always arrives.
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

/// A caller that may stop waiting.
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
