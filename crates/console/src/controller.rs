//! The state of the controller: its replicas, the numbers of its metrics, the comparison of a dry run, and the handover
//! of single HPAs. An [`Inspect`] reads this state.
//!
//! The controller's version may differ from the version of this program. Unknown fields of its pages are ignored, and
//! missing fields have defaults.

mod numbers;

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::numbers::{Lateness, Numbers, Requests, SourceState, WatchState};

/// Maximum number of namespaces, of differences, and of entries in each list and map of [`Numbers`].
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
    /// The Lease of the leader election.
    pub lease: Option<LeaseState>,
    /// The pods of the controller, in order of their names.
    pub replicas: Vec<Replica>,
    /// The pod or the process whose numbers, comparison and handover are shown.
    pub from: Option<String>,
    /// The metrics of the process.
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
    /// The error, as a sentence.
    pub reason: String,
    /// Advice to the user. Empty if the reason contains it.
    pub advice: String,
}

/// The Lease of the leader election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseState {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The identity of the leader. Empty without a leader.
    pub holder: String,
    /// `spec.acquireTime`: the time at which the holder became the leader.
    pub acquired: Option<Timestamp>,
    /// `spec.renewTime`.
    pub renewed: Option<Timestamp>,
    /// `spec.leaseTransitions`.
    pub transitions: Option<i32>,
    /// `spec.leaseDurationSeconds`.
    pub seconds: i32,
}

/// A pod of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// `metadata.name`.
    pub pod: String,
    /// `spec.nodeName`.
    pub node: String,
    /// Whether the pod holds the Lease.
    pub leads: bool,
    /// Whether the pod is a dry run, by its label `app.kubernetes.io/instance`.
    pub shadow: bool,
    /// `status.phase`.
    pub phase: String,
    /// Whether the condition `Ready` is true.
    pub ready: bool,
    /// The sum of the restarts of all containers.
    pub restarts: i32,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// The image of the first container.
    pub image: String,
}

/// The comparison of a dry run with another controller, in the last 48 hours.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parity {
    /// The start of the dry run.
    pub since: Option<Timestamp>,
    /// The time of the last write of the other controller.
    pub last_sign: Option<Timestamp>,
    /// The number of compared HPAs.
    pub hpas: u64,
    /// The changes of all HPAs by result.
    pub total: Counts,
    /// The changes of each namespace by result.
    pub namespaces: BTreeMap<String, Counts>,
    /// The latest differences, newest first.
    pub differences: Vec<Difference>,
}

/// The number of changes by the result of their comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Changes on which both controllers agree.
    pub same: u64,
    /// Changes for which the controllers decided different counts.
    pub different: u64,
    /// Changes that only the dry run decided.
    pub only_concertina: u64,
    /// Changes that only the other controller made.
    pub only_builtin: u64,
    /// Changes whose comparison is inconclusive.
    pub unknown: u64,
}

/// A change that differs between the dry run and the other controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The time of the observation.
    pub at: Option<Timestamp>,
    /// The namespace of the HPA.
    pub namespace: String,
    /// The name of the HPA.
    pub name: String,
    /// `different`, `onlyConcertina` or `onlyBuiltin`.
    pub result: String,
    /// The count that the other controller set. `None` without a change.
    pub builtin: Option<i32>,
    /// The count that the dry run decided. `None` without a change.
    pub ours: Option<i32>,
    /// The decision of the dry run, in one sentence. Empty without a change.
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
    /// Whether the replica is the leader. Only the leader has states of HPAs.
    pub leads: Option<bool>,
    /// The admission rule that refuses writes of the built-in controller.
    pub guard: Option<Guard>,
    /// The HPAs in scope, by namespace.
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
    /// The reason why the guard is broken. `None` in other states.
    pub reason: Option<String>,
    /// The time of the last proof.
    pub since: Option<Timestamp>,
}

/// The HPAs of a namespace that are in scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandoverNamespace {
    /// The number of HPAs by state.
    pub states: BTreeMap<String, u64>,
    /// The last write of another controller to an HPA of the namespace.
    pub last_foreign_write: Option<ForeignWrite>,
}

