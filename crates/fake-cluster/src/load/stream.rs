//! Work as a continuous flow. A curve determines the inflow. Ready pods serve it, and the rest waits or is lost.

use std::time::Duration;

use super::model::{OverflowPolicy, Work};

/// The ready pods that serve a stream of work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ServingPods {
    pub(super) ready: f64,
    /// Capacity of each pod in units per second.
    pub(super) capacity: f64,
    /// The mean bias of the ready pods.
    pub(super) bias: f64,
}

/// One stream of work since the start of the run, in fractional units. Each arrived unit is served, unserved or
/// waiting.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Stream {
    pub(super) arrived: f64,
    pub(super) served: f64,
    pub(super) unserved: f64,
    pub(super) waiting: f64,
    /// Seconds in which units were lost or waited.
    pub(super) saturated: f64,
    /// Mean units per second that a ready pod served in the last step.
    pub(super) rate: f64,
    pub(super) shares: Shares,
}

/// The cumulative work of a pod that has been ready since the start of the run. The difference between two instants is
/// the work of a pod that was ready between them. Therefore no step iterates over all pods.
///
/// A pod with bias b serves `r · (1 + (b − mean) · (1 − r / capacity))` at a mean rate of r. The biases do not change
/// the total. No pod exceeds its capacity. No work is negative if b and the mean differ by at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Shares {
    /// The integral of r.
    even: f64,
    /// The integral of `r · (1 − r / capacity)`, the part that a bias can shift.
    movable: f64,
    /// The integral of `movable` times the mean bias.
    moved: f64,
    /// The integral of the demand divided by the number of ready pods.
    assigned: f64,
}

impl Shares {
    /// Returns the units that a pod with the given bias has served since `before`.
    pub(super) fn done_since(&self, before: &Self, bias: f64) -> f64 {
        let moved = bias * (self.movable - before.movable) - (self.moved - before.moved);
        (self.even - before.even + moved).max(0.0)
    }

    /// Returns the units assigned to each pod since `before`.
    pub(super) fn assigned_since(&self, before: &Self) -> f64 {
        self.assigned - before.assigned
    }
}

impl Stream {
    /// Advances the stream in steps that end at multiples of `step`, so that the result does not depend on the times of
    /// the calls.
    pub(super) fn flow(
        &mut self,
        work: &Work,
        serving: ServingPods,
        from: Duration,
        to: Duration,
        step: Duration,
    ) {
        let step = nanos(step).max(1);
        let (mut at, end) = (nanos(from), nanos(to));
        while at < end {
            let next = (at / step + 1).saturating_mul(step).min(end);
            let length = Duration::from_nanos(next - at);
            let demand = work.demand.at(Duration::from_nanos(at) + length / 2);
            self.pass(work.excess, demand, serving, length.as_secs_f64());
            at = next;
        }
    }

    /// Advances the stream by `seconds` of a constant demand.
    fn pass(&mut self, excess: OverflowPolicy, demand: f64, serving: ServingPods, seconds: f64) {
        let arrived = demand * seconds;
        let capacity = serving.ready * serving.capacity * seconds;
        let to_do = self.waiting + arrived;
        // The product of zero pods and an infinite capacity is NaN.
        let served = if serving.ready > 0.0 { to_do.min(capacity) } else { 0.0 };
        let left = (to_do - served).max(0.0);
        self.arrived += arrived;
        self.served += served;
        if left > 0.0 {
            self.saturated += seconds;
        }
        match excess {
            OverflowPolicy::Lost => self.unserved += left,
            OverflowPolicy::Waits => self.waiting = left,
        }
        if serving.ready > 0.0 {
            let each = served / serving.ready;
            self.rate = each / seconds;
            let movable = each * (1.0 - self.rate / serving.capacity).max(0.0);
            self.shares.even += each;
            self.shares.movable += movable;
            self.shares.moved += movable * serving.bias;
            self.shares.assigned += arrived / serving.ready;
        } else {
            self.rate = 0.0;
        }
    }
}

