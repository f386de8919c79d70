//! One token bucket per client, as kube-controller-manager has (`--kube-api-qps`, `--kube-api-burst`).
//!
//! A request reserves its token when it asks and then waits for it, so requests leave in the order in which they
//! asked. Time is tokio's: under virtual time nothing is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket that is refilled continuously. Cheap to clone; clones share the bucket.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    state: Arc<Mutex<State>>,
    per_second: f64,
    burst: f64,
}

#[derive(Debug)]
struct State {
    /// Tokens at `at`; negative while requests wait for tokens that they have reserved.
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, refilled with `per_second`; `None` (no limit) unless both are above zero,
    /// as a QPS of zero or less switches the limit off.
    pub fn new(per_second: f32, burst: u32) -> Option<Self> {
        (per_second > 0.0 && burst > 0).then(|| {
            let burst = f64::from(burst);
            Self {
                state: Arc::new(Mutex::new(State { tokens: burst, at: Instant::now() })),
                per_second: f64::from(per_second),
                burst,
            }
        })
    }

    /// Takes one token, waiting for it if need be. A caller that stops waiting gives its token back.
    pub async fn take(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            let reservation = Reservation { bucket: self };
            tokio::time::sleep(wait).await;
            std::mem::forget(reservation);
        }
    }

    fn reserve(&self, now: Instant) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.saturating_duration_since(state.at).as_secs_f64();
        state.tokens = elapsed.mul_add(self.per_second, state.tokens).min(self.burst) - 1.0;
        state.at = now;
        if state.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-state.tokens / self.per_second).unwrap_or(Duration::MAX)
    }
}

/// A token that is waited for.
struct Reservation<'a> {
    bucket: &'a TokenBucket,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.bucket.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tokens = (state.tokens + 1.0).min(self.bucket.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_burst_passes_at_once_and_the_rest_at_the_rate() {
        let bucket = TokenBucket::new(20.0, 30).unwrap();
        let start = Instant::now();
        for _ in 0..30 {
            bucket.take().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.take().await;
        }
        let elapsed = start.elapsed();
        assert!(
            elapsed >= Duration::from_millis(999) && elapsed < Duration::from_millis(1_050),
            "{elapsed:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_leave_in_the_order_in_which_they_asked() {
        let bucket = TokenBucket::new(10.0, 1).unwrap();
        let order = Mutex::new(Vec::new());
        let waiters = (0..5).map(|n| {
            let (bucket, order) = (&bucket, &order);
            async move {
                bucket.take().await;
                order.lock().unwrap().push((n, Instant::now()));
            }
        });
        futures::future::join_all(waiters).await;
        let order = order.into_inner().unwrap();
        assert!(order.is_sorted());
        assert_eq!(order.len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_wait_gives_its_token_back() {
        let bucket = TokenBucket::new(1.0, 1).unwrap();
        bucket.take().await;
        for _ in 0..10 {
            let _ = tokio::time::timeout(Duration::from_millis(1), bucket.take()).await;
        }
        let start = Instant::now();
        bucket.take().await;
        assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[test]
    fn no_rate_means_no_limit() {
        assert!(TokenBucket::new(0.0, 30).is_none());
        assert!(TokenBucket::new(-1.0, 30).is_none());
    }
}
