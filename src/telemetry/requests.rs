//! Requests, counted as client-go counts them and by what a role would have to allow; and the clock skew that their
//! answers show.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::metrics::Metrics;
use crate::api::call::Call;
use crate::api::client::{Attempt, RequestObserver};
use crate::clock::SharedClock;

/// Counts the requests of all clients.
#[derive(Debug)]
pub struct RequestMetrics {
    metrics: Metrics,
    /// With what the server's time is compared.
    clock: Option<SharedClock>,
}

impl RequestMetrics {
    /// Counts into `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, clock: None }
    }

    /// Also tells how far the server's clock is from this one.
    pub fn with_skew(metrics: Metrics, clock: SharedClock) -> Self {
        Self { metrics, clock: Some(clock) }
    }
}

impl RequestObserver for RequestMetrics {
    fn attempted(&self, attempt: &Attempt<'_>) {
        self.metrics.request(attempt.call, attempt.host, attempt.code);
        if let (Some(clock), Some(date)) = (&self.clock, attempt.date)
            && let Some(skew) = skew(date, clock.now(), attempt.elapsed)
        {
            self.metrics.clock_skew(skew.as_secs_f64());
        }
    }

    fn ended(&self, call: &Call, host: &Arc<str>, elapsed: Duration) {
        self.metrics.request_duration(call.method(), host, elapsed);
    }
}

/// By how much the server's clock is certainly ahead of ours (negative: behind), as the `Date` header of one answer
/// shows. None if it is no date.
///
/// The header names whole seconds, cut off, of a moment between request and answer. So the difference of the clocks
/// lies in an interval as wide as a second and the time that the answer took; taken is its value next to zero, so no
/// answer shows more than there is, nor less by more than that width. What is left below a second counts as none: it
/// depends on the fraction of the second in which the server happened to answer.
fn skew(date: &str, received: Timestamp, elapsed: Duration) -> Option<SignedDuration> {
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    let sent = received.checked_sub(elapsed).ok()?;
    let (least, most) =
        (date.duration_since(received), date.duration_since(sent) + SignedDuration::from_secs(1));
    let skew = SignedDuration::ZERO.clamp(least.min(most), most);
    Some(if skew.abs() < SignedDuration::from_secs(1) { SignedDuration::ZERO } else { skew })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn read(date: &str, received: &str, elapsed_ms: u64) -> Option<f64> {
        skew(date, at(received), Duration::from_millis(elapsed_ms)).map(|skew| skew.as_secs_f64())
    }

    const DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

    #[test]
    fn clocks_that_could_be_equal_read_zero() {
        for received in ["10:00:00Z", "10:00:00.5Z", "10:00:00.999Z", "10:00:01.019Z"] {
            assert_eq!(read(DATE, &format!("2026-11-21T{received}"), 20), Some(0.0), "{received}");
        }
    }

    #[test]
    fn a_skew_below_a_second_reads_zero_and_a_larger_one_is_never_exaggerated() {
        // Whatever the fraction of the second in which the server wrote its header.
        for skew_ms in [-3_600_000_i64, -2_500, -1_500, -900, 0, 900, 1_500, 2_500, 3_600_000] {
            for fraction in (0..1_000).step_by(50) {
                let server = at("2026-11-21T10:00:00Z") + SignedDuration::from_millis(fraction);
                let written = server.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                // Here it was earlier, if the server's clock is ahead; the answer took 40 ms, half of it to us.
                let received =
                    server - SignedDuration::from_millis(skew_ms) + SignedDuration::from_millis(20);
                let read = skew(&written, received, Duration::from_millis(40)).unwrap();
                let (read, truth) = (read.as_secs_f64(), skew_ms as f64 / 1_000.0);
                assert!(read * truth >= 0.0 && read.abs() <= truth.abs() + 1e-9, "{read} for {truth}");
                let short = truth.abs() - read.abs();
                assert!(short <= 1.04 + 1e-9 || (read == 0.0 && truth.abs() < 2.04), "{read} for {truth}");
                assert!(truth.abs() >= 1.0 || read == 0.0, "{read} for {truth}");
            }
        }
    }

    #[test]
    fn a_slow_answer_shows_less_and_never_something_wrong() {
        assert_eq!(read(DATE, "2026-11-21T10:00:09Z", 9_000), Some(0.0));
        assert_eq!(read(DATE, "2026-11-21T10:00:09Z", 0), Some(-8.0));
        assert_eq!(read(DATE, "2026-11-21T09:59:50Z", 9_000), Some(10.0));
    }

    #[test]
    fn a_header_that_is_no_date_shows_nothing() {
        for date in ["", "yesterday", "2026-11-21T10:00:00Z"] {
            assert_eq!(read(date, "2026-11-21T10:00:00Z", 0), None, "{date}");
        }
    }
}
