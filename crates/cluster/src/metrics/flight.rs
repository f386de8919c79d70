//! Single flight. Equal queries share one request while the request is in flight and, if configured, for some time
//! after it was sent.
//!
//! A caller joins a request or receives its answer only if the request was sent at most `age` before the call. A second
//! request for the same key waits until the first request has ended or is at least a second old. A slow server
//! therefore does not receive more and more requests. Only the callers that joined a request receive its error.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, Ready, Shared, WeakShared, ready};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::call::SentTime;

/// A request, as a future of its answer.
pub type Flight<T, E> = BoxFuture<'static, Result<T, E>>;

/// An available answer, or the request that fetches it.
pub type SharedAnswer<T, E> = Either<Ready<Result<T, E>>, Shared<Flight<T, E>>>;

/// The minimum age of a request in flight at which a second request for the same key starts.
const PATIENCE: Duration = Duration::from_secs(1);

/// The requests in flight and the recent answers. Clones share both.
#[derive(Debug)]
pub struct Flights<K, T, E> {
    inner: Arc<Mutex<Entries<K, T, E>>>,
    /// The maximum age of an answer, counted from the sending of its request. With `None`, no answers are kept, and
    /// callers join every request in flight.
    age: Option<Duration>,
    /// Creates the error for the callers of a request that panicked.
    panicked: fn() -> E,
}

#[derive(Debug)]
struct Entries<K, T, E> {
    next: u64,
    by_key: BTreeMap<K, Entry<T, E>>,
}

/// The last request for a key.
#[derive(Debug)]
struct Entry<T, E> {
    id: u64,
    sent: SentTime,
    state: State<T, E>,
}

#[derive(Debug)]
enum State<T, E> {
    InFlight(WeakShared<Flight<T, E>>, CancellationToken),
    Answered(T),
}

impl<K, T, E> Clone for Flights<K, T, E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), age: self.age, panicked: self.panicked }
    }
}

impl<K, T, E> Flights<K, T, E> {
    /// Creates flights without requests. Answers are kept for `age`. `panicked` creates the error for the callers of a
    /// request that panicked.
    pub fn new(age: Option<Duration>, panicked: fn() -> E) -> Self {
        Self { inner: Arc::new(Mutex::new(Entries { next: 0, by_key: BTreeMap::new() })), age, panicked }
    }

    /// Returns the number of keys with a request in flight or an answer.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.inner.lock().by_key.len()
    }

    /// Returns whether an answer to a request sent at `sent` is fresh for a caller that accepts an age of at most
    /// `wanted`.
    fn is_fresh(&self, sent: &SentTime, now: Instant, wanted: Duration) -> bool {
        let age = self.age.map_or(wanted, |age| age.min(wanted));
        // A request that has not been sent yet will be sent after `now`.
        sent.at().is_none_or(|at| now.saturating_duration_since(at) <= age)
    }
}

impl<K, T, E> Flights<K, T, E>
where
    K: Ord + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Returns a recent answer, joins the request of an equal query, or starts a request. A request is cancelled when
    /// all its callers are dropped. `start` must set the `SentTime` that it receives.
    pub fn join(
        &self,
        key: K,
        start: impl FnOnce(SentTime) -> Flight<T, E> + Send + 'static,
    ) -> SharedAnswer<T, E> {
        self.join_within(key, Duration::MAX, start)
    }

    /// Like [`Self::join`], but accepts only answers to requests sent at most `wanted` ago, even if answers are kept
    /// for longer.
    pub fn join_within(
        &self,
        key: K,
        wanted: Duration,
        start: impl FnOnce(SentTime) -> Flight<T, E> + Send + 'static,
    ) -> SharedAnswer<T, E> {
        // `_stale` is declared before the lock, so that it is dropped after the lock. Dropping the last reference to a
        // flight takes the lock.
        let mut _stale = None;
        let mut previous = None;
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.by_key.get(&key) {
            let is_fresh = self.is_fresh(&entry.sent, Instant::now(), wanted);
            match &entry.state {
                State::Answered(answer) if is_fresh => return Either::Left(ready(Ok(answer.clone()))),
                State::Answered(_) => {}
                State::InFlight(flight, completed) => match flight.upgrade() {
                    Some(flight) if is_fresh => return Either::Right(flight),
                    Some(flight) => {
                        previous = Some((completed.clone(), self.join_deadline(&entry.sent, wanted)));
                        _stale = Some(flight);
                    }
                    None => {}
                },
            }
        }
        let id = inner.next;
        inner.next += 1;
        let (sent, completed) = (SentTime::default(), CancellationToken::new());
        let guard = FlightGuard { flights: self.clone(), key: key.clone(), id, completed: completed.clone() };
        let asked = sent.clone();
        let flight = async move {
            // The guard is moved as a whole, so that its `Drop` also runs when the request is cancelled.
            let guard = guard;
            if let Some((completed, until)) = previous {
                let _ = timeout_at(until, completed.cancelled()).await;
            }
            // Without `catch_unwind`, a panic would reach all callers.
            let request = AssertUnwindSafe(async move { start(asked).await });
            let result = request.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!("metrics request panicked; its callers receive an error");
                Err((guard.flights.panicked)())
            });
            if let Ok(answer) = &result {
                guard.keep(answer);
            }
            result
        }
        .boxed()
        .shared();
        if let Some(weak) = flight.downgrade() {
            inner.by_key.insert(key, Entry { id, sent, state: State::InFlight(weak, completed) });
        }
        Either::Right(flight)
    }

    /// Evicts answers that are too old for any later call. Returns whether an entry remains.
    pub fn sweep(&self, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        inner.by_key.retain(|_, entry| match entry.state {
            State::InFlight(..) => true,
            State::Answered(_) => self.is_fresh(&entry.sent, now, Duration::MAX),
        });
        !inner.by_key.is_empty()
    }

    /// Returns the time until which a second request waits for the end of the request sent at `sent`.
    fn join_deadline(&self, sent: &SentTime, wanted: Duration) -> Instant {
        let now = Instant::now();
        let patience = self.age.unwrap_or_default().min(wanted).max(PATIENCE);
        sent.at().unwrap_or(now).checked_add(patience).unwrap_or(now)
    }
}

/// On drop, signals the end of a request, and removes the request unless its answer is kept.
struct FlightGuard<K: Ord, T, E> {
    flights: Flights<K, T, E>,
    key: K,
    id: u64,
    completed: CancellationToken,
}

impl<K: Ord, T: Clone, E> FlightGuard<K, T, E> {
    /// Keeps the answer for later callers, unless a later request is in flight.
    fn keep(&self, answer: &T) {
        if self.flights.age.is_some()
            && let Some(entry) = self.flights.inner.lock().by_key.get_mut(&self.key)
            && entry.id == self.id
        {
            entry.state = State::Answered(answer.clone());
        }
    }
}

impl<K: Ord, T, E> Drop for FlightGuard<K, T, E> {
    fn drop(&mut self) {
        let mut inner = self.flights.inner.lock();
        let is_own = |entry: &Entry<T, E>| entry.id == self.id && matches!(entry.state, State::InFlight(..));
        if inner.by_key.get(&self.key).is_some_and(is_own) {
            inner.by_key.remove(&self.key);
        }
        drop(inner);
        self.completed.cancel();
    }
}

#[cfg(test)]
mod tests;