/// A write of another controller to an HPA.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ForeignWrite {
    /// The field manager of the write.
    pub manager: String,
    /// The time of the write.
    pub at: Option<Timestamp>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.same += other.same;
        self.different += other.different;
        self.only_concertina += other.only_concertina;
        self.only_builtin += other.only_builtin;
        self.unknown += other.unknown;
    }
}

impl Parity {
    /// Reads the page `/parity`.
    ///
    /// # Errors
    /// Returns an error if the text is not JSON of this form.
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
        let differs =
            |change: &Change| matches!(&*change.result, "different" | "onlyConcertina" | "onlyBuiltin");
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
    /// Returns an error if the text is not JSON of this form.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use serde_json::json;

    use super::*;

    #[test]
    fn handover_is_counted_by_namespace_with_the_last_foreign_write() {
        let row = |namespace: &str, state: &str, at: Option<&str>| {
            let write = at.map(|at| json!({"manager": "kcm", "at": at}));
            json!({"namespace": namespace, "name": "x", "by": "hpa", "state": state, "lastForeignWrite": write, "new": 1})
        };
        let page = json!({
            "scope": "labelled", "controller": "blue", "leads": true, "added": {},
            "guard": {"kind": "webhook", "state": "proven", "since": "2030-01-01T00:00:00Z"},
            "hpas": [
                row("shop", "in_charge", Some("2030-01-01T00:00:02Z")),
                row("shop", "in_charge", Some("2030-01-01T00:00:01Z")),
                row("shop", "contested", None),
                row("bank", "claiming", None),
            ],
        });
        let view = Handover::parse(page.to_string().as_bytes()).unwrap();
        assert_eq!((view.scope.as_str(), view.controller.as_deref()), ("labelled", Some("blue")));
        assert_eq!(view.guard.unwrap().state, "proven");
        let shop = &view.namespaces["shop"];
        assert_eq!((shop.states["in_charge"], shop.states["contested"]), (2, 1));
        let at = shop.last_foreign_write.as_ref().unwrap().at;
        assert_eq!(at, Some("2030-01-01T00:00:02Z".parse().unwrap()));
        assert_eq!(view.namespaces["bank"].states["claiming"], 1);
        assert_eq!(Handover::parse(br#"{"scope":"all","hpas":[]}"#).unwrap().scope, "all");
        assert!(Handover::parse(b"[]").is_err());
    }

    #[test]
    fn parity_is_summed_by_namespace_and_keeps_differences() {
        let page = json!({
            "apiVersion": "concertina/v1", "kind": "ShadowReport", "since": "2030-01-01T00:00:00Z", "hpas": 3,
            "hours": [
                {"hour": "2030-01-01T00:00:00Z", "namespace": "shop", "name": "web", "counts": {"same": 3, "different": 1}},
                {"hour": "2030-01-01T01:00:00Z", "namespace": "shop", "name": "web", "counts": {"same": 2, "onlyConcertina": 1}},
                {"hour": "2030-01-01T01:00:00Z", "namespace": "bank", "name": "", "counts": {"unknown": 1}},
            ],
            "changes": [
                {"at": "2030-01-01T01:10:00Z", "namespace": "shop", "name": "web", "result": "different",
                    "builtin": {"from": 2, "to": 4}, "ours": {"from": 2, "to": 5, "sentence": "cpu asks for 5"}},
                {"at": "2030-01-01T01:00:00Z", "namespace": "shop", "name": "web", "result": "same"},
            ],
        });
        let view = Parity::parse(page.to_string().as_bytes()).unwrap();
        assert_eq!(
            view.total,
            Counts { same: 5, different: 1, only_concertina: 1, only_builtin: 0, unknown: 1 }
        );
        assert_eq!(view.namespaces["shop"].same, 5);
        let [difference] = &view.differences[..] else { panic!("{:?}", view.differences) };
        assert_eq!((difference.builtin, difference.ours), (Some(4), Some(5)));
        assert_eq!(difference.sentence, "cpu asks for 5");
        assert!(Parity::parse(br#"{"kind":"Status"}"#).is_err());
    }
}
