//! A lock-free histogram. Every sync makes several observations, and workers must not wait for each other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Counts observations in buckets. Clones share one histogram.
#[derive(Debug, Clone)]
pub(super) struct Histogram(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The buckets with an upper bound, in rising order. An observation counts in the first bucket with a
    /// bound that is not below the observed value.
    buckets: Box<[(f64, AtomicU64)]>,
    beyond: AtomicU64,
    /// The bits of the sum of all observations.
    sum: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram with the given upper bounds, in rising order.
    pub(super) fn new(bounds: &[f64]) -> Self {
        let buckets = bounds.iter().map(|bound| (*bound, AtomicU64::new(0))).collect();
        Self(Arc::new(Inner { buckets, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }))
    }

    /// Counts one observation.
    pub(super) fn observe(&self, value: f64) {
        let Inner { buckets, beyond, sum } = &*self.0;
        let bucket = buckets.iter().find(|(bound, _)| value <= *bound);
        bucket.map_or(beyond, |(_, count)| count).fetch_add(1, Ordering::Relaxed);
        let mut old = sum.load(Ordering::Relaxed);
        loop {
            let new = (f64::from_bits(old) + value).to_bits();
            match sum.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => old = current,
            }
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let buckets = self.0.buckets.iter().map(|(bound, count)| (*bound, read(count)));
        let buckets: Vec<_> = buckets.chain([(f64::INFINITY, read(&self.0.beyond))]).collect();
        // Use the sum of the values read above, so that count and buckets agree despite concurrent
        // observations.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = f64::from_bits(read(&self.0.sum));
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Creates the histograms of one family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets(pub(super) &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn observation_on_a_bound_is_in_its_bucket_and_above_all_in_inf() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        let mut registry = Registry::default();
        registry.register("h", "Help", histogram.clone());
        for value in [0.25, 0.5, 1.0, 7.0] {
            histogram.observe(value);
        }
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "h_bucket{le=\"0.5\"} 2\n",
            "h_bucket{le=\"1.0\"} 3\n",
            "h_bucket{le=\"+Inf\"} 4\n",
            "h_sum 8.75\n",
            "h_count 4\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn concurrent_observations_are_all_counted() {
        let histogram = Histogram::new(&[1.0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| histogram.observe(0.5)));
            }
        });
        assert_eq!(histogram.0.buckets[0].1.load(Ordering::Relaxed), 40_000);
        assert_eq!(f64::from_bits(histogram.0.sum.load(Ordering::Relaxed)), 20_000.0);
    }
}
