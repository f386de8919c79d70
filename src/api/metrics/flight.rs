//! Single flight: equal queries share one request, while it is under way and, if wanted, for a while after it was sent.
//!
//! What is shared was asked for at most an age before whoever gets it asked: a request that was sent earlier than that is
//! not joined. A second one beside it begins only when it has ended or is old itself, so that a slow server is not asked
//! ever more often. Errors go to those who joined, and to nobody who comes later.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, Ready, Shared, WeakShared, ready};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::api::call::Sent;

/// A request with what becomes of its answer.
pub(super) type Flight<T, E> = BoxFuture<'static, Result<T, E>>;

/// An answer that is there, or a request that brings it.
pub(super) type Joined<T, E> = Either<Ready<Result<T, E>>, Shared<Flight<T, E>>>;

/// How old a request under way is at least when another one for the same begins.
const PATIENCE: Duration = Duration::from_secs(1);

/// The requests under way, and what was answered a moment ago. Clones share them.
#[derive(Debug)]
pub(super) struct Flights<K, T, E> {
    known: Arc<Mutex<Known<K, T, E>>>,
    /// How long before somebody asks his answer may have been asked for; without it, answers are not kept and whatever
    /// is under way is joined.
    age: Option<Duration>,
    /// What those are told whose request panicked.
    panicked: fn() -> E,
}

#[derive(Debug)]
struct Known<K, T, E> {
    next: u64,
    by_key: BTreeMap<K, Entry<T, E>>,
}

/// The last request for a key.
#[derive(Debug)]
struct Entry<T, E> {
    id: u64,
    sent: Sent,
    state: State<T, E>,
}

#[derive(Debug)]
enum State<T, E> {
    UnderWay(WeakShared<Flight<T, E>>, CancellationToken),
    Landed(T),
}

impl<K, T, E> Clone for Flights<K, T, E> {
    fn clone(&self) -> Self {
        Self { known: Arc::clone(&self.known), age: self.age, panicked: self.panicked }
    }
}

impl<K, T, E> Flights<K, T, E> {
    pub(super) fn new(age: Option<Duration>, panicked: fn() -> E) -> Self {
        Self { known: Arc::new(Mutex::new(Known { next: 0, by_key: BTreeMap::new() })), age, panicked }
    }

    /// For how many keys something is under way or known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    fn lock(&self) -> MutexGuard<'_, Known<K, T, E>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was asked for then is new enough now.
    fn is_fresh(&self, sent: &Sent, now: Instant) -> bool {
        match (self.age, sent.at()) {
            // What is not sent yet will be sent later than now.
            (None, _) | (_, None) => true,
            (Some(age), Some(at)) => now.saturating_duration_since(at) <= age,
        }
    }
}

impl<K, T, E> Flights<K, T, E>
where
    K: Ord + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Takes what was answered, joins the request of an equal query, or begins one. A request ends early if all who
    /// joined have gone. The request says when it was sent.
    pub(super) fn join(
        &self,
        key: K,
        begin: impl FnOnce(Sent) -> Flight<T, E> + Send + 'static,
    ) -> Joined<T, E> {
        // Let go after the lock, as the last to let go of a flight forgets it.
        let mut _too_old = None;
        let mut before = None;
        let mut known = self.lock();
        if let Some(entry) = known.by_key.get(&key) {
            let is_fresh = self.is_fresh(&entry.sent, Instant::now());
            match &entry.state {
                State::Landed(answer) if is_fresh => return Either::Left(ready(Ok(answer.clone()))),
                State::Landed(_) => {}
                State::UnderWay(flight, landed) => match flight.upgrade() {
                    Some(flight) if is_fresh => return Either::Right(flight),
                    Some(flight) => {
                        before = Some((landed.clone(), self.patience(&entry.sent)));
                        _too_old = Some(flight);
                    }
                    None => {}
                },
            }
        }
        let id = known.next;
        known.next += 1;
        let (sent, landed) = (Sent::default(), CancellationToken::new());
        let landing = Landing { flights: self.clone(), key: key.clone(), id, landed: landed.clone() };
        let asked = sent.clone();
        let flight = async move {
            // Moved in whole, so that it also runs when the flight is abandoned.
            let landing = landing;
            if let Some((landed, until)) = before {
                let _ = timeout_at(until, landed.cancelled()).await;
            }
            // A panic would reach everybody who joined, and those who join while they are still being told.
            let request = AssertUnwindSafe(async move { begin(asked).await });
            let result = request.catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!("the request for a metric panicked; those who asked are told of an error");
                Err((landing.flights.panicked)())
            });
            if let Ok(answer) = &result {
                landing.keep(answer);
            }
            result
        }
        .boxed()
        .shared();
        if let Some(weak) = flight.downgrade() {
            known.by_key.insert(key, Entry { id, sent, state: State::UnderWay(weak, landed) });
        }
        Either::Right(flight)
    }

    /// Forgets answers that are too old for whoever asks from now on. Whether anything is left.
    pub(super) fn sweep(&self, now: Instant) -> bool {
        let mut known = self.lock();
        known.by_key.retain(|_, entry| match entry.state {
            State::UnderWay(..) => true,
            State::Landed(_) => self.is_fresh(&entry.sent, now),
        });
        !known.by_key.is_empty()
    }

    /// Until when a second request waits for one that was sent then.
    fn patience(&self, sent: &Sent) -> Instant {
        let now = Instant::now();
        let patience = self.age.unwrap_or_default().max(PATIENCE);
        sent.at().unwrap_or(now).checked_add(patience).unwrap_or(now)
    }
}

/// Forgets a request when it has failed or was abandoned.
struct Landing<K: Ord, T, E> {
    flights: Flights<K, T, E>,
    key: K,
    id: u64,
    landed: CancellationToken,
}

impl<K: Ord, T: Clone, E> Landing<K, T, E> {
    /// Keeps the answer for those who come later, unless a later request is under way.
    fn keep(&self, answer: &T) {
        if self.flights.age.is_some()
            && let Some(entry) = self.flights.lock().by_key.get_mut(&self.key)
            && entry.id == self.id
        {
            entry.state = State::Landed(answer.clone());
        }
    }
}

impl<K: Ord, T, E> Drop for Landing<K, T, E> {
    fn drop(&mut self) {
        let mut known = self.flights.lock();
        let is_own = |entry: &Entry<T, E>| entry.id == self.id && matches!(entry.state, State::UnderWay(..));
        if known.by_key.get(&self.key).is_some_and(is_own) {
            known.by_key.remove(&self.key);
        }
        drop(known);
        self.landed.cancel();
    }
}

#[cfg(test)]
mod tests;
