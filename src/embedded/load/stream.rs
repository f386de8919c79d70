//! Work as a fluid: it comes in by a curve, ready pods take it, the rest waits or is lost.

use std::time::Duration;

use super::model::{Excess, Work};

/// The pods that take a stream of work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Crew {
    /// How many are ready.
    pub(super) ready: f64,
    /// Units per second that each can do.
    pub(super) capacity: f64,
    /// The mean of their biases.
    pub(super) bias: f64,
}

/// One stream of work, from the beginning of the run. Amounts are fractional, since rates are; what has arrived is
/// served, unserved, or waits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Stream {
    pub(super) arrived: f64,
    pub(super) served: f64,
    pub(super) unserved: f64,
    pub(super) waiting: f64,
    /// Seconds in which there was more to do than could be done.
    pub(super) saturated: f64,
    /// Units per second that a ready pod did last, in the mean.
    pub(super) rate: f64,
    pub(super) shares: Shares,
}

/// What a pod would have got that was ready from the beginning of the run. The difference between two instants is what
/// a pod got that was ready in between, so that no instant needs to look at every pod.
///
/// A pod with bias b does `r · (1 + (b − mean) · (1 − r / capacity))` of a mean of r: in all as much as without biases, never
/// more than its capacity, and never less than nothing as long as b and the mean differ by at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Shares {
    /// The integral of r.
    even: f64,
    /// The integral of `r · (1 − r / capacity)`: what a bias can move.
    movable: f64,
    /// The integral of the same times the mean bias.
    moved: f64,
    /// The integral of the demand by the number of ready pods.
    asked: f64,
}

impl Shares {
    /// Units that a pod with this bias has done since.
    pub(super) fn done_since(&self, before: &Self, bias: f64) -> f64 {
        let moved = bias * (self.movable - before.movable) - (self.moved - before.moved);
        (self.even - before.even + moved).max(0.0)
    }

    /// Units that each pod has been asked to do since.
    pub(super) fn asked_since(&self, before: &Self) -> f64 {
        self.asked - before.asked
    }
}

impl Stream {
    /// Lets time pass, in steps that end at the multiples of `step`, so that it does not matter how often this is called.
    pub(super) fn flow(&mut self, work: &Work, crew: Crew, from: Duration, to: Duration, step: Duration) {
        let step = nanos(step).max(1);
        let (mut at, end) = (nanos(from), nanos(to));
        while at < end {
            let next = (at / step + 1).saturating_mul(step).min(end);
            let length = Duration::from_nanos(next - at);
            let demand = work.demand.at(Duration::from_nanos(at) + length / 2);
            self.pass(work.excess, demand, crew, length.as_secs_f64());
            at = next;
        }
    }

    /// So many seconds of an even demand.
    fn pass(&mut self, excess: Excess, demand: f64, crew: Crew, seconds: f64) {
        let arrived = demand * seconds;
        let capacity = crew.ready * crew.capacity * seconds;
        let to_do = self.waiting + arrived;
        // Without pods an unlimited capacity is no number.
        let served = if crew.ready > 0.0 { to_do.min(capacity) } else { 0.0 };
        let left = (to_do - served).max(0.0);
        self.arrived += arrived;
        self.served += served;
        if left > 0.0 {
            self.saturated += seconds;
        }
        match excess {
            Excess::Lost => self.unserved += left,
            Excess::Waits => self.waiting = left,
        }
        if crew.ready > 0.0 {
            let each = served / crew.ready;
            self.rate = each / seconds;
            let movable = each * (1.0 - self.rate / crew.capacity).max(0.0);
            self.shares.even += each;
            self.shares.movable += movable;
            self.shares.moved += movable * crew.bias;
            self.shares.asked += arrived / crew.ready;
        } else {
            self.rate = 0.0;
        }
    }
}

