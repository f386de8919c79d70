//! The metrics of the process and their exposition.
//!
//! This file sets the metrics of takeover safety, handover, shadow mode and histories. It counts requests by method and
//! by the permission that they need, and measures the clock skew by their responses. It also sets the state of metrics
//! APIs and metric sources.

pub mod declarations;
mod exposition;
pub mod metrics;
mod series;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::Api;
use jiff::{SignedDuration, Timestamp};

use self::metrics::{Metrics, NO_LABELS};
use clock::SharedClock;
use cluster::call::Call;
use cluster::client::{Attempt, RequestObserver};
use cluster::metrics::ApiObserver;
use sources::SourceObserver;

impl Metrics {
    /// Sets the state of takeover safety: for each of its states, whether it is the current one.
    pub fn takeover(&self, states: [(&'static str, bool); 3]) {
        for (state, is_current) in states {
            self.families().takeover.with_label_values(&[state]).set(is_current.into());
        }
    }

    /// Sets the number of HPAs by state, and the time of the last proof that the guard works.
    pub fn handover(&self, counts: [(&'static str, usize); 4], proven: Option<Timestamp>) {
        for (state, count) in counts {
            self.families().handover.with_label_values(&[state]).set(count as f64);
        }
        if let Some(proven) = proven {
            let proof = self.families().handover_proof.with_label_values(&NO_LABELS);
            proof.set(proven.as_second() as f64);
        }
    }

    /// Sets the kind of the guard, from a fixed set.
    pub fn handover_guard(&self, guard: &'static str) {
        self.families().handover_guard.with_label_values(&[guard]).set(1.0);
    }

    /// Counts a write of another controller to the status of an HPA or to the scale of a target.
    pub fn foreign_write(&self) {
        self.families().foreign_writes.with_label_values(&NO_LABELS).inc();
    }

    /// Counts a write of the built-in controller that the webhook refused. `resource` is from a fixed set.
    pub fn handover_refused(&self, resource: &'static str) {
        self.families().handover_refused.with_label_values(&[resource]).inc();
    }

    /// Counts a request to the webhook without a response in time. `reason` is from a fixed set.
    pub fn handover_unanswered(&self, reason: &'static str) {
        self.families().handover_unanswered.with_label_values(&[reason]).inc();
    }

    /// Counts a comparison of another controller's change with a decision of this process. `result` is from a fixed
    /// set.
    pub fn shadow_decision(&self, result: &'static str) {
        self.families().shadow.with_label_values(&[result]).inc();
    }

    /// Sets the number of HPAs with a history restored from `source`, a value of a fixed set.
    pub fn restored(&self, source: &'static str, hpas: usize) {
        self.families().restored.with_label_values(&[source]).set(hpas as f64);
    }

    /// Counts a write of a ConfigMap of the checkpoint. `result` is from a fixed set.
    pub fn checkpoint_write(&self, result: &'static str) {
        self.families().checkpoint_writes.with_label_values(&[result]).inc();
    }

    /// Sets the size of the checkpoint and the number of HPAs that did not fit into it.
    pub fn checkpoint(&self, bytes: usize, left_out: usize) {
        self.families().checkpoint_bytes.with_label_values(&NO_LABELS).set(bytes as f64);
        self.families().checkpoint_left_out.with_label_values(&NO_LABELS).set(left_out as f64);
    }
}

/// Counts the requests of all clients.
#[derive(Debug)]
pub struct RequestMetrics {
    metrics: Metrics,
    /// The clock to compare with the server's clock. `None` disables the comparison.
    clock: Option<SharedClock>,
}

impl RequestMetrics {
    /// Creates a counter of requests in `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, clock: None }
    }

    /// Creates a counter of requests in `metrics` that also sets the skew of the server's clock against `clock`.
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

impl SourceObserver for Metrics {
    fn reloaded(&self, usable: bool) {
        self.families().sources_valid.with_label_values(&NO_LABELS).set(usable.into());
    }

    fn down(&self, server: &str, down: Option<bool>) {
        let gauge = &self.families().source_down;
        match down {
            Some(down) => gauge.with_label_values(&[server]).set(down.into()),
            // The series may be absent already.
            None => drop(gauge.remove_label_values(&[server])),
        }
    }
}

impl ApiObserver for Metrics {
    fn down(&self, api: Api, down: bool) {
        self.families().metrics_api_down.with_label_values(&[name(api)]).set(down.into());
    }

    fn circuit_open(&self, api: Api) {
        self.families().spared_queries.with_label_values(&[name(api)]).inc();
    }
}

/// Returns the API group of a metrics API.
fn name(api: Api) -> &'static str {
    match api {
        Api::Resource => "metrics.k8s.io",
        Api::Custom => "custom.metrics.k8s.io",
        Api::External => "external.metrics.k8s.io",
    }
}

/// Returns the minimum lead of the server's clock over the clock of this process, from the `Date` header of one
/// response. A lag is negative. `None` if the header is not a date.
///
/// The header has whole seconds, rounded down, and is written between the request and the response. The skew is
/// therefore within an interval with the width of one second plus the duration of the request. The result is the value
/// in that interval closest to zero: it never exceeds the real skew. A result below one second is replaced by zero,
/// because it depends on the fraction of the second in which the server responded.
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
    fn equal_clocks_show_no_skew() {
        for received in ["10:00:00Z", "10:00:00.5Z", "10:00:00.999Z", "10:00:01.019Z"] {
            assert_eq!(read(DATE, &format!("2026-11-21T{received}"), 20), Some(0.0), "{received}");
        }
    }

    #[test]
    fn skew_is_never_exaggerated_and_zero_below_a_second() {
        // The server can write its header in any fraction of a second.
        for skew_ms in [-3_600_000_i64, -2_500, -1_500, -900, 0, 900, 1_500, 2_500, 3_600_000] {
            for fraction in (0..1_000).step_by(50) {
                let server = at("2026-11-21T10:00:00Z") + SignedDuration::from_millis(fraction);
                let written = server.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                // The local clock is behind if the server's clock is ahead. The request takes 40 ms, half of it for the
                // response.
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
    fn slow_answer_shows_less_skew_but_never_a_wrong_one() {
        assert_eq!(read(DATE, "2026-11-21T10:00:09Z", 9_000), Some(0.0));
        assert_eq!(read(DATE, "2026-11-21T10:00:09Z", 0), Some(-8.0));
        assert_eq!(read(DATE, "2026-11-21T09:59:50Z", 9_000), Some(10.0));
    }

    #[test]
    fn header_without_a_date_shows_no_skew() {
        for date in ["", "yesterday", "2026-11-21T10:00:00Z"] {
            assert_eq!(read(date, "2026-11-21T10:00:00Z", 0), None, "{date}");
        }
    }
}
