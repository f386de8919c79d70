//! The state of the controller: its replicas, the numbers of its metrics, the comparison of a dry run, and the
//! handover of single HPAs. Values in, values out; an [`Inspect`] reads them.
//!
//! The pages come from a controller whose version may differ from the version of this program. Unknown fields are
//! ignored, and missing fields are absent from the view.

mod numbers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::numbers::{Lateness, Numbers, Requests, SourceState, WatchState};

/// Maximum number of namespaces, of differences, and of entries in each list and map of numbers.
const MAX_ENTRIES: usize = 200;

/// Reads the state of the controller.
pub trait Inspect: Debug + Send + Sync + 'static {
    /// Returns the state. Parts that cannot be read are in [`ControllerState::missing`].
    fn inspect(&self) -> BoxFuture<'static, ControllerState>;
}

/// The state of the controller. Parts that cannot be read are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerState {
    /// The Lease of the replicas.
    pub lease: Option<LeaseState>,
    /// The pods of the controller, in order of their names.
    pub replicas: Vec<Replica>,
    /// The pod or the process that the numbers come from.
    pub from: Option<String>,
    /// The numbers of its metrics.
    pub numbers: Option<Numbers>,
    /// The comparison of a dry run with another controller.
    pub parity: Option<Parity>,
    /// The handover of single HPAs.
    pub handover: Option<Handover>,
    /// The parts that cannot be read, each with the reason and advice.
    pub missing: Vec<Missing>,
}

/// A part that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The part, such as `metrics`.
    pub part: &'static str,
    /// The reason.
    pub reason: String,
    /// Advice to the user. Empty if the reason contains it.
    pub advice: String,
}

/// A Lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseState {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The identity of the leader. Empty without a leader.
    pub holder: String,
    /// The time at which the holder became the leader.
    pub acquired: Option<Timestamp>,
    /// The time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// The number of changes of the leader.
    pub transitions: Option<i32>,
    /// The time after a renewal until another replica may become the leader, in seconds.
    pub seconds: i32,
}

/// A pod of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// The name of the pod.
    pub pod: String,
    /// The node.
    pub node: String,
    /// Whether the pod holds the Lease.
    pub leads: bool,
    /// Whether the pod is a dry run.
    pub shadow: bool,
    /// The phase.
    pub phase: String,
    /// Whether the pod is ready.
    pub ready: bool,
    /// The number of restarts of its containers.
    pub restarts: i32,
    /// The start of the pod.
    pub started: Option<Timestamp>,
    /// The image of its first container.
    pub image: String,
}

/// The comparison of a dry run with another controller, in the last 48 hours.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parity {
    /// The start of the comparison.
    pub since: Option<Timestamp>,
    /// The time of the last write of the other controller.
    pub last_sign: Option<Timestamp>,
    /// The number of compared HPAs.
    pub hpas: u64,
    /// All changes by result.
    pub total: Counts,
    /// The changes of each namespace by result.
    pub namespaces: BTreeMap<String, Counts>,
    /// The last differences, the latest first.
    pub differences: Vec<Difference>,
}

/// Changes by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Both controllers made the same change.
    pub same: u64,
    /// They made different changes.
    pub different: u64,
    /// Only the dry run would have made a change.
    pub only_ours: u64,
    /// Only the other controller made a change.
    pub only_builtin: u64,
    /// The comparison is inconclusive.
    pub unknown: u64,
}

/// A difference between the two controllers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The time of the observation.
    pub at: Option<Timestamp>,
    /// The namespace of the HPA.
    pub namespace: String,
    /// The name of the HPA.
    pub name: String,
    /// `different`, `onlyOurs` or `onlyBuiltin`.
    pub result: String,
    /// The count of the other controller. `None` if it made no change.
    pub builtin: Option<i32>,
    /// The count of the dry run. `None` if it made no change.
    pub ours: Option<i32>,
    /// The decision of the dry run.
    pub sentence: String,
}