/// At most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Crew, Stream};
    use crate::embedded::load::model::{Excess, Work};
    use crate::embedded::load::{Curve, Shape};
    use crate::embedded::workload::seed::Seed;

    const STEP: Duration = Duration::from_secs(1);

    fn crew(ready: u32, capacity: f64) -> Crew {
        Crew { ready: f64::from(ready), capacity, bias: 0.0 }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn spiky() -> Curve {
        let spikes = Shape::RandomSpikes { base: 3.0, peak: 40.0, every: secs(60), width: secs(20), seed: 3 };
        Curve::from(spikes).with_noise(0.3, 5)
    }

    /// An hour in which the number of pods changes at random.
    fn hour(work: &Work) -> Stream {
        let mut stream = Stream::default();
        let mut at = Duration::ZERO;
        for number in 0..1_000 {
            let seed = Seed::new(9).nth(number);
            let to = at + Duration::from_secs_f64(7.2 * seed.of("length").share());
            let ready = (seed.of("ready").share() * 4.0).floor();
            stream.flow(work, Crew { ready, capacity: 5.0, bias: 0.0 }, at, to, STEP);
            at = to;
        }
        stream
    }

    #[test]
    fn what_arrives_is_served_or_lost_or_waits() {
        let lossy = hour(&Work::requests(spiky(), 5.0));
        assert!(lossy.unserved > 100.0 && lossy.served > 100.0);
        assert!((lossy.arrived - lossy.served - lossy.unserved).abs() < 1e-6);
        assert_eq!(lossy.waiting, 0.0);
        let patient = hour(&Work::queue(spiky(), 5.0));
        assert!((patient.arrived - patient.served - patient.waiting).abs() < 1e-6);
        assert_eq!(patient.unserved, 0.0);
        assert!(
            (patient.arrived - lossy.arrived).abs() < 1e-9,
            "arrivals do not depend on what becomes of them"
        );
    }

    #[test]
    fn no_more_is_served_than_can_be() {
        let mut stream = Stream::default();
        stream.flow(&Work::requests(Curve::constant(100.0), 10.0), crew(3, 10.0), secs(0), secs(60), STEP);
        assert_eq!((stream.served, stream.unserved, stream.saturated), (1_800.0, 4_200.0, 60.0));
    }

    #[test]
    fn a_queue_grows_without_pods_and_is_drained_by_ready_ones() {
        let arrivals = Shape::Step { before: 10.0, after: 0.0, at: secs(30) };
        let work = Work::queue(arrivals, 5.0);
        assert_eq!(work.excess, Excess::Waits);
        let mut stream = Stream::default();
        stream.flow(&work, crew(0, 5.0), secs(0), secs(30), STEP);
        assert_eq!(stream.waiting, 300.0);
        stream.flow(&work, crew(4, 5.0), secs(30), secs(40), STEP);
        assert_eq!(stream.waiting, 100.0);
        stream.flow(&work, crew(4, 5.0), secs(40), secs(60), STEP);
        assert_eq!((stream.waiting, stream.served), (0.0, 300.0));
    }

    #[test]
    fn it_does_not_matter_how_often_time_passes() {
        let work = Work::requests(spiky(), 5.0);
        let (mut often, mut once) = (Stream::default(), Stream::default());
        once.flow(&work, crew(3, 5.0), secs(0), secs(600), STEP);
        for second in 0..600 {
            often.flow(&work, crew(3, 5.0), secs(second), secs(second + 1), STEP);
        }
        assert_eq!(often, once);
    }

    #[test]
    fn biased_pods_do_as_much_together_as_even_ones_and_none_more_than_it_can() {
        let biases = [-0.5, 0.1, 0.4, 0.5];
        let mean = biases.iter().sum::<f64>() / 4.0;
        for demand in [1.0, 10.0, 19.0, 20.0, 50.0] {
            let mut stream = Stream::default();
            let before = stream.shares;
            let crew = Crew { ready: 4.0, capacity: 5.0, bias: mean };
            stream.flow(&Work::requests(Curve::constant(demand), 5.0), crew, secs(0), secs(10), STEP);
            let done = biases.map(|bias| stream.shares.done_since(&before, bias));
            assert!((done.iter().sum::<f64>() - stream.served).abs() < 1e-9);
            assert!(done.iter().all(|done| (0.0..=50.0 + 1e-9).contains(done)), "{done:?}");
            assert_eq!(done[0] < done[3] - 1e-9, demand < 20.0, "at the limit all are alike");
        }
    }

    #[test]
    fn a_capacity_without_limit_serves_all() {
        let mut stream = Stream::default();
        let work = Work::requests(Curve::constant(7.0), f64::INFINITY);
        stream.flow(&work, crew(0, f64::INFINITY), secs(0), secs(10), STEP);
        stream.flow(&work, crew(2, f64::INFINITY), secs(10), secs(20), STEP);
        assert_eq!((stream.served, stream.unserved), (70.0, 70.0));
        assert_eq!(stream.shares.done_since(&Stream::default().shares, 0.0), 35.0);
    }
}
