//! What a server sees of a controller, whichever server and whichever controller: the seam between serving and measuring.
//!
//! Times are microseconds since 1970, by the machine's clock, which all processes of a run share.

use std::collections::BTreeMap;

use concertina::clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

/// The time of day.
pub(crate) fn now() -> Micros {
    SystemClock.now().as_microsecond()
}

/// All that was seen in a run; requests and bytes only of the measured time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    /// The measured time.
    pub(crate) begin: Micros,
    pub(crate) end: Micros,
    pub(crate) requests: Vec<Counted>,
    /// Requests of each second of the measured time.
    pub(crate) seconds: Vec<u64>,
    /// Bytes on the wire, TLS and HTTP included: from the controller, and to it.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Every HPA by `namespace/name`, from the start of the server on.
    pub(crate) hpas: BTreeMap<String, Seen>,
    /// From a metric's change to the write of a scale.
    pub(crate) reactions: Vec<Awaited>,
    /// From an HPA's creation to its first status.
    pub(crate) creations: Vec<Awaited>,
    /// From a change of an HPA's spec to the first status that knows it.
    pub(crate) spec_changes: Vec<Awaited>,
    /// CPU seconds of the server in the measured time.
    pub(crate) cpu: f64,
    /// Resident bytes of the server.
    pub(crate) resident: u64,
    /// CPU seconds of etcd in the measured time, and of the metrics server and whoever else stands beside; with a real
    /// server only, as the embedded one is all of it.
    #[serde(default)]
    pub(crate) etcd_cpu: Option<f64>,
    #[serde(default)]
    pub(crate) beside_cpu: Option<f64>,
}

/// Equal requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// The User-Agent up to its first blank.
    pub(crate) agent: String,
    pub(crate) verb: String,
    /// `resource.group/subresource`.
    pub(crate) resource: String,
    pub(crate) count: u64,
    /// Those that were not answered with 2xx.
    pub(crate) failed: u64,
    /// Bytes of the bodies of requests and answers.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// One HPA.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// When each of its statuses arrived: one for every sync that had something to say.
    pub(crate) statuses: Vec<Micros>,
    /// So long the server lets every sync of it wait.
    pub(crate) held_up: Micros,
    /// It is created or changed on the way, or its metrics hang: its syncs are no measure of lateness.
    pub(crate) special: bool,
}

/// Something that a controller is to react to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Awaited {
    pub(crate) hpa: String,
    pub(crate) since: Micros,
    /// When it reacted, if it has.
    pub(crate) until: Option<Micros>,
}