/// The handover of single HPAs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handover {
    /// `all` or `labelled`.
    pub scope: String,
    /// The name of the instance.
    pub controller: Option<String>,
    /// Whether the replica is the leader. Only the leader has states.
    pub leads: Option<bool>,
    /// The guard that refuses writes of the built-in controller.
    pub guard: Option<Guard>,
    /// The HPAs of each namespace by state, and the last foreign write.
    #[serde(skip_deserializing)]
    pub namespaces: BTreeMap<String, HandoverNamespace>,
}

/// The state of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Guard {
    /// `webhook`, `policy` or `none`.
    pub kind: String,
    /// `proven`, `broken` or `unknown`.
    pub state: String,
    /// The reason, if the guard is broken.
    pub reason: Option<String>,
    /// The time of the proof.
    pub since: Option<Timestamp>,
}

/// The HPAs in scope in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoverNamespace {
    /// The number of HPAs by state.
    pub states: BTreeMap<String, u64>,
    /// The last write of another controller.
    pub last_foreign_write: Option<ForeignWrite>,
}

/// A write of another controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ForeignWrite {
    /// The field manager.
    pub manager: String,
    /// The time.
    pub at: Option<Timestamp>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.same += other.same;
        self.different += other.different;
        self.only_ours += other.only_ours;
        self.only_builtin += other.only_builtin;
        self.unknown += other.unknown;
    }
}

impl Parity {
    /// Reads the page `/parity`.
    ///
    /// # Errors
    /// Returns an error if the text is not such a page.
    pub fn parse(page: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Report {
            since: Timestamp,
            #[serde(default)]
            last_sign: Option<Timestamp>,
            #[serde(default)]
            hpas: u64,
            #[serde(default)]
            hours: Vec<Hour>,
            #[serde(default)]
            changes: Vec<Change>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Hour {
            namespace: String,
            counts: Counts,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Change {
            at: Option<Timestamp>,
            namespace: String,
            name: String,
            result: String,
            builtin: Option<Side>,
            ours: Option<Side>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Side {
            to: i32,
            sentence: String,
        }
        let report: Report = serde_json::from_slice(page)?;
        let (mut total, mut namespaces) = (Counts::default(), BTreeMap::<String, Counts>::new());
        for Hour { namespace, counts } in report.hours {
            total.add(counts);
            if namespaces.len() < MAX_ENTRIES || namespaces.contains_key(&namespace) {
                namespaces.entry(namespace).or_default().add(counts);
            }
        }
        let differs = |change: &Change| matches!(&*change.result, "different" | "onlyOurs" | "onlyBuiltin");
        let differences = report.changes.into_iter().filter(differs).take(MAX_ENTRIES);
        let differences = differences.map(|change| Difference {
            at: change.at,
            namespace: change.namespace,
            name: change.name,
            result: change.result,
            builtin: change.builtin.map(|side| side.to),
            ours: change.ours.as_ref().map(|side| side.to),
            sentence: change.ours.map(|side| side.sentence).unwrap_or_default(),
        });
        Ok(Self {
            since: Some(report.since),
            last_sign: report.last_sign,
            hpas: report.hpas,
            total,
            namespaces,
            differences: differences.collect(),
        })
    }
}

impl Handover {
    /// Reads the page `/handover`.
    ///
    /// # Errors
    /// Returns an error if the text is not such a page.
    pub fn parse(page: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Report {
            #[serde(flatten)]
            view: Handover,
            #[serde(default)]
            hpas: Vec<Row>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Row {
            namespace: String,
            state: String,
            last_foreign_write: Option<ForeignWrite>,
        }
        let Report { mut view, hpas } = serde_json::from_slice(page)?;
        for row in hpas {
            if view.namespaces.len() >= MAX_ENTRIES && !view.namespaces.contains_key(&row.namespace) {
                continue;
            }
            let namespace = view.namespaces.entry(row.namespace).or_default();
            *namespace.states.entry(row.state).or_default() += 1;
            let last = namespace.last_foreign_write.as_ref().and_then(|write| write.at);
            if row.last_foreign_write.as_ref().is_some_and(|write| write.at > last) {
                namespace.last_foreign_write = row.last_foreign_write;
            }
        }
        Ok(view)
    }
}
