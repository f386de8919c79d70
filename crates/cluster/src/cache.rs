//! Caches: a value that is fetched on demand, and a map that evicts the least recently used entry.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A cached value with a limited lifetime. At most one fetch is in flight at a time.
///
/// Callers that wait for a fetch share its result, including an error. A server that hangs therefore delays all callers
/// at the same time, not sequentially.
#[derive(Debug)]
pub(super) struct CachedFetch<T, E> {
    state: Mutex<State<T, E>>,
    /// Locked during a fetch.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T, E> {
    cached: Option<(Instant, T)>,
    /// Time and error of the last completed fetch. `None` unless that fetch failed.
    failed: Option<(Instant, E)>,
    /// The number of completed fetches.
    fetches: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FetchFailure<T, E> {
    pub(super) error: E,
    /// The cached value, of any age.
    pub(super) cached: Option<T>,
}

impl<T, E> Default for CachedFetch<T, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { cached: None, failed: None, fetches: 0 }),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<T: Clone, E: Clone> CachedFetch<T, E> {
    /// Returns the cached value if its age is below `life`. Otherwise fetches a value, or waits for the fetch in
    /// flight.
    pub(super) async fn get(
        &self,
        life: Duration,
        fetch: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, FetchFailure<T, E>> {
        let fetches_before = {
            let state = self.state.lock();
            match &state.cached {
                Some((at, value)) if at.elapsed() < life => return Ok(value.clone()),
                _ => state.fetches,
            }
        };
        let _turn = self.turn.lock().await;
        {
            let state = self.state.lock();
            match (&state.failed, state.value()) {
                _ if state.fetches == fetches_before => {}
                (Some((_, error)), cached) => return Err(FetchFailure { error: error.clone(), cached }),
                (None, Some(value)) => return Ok(value),
                (None, None) => {}
            }
        }
        let fetched = fetch().await;
        let mut state = self.state.lock();
        state.fetches += 1;
        match fetched {
            Ok(value) => {
                state.cached = Some((Instant::now(), value.clone()));
                state.failed = None;
                Ok(value)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(FetchFailure { error, cached: state.value() })
            }
        }
    }

    /// Returns the cached value, of any age, while a fetch is in flight, or less than `pause` after a failed fetch.
    pub(super) fn meanwhile(&self, pause: Duration) -> Option<T> {
        let state = self.state.lock();
        let paused = state.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < pause);
        let (_, value) = state.cached.as_ref().filter(|_| paused || self.turn.try_lock().is_err())?;
        Some(value.clone())
    }
}

impl<T: Clone, E> State<T, E> {
    fn value(&self) -> Option<T> {
        self.cached.as_ref().map(|(_, value)| value.clone())
    }
}

