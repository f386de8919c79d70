//! A value that is fetched when somebody asks for it and kept for a while, by one fetch at a time.
//!
//! Whoever waited for the fetch of another gets what came out of it, even if that is an error: a server that hangs keeps
//! everybody waiting once, and not one after the other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The value, and the fetch under way.
#[derive(Debug)]
pub(super) struct Fresh<T, E> {
    state: Mutex<State<T, E>>,
    /// Held while somebody fetches.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T, E> {
    known: Option<(Instant, T)>,
    /// Why the last fetch failed, if it did, and when.
    failed: Option<(Instant, E)>,
    /// How many fetches have ended.
    fetches: u64,
}

/// A fetch that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed<T, E> {
    /// Why.
    pub(super) error: E,
    /// What was known before, however old.
    pub(super) known: Option<T>,
}

impl<T, E> Default for Fresh<T, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { known: None, failed: None, fetches: 0 }),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<T: Clone, E: Clone> Fresh<T, E> {
    /// What was fetched within `life`, or is fetched now.
    pub(super) async fn get(
        &self,
        life: Duration,
        fetch: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<T, Failed<T, E>> {
        let seen = {
            let state = self.state();
            match &state.known {
                Some((at, value)) if at.elapsed() < life => return Ok(value.clone()),
                _ => state.fetches,
            }
        };
        let _turn = self.turn.lock().await;
        {
            let state = self.state();
            match (&state.failed, state.value()) {
                _ if state.fetches == seen => {}
                (Some((_, error)), known) => return Err(Failed { error: error.clone(), known }),
                (None, Some(value)) => return Ok(value),
                (None, None) => {}
            }
        }
        let fetched = fetch().await;
        let mut state = self.state();
        state.fetches += 1;
        match fetched {
            Ok(value) => {
                state.known = Some((Instant::now(), value.clone()));
                state.failed = None;
                Ok(value)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(Failed { error, known: state.value() })
            }
        }
    }

    /// What is known, if it is fetched right now, or if that failed less than `pause` ago: not the newest, but at once.
    pub(super) fn meanwhile(&self, pause: Duration) -> Option<T> {
        let state = self.state();
        let paused = state.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < pause);
        let (_, value) = state.known.as_ref().filter(|_| paused || self.turn.try_lock().is_err())?;
        Some(value.clone())
    }

    fn state(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone, E> State<T, E> {
    fn value(&self) -> Option<T> {
        self.known.as_ref().map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::sleep;

    use super::*;

    const LIFE: Duration = Duration::from_secs(30);

    struct Source {
        fresh: Fresh<u32, &'static str>,
        fetches: AtomicU32,
    }

    impl Source {
        fn new() -> Self {
            Self { fresh: Fresh::default(), fetches: AtomicU32::new(0) }
        }

        /// A fetch takes ten seconds.
        async fn get(&self, works: bool) -> Result<u32, Failed<u32, &'static str>> {
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
    async fn a_value_is_fetched_once_for_all_who_ask_and_again_when_it_is_old() {
        let source = Source::new();
        let all = futures::future::join_all((0..5).map(|_| source.get(true))).await;
        assert!(all.iter().all(|value| *value == Ok(0)));
        sleep(LIFE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!((source.get(true).await, source.fetches()), (Ok(0), 1));
        sleep(Duration::from_millis(1)).await;
        assert_eq!((source.get(true).await, source.fetches()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_fetch_that_fails_does_not_wait_for_another() {
        let source = Source::new();
        let start = Instant::now();
        let all = futures::future::join_all((0..50).map(|_| source.get(false))).await;
        assert!(all.iter().all(|value| *value == Err(Failed { error: "down", known: None })));
        assert_eq!((start.elapsed(), source.fetches()), (Duration::from_secs(10), 1));
        assert_eq!((source.get(true).await, source.fetches()), (Ok(1), 2), "later ones ask anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_is_given_up_is_made_by_the_next_in_line() {
        let source = Source::new();
        let first = tokio::time::timeout(Duration::from_secs(1), source.get(true));
        let (first, second) = futures::join!(first, source.get(true));
        assert!(first.is_err());
        assert_eq!((second, source.fetches()), (Ok(1), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_known_serves_while_it_is_fetched_anew_and_for_a_pause_after_that_failed() {
        let source = Source::new();
        let pause = Duration::from_secs(5);
        assert_eq!(source.fresh.meanwhile(pause), None);
        source.get(true).await.unwrap();
        sleep(LIFE).await;
        assert_eq!(source.fresh.meanwhile(pause), None, "nobody fetches");
        let refresh = source.get(false);
        let look = async {
            sleep(Duration::from_secs(1)).await;
            source.fresh.meanwhile(pause)
        };
        let (refreshed, seen) = futures::join!(refresh, look);
        assert_eq!((refreshed, seen), (Err(Failed { error: "down", known: Some(0) }), Some(0)));
        assert_eq!(source.fresh.meanwhile(pause), Some(0));
        sleep(pause).await;
        assert_eq!(source.fresh.meanwhile(pause), None);
    }
}
