//! Token buckets of the clients, as in kube-controller-manager (`--kube-api-qps`, `--kube-api-burst`). The rate of
//! status writes grows with the number of HPAs.
//!
//! A request reserves a token on arrival. When a reserved token becomes available, the next namespace in turn receives
//! it. The requests of one namespace therefore proceed in order of arrival, and no namespace waits behind all requests
//! of another namespace. The time is that of tokio's clock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::fair::Rotation;

/// The maximum automatic rate of status writes, per second.
const MAX_AUTOMATIC_STATUS_RATE: f64 = 500.0;

/// A token bucket with continuous refill. Clones share the bucket.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    per_second: f64,
    burst: f64,
    /// The number of tokens at `at`. Negative while requests wait for reserved tokens.
    tokens: f64,
    at: Instant,
    /// Waiting requests, in order of arrival within a namespace. Namespaces take turns.
    waiting: Rotation<u64, Waiting>,
    arrived: u64,
}

/// A request that waits for a token.
#[derive(Debug)]
struct Waiting {
    /// The time at which the reserved token of this request becomes available.
    available: Instant,
    /// Delivers a token that another request has reserved.
    grant: oneshot::Sender<()>,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens that is refilled at the rate `per_second`. `None` (no limit) unless both
    /// values are above zero. As in client-go, a QPS of zero or less disables the limit.
    pub fn new(per_second: f32, burst: u32) -> Option<Self> {
        (per_second > 0.0 && burst > 0).then(|| Self::full(per_second.into(), burst.into()))
    }