/// Returns the duration in nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ServingPods, Stream};
    use crate::load::model::{OverflowPolicy, Work};
    use crate::load::{Curve, Shape};
    use crate::workload::model::Seed;

    const STEP: Duration = Duration::from_secs(1);

    fn serving(ready: u32, capacity: f64) -> ServingPods {
        ServingPods { ready: f64::from(ready), capacity, bias: 0.0 }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn spiky() -> Curve {
        let spikes = Shape::RandomSpikes { base: 3.0, peak: 40.0, every: secs(60), width: secs(20), seed: 3 };
        Curve::from(spikes).with_noise(0.3, 5)
    }

    /// Simulates an hour in which the number of pods changes at random.
    fn hour(work: &Work) -> Stream {
        let mut stream = Stream::default();
        let mut at = Duration::ZERO;
        for number in 0..1_000 {
            let seed = Seed::new(9).nth(number);
            let to = at + Duration::from_secs_f64(7.2 * seed.for_name("length").share());
            let ready = (seed.for_name("ready").share() * 4.0).floor();
            stream.flow(work, ServingPods { ready, capacity: 5.0, bias: 0.0 }, at, to, STEP);
            at = to;
        }
        stream
    }

    #[test]
    fn arrived_work_is_served_lost_or_waiting() {
        let lossy = hour(&Work::requests(spiky(), 5.0));
        assert!(lossy.unserved > 100.0 && lossy.served > 100.0);
        assert!((lossy.arrived - lossy.served - lossy.unserved).abs() < 1e-6);
        assert_eq!(lossy.waiting, 0.0);
        let patient = hour(&Work::queue(spiky(), 5.0));
        assert!((patient.arrived - patient.served - patient.waiting).abs() < 1e-6);
        assert_eq!(patient.unserved, 0.0);
        assert!(
            (patient.arrived - lossy.arrived).abs() < 1e-9,
            "arrivals do not depend on the handling of the excess"
        );
    }

    #[test]
    fn served_work_is_limited_by_the_capacity() {
        let mut stream = Stream::default();
        stream.flow(&Work::requests(Curve::constant(100.0), 10.0), serving(3, 10.0), secs(0), secs(60), STEP);
        assert_eq!((stream.served, stream.unserved, stream.saturated), (1_800.0, 4_200.0, 60.0));
    }

    #[test]
    fn queue_grows_without_pods_and_drains_with_ready_pods() {
        let arrivals = Shape::Step { before: 10.0, after: 0.0, at: secs(30) };
        let work = Work::queue(arrivals, 5.0);
        assert_eq!(work.excess, OverflowPolicy::Waits);
        let mut stream = Stream::default();
        stream.flow(&work, serving(0, 5.0), secs(0), secs(30), STEP);
        assert_eq!(stream.waiting, 300.0);
        stream.flow(&work, serving(4, 5.0), secs(30), secs(40), STEP);
        assert_eq!(stream.waiting, 100.0);
        stream.flow(&work, serving(4, 5.0), secs(40), secs(60), STEP);
        assert_eq!((stream.waiting, stream.served), (0.0, 300.0));
    }

    #[test]
    fn result_is_independent_of_the_number_of_calls() {
        let work = Work::requests(spiky(), 5.0);
        let (mut often, mut once) = (Stream::default(), Stream::default());
        once.flow(&work, serving(3, 5.0), secs(0), secs(600), STEP);
        for second in 0..600 {
            often.flow(&work, serving(3, 5.0), secs(second), secs(second + 1), STEP);
        }
        assert_eq!(often, once);
    }

    #[test]
    fn biased_pods_serve_the_same_total_within_their_capacity() {
        let biases = [-0.5, 0.1, 0.4, 0.5];
        let mean = biases.iter().sum::<f64>() / 4.0;
        for demand in [1.0, 10.0, 19.0, 20.0, 50.0] {
            let mut stream = Stream::default();
            let before = stream.shares;
            let serving = ServingPods { ready: 4.0, capacity: 5.0, bias: mean };
            stream.flow(&Work::requests(Curve::constant(demand), 5.0), serving, secs(0), secs(10), STEP);
            let done = biases.map(|bias| stream.shares.done_since(&before, bias));
            assert!((done.iter().sum::<f64>() - stream.served).abs() < 1e-9);
            assert!(done.iter().all(|done| (0.0..=50.0 + 1e-9).contains(done)), "{done:?}");
            assert_eq!(done[0] < done[3] - 1e-9, demand < 20.0, "at the limit all pods are equal");
        }
    }

    #[test]
    fn infinite_capacity_serves_all_work() {
        let mut stream = Stream::default();
        let work = Work::requests(Curve::constant(7.0), f64::INFINITY);
        stream.flow(&work, serving(0, f64::INFINITY), secs(0), secs(10), STEP);
        stream.flow(&work, serving(2, f64::INFINITY), secs(10), secs(20), STEP);
        assert_eq!((stream.served, stream.unserved), (70.0, 70.0));
        assert_eq!(stream.shares.done_since(&Stream::default().shares, 0.0), 35.0);
    }
}
