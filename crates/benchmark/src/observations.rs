//! The observations of a server about a controller, independent of the kind of server and of controller.
//! This is the interface between serving and measuring.
//!
//! Times are microseconds since 1970 from the machine's clock, which all processes of a run share.

use std::collections::BTreeMap;

use clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use crate::workload::{Kind, POISONED, Workload};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

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
    /// The observations of each HPA since the start of the server, by `namespace/name`.
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
    /// CPU seconds of etcd, and of this program with its metrics server, in the measured time. Present only with a real
    /// server, because the embedded server is one process.
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

/// All observations until now.
#[derive(Debug, Default)]
pub(crate) struct ObservationLog {
    pub(crate) seen: Observations,
    /// Spec changes that no status has observed yet, each with its index in `spec_changes` and the
    /// awaited generation.
    generations: BTreeMap<String, (usize, i64)>,
}

impl ObservationLog {
    /// Starts with the initial HPAs and the probes' HPAs.
    pub(crate) fn new(workload: &Workload, (all, probes): (Vec<String>, Vec<String>)) -> Self {
        let mut sightings = Self::default();
        let has_hanging_metrics = |key: &str| workload.poisoned && key.split('/').next() == Some(POISONED);
        let slowness = Micros::try_from(workload.slowness.as_micros()).unwrap_or(Micros::MAX);
        for (number, key) in all.into_iter().enumerate() {
            let special = has_hanging_metrics(&key);
            let is_slow = workload.kind == Kind::External && number < workload.hpas;
            let held_up = if is_slow { slowness } else { 0 };
            sightings
                .seen
                .hpas
                .insert(key, HpaObservations { held_up, special, ..HpaObservations::default() });
        }
        for key in probes {
            sightings.seen.hpas.insert(key, HpaObservations { special: true, ..HpaObservations::default() });
        }
        sightings
    }

    /// Awaits a scale write for each of `hpas`. Their metrics have just changed.
    pub(crate) fn await_scales(&mut self, hpas: Vec<String>) {
        let since = now();
        self.seen.reactions.extend(hpas.into_iter().map(|hpa| PendingReaction { hpa, since, until: None }));
    }

    /// Awaits the first status of `hpa`, which is about to be created.
    pub(crate) fn await_first(&mut self, hpa: String) {
        self.seen.creations.push(PendingReaction { hpa, since: now(), until: None });
    }

    /// Awaits a status that observes `generation`, the result of a spec change of `hpa` at `since`.
    pub(crate) fn await_generation(&mut self, hpa: &str, since: Micros, generation: i64) {
        let index = self.seen.spec_changes.len();
        self.seen.spec_changes.push(PendingReaction { hpa: hpa.to_owned(), since, until: None });
        self.generations.insert(hpa.to_owned(), (index, generation));
        if let Some(seen) = self.seen.hpas.get_mut(hpa) {
            seen.special = true;
        }
    }

    /// Records a status write of `hpa` at `at`, with the observed generation from `generation`.
    pub(crate) fn status(&mut self, hpa: &str, at: Micros, generation: impl FnOnce() -> Option<i64>) {
        let Some(seen) = self.seen.hpas.get_mut(hpa) else { return };
        seen.statuses.push(at);
        let open = |awaited: &&mut PendingReaction| awaited.hpa == hpa && awaited.until.is_none();
        if seen.special
            && let Some(awaited) = self.seen.creations.iter_mut().find(open)
        {
            awaited.until = Some(at);
        }
        if let Some((index, awaited)) = self.generations.get(hpa).copied()
            && generation().is_some_and(|generation| generation >= awaited)
        {
            self.generations.remove(hpa);
            if let Some(awaited) = self.seen.spec_changes.get_mut(index) {
                awaited.until = Some(at);
            }
        }
    }

    /// Records a scale write of `target` at `at`. An app, its Deployment and its HPA share one name.
    pub(crate) fn scaled(&mut self, target: &str, at: Micros) {
        let open = |awaited: &&mut PendingReaction| awaited.hpa == target && awaited.until.is_none();
        if let Some(awaited) = self.seen.reactions.iter_mut().find(open) {
            awaited.until = Some(at);
        }
    }
}
