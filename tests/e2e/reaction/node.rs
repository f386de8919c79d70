//! The kubelet of the node of all pods, with the interval of its default. It serves HTTPS at the address of this machine.
//!
//! A counter grows by what metrics-server's chain would show: the load at the time of a measurement, for the whole
//! interval before it (see `chain`).

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::chain::{KUBELET_SECONDS, MILLICORES, measured};
use super::load::{HPAS, Load, name};
use crate::adapter::Adapter;
use crate::election::now;
use crate::outcome::Outcome;

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

    /// From now on shows a load.
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
