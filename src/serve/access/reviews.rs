//! Answers of the API server that hold for a while: equal questions are asked once, and not more than a few at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use crate::api::error::ApiError;

/// Questions under way at once. Whoever makes up tokens does not flood the API server.
const AT_ONCE: usize = 16;
/// Answers that are kept.
const KEPT: usize = 1024;

/// What a question is known by: what was asked is not kept, as it may be a token.
type Key = [u8; 32];

/// The answers.
#[derive(Debug)]
pub(super) struct Reviews<T> {
    entries: Mutex<BTreeMap<Key, Entry<T>>>,
    places: Semaphore,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    /// Filled by the first who asks; the others wait for it.
    answer: Arc<OnceCell<Held<T>>>,
    since: Instant,
}

#[derive(Debug, Clone)]
struct Held<T> {
    answer: T,
    until: Instant,
    /// Whether it lets somebody in. The others go first when there is no room.
    good: bool,
}

/// An answer with how long it holds.
#[derive(Debug)]
pub(super) struct Reviewed<T> {
    pub(super) answer: T,
    pub(super) good: bool,
    pub(super) ttl: Duration,
}

impl<T: Clone> Reviews<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), places: Semaphore::new(AT_ONCE) }
    }

    /// The answer that still holds, or a new one. Failures are not kept.
    pub(super) async fn get(
        &self,
        question: &[u8],
        ask: impl AsyncFnOnce() -> Result<Reviewed<T>, ApiError>,
    ) -> Result<T, ApiError> {
        let key = key(question);
        let cell = self.entry(key);
        let asked = cell
            .get_or_try_init(async || {
                // Never closed.
                let _place = self.places.acquire().await.ok();
                let Reviewed { answer, good, ttl } = ask().await?;
                let now = Instant::now();
                // A flag may hold more than a clock can.
                let until = now.checked_add(ttl).unwrap_or(now + Duration::from_hours(24));
                Ok::<_, ApiError>(Held { answer, until, good })
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

    fn entry(&self, key: Key) -> Arc<OnceCell<Held<T>>> {
        let now = Instant::now();
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&key)
            && entry.answer.get().is_none_or(|held| now < held.until)
        {
            return Arc::clone(&entry.answer);
        }
        entries.remove(&key);
        if entries.len() >= KEPT {
            entries.retain(|_, entry| entry.answer.get().is_none_or(|held| now < held.until));
        }
        if entries.len() >= KEPT {
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

    fn forget(&self, key: Key, cell: &Arc<OnceCell<Held<T>>>) {
        let mut entries = self.lock();
        // Another could have been answered meanwhile.
        if entries.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.answer, cell) && cell.get().is_none()) {
            entries.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(question: &[u8]) -> Key {
    let mut key = Key::default();
    // A digest of SHA-256 has these 32 bytes.
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
    async fn an_answer_holds_for_its_time() {
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
    async fn equal_questions_at_once_are_asked_once() {
        let (reviews, asked) = (Reviews::new(), AtomicUsize::new(0));
        let ask = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(reviewed(asked.fetch_add(1, Ordering::Relaxed), true))
        };
        let (first, second) = tokio::join!(reviews.get(b"a", ask), reviews.get(b"a", ask));
        assert_eq!((first.unwrap(), second.unwrap()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_not_kept() {
        let reviews = Reviews::new();
        let failed = reviews.get(b"a", async || Err(ApiError::Request("down".into()))).await;
        assert!(failed.is_err());
        assert_eq!(reviews.get(b"a", async || Ok(reviewed(7, true))).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_tokens_do_not_push_out_good_ones() {
        let reviews = Reviews::new();
        reviews.get(b"good", async || Ok(reviewed(1, true))).await.unwrap();
        for number in 0..2 * KEPT {
            reviews.get(format!("{number}").as_bytes(), async || Ok(reviewed(0, false))).await.unwrap();
        }
        assert_eq!(reviews.lock().len(), KEPT);
        let again = reviews.get(b"good", async || Ok(reviewed(2, true))).await.unwrap();
        assert_eq!(again, 1, "it is still known");
    }
}
