//! A queue as a fluid: items come in, pods take them out.

/// What came in, what was taken out, and what waits. Counts are fractional, since rates are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Queue {
    arrived: f64,
    served: f64,
}

impl Queue {
    /// Lets some items arrive and up to `capacity` be taken out, whichever of those that wait.
    pub fn advance(&mut self, arrived: f64, capacity: f64) {
        self.arrived += arrived.max(0.0);
        self.served += capacity.max(0.0).min(self.waiting());
    }

    /// Items that wait now; never negative.
    pub fn waiting(&self) -> f64 {
        (self.arrived - self.served).max(0.0)
    }

    /// Items that have come in so far.
    pub fn arrived(&self) -> f64 {
        self.arrived
    }

    /// Items that have been taken out so far.
    pub fn served(&self) -> f64 {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;

    #[test]
    fn what_arrives_is_either_served_or_waits() {
        let mut queue = Queue::default();
        for step in 0..1_000_u32 {
            queue.advance(f64::from(step % 7), f64::from(step % 5));
            assert!((queue.arrived() - queue.served() - queue.waiting()).abs() < 1e-9);
            assert!(queue.waiting() >= 0.0);
        }
        assert!(queue.waiting() > 0.0);
    }

    #[test]
    fn no_more_is_served_than_waits() {
        let mut queue = Queue::default();
        queue.advance(10.0, 100.0);
        assert_eq!((queue.waiting(), queue.served()), (0.0, 10.0));
        queue.advance(5.0, 2.0);
        assert_eq!((queue.waiting(), queue.served()), (3.0, 12.0));
    }

    #[test]
    fn without_pods_a_queue_only_grows() {
        let mut queue = Queue::default();
        queue.advance(4.0, 0.0);
        queue.advance(4.0, 0.0);
        assert_eq!(queue.waiting(), 8.0);
    }
}