    fn full(per_second: f64, burst: f64) -> Self {
        let (waiting, at) = (Rotation::default(), Instant::now());
        let state = State { per_second, burst, tokens: burst, at, waiting, arrived: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Creates a full bucket with the same rate and burst.
    #[must_use]
    pub fn another(&self) -> Self {
        let state = self.state.lock();
        Self::full(state.per_second, state.burst)
    }

    /// Sets the refill rate to `per_second`, which must be above zero. Raises a lower burst to the tokens of one
    /// second. Requests that already wait keep their times.
    pub fn set_rate(&self, per_second: f64) {
        let mut state = self.state.lock();
        state.refill(Instant::now());
        state.per_second = per_second;
        state.burst = state.burst.max(per_second);
    }

    /// Waits for a token on behalf of a namespace. Requests without a namespace use the empty string. A caller that
    /// stops waiting returns its token.
    pub async fn take(&self, namespace: &str) {
        let (namespace, number, mut available, mut granted) = {
            let now = Instant::now();
            let mut state = self.state.lock();
            let wait = state.reserve(now);
            if wait.is_zero() {
                return;
            }
            let available = clock::after(now, wait);
            let (grant, granted) = oneshot::channel();
            let (namespace, number) = (Arc::<str>::from(namespace), state.arrived);
            state.arrived += 1;
            state.waiting.insert(&namespace, 0, number, Waiting { available, grant });
            (namespace, number, available, granted)
        };
        let reservation = Reservation { bucket: self, namespace: &namespace, number };
        loop {
            tokio::select! {
                biased;
                _ = &mut granted => break,
                () = sleep_until(available) => {}
            }
            match self.state.lock().serve(&namespace, number) {
                Some(later) => available = later,
                None => break,
            }
        }
        std::mem::forget(reservation);
    }
}

impl State {
    /// Reserves a token. Returns the wait until it is available.
    fn reserve(&mut self, now: Instant) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Delivers the available token of a waiting request to the request that is next in turn. The waiting request gets
    /// the reserved token of that request in exchange. Returns the time at which the exchanged token is available.
    /// `None` if the waiting request itself is next, or already has a token.
    fn serve(&mut self, namespace: &str, number: u64) -> Option<Instant> {
        self.waiting.get_mut(namespace, &number)?;
        let (_, next, Waiting { available, grant }) = self.waiting.pop()?;
        if next == number {
            return None;
        }
        // A request is removed under the lock before its receiver is dropped, so the grant always arrives.
        let _ = grant.send(());
        self.waiting.get_mut(namespace, &number)?.available = available;
        Some(available)
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = elapsed.mul_add(self.per_second, self.tokens).min(self.burst);
        self.at = now;
    }
}

/// Returns the rate of status writes per second: two per HPA and sync period, at most 500, and at least `at_least`,
/// which is `--kube-api-qps`.
pub fn status_rate(hpas: usize, period: Duration, at_least: f64) -> f64 {
    let hpas = f64::from(u32::try_from(hpas).unwrap_or(u32::MAX));
    (2.0 * hpas / period.as_secs_f64()).min(MAX_AUTOMATIC_STATUS_RATE).max(at_least)
}

/// A reserved token, which returns to the bucket on drop.
struct Reservation<'a> {
    bucket: &'a TokenBucket,
    namespace: &'a str,
    number: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.bucket.state.lock();
        state.waiting.remove(self.namespace, &self.number);
        state.tokens = (state.tokens + 1.0).min(state.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_passes_at_once_and_the_rest_at_the_rate() {
        let bucket = TokenBucket::new(20.0, 30).unwrap();
        let start = Instant::now();
        for _ in 0..30 {
            bucket.take("shop").await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.take("shop").await;
        }
        let elapsed = start.elapsed();
        assert!(
            elapsed >= Duration::from_millis(999) && elapsed < Duration::from_millis(1_050),
            "{elapsed:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_proceed_in_order_of_arrival() {
        let bucket = TokenBucket::new(10.0, 1).unwrap();
        let order = Mutex::new(Vec::new());
        let waiters = (0..5).map(|n| {
            let (bucket, order) = (&bucket, &order);
            async move {
                bucket.take("shop").await;
                order.lock().push((n, Instant::now()));
            }
        });
        futures::future::join_all(waiters).await;
        let order = order.into_inner();
        assert!(order.is_sorted());
        assert_eq!(order.len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_with_many_requests_delays_others_by_one_token() {
        let bucket = TokenBucket::new(10.0, 1).unwrap();
        bucket.take("shop").await;
        let start = Instant::now();
        let hostile = futures::future::join_all((0..1_000).map(|_| bucket.take("hostile")));
        let other = async {
            let mut times = Vec::new();
            for _ in 0..3 {
                bucket.take("shop").await;
                times.push(start.elapsed());
            }
            times
        };
        let (_, times) = tokio::join!(hostile, other);
        let latest = [300, 500, 700].map(Duration::from_millis);
        assert!(times.iter().zip(latest).all(|(time, latest)| *time <= latest), "{times:?}");
        let total = start.elapsed();
        assert!(
            total >= Duration::from_millis(100_290) && total < Duration::from_millis(100_400),
            "{total:?}: every token is used once"
        );
        assert!(bucket.state.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_wait_returns_its_token() {
        let bucket = TokenBucket::new(1.0, 1).unwrap();
        bucket.take("shop").await;
        for _ in 0..10 {
            let _ = tokio::time::timeout(Duration::from_millis(1), bucket.take("shop")).await;
        }
        let start = Instant::now();
        bucket.take("shop").await;
        assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn raised_rate_applies_immediately() {
        let bucket = TokenBucket::new(1.0, 1).unwrap();
        bucket.take("shop").await;
        bucket.set_rate(100.0);
        let start = Instant::now();
        for _ in 0..100 {
            bucket.take("shop").await;
        }
        let elapsed = start.elapsed();
        assert!(
            elapsed > Duration::from_millis(990) && elapsed < Duration::from_millis(1_110),
            "{elapsed:?}"
        );
        tokio::time::advance(Duration::from_secs(5)).await;
        let start = Instant::now();
        for _ in 0..100 {
            bucket.take("shop").await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "the burst holds one second's tokens");
        bucket.set_rate(1.0);
        bucket.take("shop").await;
        assert!(start.elapsed() >= Duration::from_millis(990), "{:?}", start.elapsed());
    }

    #[test]
    fn status_rate_grows_with_hpas_from_the_client_rate() {
        let period = Duration::from_secs(15);
        for (hpas, at_least, expected) in [
            (0, 20.0, 20.0),
            (100, 20.0, 20.0),
            (1_500, 20.0, 200.0),
            (9_000, 20.0, 500.0),
            (9_000, 800.0, 800.0),
        ] {
            let rate = status_rate(hpas, period, at_least);
            assert!((rate - expected).abs() < 1e-9, "{hpas}: {rate}");
        }
        assert!((status_rate(1, Duration::from_nanos(1), 5.0) - 500.0).abs() < 1e-9);
    }

    #[test]
    fn zero_rate_means_no_limit() {
        assert!(TokenBucket::new(0.0, 30).is_none());
        assert!(TokenBucket::new(-1.0, 30).is_none());
    }
}
