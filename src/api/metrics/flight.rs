//! Single flight: equal queries that are under way at the same time are one request.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use autoscaling::query::{Answer, Query, QueryError};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

type Flight = BoxFuture<'static, Result<Answer, QueryError>>;

/// The requests under way. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Flights {
    under_way: Arc<Mutex<UnderWay>>,
}

#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    by_query: BTreeMap<Query, (u64, WeakShared<Flight>)>,
}

impl Flights {
    /// Joins the request of an equal query, or begins one. It ends early if all who joined have gone.
    pub(super) fn join(&self, query: Query, begin: impl FnOnce() -> Flight) -> Shared<Flight> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = under_way.by_query.get(&query).and_then(|(_, flight)| flight.upgrade()) {
            return flight;
        }
        let id = under_way.next;
        under_way.next += 1;
        let landing = Landing { flights: self.clone(), query: query.clone(), id };
        let request = begin();
        let flight = async move {
            // Moved in whole, so that it also runs when the flight is abandoned.
            let _landing = landing;
            // A panic would reach everybody who joined, and those who join while they are still being told.
            AssertUnwindSafe(request).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!("the request for a metric panicked; those who asked are told of an error");
                Err(QueryError { message: "the request panicked".into() })
            })
        }
        .boxed()
        .shared();
        if let Some(weak) = flight.downgrade() {
            under_way.by_query.insert(query, (id, weak));
        }
        flight
    }
}

/// Forgets a request when it has ended or was abandoned.
struct Landing {
    flights: Flights,
    query: Query,
    id: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut under_way = self.flights.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.by_query.get(&self.query).is_some_and(|(id, _)| *id == self.id) {
            under_way.by_query.remove(&self.query);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    fn query(metric: &str) -> Query {
        Query::External { namespace: "shop".into(), metric: metric.into(), selector: "".into() }
    }

    fn begin(count: &Arc<AtomicU32>) -> impl FnOnce() -> Flight {
        let count = Arc::clone(count);
        move || {
            async move {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(Answer::External(Arc::new([])))
            }
            .boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn equal_queries_under_way_are_one_request_and_later_ones_are_new() {
        let (flights, count) = (Flights::default(), Arc::new(AtomicU32::new(0)));
        let (a, b) = (flights.join(query("q"), begin(&count)), flights.join(query("q"), begin(&count)));
        let other = flights.join(query("r"), begin(&count));
        let (a, b, other) = futures::join!(a, b, other);
        assert!(a.is_ok() && a == b && other.is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 2);
        flights.join(query("q"), begin(&count)).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3);
        assert!(flights.under_way.lock().unwrap().by_query.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_an_error_for_those_who_joined_and_nothing_to_those_who_come_later() {
        let (flights, count) = (Flights::default(), Arc::new(AtomicU32::new(0)));
        let panics = || {
            async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                panic!("this request panics")
            }
            .boxed()
        };
        let (a, b) = (flights.join(query("q"), panics), flights.join(query("q"), panics));
        let (a, b) = futures::join!(a, b);
        assert!(a.is_err() && a == b);
        assert!(flights.join(query("q"), begin(&count)).await.is_ok());
        assert!(flights.under_way.lock().unwrap().by_query.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_request_is_forgotten_and_one_of_two_may_leave() {
        let (flights, count) = (Flights::default(), Arc::new(AtomicU32::new(0)));
        let leaving = flights.join(query("q"), begin(&count));
        let staying = flights.join(query("q"), begin(&count));
        let _ = tokio::time::timeout(Duration::from_millis(1), leaving).await;
        assert!(staying.await.is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(flights.join(query("q"), begin(&count)));
        assert!(flights.under_way.lock().unwrap().by_query.is_empty());
    }
}
