//! The time that requests, responses and watch events take.

use std::ops::Range;
use std::time::Duration;

use clock::Jitter;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::requests::{Answer, Pieces};
use super::{Cluster, MetricsApi};

/// Maximum number of pieces of one watch in flight.
const PIECES: usize = 1024;

/// The latencies of a cluster. Each is drawn from a range of durations. Equal seeds and equal requests in the same order
/// give equal latencies. The timers of tokio round a latency up to whole milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// The latency of one direction of a request, and of a watch event.
    pub api: Range<Duration>,
    /// The latency of one direction of a request to a metrics API.
    pub metrics: Range<Duration>,
    /// The seed of the sequence of latencies.
    pub seed: u64,
}

/// The latencies of a cluster, with their sequence.
#[derive(Debug)]
pub(crate) struct Latencies {
    ranges: Latency,
    sequence: Mutex<Jitter>,
}

impl From<Latency> for Latencies {
    fn from(ranges: Latency) -> Self {
        let sequence = Mutex::new(Jitter::seeded(ranges.seed));
        Self { ranges, sequence }
    }
}

impl Latencies {
    fn draw(&self, range: &Range<Duration>) -> Duration {
        range.start + range.end.saturating_sub(range.start).mul_f64(self.sequence.lock().fraction())
    }
}

impl Cluster {
    /// Waits for the latency of one direction of a request to `path`.
    pub(crate) async fn travel(&self, path: &str) {
        let delay = self.latencies().map(|latencies| {
            let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
            let is_metrics = group.is_some_and(|group| {
                MetricsApi::from_group(group).is_some() || self.metrics_groups().contains_key(group)
            });
            latencies.draw(if is_metrics { &latencies.ranges.metrics } else { &latencies.ranges.api })
        });
        if let Some(delay) = delay {
            sleep(delay).await;
        }
    }

    /// Delays each piece of a watch by its latency. Pieces stay in order.
    pub(crate) fn delayed(&self, answer: Answer) -> Answer {
        match (answer, self.latencies()) {
            (Answer::Pieces(pieces), Some(latencies)) => {
                let pieces = pieces.map(move |piece| {
                    let delay = latencies.draw(&latencies.ranges.api);
                    async move {
                        sleep(delay).await;
                        piece
                    }
                });
                Answer::Pieces(Box::pin(pieces.buffered(PIECES)) as Pieces)
            }
            (answer, _) => answer,
        }
    }
}
