//! A cache of reviews. Concurrent equal reviews share one request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use cluster::error::ApiError;

/// The maximum number of concurrent reviews, so that invalid tokens do not flood the API server.
const AT_ONCE: usize = 16;
/// The maximum number of cached results.
const MAX_CACHED: usize = 1024;

/// The SHA-256 digest of the input of a review. The cache does not contain the input, which may be a token.
type Key = [u8; 32];

/// The cached results of one kind of review.
#[derive(Debug)]
pub(super) struct Reviews<T> {
    entries: Mutex<BTreeMap<Key, Entry<T>>>,
    permits: Semaphore,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    /// The result. The first caller makes the review, and concurrent callers wait.
    answer: Arc<OnceCell<CachedAnswer<T>>>,
    since: Instant,
}

#[derive(Debug, Clone)]
struct CachedAnswer<T> {
    answer: T,
    until: Instant,
    /// Whether the token is valid or the action is allowed. The cache evicts results without this flag first.
    good: bool,
}

/// A result with its time to live, and the value of [`CachedAnswer::good`].
#[derive(Debug)]
pub(super) struct Reviewed<T> {
    pub(super) answer: T,
    pub(super) good: bool,
    pub(super) ttl: Duration,
}

impl<T: Clone> Reviews<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Returns the cached result for `question`, or makes a review with `ask`. Failures are not cached.
    pub(super) async fn get(
        &self,
        question: &[u8],
        ask: impl AsyncFnOnce() -> Result<Reviewed<T>, ApiError>,
    ) -> Result<T, ApiError> {
        let key = key(question);
        let cell = self.entry(key);
        let asked = cell
            .get_or_try_init(async || {
                // The semaphore is never closed.
                let _permit = self.permits.acquire().await.ok();
                let Reviewed { answer, good, ttl } = ask().await?;
                let now = Instant::now();
                // A large value of the flag for the time to live may overflow the clock.
                let until = now.checked_add(ttl).unwrap_or(now + Duration::from_hours(24));
                Ok::<_, ApiError>(CachedAnswer { answer, until, good })
            })
            .await;
        match asked {
            Ok(held) => Ok(held.answer.clone()),
            Err(error) => {
                self.forget(key, &cell);
                Err(error)
            }
        }
    }

    fn entry(&self, key: Key) -> Arc<OnceCell<CachedAnswer<T>>> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&key)
            && entry.answer.get().is_none_or(|held| now < held.until)
        {
            return Arc::clone(&entry.answer);
        }
        entries.remove(&key);
        if entries.len() >= MAX_CACHED {
            entries.retain(|_, entry| entry.answer.get().is_none_or(|held| now < held.until));
        }
        if entries.len() >= MAX_CACHED {
            let worst = entries
                .iter()
                .min_by_key(|(_, entry)| (entry.answer.get().is_some_and(|held| held.good), entry.since))
                .map(|(key, _)| *key);
            worst.map(|worst| entries.remove(&worst));
        }
        let entry = Entry { answer: Arc::default(), since: now };
        let answer = Arc::clone(&entry.answer);
        entries.insert(key, entry);
        answer
    }

    fn forget(&self, key: Key, cell: &Arc<OnceCell<CachedAnswer<T>>>) {
        let mut entries = self.entries.lock();
        // The entry remains if a concurrent caller has succeeded.
        if entries.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, cell) && cell.get().is_none()) {
            entries.remove(&key);
        }
    }
}

fn key(question: &[u8]) -> Key {
    let mut key = Key::default();
    key.iter_mut().zip(digest(&SHA256, question).as_ref()).for_each(|(to, from)| *to = *from);
    key
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn reviewed(answer: usize, good: bool) -> Reviewed<usize> {
        Reviewed { answer, good, ttl: TTL }
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_cached_until_its_ttl_ends() {
        let (reviews, asked) = (Reviews::new(), AtomicUsize::new(0));
        let ask = async || Ok(reviewed(asked.fetch_add(1, Ordering::Relaxed), true));
        assert_eq!(reviews.get(b"a", ask).await.unwrap(), 0);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(reviews.get(b"a", ask).await.unwrap(), 0);
        assert_eq!(reviews.get(b"b", ask).await.unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(reviews.get(b"a", ask).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_equal_questions_are_reviewed_once() {
        let (reviews, asked) = (Reviews::new(), AtomicUsize::new(0));
        let ask = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(reviewed(asked.fetch_add(1, Ordering::Relaxed), true))
        };
        let (first, second) = tokio::join!(reviews.get(b"a", ask), reviews.get(b"a", ask));
        assert_eq!((first.unwrap(), second.unwrap()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_review_is_not_cached() {
        let reviews = Reviews::new();
        let failed = reviews.get(b"a", async || Err(ApiError::Request("down".into()))).await;
        assert!(failed.is_err());
        assert_eq!(reviews.get(b"a", async || Ok(reviewed(7, true))).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn invented_tokens_do_not_evict_granted_answers() {
        let reviews = Reviews::new();
        reviews.get(b"good", async || Ok(reviewed(1, true))).await.unwrap();
        for number in 0..2 * MAX_CACHED {
            reviews.get(format!("{number}").as_bytes(), async || Ok(reviewed(0, false))).await.unwrap();
        }
        assert_eq!(reviews.entries.lock().len(), MAX_CACHED);
        let again = reviews.get(b"good", async || Ok(reviewed(2, true))).await.unwrap();
        assert_eq!(again, 1, "the answer is still cached");
    }
}