/// A map of at most `capacity` entries. The map is ordered, which allows the removal of a range of keys.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    uses: u64,
    entries: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Returns the value of a key, created if absent. Counts as a use.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.touch(key);
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (0, make()));
        entry.0 = self.uses;
        &mut entry.1
    }

    /// Counts a use of a key. Evicts an entry if the key is new and the map is full.
    fn touch(&mut self, key: &K) {
        self.uses += 1;
        if let Some((used, _)) = self.entries.get(key) {
            self.by_use.remove(used);
        } else if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.by_use.insert(self.uses, key.clone());
    }

    /// Returns the value of a key. Does not count as a use.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Sets the value of a key. Counts as a use.
    pub(crate) fn insert(&mut self, key: &K, value: V) {
        self.touch(key);
        self.entries.insert(key.clone(), (self.uses, value));
    }

    /// Removes `first` and the keys that follow it in order, up to the first key for which `belongs` is false.
    pub(crate) fn remove_from(&mut self, first: &K, belongs: impl Fn(&K) -> bool) {
        let keys = self.entries.range(first..).map(|(key, _)| key).take_while(|key| belongs(key));
        for key in keys.cloned().collect::<Vec<_>>() {
            if let Some((used, _)) = self.entries.remove(&key) {
                self.by_use.remove(&used);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.by_use.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::sleep;

    use super::*;

    const LIFE: Duration = Duration::from_secs(30);

    struct Source {
        fresh: CachedFetch<u32, &'static str>,
        fetches: AtomicU32,
    }

    impl Source {
        fn new() -> Self {
            Self { fresh: CachedFetch::default(), fetches: AtomicU32::new(0) }
        }

        /// Gets the value with a fetch that takes ten seconds.
        async fn get(&self, works: bool) -> Result<u32, FetchFailure<u32, &'static str>> {
            self.fresh
                .get(LIFE, async || {
                    let n = self.fetches.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(10)).await;
                    if works { Ok(n) } else { Err("down") }
                })
                .await
        }

        fn fetches(&self) -> u32 {
            self.fetches.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_fetched_once_for_all_callers_and_again_when_stale() {
        let source = Source::new();
        let all = futures::future::join_all((0..5).map(|_| source.get(true))).await;
        assert!(all.iter().all(|value| *value == Ok(0)));
        sleep(LIFE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!((source.get(true).await, source.fetches()), (Ok(0), 1));
        sleep(Duration::from_millis(1)).await;
        assert_eq!((source.get(true).await, source.fetches()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_a_failed_fetch() {
        let source = Source::new();
        let start = Instant::now();
        let all = futures::future::join_all((0..50).map(|_| source.get(false))).await;
        assert!(all.iter().all(|value| *value == Err(FetchFailure { error: "down", cached: None })));
        assert_eq!((start.elapsed(), source.fetches()), (Duration::from_secs(10), 1));
        assert_eq!((source.get(true).await, source.fetches()), (Ok(1), 2), "later callers fetch again");
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_fetch_is_repeated_by_the_next_caller() {
        let source = Source::new();
        let first = tokio::time::timeout(Duration::from_secs(1), source.get(true));
        let (first, second) = futures::join!(first, source.get(true));
        assert!(first.is_err());
        assert_eq!((second, source.fetches()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn stale_value_serves_during_a_fetch_and_a_pause_after_its_failure() {
        let source = Source::new();
        let pause = Duration::from_secs(5);
        assert_eq!(source.fresh.meanwhile(pause), None);
        source.get(true).await.unwrap();
        sleep(LIFE).await;
        assert_eq!(source.fresh.meanwhile(pause), None, "no fetch is in flight");
        let refresh = source.get(false);
        let read = async {
            sleep(Duration::from_secs(1)).await;
            source.fresh.meanwhile(pause)
        };
        let (refreshed, served) = futures::join!(refresh, read);
        assert_eq!((refreshed, served), (Err(FetchFailure { error: "down", cached: Some(0) }), Some(0)));
        assert_eq!(source.fresh.meanwhile(pause), Some(0));
        sleep(pause).await;
        assert_eq!(source.fresh.meanwhile(pause), None);
    }

    #[test]
    fn least_recently_used_entry_is_evicted_first() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with(&"a", || 1) += 10;
        lru.get_or_insert_with(&"b", || 2);
        lru.get_or_insert_with(&"a", || 0);
        lru.get_or_insert_with(&"c", || 3);
        assert_eq!(lru.len(), 2);
        assert_eq!(*lru.get_or_insert_with(&"a", || 0), 11);
        assert_eq!(*lru.get_or_insert_with(&"b", || 7), 7, "was forgotten");
        lru.insert(&"a", 1);
        lru.insert(&"d", 4);
        assert_eq!((lru.get(&"a"), lru.get(&"b"), lru.get(&"d")), (Some(&1), None, Some(&4)));
        lru.clear();
        assert_eq!((lru.len(), lru.by_use.len()), (0, 0));
    }

    #[test]
    fn range_removal_leaves_no_trace_of_its_keys() {
        let mut lru = Lru::new(6);
        for key in ["a", "b1", "b2", "b3", "c", "b"] {
            lru.insert(&key, key.len());
        }
        lru.remove_from(&"b1", |key| key.starts_with('b'));
        assert_eq!((lru.len(), lru.by_use.len()), (3, 3));
        assert_eq!((lru.get(&"a"), lru.get(&"b"), lru.get(&"b2")), (Some(&1), Some(&1), None));
        lru.remove_from(&"d", |_| true);
        assert_eq!(lru.len(), 3);
    }
}
