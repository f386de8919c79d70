//! kubelet and metrics-server with the intervals of their defaults: a kubelet measures a pod every 10 s, and
//! metrics-server reads all kubelets every 15 s.
//!
//! A number is the load at the time of the measurement. The real chain computes cpu from two readings of a counter, so
//! a step shows in part at first, which is later than here.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::load::{HPAS, Load, name};
use crate::election::now;
use crate::world::World;

/// The cpu of one unit of load.
pub(crate) const MILLICORES: i64 = 10;
pub(crate) const KUBELET_SECONDS: i64 = 10;
const METRICS_SERVER: Duration = Duration::from_secs(15);

/// Publishes numbers until it is dropped.
pub(crate) struct Chain(JoinHandle<()>);

impl Chain {
    pub(crate) fn start(load: Load, worlds: Vec<World>) -> Self {
        Self(tokio::spawn(async move {
            let mut scrapes = interval(METRICS_SERVER);
            scrapes.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                scrapes.tick().await;
                let at = now();
                for index in 0..HPAS {
                    let units = load.units(index, measured(index, at));
                    for world in &worlds {
                        world.cpu(&name(index), units * MILLICORES);
                    }
                }
            }
        }))
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The time of the last measurement of a pod. The kubelets of a cluster do not measure at the same time.
pub(crate) fn measured(index: usize, at: Timestamp) -> Timestamp {
    let phase = i64::try_from(index).unwrap_or_default() * 7;
    let (seconds, part) = (at.as_second(), at.subsec_nanosecond());
    let age = (seconds + phase).rem_euclid(KUBELET_SECONDS);
    at - SignedDuration::new(age, part)
}
