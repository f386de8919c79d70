//! The kubelet of the node of all pods, with its default interval. It serves HTTPS at the address of this machine.
//!
//! A counter grows in line with the numbers of [`Chain`]: by the load at the time of a measurement, for the whole
//! interval before the measurement.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::pages::{HPAS, Load, name};
use crate::adapter::Adapter;
use crate::election::now;
use crate::outcome::Outcome;
use crate::world::World;

pub(crate) struct Node {
    load: Arc<Mutex<Option<Load>>>,
    server: Adapter,
}

impl Node {
    /// Serves the usage of the pods of a namespace, with one unit of load.
    pub(crate) async fn start(address: IpAddr, namespace: &'static str) -> Outcome<Self> {
        let load = Arc::<Mutex<Option<Load>>>::default();
        let (shown, started) = (Arc::clone(&load), now() - SignedDuration::from_hours(1));
        let server = Adapter::start_at(address, move |received| {
            if received.path != "/metrics/resource" {
                return (404, "text/plain", String::new());
            }
            (200, "text/plain; version=0.0.4", page(*shown.lock(), started, namespace))
        });
        Ok(Self { load, server: server.await? })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.server.port
    }

    /// Sets the load to show from now on.
    pub(crate) fn show(&self, load: Load) {
        *self.load.lock() = Some(load);
    }
}

fn page(load: Option<Load>, started: Timestamp, namespace: &str) -> String {
    let (at, mut text) = (now(), String::new());
    for index in 0..HPAS {
        let last = measured(index, at);
        let mut intervals = (last.as_second() - started.as_second()) / KUBELET_SECONDS;
        let mut time = last;
        while let Some(load) = load
            && time >= load.time_of(0, 0)
        {
            intervals += load.units(index, time) - 1;
            time -= SignedDuration::from_secs(KUBELET_SECONDS);
        }
        // Hundredths of a second of cpu.
        let used = intervals * KUBELET_SECONDS * MILLICORES / 10;
        let labels = format!("{{container=\"app\",namespace=\"{namespace}\",pod=\"{}\"}}", name(index));
        let millis = last.as_second() * 1000;
        let _ = writeln!(
            text,
            "container_cpu_usage_seconds_total{labels} {}.{:02} {millis}\n\
             container_memory_working_set_bytes{labels} 67108864 {millis}\n\
             container_start_time_seconds{labels} {}",
            used / 100,
            used % 100,
            started.as_second()
        );
    }
    text
}

/// The cpu of one unit of load.
pub(crate) const MILLICORES: i64 = 10;
pub(crate) const KUBELET_SECONDS: i64 = 10;
const METRICS_SERVER: Duration = Duration::from_secs(15);

/// kubelet and metrics-server with their default intervals: a kubelet measures a pod every 10 s, and metrics-server
/// reads all kubelets every 15 s. Publishes numbers until it is dropped.
///
/// A number is the load at the time of the measurement. The real chain computes cpu from two readings of a counter, so
/// a full step appears later than here.
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
