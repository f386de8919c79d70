//! The observations of a server about a controller, independent of the kind of server and of controller.
//! This is the interface between serving and measuring.
//!
//! Times are microseconds since 1970 from the machine's clock, which all processes of a run share.

use std::collections::BTreeMap;

use clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

/// The current time.
pub(crate) fn now() -> Micros {
    SystemClock.now().as_microsecond()
}

/// All observations of a run. Requests and bytes cover the measured time only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observations {
    /// The start and the end of the measured time.
    pub(crate) begin: Micros,
    pub(crate) end: Micros,
    pub(crate) requests: Vec<RequestCount>,
    /// The number of requests in each second of the measured time.
    pub(crate) seconds: Vec<u64>,
    /// Bytes on the wire from the controller and to the controller, including TLS and HTTP.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// All HPAs since the start of the server, by `namespace/name`.
    pub(crate) hpas: BTreeMap<String, HpaObservations>,
    /// Scale writes that are awaited after a metric change.
    pub(crate) reactions: Vec<PendingReaction>,
    /// First statuses that are awaited after the creation of an HPA.
    pub(crate) creations: Vec<PendingReaction>,
    /// Statuses that are awaited after a spec change and that observe it.
    pub(crate) spec_changes: Vec<PendingReaction>,
    /// Writes of the Lease in the measured time.
    #[serde(default)]
    pub(crate) renewals: Vec<Micros>,
    /// The number of actions of a hostile tenant in the measured time.
    #[serde(default)]
    pub(crate) actions: u64,
    /// CPU seconds of the server in the measured time.
    pub(crate) cpu: f64,
    /// Resident bytes of the server.
    pub(crate) resident: u64,
    /// CPU seconds of etcd, and of this program with its metrics server, in the measured time. Present
    /// only with a real server, because the embedded server contains all of them.
    #[serde(default)]
    pub(crate) etcd_cpu: Option<f64>,
    #[serde(default)]
    pub(crate) beside_cpu: Option<f64>,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RequestCount {
    /// The User-Agent up to its first blank.
    pub(crate) agent: String,
    pub(crate) verb: String,
    /// `resource.group/subresource`.
    pub(crate) resource: String,
    pub(crate) count: u64,
    /// The number of responses other than 2xx.
    pub(crate) failed: u64,
    /// Bytes of request and response bodies.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// The resource of requests: `deployments.apps/scale`, or `discovery` for an empty resource.
pub(crate) fn request_title(group: &str, resource: &str, subresource: &str) -> String {
    if resource.is_empty() {
        return if group.is_empty() { "discovery".to_owned() } else { format!("discovery.{group}") };
    }
    let mut title = resource.to_owned();
    if !group.is_empty() {
        title = format!("{title}.{group}");
    }
    if !subresource.is_empty() {
        title = format!("{title}/{subresource}");
    }
    title
}

/// The observations of one HPA.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct HpaObservations {
    /// The time of each status write: one for every sync with a changed status.
    pub(crate) statuses: Vec<Micros>,
    /// The delay that the server adds to every sync.
    pub(crate) held_up: Micros,
    /// Whether the HPA is created or changed during the run, or its metrics hang. Syncs of such an HPA
    /// do not count for lateness.
    pub(crate) special: bool,
}

/// An event to which the controller must react.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PendingReaction {
    pub(crate) hpa: String,
    pub(crate) since: Micros,
    /// The time of the reaction, if any.
    pub(crate) until: Option<Micros>,
}
