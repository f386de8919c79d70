//! The observations of a controller by a server. The types are the same for the embedded server and a real server.
//!
//! All processes of a run share the machine's clock. The resource usage of a process comes from `/proc` (Linux only).

use std::collections::BTreeMap;
use std::fs::read_to_string;

use clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::workload::{Kind, POISONED, Workload};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

pub(crate) fn now() -> Micros {
    SystemClock.now().as_microsecond()
}

/// All observations of a run. Requests and bytes cover the measured time only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observations {
    /// The start of the measured time.
    pub(crate) begin: Micros,
    /// The end of the measured time.
    pub(crate) end: Micros,
    pub(crate) requests: Vec<RequestCount>,
    /// The number of requests in each second of the measured time.
    pub(crate) seconds: Vec<u64>,
    /// Bytes on the wire from the controller, including TLS and HTTP. 0 if not counted.
    pub(crate) received: u64,
    /// Bytes on the wire to the controller, including TLS and HTTP. 0 if not counted.
    pub(crate) sent: u64,
    /// The observations of each HPA since the start of the server, by `namespace/name`.
    pub(crate) hpas: BTreeMap<String, HpaObservations>,
    /// Expected scale writes after a metric change.
    pub(crate) reactions: Vec<PendingReaction>,
    /// Expected first statuses after the creation of an HPA.
    pub(crate) creations: Vec<PendingReaction>,
    /// Expected statuses that observe a spec change.
    pub(crate) spec_changes: Vec<PendingReaction>,
    /// Times of the writes of the Lease in the measured time.
    #[serde(default)]
    pub(crate) renewals: Vec<Micros>,
    /// The number of actions of a hostile tenant in the measured time.
    #[serde(default)]
    pub(crate) actions: u64,
    /// CPU seconds of the server in the measured time.
    pub(crate) cpu: f64,
    /// Resident bytes of the server.
    pub(crate) resident: u64,
    /// CPU seconds of etcd in the measured time. `None` for the embedded server.
    #[serde(default)]
    pub(crate) etcd_cpu: Option<f64>,
    #[serde(default)]
    /// CPU seconds of this program with its metrics server in the measured time. `None` for the embedded server.
    pub(crate) beside_cpu: Option<f64>,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RequestCount {
    /// The User-Agent up to its first blank.
    pub(crate) agent: String,
    pub(crate) verb: String,
    /// The title from [`request_title`], such as `deployments.apps/scale`.
    pub(crate) resource: String,
    pub(crate) count: u64,
    /// The number of requests with a response other than 2xx.
    pub(crate) failed: u64,
    /// Bytes of request bodies.
    pub(crate) received: u64,
    /// Bytes of response bodies.
    pub(crate) sent: u64,
}

/// Formats the resource of requests, such as `deployments.apps/scale`. An empty resource means `discovery`.
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
    /// The time of each status write. Every sync with a changed status makes one write.
    pub(crate) statuses: Vec<Micros>,
    /// The time by which the server delays every sync.
    pub(crate) held_up: Micros,
    /// Whether the HPA is created or changed during the run, or its metrics hang. Such HPAs are excluded from the
    /// lateness.
    pub(crate) special: bool,
}

/// An expected reaction of the controller to an event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PendingReaction {
    pub(crate) hpa: String,
    /// The time of the event.
    pub(crate) since: Micros,
    /// The time of the reaction, if any.
    pub(crate) until: Option<Micros>,
}

/// The observations until now, with the state to match statuses with spec changes.
#[derive(Debug, Default)]
pub(crate) struct ObservationLog {
    pub(crate) seen: Observations,
    /// Unobserved spec changes, by `namespace/name` of the HPA: the index in `spec_changes`, and the expected
    /// generation.
    generations: BTreeMap<String, (usize, i64)>,
}

impl ObservationLog {
    /// Creates a log for the initial HPAs and the HPAs of probes.
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

    /// Expects a scale write for each of `hpas`, whose metrics have just changed.
    pub(crate) fn await_scales(&mut self, hpas: Vec<String>) {
        let since = now();
        self.seen.reactions.extend(hpas.into_iter().map(|hpa| PendingReaction { hpa, since, until: None }));
    }

    /// Expects the first status of `hpa`, which is about to be created.
    pub(crate) fn await_first(&mut self, hpa: String) {
        self.seen.creations.push(PendingReaction { hpa, since: now(), until: None });
    }

    /// Expects a status that observes `generation`, the result of a spec change of `hpa` at `since`.
    pub(crate) fn await_generation(&mut self, hpa: &str, since: Micros, generation: i64) {
        let index = self.seen.spec_changes.len();
        self.seen.spec_changes.push(PendingReaction { hpa: hpa.to_owned(), since, until: None });
        self.generations.insert(hpa.to_owned(), (index, generation));
        if let Some(seen) = self.seen.hpas.get_mut(hpa) {
            seen.special = true;
        }
    }

    /// Records a status write of `hpa` at `at`. `generation` reads the observed generation of the status.
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

    /// Records a scale write of `target` at `at`. The HPA has the namespace and name of its target.
    pub(crate) fn scaled(&mut self, target: &str, at: Micros) {
        let open = |awaited: &&mut PendingReaction| awaited.hpa == target && awaited.until.is_none();
        if let Some(awaited) = self.seen.reactions.iter_mut().find(open) {
            awaited.until = Some(at);
        }
    }
}

/// Clock ticks per second in `/proc/PID/stat`. The value is the same on every Linux target of Rust.
const TICKS: f64 = 100.0;

/// The resource usage of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU seconds of all threads in user and kernel mode.
    pub(crate) cpu: f64,
    /// The current resident bytes.
    pub(crate) resident: u64,
    /// The maximum resident bytes since the start.
    pub(crate) peak: u64,
}

impl Usage {
    pub(crate) fn own() -> Result<Self, Failure> {
        Self::read("self")
    }

    pub(crate) fn of_process(pid: u32) -> Result<Self, Failure> {
        Self::read(&pid.to_string())
    }

    fn read(process: &str) -> Result<Self, Failure> {
        let stat = read_to_string(format!("/proc/{process}/stat"))?;
        // The process name in parentheses may contain any character. The 12th and 13th fields after it are utime and
        // stime.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        let status = read_to_string(format!("/proc/{process}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kilobytes
                .map(|kilobytes| kilobytes * 1024)
                .ok_or_else(|| format!("no {name} in /proc/{process}/status"))
        };
        Ok(Self { cpu: ticks / TICKS, resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}
